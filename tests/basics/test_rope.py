"""Rotary tables: their precision whatever the model's, and the positions that they fit."""

import math

import pytest
import torch
from small_decoder import assert_near, seeded

from cs336_basics.rope import rotary_table, rotate


def test_angles_are_position_times_theta_to_minus_two_i_over_d_head() -> None:
    table = rotary_table(torch.tensor([0, 1, 7, 300]), 6, 100.0, torch.float64)
    assert table.shape == (4, 3)
    for row, position in enumerate((0, 1, 7, 300)):
        for pair in range(3):
            angle = position * 100.0 ** (-2 * pair / 6)
            assert table[row, pair].item() == pytest.approx(complex(math.cos(angle), math.sin(angle)), abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_table_is_float32_for_every_model_below_float64(dtype: torch.dtype) -> None:
    positions = torch.tensor([257, 1025, 100_003])  # past 256, bfloat16 skips every other position
    table = rotary_table(positions, 8, 10000.0, dtype)
    exact = rotary_table(positions, 8, 10000.0, torch.float64)
    assert (table.dtype, exact.dtype) == (torch.complex64, torch.complex128)
    assert (table - exact).abs().max() < 1e-7


def test_rotation_turns_neighbouring_channels_and_keeps_dtype_and_input() -> None:
    x = torch.tensor([[1.0, 0.0, 0.0, 2.0]], dtype=torch.bfloat16)
    before = x.clone()
    turned = rotate(x, torch.tensor([[1j, -1j]], dtype=torch.complex64))
    assert turned.dtype == torch.bfloat16
    assert turned.tolist() == [[0.0, 1.0, 2.0, 0.0]]
    assert torch.equal(x, before)


def test_any_memory_layout_may_be_turned() -> None:
    x = torch.randn(3, 5, 4, generator=seeded())
    table = rotary_table(torch.arange(5), 4, 50.0, x.dtype)
    for other_layout in (x.mT.contiguous().mT, torch.cat((x, x), -1)[..., 1:5], x[:1].expand(3, 5, 4)):
        assert_near(rotate(other_layout, table), rotate(other_layout.clone(), table), 1e-6)


def test_scores_depend_on_the_distance_alone() -> None:
    q, k = torch.randn(2, 6, 8, generator=seeded(), dtype=torch.float64)

    def scores(shift: int) -> torch.Tensor:
        table = rotary_table(torch.arange(6) + shift, 8, 10000.0, torch.float64)
        return rotate(q, table) @ rotate(k, table).mT

    assert_near(scores(12345), scores(0), 1e-11)
