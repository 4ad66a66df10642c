"""One submission judged: taken in, imported in a process of its own, asked every check, and written down."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import importlib.metadata
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from cs336_harness.checks import Check, all_checks
from cs336_harness.checks.registry import OPTIONAL_TASKS
from cs336_harness.grading import intake, written
from cs336_harness.grading.isolated import asked
from cs336_harness.grading.processes import ForkServer, open_remote
from cs336_harness.grading.remote import RemoteSubject, WorkerLost
from cs336_harness.grading.rubric import NOT_JUDGED
from cs336_harness.reference.hidden_inputs import hidden_by
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.text import clean
from cs336_harness.subject.time_limit import CHECK_SECONDS, TimeUp
from cs336_harness.verdict.suite import Result, Suite

State = Literal["judged", "crashed", "timed out", "not loadable", "refused"]


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One submission to judge, and how: plain values, so that it can be sent to another machine.

    ``seconds`` is how long the submission may be waited for in one check, ``all_seconds`` how long all may take.
    """

    name: str
    path: str
    secret: str | None
    seconds: float = CHECK_SECONDS
    all_seconds: float = 300.0
    unsafe: bool = False
    checks: tuple[str, ...] | None = None
    diagnose: bool = True


@functools.cache
def _server(unsafe: bool) -> ForkServer:
    """This process's fork server, made when it is first needed."""
    server = ForkServer(unsafe=unsafe)
    atexit.register(server.close)
    return server


def judge(job: Job) -> dict[str, Any]:
    """The record of one submission; always one, whatever becomes of it."""
    started = time.monotonic()
    record: dict[str, Any] = {"name": job.name, "entry": clean(Path(job.path).name, 300)}
    record |= {"state": "refused", "reason": None, "digest": None, "writeup": None}
    checks = [all_checks()[name] for name in job.checks] if job.checks is not None else list(all_checks().values())
    results: dict[str, Result] = {}
    folder = Path(tempfile.mkdtemp(prefix="cs336-submission-"))
    try:
        inside, record["digest"] = intake.take_in(Path(job.path), folder)
        record["writeup"] = written.judged(inside)
        with hidden_by(job.secret):
            state, reason = _judged(job, inside, checks, results)
        record["state"], record["reason"] = state, reason and reason.replace(str(folder), job.name)
    except CannotJudgeError as refused:
        record["reason"] = str(refused)
    except Exception as error:  # a fault of the checker's own is told, and costs nobody else anything
        record["state"] = "crashed"
        record["reason"] = f"the checker broke, with {type(error).__name__}: {clean(str(error), 300)}; report this bug"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    record["checks"] = [_entry(item, results.get(item.id), record["reason"]) for item in checks]
    record["diagnosis"] = _mistakes(record["checks"])
    record["seconds"] = round(time.monotonic() - started, 3)
    record["versions"] = versions()
    record["seed"] = job.secret
    return record


def _judged(job: Job, folder: Path, checks: Sequence[Check], results: dict[str, Result]) -> tuple[State, str | None]:
    server = _server(job.unsafe)
    until = time.monotonic() + job.all_seconds
    try:
        subject = open_remote(server, folder, seconds=job.seconds)
    except WorkerLost as lost:
        return "crashed", f"while it was imported, {lost}"
    except CannotJudgeError as error:
        return "not loadable", _not_here(str(error).removesuffix("; give the path of one"))
    except TimeUp:
        return "timed out", f"importing it takes more than {job.seconds:g} s"
    try:
        if "not in the subject's own folder" in subject.provenance:
            return "not loadable", f"it is not judged{subject.provenance}"
        return _asked(subject, job, checks, results, until)
    finally:
        subject.close()


def _asked(
    subject: RemoteSubject, job: Job, checks: Sequence[Check], results: dict[str, Result], until: float
) -> tuple[State, str | None]:
    # The wire keeps the time: a limit of our own could not end what runs elsewhere.
    suite = Suite(subject, diagnose=job.diagnose, components_asked=True)
    for item in checks:
        if time.monotonic() > until:
            return "timed out", f"it was not done after {job.all_seconds:g} s"
        result = asked(suite, subject, item)
        if result is not None:
            results[item.id] = result
        if subject.lost is not None:
            state: State = "timed out" if subject.restarts and "in time" in subject.lost else "crashed"
            return state, f"during {item.id}, {subject.lost}"
    return "judged", None


def _not_here(reason: str) -> str:
    """Why it does not load, for whom it was handed in to: with the command that they typed, and not the learner's.

    A missing ``cs336_basics`` is a part of the submission that was not handed in, no package to install.
    """
    if "imports cs336_basics, which is not installed here" in reason:
        return f"{reason.partition(',')[0]}, which was not handed in with it; no other one is judged in its place"
    if "Read-only file system" in reason:
        return clean(f"{reason}; where it is graded, it may write into its temporary folder alone", 600)
    missing = re.search(r"imports (\w+), which is not installed here", reason)
    if missing:
        told = f"{reason[: missing.start(1)]}{missing[1]}, which is not installed where it is graded"
        return clean(f"{told}; where it is meant to be: `uv run --with {missing[1]} cs336 grade …`", 600)
    return clean(reason, 600)


def _entry(item: Check, result: Result | None, reason: str | None) -> dict[str, Any]:
    if result is None:
        entry = Result(item, "skipped", message=reason or "").to_json() | {"outcome": NOT_JUDGED}
    else:
        entry = result.to_json()
    return {**entry, "advisory": item.advisory, "required": not item.advisory and item.task not in OPTIONAL_TASKS}


def _mistakes(checks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The known mistakes that were found, each once."""
    found: dict[str, dict[str, Any]] = {}
    for each in checks:
        for defect in (each["diagnosis"] or {}).get("defects", []):
            found.setdefault(defect["name"], {"check": each["id"], "task": each["task"], **defect})
    return list(found.values())


@functools.cache
def versions() -> dict[str, str]:
    """What a record was made with."""
    import torch

    found = {"python": platform.python_version(), "torch": torch.__version__, "system": platform.platform()}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found["cs336-harness"] = importlib.metadata.version("cs336-harness")
    return found
