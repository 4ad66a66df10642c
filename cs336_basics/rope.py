"""Rotary position embedding, pairing channels (2i, 2i+1) (RoFormer, arXiv:2104.09864).

A pair (a, b) is the complex number a + bi, and turning it by an angle is one multiplication by e^(i · angle). The table
of these factors is made from the positions, once in each forward pass, and handed to every layer. It is no state:
nothing that ``.half()`` could round, ``to_empty`` lose, a checkpoint carry, or a late position run past.
"""

import torch
from jaxtyping import Complex, Float, Int
from torch import Tensor


def rotary_table(
    positions: Int[Tensor, "*positions"], d_head: int, theta: float, dtype: torch.dtype
) -> Complex[Tensor, "*positions pairs"]:
    """cos + i sin of position · theta^(-2i / d_head), for the pairs i = 0, 1, …, d_head/2 - 1.

    Its two parts are float64 for a model of ``dtype`` float64 and float32 for every other: bfloat16 cannot even count
    past 256. The angles are float64 wherever the device has it (MPS has not): near position 100000, float32 ones are
    off by up to 0.004.
    """
    precise = torch.float32 if positions.device.type == "mps" else torch.float64
    exponents = torch.arange(0, d_head, 2, dtype=precise, device=positions.device) / d_head
    angles = positions.to(precise)[..., None] * theta**-exponents
    part = torch.promote_types(dtype, torch.float32)
    return torch.complex(angles.cos().to(part), angles.sin().to(part))


def rotate(
    x: Float[Tensor, "*batch time d_head"], table: Complex[Tensor, "*positions time pairs"]
) -> Float[Tensor, "*batch time d_head"]:
    """Turn each channel pair of x by its position's angle, in the table's precision; the result has the dtype of x.

    The table's leading axes are those of x from the left; the axes between them and time (the heads) share positions.
    So tables of (time,), (1, time) and (batch, time) positions all fit an x of (batch, heads, time, d_head).
    """
    heads = (1,) * (x.ndim - table.ndim)
    factors = table.reshape(*table.shape[:-2], *heads, *table.shape[-2:])
    first, second = x.to(table.real.dtype).unflatten(-1, (-1, 2)).unbind(-1)
    return torch.view_as_real(torch.complex(first, second) * factors).reshape(x.shape).to(x.dtype)
