"""Tolerances, and what a mismatch says.

**Noise.** Float32 keeps 24 bits, so every input of a computation already stands for an interval of half a unit in its
last place. The noise of a result is how far it moves, at most, when every input (weights too) is pushed to a random end
of that interval, plus the rounding of the result itself. It is measured on the float64 oracle for each comparison: a
long sum or a deep model earns a wider noise by its own arithmetic, not by a guess.

**Tolerance.** A correct float32 decoder rounds after every operation, not only at its inputs, and in an order of its
own. The errors of the variations that are correct (fused or explicit attention, sqrt or rsqrt, either order of a matrix
multiply, complex rotary numbers) stay under a fifth of :data:`TOLERANCE_IN_NOISE` times the noise, and every defect
that can change an output lies ten tolerances or more away; ``benchmarks/tolerances.py`` prints both.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from cs336_harness.reference import precision
from cs336_harness.reference.weights import generator
from cs336_harness.subject.failures import CheckFailure, Evidence

TOLERANCE_IN_NOISE = 16.0
"""Largest error that passes, as a multiple of the noise."""

HALF_UNIT: dict[torch.dtype, float] = {getattr(torch, name): unit for name, unit in precision.HALF_UNIT.items()}
"""Half a unit in the last place, relative, of each dtype."""

LEAST_SHAKE = HALF_UNIT[torch.float32]
"""Inputs are moved by no less: the oracle itself counts in float64, and a movement of its own last bit is no measure.
Movements so small are proportional, so what half a unit of float32 does, times 2^-29, is what one of float64 does."""


def shake(dtype: torch.dtype | None = None) -> float:
    """How far inputs are moved, relative, to measure the noise of a dtype; without one, of that which is judged in."""
    return max(LEAST_SHAKE, precision.half_unit() if dtype is None else HALF_UNIT[dtype])


NOISE_SEEDS = (1, 2)


def perturbed(value: Any, half_unit: float, draw: torch.Generator) -> Any:
    """The argument with every floating element moved to one end of its rounding interval; anything else as it is."""
    if isinstance(value, Tensor) and value.is_floating_point():
        signs = torch.randint(0, 2, value.shape, generator=draw, dtype=torch.float64) * 2 - 1
        return value.detach().to(torch.float64) * (1 + half_unit * signs)
    if isinstance(value, Mapping):
        return {name: perturbed(item, half_unit, draw) for name, item in value.items()}
    return value


def rounding_noise(
    reference: Callable[..., Tensor],
    arguments: Mapping[str, Any],
    expected: Tensor,
    dtype: torch.dtype | None = None,
) -> float:
    """The noise of ``expected = reference(**arguments)`` in ``dtype``: one number, in the result's own unit.

    Without a ``dtype``, in the one that is judged in.
    """
    half_unit = precision.half_unit() if dtype is None else HALF_UNIT[dtype]
    shaken_by = shake(dtype)
    moved = 0.0
    for seed in NOISE_SEEDS:
        shaken = reference(**perturbed(arguments, shaken_by, generator(seed)))
        moved = max(moved, _largest((shaken - expected).abs()))
    return moved * half_unit / shaken_by + half_unit * _largest(expected.abs())


def _largest(tensor: Tensor) -> float:
    return float(tensor.max()) if tensor.numel() else 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Comparison:
    """How far one tensor lies from what was expected, in its own unit and in multiples of the noise."""

    actual: Tensor
    expected: Tensor
    noise: float
    axes: tuple[str, ...]

    @property
    def errors(self) -> Tensor:
        """Absolute error of each element, float64; an element that is not a number counts as infinitely wrong."""
        errors = (self.actual.to(torch.float64) - self.expected).abs()
        return errors.nan_to_num(nan=math.inf, posinf=math.inf)

    @property
    def error_in_noise(self) -> float:
        """The largest error as a multiple of the noise."""
        largest = _largest(self.errors)
        if self.noise == 0:
            return 0.0 if largest == 0 else math.inf
        return largest / self.noise

    @property
    def agrees(self) -> bool:
        """Whether rounding explains every difference."""
        return self.error_in_noise <= TOLERANCE_IN_NOISE

    def place(self, index: tuple[int, ...]) -> str:
        """An index in words: ``row 1, position 4, channel 7``."""
        names = self.axes[-len(index) :] if index else ()
        names = ("axis",) * (len(index) - len(names)) + names
        return ", ".join(f"{name} {number}" for name, number in zip(names, index, strict=True)) or "the only element"

    def wrong(self) -> Iterator[tuple[int, ...]]:
        """Where rounding does not explain the difference, in order."""
        for index in (self.errors > TOLERANCE_IN_NOISE * self.noise).nonzero().tolist():
            yield tuple(index)

    def details(self, entry_point: str | None = None) -> list[str]:
        """The mismatch for a person: where, one pair of numbers, and the size of an error that is small.

        ``entry_point`` is what gave the numbers, where one did.
        """
        errors = self.errors
        differs = errors > TOLERANCE_IN_NOISE * self.noise
        lines = [f"{int(differs.sum())} of {errors.numel()} elements differ{self._positions(differs)}"]
        worst = unravelled(int(errors.argmax()), errors.shape)
        got, wanted = float(self.actual[worst]), float(self.expected[worst])
        lines.append(f"{self.place(worst)}: got {got:.6g}, must be {wanted:.6g}")
        return lines + self._if_small(errors, SMALL_CAUSES.get(entry_point or "", ANY_SMALL_CAUSE))

    def _positions(self, differs: Tensor) -> str:
        """Which positions are wrong, where not all are."""
        axis = self.axes.index("position") - len(self.axes) if "position" in self.axes else None
        if axis is None or differs.ndim < -axis:
            return ""
        wrong = differs.transpose(axis, 0).flatten(1).any(-1).nonzero().flatten().tolist()
        first, time = wrong[0], differs.shape[axis]
        if len(wrong) == time:
            return ""
        right = "position 0" if first == 1 else f"the positions 0 to {first - 1}"
        if first > 0 and wrong == list(range(first, time)):
            return f": right at {right}, wrong from {first} on"
        return f": wrong at {len(wrong)} of {time} positions, first at {first}"

    def _if_small(self, errors: Tensor, likely: str) -> list[str]:
        """An error of less than a hundredth in words, because its size is the clue."""
        share = float(errors.mean()) / max(float(self.expected.abs().mean()), 1e-30)
        if not share < SMALL:
            return []
        even = ", one factor per row" if self._one_factor_per_row(share / 10) else ""
        if precision.dtype_judged() == "float64" and share < FLOAT32_INSIDE:
            likely = "something in it is float32 whatever it is given, such as rotary tables, a norm or a softmax"
        return [
            f"{100 * share:.2g} % off on average{even}, {self.error_in_noise:.2g} times the rounding of"
            f" {precision.dtype_judged()} ({TOLERANCE_IN_NOISE:g} times is allowed): {likely}"
        ]

    def _one_factor_per_row(self, least: float) -> bool:
        ratio = self.actual.to(torch.float64) / self.expected
        return ratio.ndim > 0 and float((ratio - ratio.median(-1, keepdim=True).values).abs().median()) < least


ANY_SMALL_CAUSE = "reduced precision, another eps, other angles, or hidden scores that are not minus infinity"
SMALL_CAUSES = {
    **dict.fromkeys(("run_linear", "run_embedding", "run_softmax"), "reduced precision"),
    **dict.fromkeys(("run_silu", "run_swiglu"), "reduced precision, or another curve"),
    "run_rmsnorm": "reduced precision, or another eps",
    "run_rope": "reduced precision, or other angles in slow pairs",
    "run_scaled_dot_product_attention": "reduced precision, or hidden scores that are not minus infinity",
    "run_multihead_self_attention": "reduced precision, or hidden scores that are not minus infinity",
    "run_multihead_self_attention_with_rope": "reduced precision, other angles, or hidden scores that are not minus"
    " infinity",
}
"""What an error of less than a hundredth may come from, by entry point."""

SMALL = 1e-2
"""Mean relative errors below this are told in words."""

FLOAT32_INSIDE = 1e-5
"""In float64, mean relative errors below this are what float32 somewhere on the way gives."""


def unravelled(flat: int, shape: torch.Size) -> tuple[int, ...]:
    """Where element number ``flat`` stands. (``torch.unravel_index`` imports for half a second.)"""
    index = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        index.append(place)
    return tuple(reversed(index))


def require_close(
    what: str,
    actual: Tensor,
    expected: Tensor,
    noise: float,
    axes: tuple[str, ...] = ("row", "position", "channel"),
    evidence: Evidence | None = None,
) -> float:
    """The error in multiples of the noise; raises :class:`CheckFailure` with the whole picture when it is too large.

    ``what`` begins the message (``run_rmsnorm with eps 0.1``); ``axes`` names the last axes of the result.
    """
    comparison = Comparison(actual.detach().to("cpu"), expected.detach(), noise, axes)
    if comparison.agrees:
        return comparison.error_in_noise
    evidence = evidence or Evidence()
    evidence.details = comparison.details(evidence.entry_point)
    evidence.error_in_noise = comparison.error_in_noise
    evidence.actual, evidence.expected = comparison.actual, comparison.expected
    evidence.noise, evidence.axes = noise, axes
    first = comparison.place(next(comparison.wrong()))
    raise CheckFailure(f"{what} differs from the reference, first at {first}", evidence)
