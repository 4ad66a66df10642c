"""Who watches over the judges of a job: each planned check gets a result, whatever becomes of the judge that had it."""

from __future__ import annotations

import dataclasses
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from cs336_harness.checks import all_checks
from cs336_harness.contract import ENTRY_POINTS
from cs336_harness.isolation.board import Board
from cs336_harness.isolation.job import Event, Job, wire
from cs336_harness.isolation.judge import Mark, read_mark
from cs336_harness.isolation.workers import Workers
from cs336_harness.places import is_own_file
from cs336_harness.subject.failures import CheckFailure, Evidence
from cs336_harness.subject.locating import root_of
from cs336_harness.subject.time_limit import did_not_end, innermost_elsewhere
from cs336_harness.verdict.suite import Result

WAITING = 4
"""How many times its limit a call may take by the clock if it hardly computes: a deadlock waits, a busy machine is
slow."""

HARDLY = 0.05
"""The part of the time that a call computes, or is kept from computing by others, which does nothing but wait."""

BY_THE_CLOCK = 20
"""How many times its limit a call may take by the clock in any case."""

OWN_SECONDS = 120.0
"""How long the harness's own part of one check or diagnosis may take by the clock, beside the subject's."""

_PLACE = re.compile(r'File "(.+)", line (\d+) in (.+)')

IMPORTING = "importing"


@dataclasses.dataclass(slots=True)
class _Judge:
    """One judge and what is known of it."""

    job: Job
    since: float
    plan: list[str] | None = None
    doing: str | None = None
    diagnosing: Event | None = None
    overdue: float | None = None
    computing: bool = False
    """Whether it was still computing when it was ended by the clock."""
    call: float | None = None
    """When the call that is running began, and how long the judge had been kept from a processor when that was seen."""
    queued: float = 0.0
    done: bool = False


class Supervisor:
    """Runs one job at a time. It is told every event of the workers, and gives those that its own listener is to hear.

    Of runners it takes what they saw pass; a runner that ends early, or has to be ended, is no loss.

    These are, once each: ``loaded``, or ``unreadable`` with a ``message`` and nothing after it; for a check ``running``
    and ``result``, with ``failure`` between them while a diagnosis is looked for; and ``done``.
    """

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._number = 0
        self._judges: dict[int, _Judge] = {}
        self._settled: dict[str, Event] = {}
        self._lost: dict[str, tuple[str, str]] = {}
        self._passed_ahead: set[str] = set()
        self._early: list[Event] = []
        self._loaded = False

    @property
    def live(self) -> bool:
        """Whether a job is running."""
        return 0 in self._judges and not self._judges[0].done

    def start(self, job: Job, runners: int = 0) -> None:
        """Begins a job, with so many runners; a job that is still running is killed. Its number is given here."""
        self.stop()
        self._number += 1
        self._settled, self._lost, self._passed_ahead, self._early = {}, {}, set(), []
        self._loaded = False
        parts = range(runners + 1)
        jobs = [dataclasses.replace(job, number=self._number, part=part, quiet=job.quiet or part > 0) for part in parts]
        self._judges = {one.part: _Judge(one, time.monotonic()) for one in jobs}
        Board.make(job.board_path)
        for one in jobs:
            self._begin(one)

    def _begin(self, job: Job) -> None:
        for path in (job.log_path, job.mark_path):
            path.unlink(missing_ok=True)
        self._workers.start(job)

    def stop(self) -> None:
        """Kills the running job."""
        if self.live:
            self._workers.stop()
        self._judges = {}

    def tick(self) -> None:
        """Kills a judge that is silent for too long."""
        now = time.monotonic()
        for judge in self._judges.values():
            if judge.done or judge.overdue is not None:
                continue
            mark = read_mark(judge.job.mark_path)
            if self._waits(judge, mark, now) or now - judge.since > BY_THE_CLOCK * judge.job.timeout + OWN_SECONDS:
                seconds = now - (judge.since if mark is None else mark.since)
                judge.overdue = seconds
                self._workers.kill(judge.job.part)

    def _waits(self, judge: _Judge, mark: Mark | None, now: float) -> bool:
        """Whether a call of the subject's takes too long by the clock."""
        if mark is None:
            return False
        if judge.call != mark.since:
            judge.call, judge.queued = mark.since, self._workers.queued(judge.job.part)
        seconds = now - mark.since
        if seconds < WAITING * judge.job.timeout:
            return False
        computed = self._workers.computed(judge.job.part)
        if not hasattr(signal, "setitimer") and (computed is None or computed - mark.computed > judge.job.timeout):
            return True  # Windows: the judge cannot stop itself
        queued = self._workers.queued(judge.job.part) - judge.queued
        hardly = computed is not None and computed - mark.computed + queued < HARDLY * seconds
        judge.computing = not hardly
        return hardly or seconds > BY_THE_CLOCK * judge.job.timeout

    def take(self, event: Event) -> Iterator[Event]:
        """What the listener is to hear of an event. What an earlier job still had to say is dropped."""
        if event["event"] == "gone":
            yield event
            return
        judge = self._judges.get(event.get("part", -1))
        if judge is None or event["job"] != self._number or judge.done:
            return
        judge.since = time.monotonic()
        if judge.job.part > 0:
            yield from self._take_from_runner(judge, event)
            return
        match event["event"]:
            case "loaded":
                judge.plan = event["plan"]
                if not self._loaded:  # a judge that goes on for one that was lost begins nothing anew
                    self._loaded = True
                    yield event
                    yield from self._early  # nobody hears of a result before that of the loading
                    self._early = []
            case "unreadable":
                yield from self._unreadable(event["message"])
            case "running":
                judge.doing, judge.diagnosing = event["check"], None
                yield event
            case "failure":
                judge.diagnosing = event["result"]
                yield event
            case "result":
                judge.diagnosing = None
                yield from self._settle(event["result"], event)
            case "done":
                yield from self._finish(judge, event)
            case "ended":
                yield from self._go_on_without(judge, event["status"])
            case _:
                yield event

    def _take_from_runner(self, runner: _Judge, event: Event) -> Iterator[Event]:
        match event["event"]:
            case "result" if event["result"]["id"] not in self._settled:
                self._passed_ahead.add(event["result"]["id"])
                self._settled[event["result"]["id"]] = event["result"]
                if self._judges[0].plan is None:
                    self._early.append(event)
                else:
                    yield event
            case "ended" | "done" | "unreadable":
                runner.done = True

    def _settle(self, result: Event, event: Event) -> Iterator[Event]:
        """Keeps a result of the judge's own, which stands above what a runner saw."""
        if result["id"] not in self._settled or result["id"] in self._passed_ahead:
            self._passed_ahead.discard(result["id"])
            self._settled[result["id"]] = result
            yield event

    def _finish(self, judge: _Judge, event: Event) -> Iterator[Event]:
        judge.done, judge.doing = True, None
        if any(not runner.done for runner in self._judges.values()):
            self._workers.stop()
        yield event

    def _unreadable(self, message: str) -> Iterator[Event]:
        self.stop()
        yield {"event": "unreadable", "message": message}

    def _go_on_without(self, judge: _Judge, status: int) -> Iterator[Event]:
        """A judge ended before it was through: its check gets a result, and another judge the rest of its plan."""
        log_path = judge.job.log_path
        log = log_path.read_text(encoding="utf-8", errors="replace") if log_path.exists() else ""
        mark = read_mark(judge.job.mark_path)
        called = mark.what if mark is not None else None
        root = root_of(Path(judge.job.path))
        message, how = _how_it_ended(judge, status, called, log, root)
        details = list(_own_places(log, root))[:3]
        if judge.plan is None:
            yield from self._unreadable(message + (f" (at {details[0]})" if details else ""))
            return
        own = judge.plan
        culprit = judge.doing or next(name for name in own if name not in self._settled)
        if judge.diagnosing is not None:
            failure = judge.diagnosing
            result = {**failure, "details": [*failure["details"], f"no diagnosis: {message}"]}
        else:
            check = all_checks()[culprit]
            result = wire(
                Result(
                    check,
                    "advisory" if check.advisory else "failed",
                    message=message,
                    failure=CheckFailure(message, Evidence(details)),
                    states=dict.fromkeys(check.needs, "filled"),
                )
            )
            if called in ENTRY_POINTS and not check.advisory:
                self._lost[called] = (culprit, how)
        event = {"event": "result", "job": self._number, "part": judge.job.part, "result": result}
        yield from self._settle(result, event)
        if all(name in self._settled for name in own):
            yield from self._finish(judge, {**event, "event": "done"})
            return
        rest = dataclasses.replace(
            judge.job, checks=tuple(judge.plan), settled=tuple(self._settled.values()), lost=dict(self._lost)
        )
        self._judges[rest.part] = _Judge(rest, time.monotonic())
        self._begin(rest)


