"""The recipes of the public snapshots: which call each holds. Change a size or a seed here, then write them again.

Sizes differ from one another, so that no axis can stand in for another: 4 rows, 6 heads of 8 channels, 3 layers, 12
positions, width 48. (docs/DESIGN.md, "Inputs that cannot hide a fault".)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cs336_harness.reference import sample_calls, snapshots
from cs336_harness.reference.hidden_inputs import cached, more, size
from cs336_harness.reference.snapshots import Recipe
from cs336_harness.reference.weights import make_token_ids, make_weights, normal
from cs336_harness.shapes import DecoderShape

PUBLIC_SHAPE = DecoderShape(
    vocab_size=101,
    context_length=20,
    d_model=48,
    num_layers=3,
    num_heads=6,
    num_kv_heads=6,
    d_ff=128,
    rope_theta=1000.0,
)
"""The public decoder, untied. Its theta is not the usual 10000, so that one written into the code shows."""

PUBLIC_SEED = 7
WEIGHTS_FILE = "transformer_lm_weights"

ROWS, TIME = 4, 12


def public_weights() -> dict[str, Tensor]:
    """The weights of the public decoder under their canonical names."""
    return make_weights(PUBLIC_SHAPE, PUBLIC_SEED)


def write_public_weights() -> None:
    """Writes the weights file that the block and model snapshots share."""
    fields = (
        "vocab_size",
        "context_length",
        "d_model",
        "num_layers",
        "num_heads",
        "num_kv_heads",
        "d_ff",
        "rope_theta",
    )
    metadata = {name: str(getattr(PUBLIC_SHAPE, name)) for name in fields}
    snapshots.save(
        WEIGHTS_FILE, public_weights(), {**metadata, "seed": str(PUBLIC_SEED), "producer": "cs336_harness.inputs"}
    )


def rows() -> int:
    """Rows of an input; five at times where they are hidden, never six, which is the number of heads."""
    return ROWS + more("rows", 1)


def _time() -> int:
    """Positions of an input."""
    return size("time", TIME, 13, 14)


def _shape() -> DecoderShape:
    """The public decoder; of another width and another vocabulary at times where inputs are hidden."""
    d_head = size("d_head", PUBLIC_SHAPE.d_head, 10)
    vocab_size = PUBLIC_SHAPE.vocab_size + more("vocab_size", 20)
    return PUBLIC_SHAPE.replace(d_model=PUBLIC_SHAPE.num_heads * d_head, vocab_size=vocab_size)


def _weights() -> dict[str, Tensor]:
    """The weights of that decoder under their canonical names."""
    return make_weights(_shape(), PUBLIC_SEED)


def _seed(number: int) -> int:
    return PUBLIC_SEED * 100 + number


def features(*leading: int, seed: int) -> Tensor:
    """Normal features (*leading, d_model)."""
    return normal(*leading, _shape().d_model, seed=_seed(seed))


def _linear() -> dict[str, Any]:
    d_in, d_out = _shape().d_model, _shape().d_ff
    return {
        "d_in": d_in,
        "d_out": d_out,
        "weights": _weights()["layers.0.ffn.w1.weight"],
        "in_features": features(rows(), 7, seed=1),
    }


def _embedding() -> dict[str, Any]:
    return {
        "vocab_size": _shape().vocab_size,
        "d_model": _shape().d_model,
        "weights": _weights()["token_embeddings.weight"],
        "token_ids": make_token_ids(_shape(), rows(), _time(), seed=2),
    }


def _silu() -> dict[str, Any]:
    return sample_calls.silu(rows(), _time(), 10, seed=_seed(3), std=3)


def _softmax() -> dict[str, Any]:
    return sample_calls.softmax(rows(), _time(), 10, seed=_seed(4), std=3)


def _rmsnorm() -> dict[str, Any]:
    return sample_calls.rmsnorm(rows(), _time(), _shape().d_model, seeds=(5, _seed(6)), std=0.02)


def _swiglu() -> dict[str, Any]:
    weights = _weights()
    return {
        "d_model": _shape().d_model,
        "d_ff": _shape().d_ff,
        **{f"{name}_weight": weights[f"layers.1.ffn.{name}.weight"] for name in ("w1", "w2", "w3")},
        "in_features": features(rows(), 7, seed=7),
    }


def _rope() -> dict[str, Any]:
    shape = _shape()
    return sample_calls.rope(
        rows(), _time(), shape.d_head, theta=shape.rope_theta, max_seq_len=shape.context_length, seed=_seed(8)
    )


def _attention(*leading: int, seed: int) -> dict[str, Any]:
    queries, keys, d_head = _time(), 15, _shape().d_head
    mask = sample_calls.random_mask(*leading, queries, keys, seed=seed + 3)
    return sample_calls.scaled_dot_product_attention(
        *leading, queries=queries, keys=keys, d_k=d_head, d_v=d_head, mask=mask, seed=_seed(seed)
    )


def _self_attention() -> dict[str, Any]:
    in_features = features(rows(), _time(), seed=20)
    return sample_calls.multihead_self_attention_of(_shape(), _weights(), in_features, layer=1)


def _self_attention_with_rope() -> dict[str, Any]:
    return {
        **_self_attention(),
        "max_seq_len": _shape().context_length,
        "theta": _shape().rope_theta,
        "token_positions": torch.arange(_time())[None],
    }


def _block() -> dict[str, Any]:
    return sample_calls.transformer_block(_shape(), rows(), _time(), seeds=(PUBLIC_SEED, _seed(21)), std=0.5)


def _model(time: int) -> dict[str, Any]:
    return sample_calls.transformer_lm(_shape(), rows(), time, seeds=(PUBLIC_SEED, 22))


RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("linear", "run_linear", _linear),
        Recipe("embedding", "run_embedding", _embedding),
        Recipe("silu", "run_silu", _silu),
        Recipe("softmax", "run_softmax", _softmax),
        Recipe("rmsnorm", "run_rmsnorm", _rmsnorm),
        Recipe("swiglu", "run_swiglu", _swiglu),
        Recipe("rope", "run_rope", _rope),
        Recipe(
            "scaled_dot_product_attention",
            "run_scaled_dot_product_attention",
            lambda: _attention(rows(), seed=9),
        ),
        Recipe(
            "4d_scaled_dot_product_attention",
            "run_scaled_dot_product_attention",
            lambda: _attention(rows(), 3, seed=14),
        ),
        Recipe("multihead_self_attention", "run_multihead_self_attention", _self_attention),
        Recipe(
            "multihead_self_attention_with_rope", "run_multihead_self_attention_with_rope", _self_attention_with_rope
        ),
        Recipe("transformer_block", "run_transformer_block", _block, WEIGHTS_FILE, "layers.0."),
        Recipe("transformer_lm", "run_transformer_lm", lambda: _model(13), WEIGHTS_FILE),
        Recipe("transformer_lm_truncated_input", "run_transformer_lm", lambda: _model(7), WEIGHTS_FILE),
        Recipe("transformer_lm_full_context", "run_transformer_lm", lambda: _model(20), WEIGHTS_FILE),
        Recipe("transformer_lm_one_token", "run_transformer_lm", lambda: _model(1), WEIGHTS_FILE),
    )
}
"""Every public snapshot by name."""


@cached
def remade(name: str) -> snapshots.Snapshot:
    """A snapshot made anew from its recipe, by the oracle: for inputs that a secret hides."""
    recipe = RECIPES[name]
    return snapshots.made(recipe, recipe.arguments())


def update(name: str) -> None:
    """Writes one snapshot again from its recipe, with the weights file that it shares with others."""
    recipe = RECIPES[name]
    if recipe.weights_file is not None:
        write_public_weights()
    snapshots.write(recipe)


FROZEN = ("huggingface_llama",)
"""Fixtures that another program wrote and that no recipe can: ``tests/references/freeze.py``."""


def unused() -> list[str]:
    """Names of files in ``fixtures/`` that nothing makes."""
    known = {*RECIPES, WEIGHTS_FILE, *FROZEN}
    return sorted(path.stem for path in snapshots.FIXTURES.glob("*.safetensors") if path.stem not in known)
