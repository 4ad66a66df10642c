"""The judge: the process that imports the subject. It does one job and tells what happens, one JSON object per line."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import mmap
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from cs336_harness.checks import Check, all_checks
from cs336_harness.checks.registry import TASKS
from cs336_harness.isolation.board import Board
from cs336_harness.isolation.job import Event, Job, result_of, wire
from cs336_harness.reference.answers import answers_kept
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.loading import load, provenance
from cs336_harness.subject.time_limit import Clock
from cs336_harness.verdict.progress import entry_points_of
from cs336_harness.verdict.suite import Suite, select

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

MARK_SIZE = 256
WHERE = getattr(signal, "SIGUSR1", None)
"""The signal that makes a judge write its stack into the log, whatever it is doing."""


Tell = Callable[..., None]
"""Writes an event: its name, and what belongs to it by keyword."""


def run_job(job: Job, events: int) -> None:
    """Does a job and writes what happens to the descriptor ``events``."""
    process = os.getpid()

    def tell(event: str, **fields: Any) -> None:
        if os.getpid() != process:  # the subject forked, and its child came back into our code
            os._exit(0)
        if job.show_output:
            sys.stdout.flush()
        tell_line(events, {"event": event, "job": job.number, "part": job.part, **fields})

    _withdraw(job)
    clock = Clock(job.timeout, mark=_marker(job.mark_path), deadly=True)
    if job.drills:
        _do_drills(job, clock, tell)
        return
    try:
        job.setting.require()
        subject = load(Path(job.path), show_output=job.show_output, clock=clock)
        subject.setting = job.setting
        told_off = job.setting.enter()
    except CannotJudgeError as error:
        tell("unreadable", message=str(error))
        return
    plan, more = _planned(job, subject)
    tell(
        "loaded",
        name=subject.name,
        provenance=provenance(subject) + told_off,
        root=str(subject.root),
        plan=[check.id for check in plan],
        **more,
    )
    board = Board(job.board_path)
    with answers_kept():
        if job.part > 0:
            _run_ahead(job, subject, plan, board, tell)
        else:
            _judge(job, subject, plan, board, tell, events)
    tell("done", hidden_lines=subject.output.hidden_lines)


def _judge(job: Job, subject: Subject, plan: list[Check], board: Board, tell: Tell, events: int) -> None:
    """Tells what becomes of each check, and of those that these build on."""
    told = {result["id"] for result in job.settled}

    def begins(check: Check) -> None:
        board.begin(check.id)
        tell("running", check=check.id)

    def passed_elsewhere(check: Check) -> bool:
        passed = board.passed(check.id)
        if passed:
            told.add(check.id)  # by the runner
        return passed

    suite = Suite(
        subject,
        diagnose=job.diagnose,
        before_check=begins,
        before_diagnosis=lambda result: None if result.check.id in told else tell("failure", result=wire(result)),
        timeout=job.timeout,
        settled=[result_of(result) for result in job.settled],
        lost=job.lost,
        passed_elsewhere=passed_elsewhere,
    )
    for check in plan:
        suite.result(check)
        for result in suite.results():
            if result.check.id not in told:
                told.add(result.check.id)
                tell("result", result=wire(result), hidden_lines=subject.output.hidden_lines)
    if job.known is None:  # a watch writes what it has worked out ahead, and not at each save of the learner's
        _keep_what_was_observed(events)


def _keep_what_was_observed(events: int) -> None:
    """Writes the file of observations, in a process that nobody waits for: it takes as long as many checks."""
    if "cs336_harness.diagnosis" not in sys.modules:
        return
    from cs336_harness.reference.kept import OBSERVATIONS, WORTH_WRITING, kept

    if kept(OBSERVATIONS).new < WORTH_WRITING:
        return
    if not hasattr(os, "fork"):
        kept(OBSERVATIONS).save()
    elif os.fork() == 0:
        try:
            os.setsid()  # out of the group that is killed with the judge
            os.close(events)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nowhere, stream)
            kept(OBSERVATIONS).save()
        finally:
            os._exit(0)


def _run_ahead(job: Job, subject: Subject, plan: list[Check], board: Board, tell: Tell) -> None:
    """Tells which checks pass. What becomes of the others is for the judge to say, which knows what failed before."""
    suite = Suite(subject, diagnose=False, timeout=job.timeout)
    for check in reversed(plan):
        if board.take(check.id):
            result = suite.attempt(check)
            if result.outcome == "passed" and not result.unanswered and board.is_taken(check.id):
                tell("result", result=wire(result), hidden_lines=subject.output.hidden_lines)
                board.note_pass(check.id)


def _planned(job: Job, subject: Subject) -> tuple[list[Check], Event]:
    """The checks in order; and for a watch, what it remembers until the next save."""
    checks = select(job.keyword) if job.checks is None else [all_checks()[name] for name in job.checks]
    if job.known is None:
        return checks, {}
    from cs336_harness.isolation.fingerprint import fingerprints

    now = fingerprints(subject)
    changed = {name for name, digest in now.items() if job.known.get(name) != digest}
    return planned(checks, job.first, changed), {"fingerprints": now, "changed": sorted(changed)}


def planned(checks: Iterable[Check], first: Iterable[str], changed: Iterable[str]) -> list[Check]:
    """The checks task by task: what failed last time, then what a change of entry points touches, then the rest."""
    failed, changed, checks = set(first), set(changed), list(checks)
    troubled = {check.task for check in checks if check.id in failed}

    def rank(check: Check) -> tuple[bool, bool, int]:
        touched = bool(changed.intersection(entry_points_of(check.task)))
        return check.task not in troubled, not touched, list(TASKS).index(check.task)

    return sorted(checks, key=rank)


def _do_drills(job: Job, clock: Clock, tell: Tell) -> None:
    from cs336_harness.course import drills

    results = drills.judge(Path(job.path), clock)
    tell("drills", results=[[result.name, result.outcome, result.message] for result in results])
    tell("done")


def _withdraw(job: Job) -> None:
    """Takes the process off the keyboard, and off the terminal if it is to be quiet; no stale bytecode, ever.

    Its stack goes into the log when it crashes, when its time is up, and when it is asked for it.
    """
    sys.dont_write_bytecode = True
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 (the process ends with it)
    os.dup2(sys.stdin.fileno(), 0)
    log = open(job.log_path, "w", encoding="utf-8")  # noqa: SIM115 (the process ends with it)
    if job.quiet:
        warnings.simplefilter("ignore")
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    faulthandler.enable(log)
    if hasattr(faulthandler, "register") and WHERE is not None:
        faulthandler.register(WHERE, file=log, all_threads=True)
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        faulthandler.register(signal.SIGVTALRM, file=log, all_threads=True, chain=True)


def _marker(path: Path) -> Any:
    """A function that notes what is being called where another process can read it at any moment."""
    path.write_bytes(bytes(MARK_SIZE))
    with open(path, "r+b") as file:
        shared = mmap.mmap(file.fileno(), MARK_SIZE)

    def mark(what: str) -> None:
        note = f"{time.monotonic():.3f} {time.process_time():.3f} {what}" if what else ""
        shared[:] = note.encode()[: MARK_SIZE - 1].ljust(MARK_SIZE, b"\0")

    return mark


class Mark(NamedTuple):
    """What a judge is calling, since when by the clock, and how long it had computed until then, in seconds."""

    what: str
    since: float
    computed: float


def read_mark(path: Path) -> Mark | None:
    """What a judge noted; None when it is in the harness's own code."""
    try:
        since, computed, what = path.read_bytes().rstrip(b"\0").decode(errors="replace").split(" ", 2)
        return Mark(what, float(since), float(computed))
    except (OSError, ValueError):  # no judge yet, or half of a note
        return None


def tell_line(events: int, event: Event) -> None:
    """Writes one event. It begins a line of its own, whatever a judge that was killed may have left."""
    line = f"\n{json.dumps(event, default=str)}\n".encode()
    with _alone(events):
        while line:
            line = line[os.write(events, line) :]


@contextlib.contextmanager
def _alone(events: int) -> Generator[None]:
    """Keeps the other judges from writing: a line longer than PIPE_BUF would mix with theirs.

    The lock is the process's own and ends with it, so that a judge which is killed leaves none behind.
    """
    if fcntl is None:  # no fork there, and so one judge
        yield
        return
    fcntl.lockf(events, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(events, fcntl.LOCK_UN)
