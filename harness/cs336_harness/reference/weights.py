"""Seeded weights, token ids and features for a shape, scaled so that no fault can hide.

Gains are random and far from one; attention is clearly non-uniform and not saturated; the embedding is small enough
that eps matters; token ids include 0 and V - 1. (docs/DESIGN.md, "Inputs that cannot hide a fault".)
"""

from __future__ import annotations

import torch
from torch import Tensor

from cs336_harness.reference.hidden_inputs import seed_for
from cs336_harness.reference.precision import dtype_judged
from cs336_harness.shapes import DecoderShape

EMBEDDING_SCALE = 0.02
"""Standard deviation of the embedding table: with it, eps = 1e-5 moves the first norm by a percent."""

QUERY_KEY_GAIN = 2.0
"""How much sharper than a plain fan-in initialisation queries and keys are: attention that is clearly not uniform."""


def generator(seed: int) -> torch.Generator:
    """A CPU generator of its own, so that nothing here depends on or moves the global one.

    Every random number of every check comes from here, and so from the secret where there is one.
    """
    return torch.Generator().manual_seed(seed_for(seed))


def normal(*size: int, seed: int, std: float = 1.0) -> Tensor:
    """Seeded normal float32 values with the given standard deviation."""
    return _held(torch.randn(*size, generator=generator(seed)) * std)


def gains(size: int, seed: int) -> Tensor:
    """Norm gains between 0.5 and 1.5: never ones, so that a forgotten gain shows."""
    return _held(torch.rand(size, generator=generator(seed)) + 0.5)


def _held(values: Tensor) -> Tensor:
    """The values as the dtype holds them that is judged in, so that a subject's copy of them is exact."""
    dtype = getattr(torch, dtype_judged())
    return values.to(dtype).to(torch.float32) if dtype.itemsize < 4 else values


def make_weight(name: str, size: tuple[int, ...], seed: int) -> Tensor:
    """One weight by its canonical name: float32."""
    if len(size) == 1:
        return gains(*size, seed=seed)
    if name == "token_embeddings.weight":
        return normal(*size, seed=seed, std=EMBEDDING_SCALE)
    sharpness = QUERY_KEY_GAIN if ".q_proj." in name or ".k_proj." in name else 1.0
    return normal(*size, seed=seed, std=sharpness * size[1] ** -0.5)


def make_weights(shape: DecoderShape, seed: int) -> dict[str, Tensor]:
    """Every weight by its canonical name, float32. A tied shape has one tensor under both vocabulary names."""
    weights = {
        name: make_weight(name, size, seed=1000 * seed + index)
        for index, (name, size) in enumerate(shape.weight_shapes().items())
    }
    if shape.tie_embeddings:
        weights["lm_head.weight"] = weights["token_embeddings.weight"]
    return weights


def make_token_ids(shape: DecoderShape, batch: int, time: int, seed: int) -> Tensor:
    """Token ids (batch, time), int64, no row like another; 0 and V - 1 both occur when there is room for them."""
    token_ids = torch.randint(shape.vocab_size, (batch, time), generator=generator(seed))
    if batch * time >= 2:
        token_ids.view(-1)[-1] = 0
        token_ids.view(-1)[0] = shape.vocab_size - 1
    return token_ids
