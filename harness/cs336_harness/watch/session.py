"""The side of a watch that talks to the person: what a save leads to, what is printed when, and the keys."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.status import Status
from rich.text import Text

from cs336_harness.checks import all_checks
from cs336_harness.checks.registry import TASKS
from cs336_harness.isolation.job import Event, Job, result_of
from cs336_harness.isolation.supervisor import Supervisor
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.locating import ADAPTERS, root_of
from cs336_harness.verdict.explain import hints
from cs336_harness.verdict.progress import entry_points_of, progress_lines
from cs336_harness.verdict.report import MARKS, STYLES, counts_line, failure_block, print_report, to_json
from cs336_harness.verdict.suite import Result, blockers, select

if TYPE_CHECKING:
    from cs336_harness.picture.live import Live

KEYS = "Enter: again  f: failed  a: all  rope Enter: that task  h: hints  q: quit"

MEANINGS = {
    "passed": "passed",
    "failed": "failed",
    "blank": "blank",
    "blocked": "waits for a failed one",
    "skipped": "not defined",
    "advisory": "advisory",
}


class Session:
    """A watch of one subject. It is told of saves, keys and events, one at a time, and prints.

    A failure is printed once, with its diagnosis; until then a passing line says that it is looked for. A task that
    failed last time or whose entry points changed is printed as soon as its checks are through, the others only where
    they are not right; and at the end where the learner stands.
    """

    def __init__(
        self,
        console: Console,
        supervisor: Supervisor,
        path: Path,
        log: Path,
        *,
        runners: int = 0,
        timeout: float,
        keyword: str | None = None,
        diagnose: bool = True,
        page: Live | None = None,
    ) -> None:
        self._console = console
        self._supervisor = supervisor
        self._path, self._root, self._log = path, root_of(path), log
        self._file = path.name if path.suffix == ".py" else ADAPTERS
        self._runners, self._timeout, self._keyword, self._diagnose = runners, timeout, keyword, diagnose
        self._page = page
        self._status: Status | None = None
        self._why: str | None = None
        self._in_full = False
        self._started = 0.0
        self._known: dict[str, str] = {}
        self._changed: set[str] = set()
        self._plan: list[str] = []
        self._results: dict[str, Result] = {}
        self._troubled: set[str] = set()
        self._show_legend()

    def run(self, why: str, *, in_full: bool = False, checks: tuple[str, ...] | None = None) -> None:
        """Judges anew, and kills a job that still runs. ``in_full`` shows every check, ``checks`` are all to run."""
        self._in_full = in_full
        self._started = time.monotonic()
        self._plan = []
        failed = tuple(result.check.id for result in self._results.values() if result.outcome in ("failed", "blocked"))
        self._troubled = {all_checks()[name].task for name in failed}
        self._why = f"{time.strftime('%H:%M:%S')}  {why}" + (f"  (only {self._keyword})" if self._keyword else "")
        self._show(self._why)
        if self._page is not None:
            self._page.judging(why)
        job = Job(
            number=0,
            path=str(self._path),
            log=str(self._log),
            timeout=self._timeout,
            keyword=self._keyword,
            checks=checks,
            diagnose=self._diagnose,
            quiet=True,
            first=failed,
            known=self._known,
        )
        self._supervisor.start(job, self._runners)

    def saved(self, paths: Iterable[Path]) -> None:
        """Judges because of a save."""
        names = sorted({str(path.relative_to(self._root)) for path in paths})
        self.run(", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") + " saved")

    def command(self, command: str) -> bool:
        """Does what a key means; False for quit."""
        match command:
            case "quit":
                return False
            case "again":
                self.run("again")
            case "all":
                self._keyword = None
                self.run("all checks", in_full=True)
            case "failed":
                self._run_failed()
            case "hints":
                self._show_hints()
            case "legend":
                self._show_legend()
                self._show_keys()
        return True

    def typing(self, name: str) -> None:
        """Shows the name that is being typed."""
        self._show(None)
        self._console.file.write(f"\ronly: {name} \b")
        self._console.file.flush()

    def focus(self, name: str) -> None:
        """From now on judges only the checks whose id or task contains ``name``."""
        self._console.print()
        try:
            select(name)
        except CannotJudgeError as error:
            self.say(str(error))
            return
        self._keyword = name
        self.run("focus")

    def say(self, line: str) -> None:
        """Prints one line."""
        self._console.print(Text(line))

    def close(self) -> None:
        """Takes the passing line away."""
        self._show(None)

    def event(self, event: Event) -> None:
        """Takes what the supervisor tells of the running job."""
        kind = event["event"]
        if kind in ("loaded", "unreadable") and self._why is not None:
            self._console.rule(Text(self._why), align="left", style="dim")
            self._why = None  # a job that a newer save kills at once leaves no line
        match kind:
            case "loaded":
                self._known = event["fingerprints"]
                self._changed = set(event["changed"])
                self._plan = event["plan"]
                self._results = {}
            case "running":
                self._show(f"{len(self._results) + 1} of {len(self._plan)}  {event['check']}")
            case "failure":
                self._show(f"{event['result']['id']} fails; looking for the mistake behind it")
            case "result":
                self._take(result_of(event["result"]))
            case "unreadable":
                self._show(None)
                self._console.print(Text(f"✗ {event['message']}", "bold red"))
                self._draw({"error": event["message"]})
                self._show_keys()
            case "done":
                self._show(None)
                self._finish()

    def _show(self, passing: str | None) -> None:
        """Sets the line that is there only while something is going on; None takes it away."""
        if passing is None:
            if self._status is not None:
                self._status.stop()
                self._status = None
        elif self._status is not None:
            self._status.update(Text(passing))
        elif self._console.is_terminal:
            self._status = self._console.status(Text(passing))
            self._status.start()

    def _take(self, result: Result) -> None:
        self._results[result.check.id] = result
        if self._in_full:
            return
        if result.outcome == "failed":
            self._console.print(failure_block(result))
        self._show_task_when_through(result.check.task)

    def _show_task_when_through(self, task: str) -> None:
        planned = [name for name in self._plan if all_checks()[name].task == task]
        own = [self._results[name] for name in planned if name in self._results]
        if len(own) < len(planned) or {result.outcome for result in own} <= {"blank", "skipped", "advisory"}:
            return
        changed = not self._changed or bool(self._changed.intersection(entry_points_of(task)))
        touched = task in self._troubled or changed
        wrong = any(result.stops_exit_zero for result in own)
        if touched or wrong:
            self._console.print(Text.assemble(f"{task:<29}", f"{TASKS[task]:<8}", counts_line(own)))

    def _finish(self) -> None:
        results = [self._results[name] for name in self._plan if name in self._results]
        seconds = time.monotonic() - self._started
        if self._in_full:
            print_report(self._console, results, seconds, root=self._root, file=self._file)
        else:
            asked = sum(not result.unasked for result in results)
            ran = "1 check" if asked == 1 else f"{asked} checks"
            done = Text.assemble("\ndone: ", counts_line(results), (f"{ran} in {seconds:.1f} s", "dim"))
            self._console.print(done)
            lines = progress_lines(results, self._root, self._file)
            complete = not any(result.stops_exit_zero for result in results)
            self._print_lines(lines if complete else [line for line in lines[:2] if line != "complete when"])
        self._show_keys()
        self._draw(to_json(self._path.name, results, blockers=blockers(results, self._results)))

    def _draw(self, data: dict[str, Any]) -> None:
        """Shows a verdict on the live page, where there is one."""
        if self._page is not None:
            self._page.show({"subject": self._path.name, **data})

    def _run_failed(self) -> None:
        failed = tuple(result.check.id for result in self._results.values() if result.outcome in ("failed", "blocked"))
        if failed:
            self.run("only what failed", checks=failed)
        else:
            self.say("nothing failed in the last run")

    def _show_hints(self) -> None:
        failed = [result for result in self._results.values() if result.outcome == "failed"]
        for result in failed:
            self._console.print(failure_block(result, hint=True))
            if result.diagnosis is None or not result.diagnosis.named:
                self._print_lines(f"  {number}. {step}" for number, step in enumerate(hints(result.check.id), 1))
        if not failed:
            lines = progress_lines(self._results.values(), self._root, self._file)
            self._print_lines([line for line in lines if line.startswith("next")] or ["nothing fails"])
        self._show_keys()

    def _show_legend(self) -> None:
        text = Text()
        for outcome, mark in MARKS.items():
            text.append(f"{mark} {MEANINGS[outcome]}  ", STYLES[outcome])
        self._console.print(text)

    def _print_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._console.print(Text(line))

    def _show_keys(self) -> None:
        self._console.print(Text(KEYS, "dim"))
