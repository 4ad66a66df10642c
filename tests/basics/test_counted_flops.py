"""The closed forms against PyTorch's own counter, on the meta device: GPT-2 XL is counted and never allocated."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from cs336_basics.accounting import forward_flops_of, parameter_count_of
from cs336_basics.config import TransformerConfig
from cs336_basics.transformer import TransformerLM

GPT2_XL: dict[str, Any] = {
    "vocab_size": 50257,
    "context_length": 1024,
    "d_model": 1600,
    "num_layers": 48,
    "num_heads": 25,
    "num_kv_heads": 25,
    "d_ff": 4288,
    "rope_theta": 10000.0,
}
GROUPED = GPT2_XL | {"d_model": 384, "num_layers": 5, "num_heads": 6, "num_kv_heads": 2, "d_ff": 1024}


@pytest.mark.slow  # the meta device imports half of PyTorch on its first operation
@pytest.mark.parametrize(
    ("sizes", "tied", "batch", "time"),
    [(GPT2_XL, False, 1, 1024), (GROUPED, True, 3, 100)],
    ids=["gpt2_xl", "grouped-tied"],
)
def test_the_counter_finds_the_closed_forms(sizes: dict[str, Any], tied: bool, batch: int, time: int):
    config = TransformerConfig(**sizes, tie_embeddings=tied)
    with torch.device("meta"):
        model = TransformerLM(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameter_count_of(config, tied)
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        model(torch.zeros(batch, time, dtype=torch.long, device="meta"))
    assert counter.get_total_flops() == sum(forward_flops_of(config, batch, time).values())
