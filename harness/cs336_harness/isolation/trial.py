"""A trial: a subject judged in a process of its own, its results one by one as they come."""

from __future__ import annotations

import contextlib
import queue
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from cs336_harness.checks import Check
from cs336_harness.course.drills import DRILLS, DrillResult
from cs336_harness.isolation.answering import keep_answers
from cs336_harness.isolation.job import Event, Job, result_of
from cs336_harness.isolation.supervisor import Supervisor
from cs336_harness.isolation.workers import CAN_FORK, ForkServer, FreshProcesses, spare_cores
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.locating import locate
from cs336_harness.subject.setting import USUAL, Setting
from cs336_harness.subject.time_limit import CHECK_SECONDS, TOTAL_SECONDS
from cs336_harness.verdict.suite import Result, blockers

WORTH_RUNNERS = 8
"""So many checks are worth a second process."""

TICK = 0.05
"""Seconds between two looks at what takes long."""


class Bench:
    """The processes that judge, for one job after the other. To be used in a ``with`` statement, which ends them.

    ``timeout`` and ``total`` are as :class:`Trial` has them. Where there is no fork, a second Python process judges.
    """

    def __init__(self, *, timeout: float = CHECK_SECONDS, total: float = TOTAL_SECONDS, fork: bool = CAN_FORK) -> None:
        self.timeout, self.total = timeout, total
        self._deadline = time.monotonic() + total
        self._inbox: queue.Queue[Event] = queue.Queue()
        with contextlib.ExitStack() as opened:
            folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="cs336-", ignore_cleanup_errors=True))
            self.log = str(Path(folder) / "judge")
            workers = ForkServer(self._inbox.put) if fork else FreshProcesses(self._inbox.put, spare=False)
            opened.callback(workers.close)
            self._supervisor = Supervisor(workers)
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes; the next run is quicker for what is begun now."""
        self._opened.close()
        keep_answers()

    @property
    def overdue(self) -> bool:
        """Whether the time for everything is used up."""
        return time.monotonic() > self._deadline

    def start(self, job: Job, runners: int = 0) -> None:
        """Begins a job, with so many runners."""
        self._supervisor.start(job, runners)

    def events(self) -> Iterator[Event]:
        """What happens until the job is done or the time for everything is used up.

        Raises :class:`CannotJudgeError` when there is nothing to judge.
        """
        while self._supervisor.live:
            self._supervisor.tick()
            if self.overdue:
                self._supervisor.stop()
                return
            with contextlib.suppress(queue.Empty):
                for event in self._supervisor.take(self._inbox.get(timeout=TICK)):
                    if event["event"] == "unreadable":
                        raise CannotJudgeError(event["message"])
                    if event["event"] == "gone":
                        raise CannotJudgeError("the process that starts judges was ended from outside; run it again")
                    yield event


class Trial:
    """Judges a subject by ``checks``. To be used in a ``with`` statement, which ends what it started.

    ``timeout`` is the subject's own processor time for one check in seconds, ``total`` the time of the whole trial by
    the clock. ``runners`` processes help the judge, by default one on each other core. ``results`` may be asked for
    while others are still being worked out. ``setting`` is what the subject is run on.

    Raises:
        CannotJudgeError: the subject cannot be found or does not load; one line that says why.
    """

    def __init__(
        self,
        path: Path,
        checks: Iterable[Check],
        *,
        diagnose: bool = True,
        timeout: float = CHECK_SECONDS,
        total: float = TOTAL_SECONDS,
        show_output: bool = False,
        fork: bool = CAN_FORK,
        runners: int | None = None,
        setting: Setting = USUAL,
    ) -> None:
        file = locate(path)
        self.checks = list(checks)
        self.running = ""
        """The id of the check that is running."""
        self._hidden_lines: dict[int, int] = {}
        self._results: dict[str, Result] = {}
        with contextlib.ExitStack() as opened:
            self._bench = opened.enter_context(Bench(timeout=timeout, total=total, fork=fork))
            self._job = Job(
                number=0,
                path=str(file),
                log=self._bench.log,
                timeout=timeout,
                checks=tuple(check.id for check in self.checks),
                diagnose=diagnose,
                show_output=show_output,
                setting=setting,
            )
            # What the subject prints is shown in order, and so by one process; so is what a few checks give.
            if not fork or show_output or len(self.checks) < WORTH_RUNNERS:
                runners = 0
            self._bench.start(self._job, spare_cores() if runners is None else runners)
            self._events = self._bench.events()
            loaded = next((event for event in self._events if event["event"] == "loaded"), None)
            if loaded is None:
                raise CannotJudgeError(f"importing {file} was not through when {self.cut_short}")
            self._opened = opened.pop_all()
        self.name: str = loaded["name"]
        """What messages call the subject."""
        self.provenance: str = loaded["provenance"]
        """Where a package came from that the subject does not bring; empty when there is none."""
        self.root = Path(loaded["root"])
        """The folder that the subject's files live under."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes of the trial."""
        self._opened.close()

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

    @property
    def hidden_lines(self) -> int:
        """How many lines the subject printed that were not shown."""
        return sum(self._hidden_lines.values())

    @property
    def cut_short(self) -> str | None:
        """Why not every check has a result; None while nothing was left out."""
        seconds = f"{self._bench.total:g} s"
        return f"the {seconds} for the whole run were over (--total-timeout)" if self._bench.overdue else None

    def run(self) -> Iterator[Result | None]:
        """Each result as it comes, and None when another check has begun."""
        for event in self._events:
            yield self._kept(event)

    def result(self, check_id: str) -> Result | None:
        """The result of one of the checks, as soon as it is there; None when there will be none."""
        while check_id not in self._results:
            event = next(self._events, None)
            if event is None:
                break
            self._kept(event)
        return self._results.get(check_id)

    def _kept(self, event: Event) -> Result | None:
        if event["event"] == "running":
            self.running = event["check"]
        if event["event"] != "result":
            return None
        result = result_of(event["result"])
        self._results[result.check.id] = result
        if "hidden_lines" in event:
            self._hidden_lines[event["part"]] = event["hidden_lines"]
        return result

    def drills(self, path: Path) -> list[DrillResult]:
        """What became of each of the learner's closing drills; to be asked for after the checks."""
        return judge_drills(path, self._bench)


def judge_drills(path: Path, bench: Bench) -> list[DrillResult]:
    """What became of each closing drill of a file, judged in a process of its own."""
    bench.start(Job(0, str(path), bench.log, bench.timeout, drills=True))
    reason = "not judged: the time for the whole run was over"
    try:
        for event in bench.events():
            if event["event"] == "drills":
                return [DrillResult(*result) for result in event["results"]]
    except CannotJudgeError as error:
        reason = str(error)
    return [DrillResult(name, "failed", reason) for name in DRILLS]
