"""What a submission is worth: points by task and check, the written answer, late days, what students may see."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cs336_harness.checks import all_checks, find
from cs336_harness.checks.registry import OPTIONAL_TASKS, TASKS
from cs336_harness.subject.failures import CannotJudgeError

TASK_POINTS = 10.0
NOT_JUDGED = "not judged"
"""The outcome of a check that was to be asked and was not: its submission ended before."""

PUBLIC = ("slow_oracle.huggingface_llama",)
"""Checks of numbers that nobody here computed and anybody can read: their inputs cannot be hidden, so that a submission
may carry the answers. They are not graded."""

VISIBLE = ("score", "tasks", "checks", "diagnosis", "hints", "writeup")


@dataclasses.dataclass(frozen=True)
class Rubric:
    """Points of each task, shared out evenly among its required checks; points of single checks beside them.

    What a check earns is in :func:`earning`: passing alone is not enough.

    ``late_per_day`` is the part of the score that one day takes, down to ``late_least`` of it. ``visible`` is what a
    student's report shows.
    """

    tasks: Mapping[str, float] = dataclasses.field(default_factory=lambda: dict.fromkeys(_asked_of_all(), TASK_POINTS))
    checks: Mapping[str, float] = dataclasses.field(default_factory=dict)
    writeup: float = 0.0
    late_per_day: float = 0.0
    late_least: float = 0.0
    visible: tuple[str, ...] = VISIBLE

    @property
    def counted(self) -> tuple[str, ...]:
        """The tasks that are graded: every one of the handout, and an optional one that the rubric names."""
        return tuple(task for task in TASKS if task not in OPTIONAL_TASKS or task in self.tasks)

    @property
    def asked(self) -> tuple[str, ...]:
        """The ids of the checks that can earn points, in the order they run: an advisory one only where it is named."""
        named = {item.id for prefix in self.checks for item in find(prefix)}
        return tuple(
            item.id
            for item in all_checks().values()
            if item.id not in PUBLIC and (item.id in named or (not item.advisory and item.task in self.counted))
        )

    def max_score(self, checks: Sequence[Mapping[str, Any]]) -> float:
        """Full marks for a record of these checks: what was not to be asked is worth nothing."""
        most = sum(task["max_points"] for task in self.by_task(checks).values()) + self.writeup
        ids = {each["id"] for each in checks}
        return most + sum(points for prefix, points in self.checks.items() if ids & {item.id for item in find(prefix)})

    def score(self, checks: Sequence[Mapping[str, Any]], writeup: Mapping[str, Any] | None, days: float) -> float:
        """The points of a record's checks: only what was asked and passed counts, whatever kept the rest from it."""
        total = sum(task["points"] for task in self.by_task(checks).values())
        earned = earning(checks)
        for prefix, points in self.checks.items():
            wanted = {item.id for item in find(prefix)} & {each["id"] for each in checks}
            total += points * len(wanted & earned) / max(1, len(wanted))
        if writeup is not None and writeup.get("asked"):
            total += self.writeup * writeup["right"] / writeup["asked"]
        return round(total * max(self.late_least, 1 - self.late_per_day * max(0.0, days)), 4)

    def by_task(self, checks: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """For each task: required checks, how many were judged and how many count, points, and the most they could be.

        Nothing counts in a task of which nothing was judged; one that was not asked about has no required checks.
        """
        tasks, earned = {}, earning(checks)
        for task in self.counted:
            required = [each for each in checks if each["task"] == task and not each["advisory"]]
            passed = sum(each["id"] in earned for each in required)
            most = self.tasks.get(task, 0.0) if required else 0.0
            tasks[task] = {
                "required": len(required),
                "judged": sum(each["outcome"] != NOT_JUDGED for each in required),
                "passed": passed,
                "points": round(most * passed / max(1, len(required)), 4),
                "max_points": most,
            }
        return tasks


def _asked_of_all() -> list[str]:
    return [task for task in TASKS if task not in OPTIONAL_TASKS]


MODEL_BUILDS = "configuration.model_builds"
"""What shows that a decoder is built at all: whatever else is asked of one is worth nothing without it."""


COMPARING = ("components", "assembly", "slow_oracle")
"""The groups of checks that compare one entry point with the reference."""


def earning(checks: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """The ids of the checks that earn points: they passed, and so did one that shows that what they call works.

    A function that raises leaves its arguments alone, and one that returns zeros shows no later token: that earns
    nothing. An entry point works when it passes a snapshot, or another comparison with the reference that takes
    arithmetic, which never comes out without any rounding; a model, when it builds. Where none of these were asked,
    every check that passed earns.
    """
    known, outcomes = all_checks(), {each["id"]: each["outcome"] for each in checks}
    compared: set[str] = set()
    right: set[str] = set()
    for each in checks:
        item, error = known[each["id"]], each["error_in_noise"]
        if item.snapshot is not None or (item.group in COMPARING and error):
            compared.update(item.needs)
            right.update(item.needs if each["outcome"] == "passed" else ())
    if MODEL_BUILDS in outcomes:
        needed = known[MODEL_BUILDS].needs
        compared.update(needed)
        (right.update if outcomes[MODEL_BUILDS] == "passed" else right.difference_update)(needed)
    useless = compared - right
    return frozenset(
        check_id
        for check_id, outcome in outcomes.items()
        if outcome == "passed" and not useless & set(known[check_id].needs)
    )


def read(path: Path) -> Rubric:
    """A rubric from a TOML file. :class:`CannotJudgeError` says what in it is no rubric."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CannotJudgeError(f"--rubric {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise CannotJudgeError(f"--rubric {path} is no TOML: {error}") from None

    def table(name: str) -> dict[str, Any]:
        value = given.pop(name, {})
        if not isinstance(value, dict):
            raise CannotJudgeError(f"--rubric {path}: [{name}] must be a table")
        return value

    def points(name: str, values: Mapping[str, Any], known: Any) -> dict[str, float]:
        for key, value in values.items():
            if not known(key):
                raise CannotJudgeError(
                    f"--rubric {path}: [{name}] names {key}, which there is not, or whose numbers are public"
                )
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
                raise CannotJudgeError(f"--rubric {path}: {key} = {value!r} is no number of points")
        return {key: float(value) for key, value in values.items()}

    all_checks()
    tasks = points("tasks", table("tasks"), TASKS.__contains__)
    checks = points("checks", table("checks"), lambda key: any(item.id not in PUBLIC for item in find(key)))
    writeup = points("writeup", table("writeup"), {"points"}.__contains__)
    late = points("late", table("late"), {"per_day", "least"}.__contains__)
    visible = table("students").get("see", list(VISIBLE))
    if not isinstance(visible, list) or not set(visible) <= set(VISIBLE):
        raise CannotJudgeError(f"--rubric {path}: [students] see is a list of {', '.join(VISIBLE)}")
    if given:
        raise CannotJudgeError(f"--rubric {path}: no such table: {next(iter(given))}")
    rubric = Rubric(
        tasks or dict.fromkeys(_asked_of_all(), TASK_POINTS),
        checks,
        writeup.get("points", 0.0),
        late.get("per_day", 0.0),
        late.get("least", 0.0),
        tuple(visible),
    )
    if not any((*rubric.tasks.values(), *rubric.checks.values(), rubric.writeup)):
        raise CannotJudgeError(f"--rubric {path} gives no points for anything")
    return rubric
