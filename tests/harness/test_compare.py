"""Tolerances and messages of a mismatch."""

import math

import pytest
import torch

from cs336_harness.checks.comparing import RoundedFrequencies
from cs336_harness.checks.whole_model import Case
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE, Comparison, require_close, rounding_noise
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.failures import CheckFailure


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def test_noise_is_the_rounding_of_input_and_result() -> None:
    x = torch.tensor([1.0, -4.0], dtype=torch.float64)
    noise = rounding_noise(double, {"x": x}, double(x))
    assert noise == pytest.approx((8 + 8) * 2.0**-24)


def test_noise_follows_the_dtype() -> None:
    x = torch.ones(3, dtype=torch.float64)
    coarse, fine = (rounding_noise(double, {"x": x}, double(x), dtype) for dtype in (torch.bfloat16, torch.float64))
    assert coarse / fine == pytest.approx(2.0**44)


def test_noise_grows_with_cancellation() -> None:
    def difference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x - y

    large = torch.full((100,), 1e4, dtype=torch.float64)
    noise = rounding_noise(difference, {"x": large, "y": large - 1}, torch.ones(100, dtype=torch.float64))
    assert noise > 1e3 * 2.0**-24


def test_within_tolerance_passes_and_beyond_it_fails() -> None:
    expected = torch.zeros(2, 3, dtype=torch.float64)
    just_inside = expected + 0.9 * TOLERANCE_IN_NOISE * 1e-6
    assert require_close("it", just_inside, expected, 1e-6) == pytest.approx(0.9 * TOLERANCE_IN_NOISE)
    with pytest.raises(CheckFailure, match="it differs from the reference"):
        require_close("it", expected + 1.1 * TOLERANCE_IN_NOISE * 1e-6, expected, 1e-6)


def test_message_names_places_and_never_dumps_arrays() -> None:
    expected = torch.zeros(4, 5, 6, dtype=torch.float64)
    actual = expected.clone()
    actual[1, 2, 3], actual[3, 0, 5] = 0.5, -2.0
    with pytest.raises(CheckFailure) as caught:
        require_close("run_rope", actual, expected, 1e-6)
    assert caught.value.message == "run_rope differs from the reference, first at row 1, position 2, channel 3"
    text = "\n".join(caught.value.evidence.details)
    assert "2 of 120 elements differ" in text
    assert "row 3, position 0, channel 5: got -2, must be 0" in text
    assert "tensor(" not in text
    assert len(text.splitlines()) <= 6


def test_a_gross_error_is_one_pair_of_numbers_and_says_which_positions_are_right() -> None:
    expected = torch.ones(2, 5, 3, dtype=torch.float64)
    actual = expected.clone()
    actual[:, 2:] = 7.0
    with pytest.raises(CheckFailure) as caught:
        require_close("run_rope", actual, expected, 1e-6)
    assert caught.value.evidence.details == [
        "18 of 30 elements differ: right at the positions 0 to 1, wrong from 2 on",
        "row 0, position 2, channel 0: got 7, must be 1",
    ]


def test_the_size_of_a_small_error_is_told_in_words() -> None:
    expected = torch.ones(2, 5, 3, dtype=torch.float64)
    with pytest.raises(CheckFailure) as caught:
        require_close("run_rope", 1.002 * expected, expected, 1e-6)
    assert caught.value.evidence.details[-1].startswith("0.2 % off on average, one factor per row, 2e+03 times")


def test_nan_is_infinitely_wrong() -> None:
    expected = torch.zeros(2, dtype=torch.float64)
    comparison = Comparison(torch.tensor([0.0, math.nan]), expected, 1e-6, ("channel",))
    assert not comparison.agrees
    assert comparison.error_in_noise == math.inf
    assert list(comparison.wrong()) == [(1,)]


def test_zero_noise_allows_no_difference() -> None:
    zero = torch.zeros(2, dtype=torch.float64)
    assert Comparison(zero, zero, 0.0, ("channel",)).agrees
    assert not Comparison(zero + 1e-30, zero, 0.0, ("channel",)).agrees


@pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
def test_noise_is_measured_on_the_oracles_own_numbers(num_kv_heads: int) -> None:
    """The quicker attention that measures it computes what the oracle does; only the frequencies are moved."""

    class Unmoved(RoundedFrequencies):
        def inverse_frequencies(self, d_head: int, theta: float) -> torch.Tensor:
            return Oracle.inverse_frequencies(self, d_head, theta)

    sizes = {"vocab_size": 17, "context_length": 12, "d_model": 24, "num_layers": 2, "d_ff": 64}
    shape = DecoderShape(**sizes, num_heads=6, num_kv_heads=num_kv_heads)
    case = Case(shape, rows=3, time=9)
    weights = {name: weight.double() for name, weight in case.weights().items()}
    slow, quick = (oracle(shape).transformer_lm(weights, case.token_ids()) for oracle in (Oracle, Unmoved))
    assert float((slow - quick).abs().max()) < 1e-13
    moved = RoundedFrequencies(shape).transformer_lm(weights, case.token_ids())
    assert float((slow - moved).abs().max()) > 1e-9
