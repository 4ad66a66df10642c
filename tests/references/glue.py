"""What the adapters files of this folder share: calls with given weights, and one Parameter seen as another.

A library that stores its weights otherwise (rows in another order, several matrices in one) gets them through PyTorch's
parametrisation: the Parameters are those of the contract, the library reads what they make, and its code is untouched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from cs336_basics.huggingface import interleave_pairs, split_pairs


def call_with(weights: Mapping[str, Tensor], module: nn.Module, *inputs: Any, **options: Any) -> Any:
    """What ``module`` returns with ``weights`` in place of its own, in their dtype; buffers keep their own."""
    return torch.func.functional_call(module, dict(weights), inputs, options)


def require_sizes_that_fit(d_model: int, num_heads: int, num_kv_heads: int, **sizes: int) -> None:
    """ValueError for sizes that make no decoder: the libraries leave that to an assertion, or to a later failure."""
    for name, size in {"d_model": d_model, "num_heads": num_heads, "num_kv_heads": num_kv_heads, **sizes}.items():
        if size < 1:
            raise ValueError(f"{name} must be positive, got {size}")
    if d_model % num_heads or (d_model // num_heads) % 2:
        raise ValueError(f"d_model {d_model} over num_heads {num_heads} gives no even head size")
    if num_heads % num_kv_heads:
        raise ValueError(f"num_heads {num_heads} does not divide into num_kv_heads {num_kv_heads}")


def to_half_split(x: Tensor) -> Tensor:
    """The last axis, one head's channels: pairs (2i, 2i + 1) become (i, i + d/2)."""
    return split_pairs(x.movedim(-1, 0), 1).movedim(0, -1)


def to_interleaved(x: Tensor) -> Tensor:
    """The last axis, one head's channels: pairs (i, i + d/2) become (2i, 2i + 1)."""
    return interleave_pairs(x.movedim(-1, 0), 1).movedim(0, -1)


class HalfSplit(nn.Module):
    """A projection whose Parameter has pairs (2i, 2i + 1), for a library that rotates pairs (i, i + d/2)."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(self, weight: Tensor) -> Tensor:
        return split_pairs(weight, self.num_heads)

    def right_inverse(self, weight: Tensor) -> Tensor:
        return interleave_pairs(weight, self.num_heads)


class Stacked(nn.Module):
    """Several projections, each a Parameter, for a library that stores them as one matrix."""

    def __init__(self, *rows: int) -> None:
        super().__init__()
        self.rows = rows

    def forward(self, *weights: Tensor) -> Tensor:
        return torch.cat(weights)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, ...]:
        return tuple(part.clone() for part in weight.split(self.rows))


def see_as(linear: nn.Module, parametrization: nn.Module) -> None:
    """Lets a layer read its ``weight`` through a parametrisation."""
    parametrize.register_parametrization(linear, "weight", parametrization)


def seen(linear: nn.Module, number: int | None = None) -> nn.Parameter:
    """The Parameter behind a layer's parametrised ``weight``: the only one, or that of a number."""
    parameters = linear.parametrizations["weight"]
    return parameters.original if number is None else getattr(parameters, f"original{number}")


def positions_by_row(positions: Tensor, x: Tensor) -> Tensor:
    """Positions (time,), (1, time) or (rows, time) for each leading index of x (..., time, channels): (rows, time)."""
    return positions.expand(*x.shape[:-2], x.shape[-2]).reshape(-1, x.shape[-2])
