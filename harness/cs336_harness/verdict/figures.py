"""The numbers that pictures of a failure are drawn from: few, rounded, and plain, so that they travel as JSON.

A check may leave figures of its own in its evidence (gradients by weight, FLOPs by term); what every failure has,
errors and the influence map, is taken from the tensors here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from cs336_harness.diagnosis.readings.reading import span
from cs336_harness.reference.figures import plain
from cs336_harness.reference.influence import InfluenceMap
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE, unravelled
from cs336_harness.subject.failures import Evidence

MOST_CELLS = 480
"""Cells of one map; axes are binned until it has no more, and a bin shows its worst element."""


def figures_of(evidence: Evidence) -> dict[str, Any]:
    """Everything of a failure that can be drawn, by kind."""
    figures = dict(evidence.figures)
    if isinstance(evidence.influence, InfluenceMap):
        figures["influence"] = evidence.influence.figure()
    actual, expected = evidence.actual, evidence.expected
    if isinstance(actual, Tensor) and isinstance(expected, Tensor) and actual.shape == expected.shape:
        drawn = _errors(actual.detach().to("cpu", torch.float64), expected.detach().to("cpu", torch.float64), evidence)
        if drawn is not None:
            figures["errors"] = drawn
    return figures


def _errors(actual: Tensor, expected: Tensor, evidence: Evidence) -> dict[str, Any] | None:
    if not evidence.noise or not actual.numel() or actual.ndim == 0:
        return None
    names = ("axis",) * (actual.ndim - len(evidence.axes)) + tuple(evidence.axes[-actual.ndim :])
    errors = (actual - expected).abs().nan_to_num(math.inf, math.inf, math.inf)
    errors = errors / (TOLERANCE_IN_NOISE * evidence.noise)
    worst = unravelled(int(errors.argmax()), errors.shape)
    pattern = pattern_of(errors > 1, names, (evidence.arguments or {}).get("num_heads"))
    shape = ((1, 1, 1, *actual.shape)[-3:]) if actual.ndim < 3 else (-1, *actual.shape[-2:])
    axes = ("", "", *names)[-3:] if actual.ndim < 4 else (" and ".join(names[:-2]), *names[-2:])
    errors, actual, expected = (each.reshape(shape) for each in (errors, actual, expected))
    sizes = list(errors.shape)
    steps = _steps(sizes)
    cells: dict[str, list[Any]] = {"tolerances": [], "got": [], "must": []}
    for row in range(0, sizes[0], steps[0]):
        for position in range(0, sizes[1], steps[1]):
            for channel in range(0, sizes[2], steps[2]):
                here = tuple(
                    slice(start, start + step) for start, step in zip((row, position, channel), steps, strict=True)
                )
                block = errors[here]
                at = unravelled(int(block.argmax()), block.shape)
                cells["tolerances"].append(plain(float(block[at]), 2))
                cells["got"].append(plain(float(actual[here][at]), 4))
                cells["must"].append(plain(float(expected[here][at]), 4))
    flat = unravelled(int(errors.argmax()), errors.shape)
    return {
        "axes": list(axes),
        "sizes": sizes,
        "steps": steps,
        "pattern": pattern,
        "worst": {
            "place": ", ".join(f"{name} {index}" for name, index in zip(names, worst, strict=True)),
            "got": plain(float(actual[flat]), 6),
            "must": plain(float(expected[flat]), 6),
        },
        **cells,
    }


def _steps(sizes: Sequence[int]) -> list[int]:
    """How many elements of each axis share a cell: the longest axis is binned until the map is small enough."""
    steps = [1, 1, 1]

    def bins(axis: int) -> int:
        return -(-sizes[axis] // steps[axis])

    while math.prod(map(bins, range(3))) > MOST_CELLS:
        longest = max((2, 1, 0), key=bins)
        steps[longest] += 1
    return steps


def pattern_of(wrong: Tensor, names: Sequence[str], num_heads: Any = None) -> str:
    """Where the wrong elements lie, in words: ``only head 1 (channels 16 to 31), from position 3 on``."""
    if not bool(wrong.any()):
        return ""
    said = []
    for axis, name in enumerate(names):
        size = wrong.shape[axis]
        places = wrong.transpose(0, axis).reshape(size, -1).any(-1).nonzero().flatten().tolist()
        if len(places) < size:
            said.append(_along(name, places, size, num_heads))
    share = float(wrong.double().mean())
    if said:
        return "wrong only at " + ", ".join(said)
    return "wrong everywhere" if share > 0.9 else f"wrong at {100 * share:.2g} % of all places, scattered"


def _along(name: str, places: list[int], size: int, num_heads: Any) -> str:
    first, last = places[0], places[-1]
    if name == "channel" and isinstance(num_heads, int) and num_heads > 1 and size % num_heads == 0:
        width = size // num_heads
        heads = sorted({place // width for place in places})
        if len(places) == len(heads) * width and len(heads) < num_heads:
            return f"head{'s' * (len(heads) > 1)} {span(heads)} (channels {span(places)})"
    for parity, word in enumerate(("even", "odd")):
        if len(places) > 1 and places == list(range(parity, size, 2)):
            return f"{word} {name}s"
    if first > 0 and places == list(range(first, size)) and len(places) > 1:
        return f"{name}s from {first} on"
    if len(places) == 1:
        return f"{name} {first}"
    listed = span(places)
    return f"{name}s {listed}" if len(listed) < 40 else f"{len(places)} of {size} {name}s, from {first} to {last}"
