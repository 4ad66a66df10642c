"""Linear, Embedding, RMSNorm, SwiGLU: initial weights, precision, and ids that fit."""

import math

import pytest
import torch
from small_decoder import assert_near, seeded

from cs336_basics.layers import Embedding, Linear, RMSNorm, silu, softmax

OUTSIDE = "is outside the vocabulary: vocab_size 11 has the ids 0 to 10"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_initial_weights_have_the_handouts_spread_and_are_cut_at_three_standard_deviations(dtype: torch.dtype) -> None:
    linear = Linear(200, 150, generator=seeded(), dtype=dtype).weight
    embedding = Embedding(300, 100, generator=seeded(), dtype=dtype).weight
    # Cutting at ±3σ leaves 0.9866 of the standard deviation.
    for weight, std in ((linear, math.sqrt(2 / (200 + 150))), (embedding, 1.0)):
        assert weight.dtype == dtype
        values = weight.double()
        assert values.mean().abs() < 4 * std / math.sqrt(values.numel())
        assert values.std().item() == pytest.approx(0.9866 * std, rel=0.015)
        assert 2.9 * std < values.abs().max() <= 3 * std * (1 + torch.finfo(dtype).eps)
    assert linear.shape == (150, 200)
    assert torch.equal(RMSNorm(7, dtype=dtype).weight, torch.ones(7, dtype=dtype))


def test_a_generator_seeds_and_the_global_one_is_left_alone() -> None:
    before = torch.get_rng_state()
    first, again, other = (Linear(9, 8, generator=seeded(seed)).weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    Linear(9, 8, device="meta")
    assert torch.equal(torch.get_rng_state(), before)
    Linear(9, 8)
    assert not torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("token_ids", "says"),
    [
        (
            [[0, 10], [11, 3]],
            f"token id 11 at position (1, 0) {OUTSIDE}",
        ),
        ([4, -1], f"token id -1 at position (1,) {OUTSIDE}"),
        ([0.0, 1.0], "token ids must be torch.int64 or torch.int32, got torch.float32"),
    ],
)
def test_ids_that_do_not_fit_are_refused(token_ids: list, says: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        Embedding(11, 4)(torch.tensor(token_ids))
    assert str(refused.value) == says


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0), (1, 2, 3)], ids=str)
def test_embedding_takes_ids_of_any_shape(shape: tuple[int, ...]) -> None:
    layer = Embedding(11, 4)
    ids = torch.randint(11, shape, generator=seeded(), dtype=torch.int32)
    assert torch.equal(layer(ids), layer.weight[ids.long()])


def test_half_precision_norms_and_softmaxes_are_computed_in_float32() -> None:
    x = 1e-4 * torch.randn(3, 64, generator=seeded())  # float16 has no square of 1e-4
    for dtype in (torch.float16, torch.bfloat16):
        low = x.to(dtype)
        assert torch.equal(RMSNorm(64, 1e-12)(low), RMSNorm(64, 1e-12)(low.float()).to(dtype))
        assert torch.equal(softmax(low, -1), torch.softmax(low.float(), -1).to(dtype))


def test_softmax_holds_on_huge_inputs_every_axis_and_none() -> None:
    x = 1e4 * torch.randn(2, 3, 4, generator=seeded(), dtype=torch.float64)
    for dim in (-1, 0, 1):
        assert_near(softmax(x, dim), torch.softmax(x, dim), 1e-15)
    assert softmax(torch.empty(2, 0), -1).shape == (2, 0)


def test_inputs_are_left_as_they_are() -> None:
    x = torch.randn(3, 8, generator=seeded())
    before = x.clone()
    for function in (silu, lambda x: softmax(x, 0), RMSNorm(8), Linear(8, 5)):
        function(x)
        assert torch.equal(x, before)
