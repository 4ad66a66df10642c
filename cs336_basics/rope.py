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
    x: Float[Tensor, "*batch d_head"], table: Complex[Tensor, "*positions pairs"]
) -> Float[Tensor, "*batch d_head"]:
    """Turn each channel pair of x by its factor in the table, which is broadcast to all axes before the last.

    Computed in the table's precision; the result has the dtype of x.
    """
    pairs = x.to(table.real.dtype).contiguous().unflatten(-1, (-1, 2))
    return torch.view_as_real(torch.view_as_complex(pairs) * table).reshape(x.shape).to(x.dtype)
