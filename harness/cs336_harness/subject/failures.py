"""How a check says no: the exceptions that a check may raise and the evidence that travels with them. Imports no
torch."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Generator
from typing import Any

from cs336_harness.contract import beyond_the_course


@dataclasses.dataclass(slots=True)
class Evidence:
    """What a failed check saw. Everything is optional; a diagnosis uses what is there.

    ``details`` are lines for a person, already worded. ``actual`` and ``expected`` are tensors of one shape.
    ``entry_point`` and ``arguments`` are the call that went wrong, as it was made. ``influence`` is an
    :class:`~cs336_harness.reference.influence.InfluenceMap` where the failure is about which token reaches which
    logits. ``noise`` and ``axes`` are what the two tensors were compared by, ``figures`` plain numbers to
    draw, by kind. ``raised`` tells what was refused from other refusals: the kind and the text of an exception and the
    innermost lines of the subject's that it went through, or in two words what is missing.
    """

    details: list[str] = dataclasses.field(default_factory=list)
    error_in_noise: float | None = None
    entry_point: str | None = None
    arguments: dict[str, Any] | None = None
    actual: Any = None
    expected: Any = None
    influence: Any = None
    noise: float | None = None
    axes: tuple[str, ...] = ()
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)
    raised: tuple[str, ...] = ()


class CheckFailure(AssertionError):
    """The subject does not do what the contract says. The message's first line says what, in a learner's words.

    ``after`` are ids of checks that explain this very failure where they fail too, beside those the check builds on
    always: a call that raises says nothing new in a second check, a wrong number in it may.
    """

    def __init__(self, message: str, evidence: Evidence | None = None, after: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.evidence = evidence or Evidence()
        self.after = after


class ConclusiveFailure(CheckFailure):
    """A failure whose message says what is wrong: no known mistake is looked for behind it."""


class WrongShape(CheckFailure):
    """A call returned a tensor of another shape."""


class HarmlessToTheCourse(CheckFailure):
    """No call that the course makes shows it, and none gives wrong numbers; ``unasked`` is what the course never gives.

    For what the arguments of a call do not show.
    """

    def __init__(self, message: str, unasked: str, evidence: Evidence) -> None:
        super().__init__(message, evidence)
        self.unasked = unasked


@contextlib.contextmanager
def explained_by(*checks: str) -> Generator[None]:
    """A failure inside says nothing new when one of ``checks`` fails too."""
    try:
        yield
    except CheckFailure as failure:
        failure.after = (*failure.after, *checks)
        raise


def refused_beyond_the_course(failure: CheckFailure) -> str | None:
    """What CS336's own tests never give the entry point that refused it, in words; None for any other failure.

    The one rule of what is advisory (docs/ADVISORY.md): to refuse a call that the course never makes is no fault, to
    answer it with wrong numbers is. To refuse is to raise, or to give a result of another shape: both are noticed at
    once.
    """
    if isinstance(failure, HarmlessToTheCourse):
        return failure.unasked
    evidence = failure.evidence
    refused = isinstance(failure, WrongShape) or isinstance(failure.__cause__, Exception)
    if not refused or evidence.entry_point is None or evidence.arguments is None:
        return None
    return beyond_the_course(evidence.entry_point, evidence.arguments)


class BlankEntryPoint(Exception):
    """The entry point is not written yet: it raised ``NotImplementedError``."""

    def __init__(self, entry_point: str) -> None:
        super().__init__(f"{entry_point} is blank: it raises NotImplementedError")
        self.entry_point = entry_point


class AbsentEntryPoint(Exception):
    """The adapters module has no such function."""

    def __init__(self, entry_point: str, subject: str) -> None:
        super().__init__(f"{entry_point} is not defined in {subject}")
        self.entry_point = entry_point


class AbsentArgument(AbsentEntryPoint):
    """The function does not take an argument that it may take: what needs it is not asked."""

    def __init__(self, entry_point: str, argument: str) -> None:
        Exception.__init__(self, f"{entry_point} takes no {argument}; it may, and need not")
        self.entry_point = entry_point


class CannotJudgeError(Exception):
    """Nothing can be judged: the subject does not load, or the call was wrong. The text is one clear line."""
