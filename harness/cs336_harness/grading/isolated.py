"""One submission judged as ``cs336 grade`` does, with the questions of ``cs336 check``: for ``check --isolated``."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from cs336_harness.checks import Check
from cs336_harness.grading import intake
from cs336_harness.grading.processes import ForkServer, open_remote
from cs336_harness.grading.remote import RemoteSubject, WorkerLost
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.locating import locate
from cs336_harness.subject.time_limit import TimeUp
from cs336_harness.verdict.suite import Result, Suite, blockers


class IsolatedTrial:
    """Judges a submission by ``checks`` in a process that reaches nothing but a copy of it.

    To be used as :class:`~cs336_harness.isolation.trial.Trial` is, and raises as that does; :attr:`cut_short` says
    more often why checks have no result, because a process that ends is not replaced.
    """

    def __init__(self, path: Path, checks: Iterable[Check], *, diagnose: bool, timeout: float, total: float) -> None:
        file = locate(path)
        self.checks = list(checks)
        self.running = ""
        self.cut_short: str | None = None
        self._diagnose, self._total = diagnose, total
        self._results: dict[str, Result] = {}
        with contextlib.ExitStack() as opened:
            server = opened.enter_context(ForkServer())
            staging = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="cs336-submission-")))
            inside, _ = intake.take_in(path if path.is_dir() else file.parent, staging)
            target = inside if path.is_dir() else inside / file.name
            try:
                self._subject = open_remote(server, target, seconds=timeout)
            except TimeUp:
                raise CannotJudgeError(f"importing {file} did not end in {timeout:g} s") from None
            except WorkerLost as lost:
                raise CannotJudgeError(f"while {file} was imported, {lost}") from None
            except CannotJudgeError as error:
                raise type(error)(str(error).replace(str(inside), str(path))) from None
            opened.callback(self._subject.close)
            self._opened = opened.pop_all()
        self.name = str(path)
        self.provenance = self._subject.provenance
        self.root = path if path.is_dir() else file.parent

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    @property
    def hidden_lines(self) -> int:
        """How many lines the subject printed; none are shown."""
        return self._subject.output.hidden_lines

    @property
    def results(self) -> list[Result]:
        """What has come so far, in the order of the checks."""
        return [self._results[check.id] for check in self.checks if check.id in self._results]

    @property
    def blockers(self) -> list[Result]:
        """Failures of checks that were not asked for and block one that was."""
        return blockers(self.results, self._results)

    @property
    def not_run(self) -> list[str]:
        """The ids of the checks that have no result."""
        return [check.id for check in self.checks if check.id not in self._results]

    def run(self) -> Iterator[Result | None]:
        """Each result as it comes."""
        suite = Suite(self._subject, diagnose=self._diagnose)
        until = time.monotonic() + self._total
        for item in self.checks:
            if time.monotonic() > until:
                self.cut_short = f"the {self._total:g} s for the whole run were over (--total-timeout)"
                return
            self.running = item.id
            yield None
            result = asked(suite, self._subject, item)
            if result is not None:
                self._results[item.id] = result
                yield result
            if self._subject.lost is not None:
                self.cut_short = f"during {item.id}, {self._subject.lost}"
                return


def asked(suite: Suite, subject: RemoteSubject, item: Check) -> Result | None:
    """The result of one check of a subject elsewhere; None when it was lost over it, unless it had failed before.

    What a check makes of a call that nobody answered says nothing.
    """
    subject.wire.refill()
    try:
        result = suite.result(item)
    except WorkerLost:
        return None
    return None if subject.lost is not None and result.outcome == "passed" else result
