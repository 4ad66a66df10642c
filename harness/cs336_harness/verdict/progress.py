"""Where a learner stands, from results alone: entry points, tasks in the handout's order, what is next, what is left.

It never says more than was run: a task is passed when every required check of it ran and passed, and a criterion holds
when every check behind it did.
"""

from __future__ import annotations

import dataclasses
import functools
import shlex
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from cs336_harness.checks import Check, all_checks, find
from cs336_harness.checks.registry import OPTIONAL_TASKS, TASKS
from cs336_harness.contract import ENTRY_POINTS, INCREMENTAL_ENTRY_POINTS
from cs336_harness.subject.locating import ADAPTERS
from cs336_harness.verdict.suite import Result

CRITERIA: dict[str, tuple[str, ...]] = {
    "both public full-model tests pass": ("assembly.transformer_lm", "assembly.transformer_lm_truncated_input"),
    "a tiny model's parameter count equals the derivation": (
        "accounting.unique_parameters",
        "accounting.parameter_count",
    ),
    "logits and gradients match the slow reference, tied and untied": ("slow_oracle",),
    "prefix logits stay when the suffix is replaced, tied and untied": (
        "information_flow.prefix_equivalence",
        "information_flow.changed_suffix",
        "information_flow.changed_suffix_of_a_model",
    ),
}
"""The completion criterion, line by line, with the checks that each line rests on (ids, or beginnings of ids)."""

WRITEUP = "WRITEUP.md"
WRITTEN = "every number of the written answer is right"
"""The last line of the completion criterion."""

WORST_FIRST = ("failed", "blocked", "blank", "not run", "passed", "skipped")
"""A task or criterion is in the first of these states that any of its required checks is in."""

MARKS = {"failed": "✗", "blocked": "✗", "blank": "○", "not run": "○", "passed": "✓", "skipped": "-"}


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """How many required checks of a task or criterion came out each way, ``not run`` among them.

    ``lacks`` are the entry points for want of which some were skipped.
    """

    name: str
    counts: Counter[str]
    lacks: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """One of :data:`WORST_FIRST`; without any check, ``not run``."""
        return next((state for state in WORST_FIRST if self.counts[state]), "not run")

    @property
    def ran(self) -> bool:
        """Whether at least one check ran."""
        return self.counts.total() > self.counts["not run"]

    @property
    def passed(self) -> bool:
        """Whether every check ran and passed."""
        return 0 < self.counts["passed"] == self.counts.total()


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """Where a learner stands. ``states`` are the entry points that were seen; ``causes`` the failed checks by task."""

    states: dict[str, str]
    tasks: tuple[Standing, ...]
    criteria: tuple[Standing, ...]
    causes: dict[str, str]

    @property
    def whole(self) -> bool:
        """Whether every required check ran."""
        return not any(task.counts["not run"] for task in self.tasks)

    @property
    def next_task(self) -> Standing | None:
        """The first task that ran and is not right yet; when there is none, the first that could not run in full."""
        open_tasks = [task for task in self.tasks if task.ran and task.state in ("failed", "blocked", "blank")]
        in_part = [task for task in self.tasks if task.counts["skipped"]]
        return next(iter(open_tasks + in_part), None)


@functools.cache
def required_checks(task: str) -> tuple[Check, ...]:
    """The checks of a task that can fail."""
    return tuple(check for check in all_checks().values() if check.task == task and not check.advisory)


@functools.cache
def entry_points_of(task: str) -> tuple[str, ...]:
    """The entry points that a task adds to those of the tasks before it."""
    needed: dict[str, None] = {}
    for name in TASKS:
        before = set(needed)
        needed |= dict.fromkeys(need for check in required_checks(name) for need in check.needs)
        if name == task:
            return tuple(need for need in needed if need not in before)
    raise KeyError(task)


def progress(results: Iterable[Result]) -> Progress:
    """Where these results leave a learner."""
    by_id = {result.check.id: result for result in results}
    states: dict[str, str] = {}
    causes: dict[str, str] = {}
    for result in by_id.values():
        states |= {name: state for name, state in result.states.items() if states.get(name) != "blank"}
        if result.outcome in ("failed", "blocked"):
            causes.setdefault(result.check.task, result.blocked_by or result.check.id)
    tasks = (_standing(task, required_checks(task), by_id) for task in TASKS)
    tasks = (task for task in tasks if task.name not in OPTIONAL_TASKS or task.state not in ("skipped", "not run"))
    criteria = (
        _standing(words, [check for name in names for check in find(name) if _counts(check)], by_id)
        for words, names in CRITERIA.items()
    )
    return Progress(states, tuple(tasks), tuple(criteria), causes)


def _counts(check: Check) -> bool:
    """Whether a completion criterion may rest on a check: it is required, and of what everybody has to have."""
    return not check.advisory and check.task not in OPTIONAL_TASKS


