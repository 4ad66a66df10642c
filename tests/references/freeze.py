"""Writes ``fixtures/huggingface_llama.safetensors``: one small Llama of transformers, its logits and its gradients.

    uv run --group reference python -m tests.references.freeze

Everything is float64 but what is stored smaller: weights are made in bfloat16, so that they stand for themselves
exactly, and gradients are rounded to float32.
"""

from __future__ import annotations

import dataclasses
import json

import torch
import transformers
from torch import Tensor

from cs336_harness.checks.frozen_llama import HUGGINGFACE_LLAMA
from cs336_harness.checks.whole_model import Case, reference_gradients, reference_logits
from cs336_harness.reference import snapshots
from cs336_harness.shapes import DecoderShape

from . import huggingface


class RoundedCase(Case):
    """A case whose weights have no more digits than bfloat16 has."""

    def weights(self) -> dict[str, Tensor]:
        return {name: weight.to(torch.bfloat16).to(torch.float32) for name, weight in Case.weights(self).items()}


# d_ff is the smallest multiple of 64, which some decoders insist on. One layer, because every byte is in the
# repository; deeper models are the oracle's to judge.
CASE = RoundedCase(
    DecoderShape(
        vocab_size=17,
        context_length=7,
        d_model=24,
        num_layers=1,
        num_heads=6,
        num_kv_heads=2,
        d_ff=64,
        rope_theta=500.0,
        norm_eps=1e-5,
    ),
    rows=2,
    time=5,
    seed=61,
)


def main() -> None:
    """Computes the fixture and writes it."""
    weights = {name: weight.to(torch.bfloat16) for name, weight in CASE.weights().items()}
    token_ids, direction = CASE.token_ids(), CASE.direction()
    logits, gradients = huggingface.logits_and_gradients(CASE.shape, weights, token_ids, direction)
    tensors = {
        "token_ids": token_ids,
        "direction": direction,
        "logits": logits,
        **{f"weights.{name}": weight for name, weight in weights.items()},
        **{f"gradients.{name}": gradient.to(torch.float32) for name, gradient in gradients.items()},
    }
    metadata = {
        "producer": "transformers.LlamaForCausalLM, float64, attn_implementation sdpa",
        "transformers": transformers.__version__,
        "torch": torch.__version__.partition("+")[0],
        "config": huggingface.llama_config(CASE.shape).to_json_string(use_diff=True),
        "shape": json.dumps(dataclasses.asdict(CASE.shape)),
        "seed": str(CASE.seed),
        "noise": f"{reference_logits(CASE)[1]:.3e}",
        "gradients_noise": f"{reference_gradients(CASE)[1]:.3e}",
    }
    snapshots.save(HUGGINGFACE_LLAMA, tensors, metadata)


if __name__ == "__main__":
    main()
