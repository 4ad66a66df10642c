"""Rotary position embedding, pairing channels (2i, 2i+1) (RoFormer, arXiv:2104.09864).

The table of cosines and sines is made from the positions, once in each forward pass, and handed to every layer. It is
no state: nothing that ``.half()`` could round, ``to_empty`` lose, a checkpoint carry, or a late position run past.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class RotaryTable(NamedTuple):
    """Cosine and sine of every position and channel pair, each (*positions, d_head / 2)."""

    cos: Float[Tensor, "*positions pairs"]
    sin: Float[Tensor, "*positions pairs"]


def rotary_table(positions: Int[Tensor, "*positions"], d_head: int, theta: float, dtype: torch.dtype) -> RotaryTable:
    """Cosine and sine of position · theta^(-2i / d_head), for pair i = 0, 1, …, d_head/2 - 1.

    The table is float64 for a float64 model and float32 for every other; bfloat16 cannot even count past position 256.
    The angles are float64 where the device has it (MPS has not): near position 100000, float32 ones err by up to 0.004.
    """
    precise = torch.float32 if positions.device.type == "mps" else torch.float64
    exponents = torch.arange(0, d_head, 2, dtype=precise, device=positions.device) / d_head
    angles = positions.to(precise)[..., None] * theta**-exponents
    table_dtype = torch.promote_types(dtype, torch.float32)
    return RotaryTable(angles.cos().to(table_dtype), angles.sin().to(table_dtype))


def rotate(x: Float[Tensor, "*batch time d_head"], table: RotaryTable) -> Float[Tensor, "*batch time d_head"]:
    """Turn each channel pair (2i, 2i+1) of x by its position's angle, in the table's dtype; the result has that of x.

    The table's leading axes are those of x from the left; the axes between them and time (the heads) share positions.
    So tables of (time,), (1, time) and (batch, time) positions all fit an x of (batch, heads, time, d_head).
    """
    heads = (1,) * (x.ndim - table.cos.ndim)
    cos, sin = (part.reshape(*part.shape[:-2], *heads, *part.shape[-2:]) for part in table)
    even, odd = x.to(cos.dtype).unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).reshape(x.shape).to(x.dtype)