def _how_it_ended(judge: _Judge, status: int, called: str | None, log: str, root: Path) -> tuple[str, str]:
    """What became of a judge: a sentence, and what is to be said of the entry point in few words."""
    job = judge.job
    what = called or judge.doing or f"{IMPORTING} {Path(job.path).name}"
    if _ended_by("SIGVTALRM", status):
        return did_not_end(what, job.timeout, innermost_elsewhere(_files_of(log), root)), "does not end"
    if judge.overdue is not None and called is None and judge.plan is not None:
        seconds = f"{judge.overdue:.0f} s"
        return f"{what}: the checker's own part took more than {seconds}; no fault of the decoder", "was not judged"
    if judge.overdue is not None:
        why = "" if judge.computing else ": does it wait for something?"
        if not hasattr(signal, "setitimer"):  # nothing stops what computes there, so it may be that
            why = ": an endless loop, or does it wait for something?"
        return f"{what} did not come back in {judge.overdue:.0f} s{why}", "does not end"
    if _ended_by("SIGKILL", status):
        return f"{what} was killed from outside (SIGKILL), perhaps for want of memory", "ends the process"
    if called is None and judge.plan is not None:
        return f"{what}: the checker itself broke; report this bug of the harness", "was not judged"
    if status < 0:
        return f"{what} ended the process with {signal.Signals(-status).name}", "ends the process"
    crash = f"a crash, 0x{status:X}" if status > 0x7FFFFFFF else f"exit status {status}"  # so Windows calls them
    return f"{what} ended the process with {crash}", "ends the process"


def _ended_by(name: str, status: int) -> bool:
    """Whether a signal that this system may not have ended a process."""
    number = getattr(signal, name, None)
    return number is not None and status == -number


def _own_places(log: str, root: Path) -> Iterator[str]:
    """Where a stack that was dumped stood in the subject's own files, innermost first."""
    for file, line, function in _PLACE.findall(log):
        if is_own_file(file, root):
            yield f"{Path(file).relative_to(root)}:{line} in {function}"


def _files_of(log: str) -> Iterator[str]:
    """The files of the main thread's stack, innermost first; a dump shows that thread last."""
    stack = log.rpartition("(most recent call first)")[2]
    return (file for file, _, _ in _PLACE.findall(stack))
