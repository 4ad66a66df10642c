"""The small calls that experiments make: one shape, its weights, and what a piece of weight surgery does to them.

Shapes: B rows of a batch, T positions, H heads, d channels of a head, D = d_model, F = d_ff, V = vocab_size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cs336_harness.reference import sample_calls
from cs336_harness.reference.weights import make_weights, normal
from cs336_harness.shapes import DecoderShape

SMALL = DecoderShape(
    vocab_size=29,
    context_length=12,
    d_model=24,
    num_layers=1,
    num_heads=3,
    num_kv_heads=3,
    d_ff=64,
    rope_theta=100.0,
)
"""Every size another number, theta not the usual one, and quick: a call takes the oracle a millisecond or two."""

GROUPED = SMALL.replace(num_heads=6, num_kv_heads=2)
SEED = 11
Surgery = Callable[[dict[str, Tensor]], None]


def nothing(weights: dict[str, Tensor]) -> None:
    """No surgery."""


def _zero(weights: dict[str, Tensor], *endings: str) -> None:
    for name in weights:
        if name.endswith(endings):
            weights[name] = torch.zeros_like(weights[name])


def zero_sublayers(weights: dict[str, Tensor]) -> None:
    """Every sublayer adds zeros to the stream."""
    _zero(weights, "output_proj.weight", "w2.weight")


def only_attention(weights: dict[str, Tensor]) -> None:
    """Every feed-forward adds nothing."""
    _zero(weights, "w2.weight")


def uniform(weights: dict[str, Tensor]) -> None:
    """Attention alone, and every score zero: each query takes the plain mean of what it sees."""
    only_attention(weights)
    _zero(weights, "q_proj.weight")


def unrotated(weights: dict[str, Tensor]) -> None:
    """Attention alone, in the channel of each head that an enormous theta turns least, however channels are paired."""
    only_attention(weights)
    for name, weight in list(weights.items()):
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = weight.clone().unflatten(0, (-1, SMALL.d_head))
            heads[:, :-1] = 0
            weights[name] = heads.flatten(0, 1)


HUGE_THETA = 1e30


def only_feed_forward(weights: dict[str, Tensor]) -> None:
    """Every attention adds nothing."""
    _zero(weights, "output_proj.weight")


def only_layer(layer: int) -> Surgery:
    """Every layer but one adds nothing."""

    def operate(weights: dict[str, Tensor]) -> None:
        for name in weights:
            if name.endswith(("output_proj.weight", "w2.weight")) and not name.startswith(f"layers.{layer}."):
                weights[name] = torch.zeros_like(weights[name])

    return operate


@functools.cache
def _weights(shape: DecoderShape) -> Mapping[str, Tensor]:
    return make_weights(shape, SEED)


def weights_of(shape: DecoderShape, surgery: Surgery = nothing) -> dict[str, Tensor]:
    """The weights of a shape after surgery, under their canonical names."""
    weights = dict(_weights(shape))
    surgery(weights)
    return weights


def token_ids(shape: DecoderShape, batch: int, time: int) -> Tensor:
    """(batch, time); the ids 0 and V - 1 occur in the middle, where something comes before them and after."""
    ids = (torch.arange(batch * time).view(batch, time) * 7 + 3) % shape.vocab_size
    if time > 3:
        ids[0, 2], ids[-1, 2], ids[-1, 3] = 0, shape.vocab_size - 1, 0
    return ids


def model_call(
    shape: DecoderShape = SMALL, batch: int = 2, time: int = 5, surgery: Surgery = nothing
) -> dict[str, Any]:
    """Arguments of ``run_transformer_lm``."""
    return sample_calls.transformer_lm_of(shape, weights_of(shape, surgery), token_ids(shape, batch, time))


def features(*size: int, scale: float = 1.0) -> Tensor:
    """Seeded normal values."""
    return scale * normal(*size, seed=SEED)


def block_call(
    shape: DecoderShape = SMALL, batch: int = 2, time: int = 5, surgery: Surgery = nothing
) -> dict[str, Any]:
    """Arguments of ``run_transformer_block``."""
    in_features = features(batch, time, shape.d_model, scale=0.1)
    return sample_calls.transformer_block_of(shape, weights_of(shape, surgery), in_features)


def attention_call(
    shape: DecoderShape = SMALL, batch: int = 2, time: int = 5, surgery: Surgery = nothing
) -> dict[str, Any]:
    """Arguments of ``run_multihead_self_attention``."""
    in_features = features(batch, time, shape.d_model)
    return sample_calls.multihead_self_attention_of(shape, weights_of(shape, surgery), in_features)


def rotary_attention_call(
    shape: DecoderShape = SMALL,
    batch: int = 2,
    time: int = 5,
    surgery: Surgery = nothing,
    positions: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Arguments of ``run_multihead_self_attention_with_rope``; positions (1, T)."""
    return {
        **attention_call(shape, batch, time, surgery),
        "max_seq_len": 64,
        "theta": shape.rope_theta,
        "token_positions": torch.tensor([list(positions) if positions is not None else list(range(time))]),
    }


def rope_call(
    *leading: int, time: int = 5, theta: float = 100.0, positions: Tensor | None = None, reach: int = 64
) -> dict[str, Any]:
    """Arguments of ``run_rope``."""
    return sample_calls.rope(
        *leading, time, SMALL.d_head, positions=positions, theta=theta, max_seq_len=reach, seed=SEED
    )


def product_call(
    *leading: int, mask: str = "random", queries: int = 4, keys: int = 6, width: int = 8
) -> dict[str, Any]:
    """Arguments of ``run_scaled_dot_product_attention``; values ``width`` wide, queries and keys 8."""
    allowed: Tensor | None = torch.ones(*leading, queries, keys, dtype=torch.bool)
    if mask == "random" and allowed is not None:
        allowed = features(*leading, queries, keys) < 0.3
        allowed[..., 0] = True
    if mask == "one" and allowed is not None:
        allowed[..., 1:] = False
    return sample_calls.scaled_dot_product_attention(
        *leading,
        queries=queries,
        keys=keys,
        d_k=8,
        d_v=width,
        mask=None if mask == "none" else allowed,
        seed=SEED + 1,
    )
