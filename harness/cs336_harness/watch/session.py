"""The side of a watch that talks to the person: what a save leads to, what is printed when, and the keys."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from cs336_harness.checks import all_checks
from cs336_harness.checks.registry import TASKS
from cs336_harness.defects import all_defects
from cs336_harness.diagnosis import Diagnosis
from cs336_harness.subject.calling import is_own_file
from cs336_harness.subject.failures import CheckFailure, Evidence
from cs336_harness.verdict.explain import hints
from cs336_harness.verdict.progress import entry_points_of, progress_lines
from cs336_harness.verdict.report import counts_line, failure_block, print_report
from cs336_harness.verdict.suite import Result
from cs336_harness.watch.judge import Event, Job
from cs336_harness.watch.workers import Workers

KEYS = "Enter: again   h: hints   a: all checks   q: quit"
PATIENCE = 0.15
"""Seconds that a diagnosis may take before the bare failure is printed."""
GRACE = 2.0
"""Seconds past the time limit after which a judge that did not end itself is killed."""
_PLACE = re.compile(r'File "(.+)", line (\d+) in (.+)')


def result_of(event: Event) -> Result:
    """The result that a judge told of."""
    failure = None
    if event["outcome"] in ("failed", "blocked", "advisory"):
        failure = CheckFailure(event["message"], Evidence(details=event["details"]))
    return Result(
        check=all_checks()[event["id"]],
        outcome=event["outcome"],
        seconds=event["seconds"],
        message=event["message"],
        blocked_by=event["blocked_by"],
        error_in_noise=event["error_in_noise"],
        failure=failure,
        diagnosis=_diagnosis_of(event["diagnosis"]) if event["diagnosis"] else None,
        states=event["states"],
    )


def _diagnosis_of(told: dict[str, Any]) -> Diagnosis:
    defects = tuple(all_defects()[defect["name"]] for defect in told["defects"])
    fields: dict[str, Any] = {**told, "defects": defects, "reproducer": told["reproducer"].splitlines()}
    return Diagnosis(**fields)


class Session:
    """A watch of one subject. It is told of saves, keys and events, one at a time, and prints.

    A failure is printed the moment it is known; a task that failed last time or whose entry points changed, as soon as
    its checks are through; the others only where they are not right; and at the end where the learner stands.
    """

    def __init__(
        self,
        console: Console,
        workers: Workers,
        path: Path,
        root: Path,
        log: Path,
        *,
        timeout: float,
        keyword: str | None = None,
        diagnose: bool = True,
    ) -> None:
        self._console = console
        self._workers = workers
        self._path, self._root, self._log = path, root, log
        self._timeout, self._keyword, self._diagnose = timeout, keyword, diagnose
        self._job = 0
        self._why: str | None = None
        self._in_full = False
        self._started = self._last_event = 0.0
        self._live = self._cut = False
        self._known: dict[str, str] = {}
        self._changed: set[str] = set()
        self._plan: list[str] = []
        self._running: dict[int, str] = {}
        self._open: set[int] = set()
        self._results: dict[str, Result] = {}
        self._troubled: set[str] = set()
        self._in_diagnosis: dict[str, tuple[str, float]] = {}

    @property
    def live(self) -> bool:
        """Whether a job is running."""
        return self._live

    def run(self, why: str, *, in_full: bool = False) -> None:
        """Judges anew; a job that is still running is killed. ``in_full`` runs and shows every check."""
        if self._live:
            self._workers.stop()
        self._job += 1
        self._in_full, self._live = in_full, True
        self._started = self._last_event = time.monotonic()
        self._plan, self._running, self._open = [], {}, set(range(self._workers.parts))
        self._cut = False
        failed = tuple(result.check.id for result in self._results.values() if result.outcome in ("failed", "blocked"))
        self._troubled = {all_checks()[name].task for name in failed}
        self._why = f"{time.strftime('%H:%M:%S')}  {why}"
        self._current = Job(
            number=self._job,
            path=str(self._path),
            log=str(self._log),
            timeout=self._timeout,
            keyword=None if in_full else self._keyword,
            first=failed,
            known=self._known,
            parts=self._workers.parts,
            diagnose=self._diagnose,
        )
        self._workers.start(self._current)

    def saved(self, paths: Iterable[Path]) -> None:
        """Judges because of a save."""
        names = sorted({str(path.relative_to(self._root)) for path in paths})
        self.run(", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") + " saved")

    def key(self, key: str) -> bool:
        """Does what a key means; False for quit."""
        if key in ("q", "Q", "\x03", "\x04"):
            return False
        if key in ("\r", "\n"):
            self.run("again")
        elif key in ("a", "A"):
            self.run("all checks", in_full=True)
        elif key in ("h", "H"):
            self._show_hints()
        return True

    def event(self, event: Event) -> None:
        """Takes what the running job tells; what an earlier one still had to say is dropped."""
        if event.get("job") != self._job or not self._live:
            return
        self._last_event = time.monotonic()
        if event["event"] in ("loaded", "unreadable", "ended") and self._why is not None:
            self._console.rule(Text(self._why), align="left", style="dim")
            self._why = None  # a job that a newer save kills at once leaves no line
        part = event["part"]
        match event["event"]:
            case "loaded" if not self._plan:
                self._known = event["fingerprints"]
                self._changed = set(event["changed"])
                self._plan = event["plan"]
                self._results, self._in_diagnosis = {}, {}
            case "running":
                self._running[part] = event["check"]
            case "failure" if event["id"] not in self._results:
                self._in_diagnosis[event["id"]] = (event["message"], time.monotonic())
            case "result" if event["id"] not in self._results:
                self._take(result_of(event))
            case "unreadable":
                self._live = False
                self._console.print(Text(f"✗ {event['message']}", "bold red"))
                self._close()
            case "done":
                self._end(part)
            case "ended" if part in self._open:
                self._cut_short(part, event["status"])

    def tick(self) -> None:
        """Kills a job that is silent for too long; prints a bare failure when its diagnosis takes long."""
        if self._live and time.monotonic() - self._last_event > self._timeout + GRACE:
            self._workers.stop()
        for name, (message, since) in list(self._in_diagnosis.items()):
            if time.monotonic() - since > PATIENCE and not self._in_full:
                del self._in_diagnosis[name]
                self._console.print(Text(f"✗ {name}  {message}; looking for the mistake behind it", "red"))

    def _take(self, result: Result) -> None:
        self._point_to_the_same(result)
        self._results[result.check.id] = result
        self._in_diagnosis.pop(result.check.id, None)
        if self._in_full:
            return
        if result.outcome == "failed":
            self._console.print(failure_block(result))
        self._show_task_when_through(result.check.task)

    def _point_to_the_same(self, result: Result) -> None:
        """A mistake that the other judge told already is told by reference: judges do not know of each other."""
        if result.diagnosis is None or not result.diagnosis.named:
            return
        for other in self._results.values():
            told = other.diagnosis
            if told is not None and told.named and told.title == result.diagnosis.title:
                result.diagnosis.told_before = other.check.id
                return

    def _show_task_when_through(self, task: str) -> None:
        planned = [name for name in self._plan if all_checks()[name].task == task]
        own = [self._results[name] for name in planned if name in self._results]
        if len(own) < len(planned) or {result.outcome for result in own} <= {"blank", "skipped", "advisory"}:
            return
        changed = not self._changed or bool(self._changed.intersection(entry_points_of(task)))
        touched = task in self._troubled or changed
        wrong = any(result.stops_exit_zero for result in own)
        if touched or wrong:
            self._console.print(Text.assemble(f"{task:<29}", f"§{TASKS[task]:<7}", counts_line(own)))

    def _end(self, part: int) -> None:
        self._open.discard(part)
        if not self._open:
            self._live = False
            self._finish()

    def _finish(self) -> None:
        results = [self._results[name] for name in self._plan if name in self._results]
        seconds = time.monotonic() - self._started
        left = len(self._plan) - len(results)
        if left:
            said = "1 check was" if left == 1 else f"{left} checks were"
            self._console.print(Text(f"{said} not run after that", "yellow"))
        if not results:
            self._close()
            return
        if self._in_full:
            print_report(self._console, results, seconds, root=self._root)
        else:
            self._console.print()
            advisory = sum(result.outcome == "advisory" for result in results)
            told = f", {advisory} advisory" if advisory else ""
            ran = "1 check" if len(results) == 1 else f"{len(results)} checks"
            self._console.print(Text(f"{ran} in {seconds:.1f} s{told}", "dim"))
            lines = progress_lines(results, self._root)
            complete = not any(result.stops_exit_zero for result in results)
            self._print_lines(lines if complete else [line for line in lines[:2] if line != "complete when"])
        self._close()

    def _cut_short(self, part: int, status: int) -> None:
        """A judge that ended before it was through: too slow, crashed, or left by the subject's own exit."""
        log_file = self._current.log_of(part)
        log = log_file.read_text(encoding="utf-8", errors="replace") if log_file.exists() else ""
        doing = self._running.get(part)
        what = doing or f"importing {self._path.name}"
        if "Timeout (" in log or status == -signal.SIGKILL:
            elsewhere = _innermost_elsewhere(log, self._root)
            guess = f", while it was in {elsewhere}" if elsewhere else ": an endless loop?"
            message = f"{what} did not end in {self._timeout:g} s{guess} (--timeout SECONDS allows more)"
        elif status < 0:
            message = f"{what} ended the process with {signal.Signals(-status).name}"
        else:
            message = f"{what} ended the process with exit status {status}"
        details = list(_own_places(log, self._root))[:3] or log.strip().splitlines()[-3:]
        if self._cut:  # its neighbour met the same end first
            pass
        elif doing is None:
            self._console.print(Text("\n".join([f"✗ {message}", *(f"    {line}" for line in details)]), "bold red"))
        elif doing not in self._results:
            failure = CheckFailure(message, Evidence(details=details))
            self._take(Result(all_checks()[doing], "failed", message=message, failure=failure))
        self._cut = True
        self._end(part)

    def _show_hints(self) -> None:
        failed = [result for result in self._results.values() if result.outcome == "failed"]
        for result in failed:
            self._console.print(failure_block(result, hint=True))
            if result.diagnosis is None or not result.diagnosis.named:
                self._print_lines(f"  {number}. {step}" for number, step in enumerate(hints(result.check.id), 1))
        if not failed:
            lines = progress_lines(self._results.values(), self._root)
            self._print_lines([line for line in lines if line.startswith("next")] or ["nothing fails"])
        self._close()

    def _print_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._console.print(Text(line), soft_wrap=True)

    def _close(self) -> None:
        self._console.print(Text(KEYS, "dim"))


def _own_places(log: str, root: Path) -> Iterable[str]:
    """Where a stack that was dumped stood in the subject's own files, innermost first."""
    for file, line, function in _PLACE.findall(log):
        if is_own_file(file, root):
            yield f"{Path(file).relative_to(root)}:{line} in {function}"


def _innermost_elsewhere(log: str, root: Path) -> str | None:
    """The file, none of the subject's, that the main thread stood in; a dump shows that thread last."""
    stack = log.rpartition("(most recent call first)")[2]
    file = next((file for file, _, _ in _PLACE.findall(stack) if not file.startswith("<")), None)
    if file is None or is_own_file(file, root):
        return None
    parts = Path(file).parts
    if "site-packages" in parts:
        return Path(*parts[parts.index("site-packages") + 1 :]).as_posix()
    return str(Path(file).relative_to(root) if Path(file).is_relative_to(root) else file)
