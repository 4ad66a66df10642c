"""A class graded: every submission through an executor, its record on disk as soon as it is there."""

from __future__ import annotations

import concurrent.futures
import contextlib
import csv
import dataclasses
import multiprocessing
import secrets
import signal
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from cs336_harness.checks import all_checks
from cs336_harness.grading import intake
from cs336_harness.grading.fork_server import die_with_parent
from cs336_harness.grading.intake import Submission
from cs336_harness.grading.judging import Job, judge, versions
from cs336_harness.grading.records import BATCH, Folder, scored, write_json
from cs336_harness.grading.rubric import PUBLIC, Rubric
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.text import clean
from cs336_harness.subject.time_limit import CHECK_SECONDS


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a batch is graded.

    ``secret``: None for one that is drawn, or that of the batch that is resumed. ``checks``: None for what the rubric
    gives points for.
    """

    rubric: Rubric = dataclasses.field(default_factory=Rubric)
    jobs: int = 1
    resume: bool = True
    secret: str | None = None
    late: dict[str, float] = dataclasses.field(default_factory=dict)
    unsafe: bool = False
    seconds: float = CHECK_SECONDS
    all_seconds: float = 300.0
    cluster: str | None = None
    checks: tuple[str, ...] | None = None

    @property
    def asked(self) -> tuple[str, ...]:
        """The ids of the checks that every submission is asked."""
        return self.rubric.asked if self.checks is None else tuple(each for each in self.checks if each not in PUBLIC)


Done = Callable[[str, dict[str, Any]], None]


def grade(found: Sequence[Submission], out: Path, settings: Settings, done: Done) -> list[dict[str, Any]]:
    """Grades submissions into a folder; their records by name. ``done`` is told of each as it is there."""
    if not settings.asked:
        raise CannotJudgeError("-k selects only checks whose numbers are public, which are not graded; select more")
    folder = Folder(out)
    folder.open()
    _require_same_batch(folder, found, settings)
    secret = _secret(folder, settings)
    jobs = [
        Job(
            each.name,
            str(each.path.absolute()),
            secret,
            settings.seconds,
            settings.all_seconds,
            settings.unsafe,
            settings.asked,
        )
        for each in found
    ]
    records: dict[str, dict[str, Any]] = {}
    waiting = []
    for job in jobs:
        before = folder.record(job.name) if settings.resume else None
        if before is not None and before.get("seed") == secret and _still_of(before, job):
            records[job.name] = before
            done(job.name, before)
        else:
            waiting.append(job)
    with contextlib.closing(_judged(waiting, settings)) as judged:
        for name, record in judged:
            records[name] = record
            write_json(folder.record_path(name), scored(record, settings.rubric, settings.late.get(name, 0.0)))
            done(name, record)
    finished = [scored(records[job.name], settings.rubric, settings.late.get(job.name, 0.0)) for job in jobs]
    for record in finished:
        write_json(folder.record_path(record["name"]), record)
    return finished


def _require_same_batch(folder: Folder, found: Sequence[Submission], settings: Settings) -> None:
    """:class:`CannotJudgeError` where the folder holds grades that this run would write over and not give again."""
    before = folder.batch()
    if before is None:
        return
    lost = set(before.get("checks") or ()) - set(settings.asked)
    if lost:
        checks = f"{len(lost)} checks" if len(lost) > 1 else f"{lost.pop()}"
        raise CannotJudgeError(
            f"--out {folder.path} holds grades for {checks} that this run does not ask; give another folder"
        )
    if settings.resume and settings.secret not in (None, before.get("secret")):
        raise CannotJudgeError(
            f"--out {folder.path} holds grades of another secret; give another folder, or --no-resume to replace them"
        )
    others = sorted(folder.names() - {each.name for each in found})
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise CannotJudgeError(
            f"--out {folder.path} holds grades of submissions that are not here ({others[0]}{more});"
            f" give another folder, or move their files away from {folder.path / 'records'}"
        )


def _secret(folder: Folder, settings: Settings) -> str:
    """The secret of the batch, kept in its folder for later proof."""
    kept = (folder.batch() or {}).get("secret") if settings.resume else None
    secret = settings.secret or (kept if isinstance(kept, str) else None) or secrets.token_hex(16)
    told = {"secret": secret, "checks": settings.asked, "versions": versions(), "unsafe": settings.unsafe}
    write_json(folder.path / BATCH, told)
    return secret


def _still_of(record: dict[str, Any], job: Job) -> bool:
    """Whether a record answers the same questions about the same files."""
    asked = [each["id"] for each in record["checks"]]
    wanted = list(job.checks if job.checks is not None else all_checks())
    return asked == wanted and record.get("digest") == _digest(job)


def _digest(job: Job) -> str | None:
    """What a submission holds now, to see whether its record is still of it."""
    with tempfile.TemporaryDirectory(prefix="cs336-digest-") as folder:
        try:
            return intake.take_in(Path(job.path), Path(folder))[1]
        except CannotJudgeError:
            return None


def _judged(jobs: Sequence[Job], settings: Settings) -> Generator[tuple[str, dict[str, Any]]]:
    """Every job with its record, in the order in which they are done.

    Those that were being judged when a process of the checker's was lost are tried once more, each by itself, so that
    one that ends its judge costs nobody else anything.
    """
    left = {job.name: job for job in jobs}
    lost: list[Job] = []
    while left:
        with executor(settings, len(left)) as pool:
            at_a_time = settings.jobs if settings.cluster is None else len(left)
            for job, record in _through(pool, list(left.values()), at_a_time):
                del left[job.name]
                if record is None:
                    lost.append(job)
                else:
                    yield job.name, record
    for job in lost:
        with executor(dataclasses.replace(settings, jobs=1), 1) as pool:
            ((_, record),) = _through(pool, [job], 1)
        yield job.name, _lost(job) if record is None else record


def _through(pool: Executor, jobs: Sequence[Job], at_a_time: int) -> Iterator[tuple[Job, dict[str, Any] | None]]:
    """Jobs with their records, None for one that was lost; ends early where the pool is broken."""
    coming = list(reversed(jobs))
    begun: dict[Future[dict[str, Any]], Job] = {}
    broken = False
    while begun or (coming and not broken):
        try:
            while coming and not broken and len(begun) < at_a_time:
                begun[pool.submit(judge, coming[-1])] = coming[-1]
                coming.pop()
        except BrokenProcessPool:
            broken = True
            if not begun:
                yield coming.pop(), None
        for future in concurrent.futures.wait(begun, return_when=concurrent.futures.FIRST_COMPLETED).done:
            job = begun.pop(future)
            try:
                record = future.result()
            except Exception as error:  # ``judge`` has none of its own: its process, or its machine, is gone
                record, broken = None, broken or isinstance(error, BrokenProcessPool)
            yield job, record


def _lost(job: Job) -> dict[str, Any]:
    """The record of a submission whose judging ended the checker's own process, twice."""
    refused = judge(dataclasses.replace(job, path="/nonexistent"))
    return {
        **refused,
        "entry": clean(Path(job.path).name, 300),
        "state": "crashed",
        "reason": "its judging ended the checker's own process, twice",
    }