def _standing(name: str, checks: Iterable[Check], by_id: dict[str, Result]) -> Standing:
    found = [by_id.get(check.id) for check in checks]
    counts = Counter(_outcome(result) for result in found)
    skipped = [result.states for result in found if result is not None and result.outcome == "skipped"]
    lacks = dict.fromkeys(need for states in skipped for need, state in states.items() if state == "absent")
    return Standing(name, counts, tuple(lacks))


def _outcome(result: Result | None) -> str:
    """What counts for a required check: where it ended as advisory, it is as good as passed."""
    if result is None:
        return "not run"
    return "passed" if result.outcome == "advisory" else result.outcome


def progress_lines(
    results: Iterable[Result],
    root: Path | None = None,
    file: str = ADAPTERS,
    written: Callable[[], str] | None = None,
) -> list[str]:
    """The standing for a person: what is filled and passed, what comes next, and the completion criterion.

    ``root`` is the folder with the subject's ``WRITEUP.md``; it is judged here, where every required check ran, unless
    ``written`` gives the line on it. ``file`` is where the entry points are. Of a whole decoder, which nobody writes
    task by task, there are none.
    """
    results = list(results)
    if any(result.whole_decoder for result in results):
        return []
    standing = progress(results)
    passed = sum(task.passed for task in standing.tasks)
    lines = [f"required checks passed in {passed} of {len(standing.tasks)} tasks"]
    if standing.next_task is not None:
        lines.append(_next(standing, standing.next_task, file))
    if not standing.whole:
        lines[0] += ", the others were not run in full; `uv run cs336 check` runs everything"
        return lines
    filled = sum(state == "filled" for state in standing.states.values())
    left_out = sum(standing.states.get(name, "absent") == "absent" for name in INCREMENTAL_ENTRY_POINTS)
    in_part = sum(task.state == "passed" and not task.passed for task in standing.tasks)
    lines[0] = f"{filled} of {len(ENTRY_POINTS) - left_out} entry points filled, {lines[0]}"
    lines[0] += f", in {in_part} more as far as they could run" if in_part else ""
    last = written() if written is not None else _written(root)
    return [*lines, "complete when", *(f"  {line}" for line in (*_criteria(standing), last))]


def _next(standing: Progress, task: Standing, file: str) -> str:
    start = f"next: {task.name} ({TASKS[task.name]})"
    own = entry_points_of(task.name)
    match task.state:
        case "failed" | "blocked":
            cause = standing.causes[task.name]
            return f"{start}: {cause} fails; `uv run cs336 explain {shlex.quote(cause)}` says what it wants"
        case "blank":
            blank = [name for name in own if standing.states.get(name) == "blank"]
            return f"{start}: write {' and '.join(blank) or 'what it waits for'} in {file}"
        case _:
            absent = [name for name in own if standing.states.get(name) == "absent"]
            return f"{start}: define {' and '.join(absent) or 'what it lacks'} in {file} for its other checks"


def _criteria(standing: Progress) -> Iterator[str]:
    for criterion in standing.criteria:
        in_part = criterion.state == "passed" and not criterion.passed
        lacks = f": needs {', '.join(criterion.lacks)}" if criterion.lacks else ""
        how = "" if criterion.ran else " (not run)"
        if in_part:
            how = f" (right as far as it could run{lacks})"
        elif criterion.state == "skipped":
            how = f" (could not run{lacks})"
        yield f"{MARKS['skipped' if in_part else criterion.state]} {criterion.name}{how}"


def written_ahead(root: Path | None) -> Callable[[], str]:
    """Judges the written answer while other processes are at work; what is returned waits for the line on it."""
    lines: list[str] = []
    thread = threading.Thread(target=lambda: lines.append(_written(root)), daemon=True)
    thread.start()

    def line() -> str:
        thread.join()
        return lines[0] if lines else _written(root)

    return line


def _written(root: Path | None) -> str:
    """The line of the written answer. A judgement of it needs no torch and takes a few milliseconds."""
    from cs336_harness.writeup.questions import judge_file

    if root is None or not (root / WRITEUP).is_file():
        return f"{MARKS['not run']} {WRITTEN} (there is no {WRITEUP})"
    try:
        verdicts = Counter(answer.verdict for answer in judge_file(root / WRITEUP).answers.values())
    except ValueError:
        return f"{MARKS['failed']} {WRITTEN} ({WRITEUP} cannot be read; `uv run cs336 writeup` says why)"
    open_questions = verdicts["wrong"] + verdicts["missing"]
    if not open_questions:
        return f"{MARKS['passed']} {WRITTEN}"
    mark = MARKS["failed" if verdicts["wrong"] else "blank"]
    counts = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items() if verdict in ("wrong", "missing"))
    return f"{mark} {WRITTEN} ({counts}; `uv run cs336 writeup`)"
