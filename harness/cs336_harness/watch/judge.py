"""The side of a watch that touches the subject: one job, in a process of its own, told as one JSON object per line."""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import json
import os
import sys
import warnings
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import IO, Any

from cs336_harness.checks import Check
from cs336_harness.checks.registry import TASKS
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.loading import load
from cs336_harness.verdict.progress import entry_points_of
from cs336_harness.verdict.suite import Result, Suite, select
from cs336_harness.watch.fingerprint import fingerprints

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

Event = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """What to judge, in which order, and for how long at most.

    ``first`` are checks that failed last time, ``known`` the fingerprints of that time. ``parts`` judges share the
    checks, each in a process of its own. Each has a log beside ``log``, for whatever the subject writes to its standard
    output and error, and for its stack when a check takes longer than ``timeout`` seconds.
    """

    number: int
    path: str
    log: str
    timeout: float
    keyword: str | None = None
    first: tuple[str, ...] = ()
    known: dict[str, str] = dataclasses.field(default_factory=dict)
    parts: int = 1
    diagnose: bool = True

    def log_of(self, part: int) -> Path:
        """The log of one judge."""
        return Path(f"{self.log}-{part}")

    def to_json(self) -> str:
        """One line."""
        return json.dumps(dataclasses.asdict(self)) + "\n"

    @staticmethod
    def from_json(line: str) -> Job:
        """The job that a line holds."""
        fields = json.loads(line)
        fields["first"] = tuple(fields["first"])
        return Job(**fields)


def run_job(job: Job, part: int, events: int) -> None:
    """Judges a part of the checks and writes what happens to the descriptor ``events``, as lines of JSON.

    Ends the process when a check takes too long.
    """
    log = _withdraw(job.log_of(part))

    def tell(**event: Any) -> None:
        tell_line(events, {"job": job.number, "part": part, **event})

    faulthandler.dump_traceback_later(job.timeout, exit=True, file=log)
    try:
        subject = load(Path(job.path))
    except CannotJudgeError as error:
        tell(event="unreadable", message=str(error))
        return
    now = fingerprints(subject)
    changed = {name for name, digest in now.items() if job.known.get(name) != digest}
    plan = planned(select(job.keyword), job.first, changed)
    tell(event="loaded", fingerprints=now, changed=sorted(changed), plan=[check.id for check in plan])

    def tell_failure(result: Result) -> None:
        tell(event="failure", id=result.check.id, message=result.message)

    # A check that another judge has is told and diagnosed there; here it only blocks.
    theirs = {check.id for number, check in enumerate(plan) if number % job.parts != part}
    diagnose = job.diagnose and (lambda check: check.id not in theirs)
    suite = Suite(subject, diagnose=diagnose, before_diagnosis=tell_failure)
    told = set(theirs)
    for check in plan[part :: job.parts]:
        tell(event="running", check=check.id)
        faulthandler.dump_traceback_later(job.timeout, exit=True, file=log)
        suite.result(check)
        for result in suite.results():
            if result.check.id not in told:
                told.add(result.check.id)
                tell(event="result", **wire(result))
    tell(event="done")


def planned(checks: Iterable[Check], first: Iterable[str], changed: Iterable[str]) -> list[Check]:
    """The checks task by task: what failed last time, then what a change of entry points touches, then the rest."""
    failed, changed, checks = set(first), set(changed), list(checks)
    troubled = {check.task for check in checks if check.id in failed}

    def rank(check: Check) -> tuple[bool, bool, int]:
        touched = bool(changed.intersection(entry_points_of(check.task)))
        return check.task not in troubled, not touched, list(TASKS).index(check.task)

    return sorted(checks, key=rank)


def wire(result: Result) -> Event:
    """A result as plain data."""
    return {**result.to_json(), "states": result.states}


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


def _withdraw(log_path: Path) -> IO[str]:
    """Takes the process off the terminal: no input, and all output into the log. No stale bytecode, ever."""
    sys.dont_write_bytecode = True
    warnings.simplefilter("ignore")
    log = open(log_path, "w", encoding="utf-8")  # noqa: SIM115 (the process ends with it)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    faulthandler.enable(log)
    return log
