"""Numbers small enough to be drawn and to travel as JSON: plain, few, and of few digits."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import Any

from torch import Tensor


def plain(value: float, digits: int = 3) -> float | str:
    """A number of few digits; what JSON has no number for as a word."""
    return float(f"{value:.{digits}g}") if math.isfinite(value) else str(value)


def rms(values: Tensor) -> float:
    """Root mean square."""
    return float(values.double().square().mean().sqrt())


def by_weight(
    gradients: Mapping[str, Tensor | None], expected: Mapping[str, Tensor], wrong: Container[str]
) -> list[Any]:
    """Root mean square of each weight's gradient beside the right one."""
    return [
        {
            "name": name,
            "got": 0.0 if gradient is None else plain(rms(gradient)),
            "must": plain(rms(expected[name])),
            "right": name not in wrong,
        }
        for name, gradient in gradients.items()
        if name in expected
    ]
