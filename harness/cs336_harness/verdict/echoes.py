"""Which failures only repeat one that was told before.

A check names the checks that it builds on (``after``). That cannot list every check that a mistake reaches, so a
failure that nothing blocks is asked four things: was the same exception raised before, in the same lines; does another
case of the same check say the same; does a component that fails mix positions or rows in the same way; does a known
mistake that was named make it fail in the very same way.

Shapes: ``B`` rows, ``T`` positions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cs336_harness.checks import Check
from cs336_harness.checks.call_conventions import SAMPLES
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import AbsentEntryPoint, BlankEntryPoint, CheckFailure, Evidence

ROWS, HEADS = 2, 3
MOST_CHANGED = 20
"""How many positions are changed, one after another."""

MOVED = 1e-6
"""How much of the largest output a change must move a position for the position to have seen it."""


def same_case(first: Check, second: Check) -> bool:
    """Whether they are cases of one check."""
    return first.id.partition("[")[0] == second.id.partition("[")[0]


def same_words(first: str, second: str) -> bool:
    """Whether two messages say the same but for numbers and the call that they are about.

    What a wrong count comes to in letters differs from shape to shape; behind one that has no name, neither does a
    name that fits another shape by chance count.
    """
    first, unnamed, _ = first.partition(LETTERS)
    second = second.partition(LETTERS)[0]
    return _words(first) == _words(second.partition(NAME)[0] if unnamed else second)


def raised_alike(first: Evidence, second: Evidence) -> bool:
    """Whether the subject raised the same exception in the same lines, but for the numbers in its text."""
    if len(first.raised) < 2 or len(second.raised) < 2:
        return False
    (kind, text, *lines), (other_kind, other_text, *other_lines) = first.raised, second.raised
    return (kind, lines) == (other_kind, other_lines) and _words(text) == _words(other_text)


LETTERS, NAME = ". That is ", ". This is "
"""How the end of a message about a wrong count begins: its size in letters, or the mistake that gives it."""


def _words(message: str) -> str:
    about_no_call = re.sub(r"\brun_\w+", "run", message)
    without_numbers = re.sub(r"[-+]?\d[\d.,]*(e[-+]?\d+)?", "#", about_no_call)
    of_no_shape = re.sub(r"\([#, ]*\)|\[[#, ]*\]", "#", without_numbers)
    return re.sub(r"first at [\w #,]*", "first at #", of_no_shape)


def mixes_alike(subject: Subject, entry_point: str, check: Check, failure: CheckFailure) -> bool:
    """Whether a component, called alone, mixes positions or rows as the failure says that the whole model does.

    A later position that moves an earlier one, an earlier one that does not move a later one, rows that see each other:
    where the component does the same, the model only shows it once more.
    """
    picture = failure.evidence.influence
    if check.id == "information_flow.batch_rows":
        seen = sees(subject, entry_point, MOST_CHANGED, range(MOST_CHANGED))
        return seen is not None and bool(seen[1].any())
    if picture is None:
        return False
    time = len(picture.moved)
    tokens = sorted({token for _, token in picture.leaks() or picture.missing()})[:MOST_CHANGED]
    seen = sees(subject, entry_point, time, tokens)
    if seen is None:
        return False
    later = torch.tensor(tokens) > torch.arange(time)[:, None]
    if picture.leaks():
        return bool((seen[0] & later).any())
    return "attention" in entry_point and bool((~seen[0] & ~later).any())


def sees(subject: Subject, entry_point: str, time: int, tokens: Sequence[int]) -> Tensor | None:
    """Which positions move when one of ``tokens``, positions of the first row, changes: (B, T, tokens), boolean.

    None where the entry point has no such positions, or a call fails.
    """
    if entry_point.removeprefix("run_") not in SAMPLES:
        return None
    _, sample = SAMPLES[entry_point.removeprefix("run_")]
    arguments = sample(ROWS, time, HEADS)
    if "max_seq_len" in arguments:
        arguments["max_seq_len"] = time
    try:
        before = subject.invoke(entry_point, **arguments)
        if not isinstance(before, Tensor) or before.shape[:2] != (ROWS, time):
            return None
        seen = torch.zeros(ROWS, time, len(tokens), dtype=torch.bool)
        for column, token in enumerate(tokens):
            after = subject.invoke(entry_point, **_changed(arguments, time, token))
            if not isinstance(after, Tensor) or after.shape != before.shape:
                return None
            moved = (after - before).abs().flatten(2).amax(2).nan_to_num(torch.inf)
            seen[:, :, column] = moved > MOVED * before.abs().nan_to_num(0.0).max()
    except (CheckFailure, AbsentEntryPoint, BlankEntryPoint):
        return None
    return seen


def _changed(arguments: Mapping[str, Any], time: int, token: int) -> dict[str, Any]:
    """The arguments with one position of the first row changed in every input that has rows and positions."""
    changed = dict(arguments)
    for name, value in arguments.items():
        if isinstance(value, Tensor) and value.shape[:2] == (ROWS, time) and value.dtype is not torch.bool:
            changed[name] = value.clone()
            changed[name][0, token] = (value[0, token] + 1) % 13 if name == "token_ids" else -value[0, token]
    return changed