@contextlib.contextmanager
def executor(settings: Settings, jobs: int) -> Generator[Executor]:
    """Local processes, or those of a Dask cluster; waits for what they were given.

    Where the run is stopped (Ctrl-C), local ones are ended at once, and what they had in files goes with them.
    """
    if settings.cluster is not None:
        from cs336_harness.grading.cluster import dask_executor

        with dask_executor(settings.cluster) as pool:
            yield pool
        return
    start = "fork" if sys.platform == "linux" else "spawn"  # forked, they have PyTorch already
    with tempfile.TemporaryDirectory(prefix="cs336-grading-", ignore_cleanup_errors=True) as scratch:
        pool = concurrent.futures.ProcessPoolExecutor(
            max(1, min(settings.jobs, jobs)),
            mp_context=multiprocessing.get_context(start),
            initializer=_become_one_of_the_pool,
            initargs=(scratch,),
        )
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.kill()
                child.join()
            raise
        pool.shutdown()


def _become_one_of_the_pool(scratch: str) -> None:
    """Ctrl-C reaches every process of a terminal: the first one alone decides, and ends the others.

    Where the first one is killed, nobody would: then the kernel ends this one.
    """
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = scratch


def read_late(path: Path, names: Iterable[str]) -> dict[str, float]:
    """Days late by submission, from a CSV file of ``name,days``."""
    known, late = set(names), {}
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    except (OSError, ValueError) as error:
        raise CannotJudgeError(f"--late {path} cannot be read: {error}") from None
    for number, row in enumerate(rows, 1):
        if not row or (number == 1 and row[:1] == ["name"]):
            continue
        try:
            name, days = row[0].strip(), float(row[1])
        except (IndexError, ValueError):
            raise CannotJudgeError(f"--late {path}, line {number}: give a name and a number of days") from None
        if name not in known:
            raise CannotJudgeError(f"--late {path}, line {number}: no submission is called {name}")
        if not 0 <= days < 1e4:
            raise CannotJudgeError(f"--late {path}, line {number}: {row[1]} is no number of days")
        late[name] = days
    return late
