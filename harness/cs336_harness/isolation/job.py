"""What crosses between the processes, as plain data: a job for a judge, and a result on its way back."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from cs336_harness.checks import all_checks
from cs336_harness.subject.failures import CheckFailure, Evidence
from cs336_harness.subject.setting import USUAL, Setting
from cs336_harness.verdict.suite import Result

Event = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """What one judge is to do.

    ``path`` is an adapters file. It runs the checks that ``keyword`` selects, or ``checks`` (ids, in order). ``part``
    is 0 for the judge; every other is a runner, see :mod:`cs336_harness.isolation.board`. ``timeout`` is the subject's
    own processor time for one check.
    ``settled`` are results that are known already, ``lost`` the entry points that a judge before this one did not come
    back from, each with the check that met it and what became of it. ``log`` is the beginning of the names of the files
    that the judge leaves for when it is killed.

    For a watch: ``first`` are checks that failed last time and ``known`` the fingerprints of that time; ``quiet`` sends
    all that the subject writes to its standard output and error to the log. ``drills`` asks for the drills instead.
    ``setting`` is what the subject is run on.
    """

    number: int
    path: str
    log: str
    timeout: float
    keyword: str | None = None
    checks: tuple[str, ...] | None = None
    part: int = 0
    diagnose: bool = True
    show_output: bool = False
    quiet: bool = False
    drills: bool = False
    first: tuple[str, ...] = ()
    known: dict[str, str] | None = None
    settled: tuple[Event, ...] = ()
    lost: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    setting: Setting = USUAL

    @property
    def log_path(self) -> Path:
        """Where the judge's stack is written when it is ended, and its output if it is ``quiet``."""
        return Path(f"{self.log}-{self.part}")

    @property
    def mark_path(self) -> Path:
        """Where the judge notes what it is calling."""
        return Path(f"{self.log}-{self.part}.calling")

    @property
    def board_path(self) -> Path:
        """The board that its processes share."""
        return Path(f"{self.log}.board")

    def to_json(self) -> str:
        """One line."""
        return json.dumps(dataclasses.asdict(self)) + "\n"

    @staticmethod
    def from_json(line: str) -> Job:
        """The job that a line holds."""
        fields = json.loads(line)
        checks = fields["checks"]
        fields |= {"first": tuple(fields["first"]), "settled": tuple(fields["settled"])}
        fields["checks"] = None if checks is None else tuple(checks)
        fields["lost"] = {name: (check, how) for name, (check, how) in fields["lost"].items()}
        fields["setting"] = Setting(**fields["setting"])
        return Job(**fields)


def wire(result: Result) -> Event:
    """A result as plain data, from which :func:`result_of` makes it again."""
    influence = result.failure.evidence.influence if result.failure is not None else None
    return {
        **result.to_json(),
        "error_in_noise": result.error_in_noise,
        "states": result.states,
        "whole_decoder": result.whole_decoder,
        "influence": None if influence is None else influence.to_json(),
    }


def result_of(event: Event) -> Result:
    """The result that a judge told of. Its failure has the words and the influence map, but not the tensors."""
    failure = None
    if event["outcome"] in ("failed", "blocked", "advisory"):
        failure = CheckFailure(event["message"], Evidence(event["details"], event["error_in_noise"]))
        failure.evidence.figures = event.get("figures", {})
        if event["influence"] is not None:
            from cs336_harness.reference.influence import InfluenceMap

            failure.evidence.influence = InfluenceMap.from_json(event["influence"])
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
        whole_decoder=event.get("whole_decoder", False),
    )


def _diagnosis_of(told: dict[str, Any]) -> Any:
    from cs336_harness.defects import all_defects
    from cs336_harness.diagnosis.wording import Diagnosis

    defects = tuple(all_defects()[defect["name"]] for defect in told["defects"])
    fields: dict[str, Any] = {**told, "defects": defects, "reproducer": told["reproducer"].splitlines()}
    return Diagnosis(**fields)
