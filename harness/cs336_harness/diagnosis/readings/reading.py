"""What a reading is: a number of the subject's own arithmetic, measured, beside what it must be. And how one is taken.

A reader is given a subject, makes a few calls whose inputs are chosen so that one quantity stands in the result as it
is (an identity for the values shows the attention weights), and says the first that is not what it must be. It says
nothing about a correct decoder, and nothing where a call raises.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from cs336_harness.defects import Place, adapters_of
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import AbsentEntryPoint, BlankEntryPoint, CheckFailure


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """A sentence that says what was read and what it must be, the place, and a small table for more than one number."""

    text: str
    place: Place
    table: tuple[str, ...] = ()
    vague: bool = False
    """It says that something is wrong here, and not what: any other reading comes first."""


Reader = Callable[[Subject], Reading | None]

ROUNDING = 6e-3
"""Relative differences up to this are not read: rounding to bfloat16 lies below."""


@functools.cache
def reference() -> Subject:
    """The oracle, to read what must be by the same calls."""
    return Subject(adapters_of(), "the reference")


def attempt(call: Callable[[], Any], shape: Sequence[int]) -> Tensor | None:
    """A finite result of that shape in float64; None for anything else, and when the call raises."""
    try:
        result = call()
    except (AbsentEntryPoint, BlankEntryPoint, CheckFailure):
        return None
    if not isinstance(result, Tensor) or tuple(result.shape) != tuple(shape) or result.device.type == "meta":
        return None
    value = result.detach().to("cpu", torch.float64)
    return value if bool(value.isfinite().all()) else None


def ask(subject: Subject, entry_point: str, shape: Sequence[int], **arguments: Any) -> Tensor | None:
    """What an entry point gives, as :func:`attempt` takes it."""
    return attempt(lambda: subject.invoke(entry_point, **arguments), shape)


def differ(read: Tensor, right: Tensor, least: float = ROUNDING) -> bool:
    """Whether two tensors of one shape differ by more than rounding of any kind."""
    return float((read - right).abs().max()) > least * max(float(right.abs().max()), 1e-30)


def factor(read: Tensor, right: Tensor) -> float | None:
    """The one number that ``read`` is ``right`` times; None when there is none."""
    size = float((right * right).sum())
    if size == 0:
        return None
    ratio = float((read * right).sum()) / size
    return None if differ(read, ratio * right, ROUNDING) else ratio


def number(value: float) -> str:
    """Three significant digits."""
    return "0" if abs(value) < 1e-6 else f"{value:.3g}"


def radians(value: float) -> str:
    """An angle per position as it is read: whole turns leave no trace. A right pair turns by at most one radian."""
    whole_turns = "" if 0 <= value <= 1.01 else " (give or take whole turns of 2π)"
    return f"{number(value)} rad per position{whole_turns}"


def numbers(values: Sequence[float] | Tensor) -> str:
    """Several, as a vector is written."""
    return "(" + ", ".join(number(float(value)) for value in values) + ")"


def span(places: Sequence[int]) -> str:
    """Positions in words: ``2 to 9``, ``0, 2, 5 to 9``, ``none``."""
    if not places:
        return "none"
    runs: list[list[int]] = []
    for place in places:
        if runs and place == runs[-1][-1] + 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    words = [f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    return ", ".join(words)


WIDEST = 60
"""Characters of a table's columns, in a terminal of 80."""


def table(head: str, names: Sequence[Any], right: Sequence[float], read: Sequence[float]) -> tuple[str, ...]:
    """Three lines: what the columns are, what must be, what was read; as many columns as a terminal has room for."""
    columns = [
        (str(name), number(float(must)), number(float(got))) for name, must, got in zip(names, right, read, strict=True)
    ]
    widths = [max(map(len, column)) + 2 for column in columns]
    if sum(widths) > WIDEST:
        room = sum(taken <= WIDEST - 3 for taken in itertools.accumulate(widths))
        columns, widths = [*columns[:room], ("…",) * 3], [*widths[:room], 3]
    heads = (head, "must be", "read")
    first = max(map(len, heads))
    return tuple(
        f"{heads[line]:<{first}}"
        + "".join(column[line].rjust(width) for column, width in zip(columns, widths, strict=True))
        for line in range(3)
    )
