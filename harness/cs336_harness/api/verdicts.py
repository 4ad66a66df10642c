"""A verdict as plain values: what became of each check, and what the failures come from."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cs336_harness.subject.setting import USUAL, Setting
from cs336_harness.verdict.suite import Outcome, Result

WIDTH = 110
"""Columns of the report as text: a notebook or a log has no terminal to ask."""


@dataclasses.dataclass(frozen=True, slots=True)
class KnownDefect:
    """A known mistake: its name in the dictionary, what it is, and a hint with the steps behind it."""

    name: str
    explanation: str
    hint: str
    steps: tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Diagnosis:
    """Where a failure comes from, and which known mistake it is.

    ``defects`` is the one known mistake that explains everything; or several that cannot be told apart; or, with
    ``together``, two that explain it only both at once; empty when none does. ``confidence`` in the place ``where`` is
    "certain" or "likely". ``told_before`` is the id of the check of which the same was said. ``reading`` is a
    number of the decoder's own beside what it must be, with a small ``table``. ``reproducer`` is Python code.
    What there is none of is empty.
    """

    title: str
    where: str
    confidence: str
    defects: tuple[KnownDefect, ...]
    together: bool
    told_before: str | None
    evidence: tuple[str, ...]
    reading: str
    table: tuple[str, ...]
    reproducer: str


@dataclasses.dataclass(frozen=True, slots=True)
class CheckResult:
    """What became of one check.

    ``outcome`` is "passed", "failed", "blank" (an entry point raises NotImplementedError), "blocked" (it fails, and so
    does ``blocked_by``, which it builds on), "skipped" (the decoder lacks an entry point) or "advisory" (it fails and
    may). ``error_in_noise`` is the largest error as a multiple of the rounding noise, None where nothing is
    compared. ``message`` is one line, ``details`` the numbers below it.
    """

    id: str
    title: str
    task: str
    outcome: Outcome
    advisory: bool
    message: str
    details: tuple[str, ...]
    seconds: float
    error_in_noise: float | None
    blocked_by: str | None
    diagnosis: Diagnosis | None


class FailedVerdictError(AssertionError):
    """A decoder is not right; ``verdict`` says how. The text is the whole report."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict


class Verdict:
    """What the checks say of one decoder. True where nothing required failed or is blank."""

    def __init__(
        self,
        subject: str,
        results: tuple[Result, ...],
        seconds: float,
        root: Path | None = None,
        setting: Setting = USUAL,
        blockers: Sequence[Result] = (),
    ) -> None:
        self.subject = subject
        self.setting = str(setting)
        self.seconds = seconds
        self.results = tuple(check_result(result) for result in results)
        self._results = results
        self._blockers = blockers
        self._root = root
        self._standing = setting.usual

    @property
    def passed(self) -> bool:
        """Whether no required check failed, is blocked or waits for a blank entry point; skipped ones do not count."""
        return not any(result.stops_exit_zero for result in self._results)

    def __bool__(self) -> bool:
        return self.passed

    def __iter__(self) -> Iterator[CheckResult]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, check_id: str) -> CheckResult:
        """The result of one check by its id; KeyError where it was not run."""
        for result in self.results:
            if result.id == check_id:
                return result
        raise KeyError(f"no check {check_id!r} was run")

    def of(self, outcome: Outcome) -> tuple[CheckResult, ...]:
        """The results with one outcome, in the order in which they were run."""
        return tuple(result for result in self.results if result.outcome == outcome)

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        """The required checks that failed by themselves; what only repeats them is ``of("blocked")``."""
        return self.of("failed")

    @property
    def summary(self) -> str:
        """One line: what was shown, and never more than was run."""
        from cs336_harness.verdict.report import verdict_line

        return verdict_line(self._results)

    def raise_if_failed(self) -> None:
        """:class:`FailedVerdictError` unless the decoder passed."""
        __tracebackhide__ = True
        if not self.passed:
            raise FailedVerdictError(self)

    def to_json(self) -> dict[str, Any]:
        """What ``cs336 check --json`` writes."""
        from cs336_harness.verdict.suite import summary

        return {
            "subject": self.subject,
            **({} if self._standing else {"setting": self.setting}),
            "summary": summary(self._results),
            "checks": [result.to_json() for result in self._results],
            **({"blockers": [result.to_json() for result in self._blockers]} if self._blockers else {}),
        }

    def __repr__(self) -> str:
        return f"<Verdict on {self.subject}: {self.summary}>"

    def __str__(self) -> str:
        """The report that ``cs336 check`` prints."""
        from rich.console import Console

        from cs336_harness.verdict.report import print_report

        written = io.StringIO()
        console = Console(file=written, width=WIDTH, color_system=None)
        print_report(
            console,
            self._results,
            self.seconds,
            root=self._root,
            blockers=self._blockers,
            standing=self._standing,
        )
        return f"{self.subject}\n{written.getvalue().rstrip()}"

    def _repr_html_(self) -> str:
        """For a notebook: the picture that ``cs336 check --html`` writes."""
        from cs336_harness.picture.page import framed

        return framed(self.to_json())


def check_result(result: Result) -> CheckResult:
    """A result without what only the harness needs."""
    return CheckResult(
        id=result.check.id,
        title=result.check.title,
        task=result.check.task,
        outcome=result.outcome,
        advisory=result.check.advisory,
        message=result.message,
        details=tuple(result.failure.evidence.details) if result.failure is not None else (),
        seconds=result.seconds,
        error_in_noise=result.error_in_noise,
        blocked_by=result.blocked_by,
        diagnosis=None if result.diagnosis is None else _diagnosis(result.diagnosis),
    )


def _diagnosis(diagnosis: Any) -> Diagnosis:
    return Diagnosis(
        title=diagnosis.title,
        where=diagnosis.where,
        confidence=diagnosis.confidence,
        defects=tuple(
            KnownDefect(defect.name, defect.explanation(), defect.hint, tuple(defect.steps))
            for defect in diagnosis.defects
        ),
        together=diagnosis.together,
        told_before=diagnosis.told_before,
        evidence=tuple(diagnosis.evidence),
        reading=diagnosis.reading,
        table=tuple(diagnosis.table),
        reproducer="\n".join(diagnosis.reproducer),
    )
