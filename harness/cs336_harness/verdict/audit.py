"""The suite judged by its own dictionary: which checks each known mistake fails, by how much, and what is said."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator

import torch

from cs336_harness.checks import Check, all_checks
from cs336_harness.checks.registry import GROUPS
from cs336_harness.contract import MODEL_ENTRY_POINTS
from cs336_harness.defects import Defect, subject_of
from cs336_harness.defects.defect import layer_of
from cs336_harness.diagnosis import Diagnosis, diagnose_check
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.oracle_adapters import OracleAdapters
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE
from cs336_harness.verdict.suite import Result, Suite


@dataclasses.dataclass(frozen=True, slots=True)
class Audited:
    """What the required checks make of one defect, or of several at once."""

    defects: tuple[type[Defect], ...]
    results: tuple[Result, ...]

    @property
    def failing(self) -> list[str]:
        """The ids of the checks that fail, blocked ones included."""
        return [result.check.id for result in self.results if result.outcome in ("failed", "blocked")]

    @property
    def first(self) -> Result | None:
        """The first check that fails and is not blocked: the one whose failure a learner reads."""
        return next((result for result in self.results if result.outcome == "failed"), None)

    @property
    def margin(self) -> float | None:
        """The largest error in tolerances; None where the checks that fail compare no numbers."""
        failing = set(self.failing)
        errors = [r.error_in_noise for r in self.results if r.check.id in failing and r.error_in_noise is not None]
        return max(errors) / TOLERANCE_IN_NOISE if errors else None

    def by_group(self) -> dict[str, int]:
        """How many checks of each group fail."""
        counts = Counter(check_id.partition(".")[0] for check_id in self.failing)
        return {group: counts[group] for group in GROUPS}


def audit(*defects: type[Defect], checks: Iterable[Check] | None = None) -> Audited:
    """Judges a subject with these defects by every required check that they can reach, or by the checks given.

    Some defects draw random numbers; they draw the same ones every time.
    """
    suite = Suite(subject_of(*defects), diagnose=False)
    chosen = [check for check in all_checks().values() if within_reach(check, *defects)] if checks is None else checks
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        audited = Audited(defects, tuple(suite.run(chosen)))
    for result in audited.results:
        if result is not audited.first:
            result.failure = None  # it holds the tensors of its call
    return audited


def diagnosis_of(audited: Audited) -> Diagnosis | None:
    """What is said of the first failure."""
    first = audited.first
    if first is None or first.failure is None:
        return None
    return diagnose_check(subject_of(*audited.defects), first.check, first.failure)


def within_reach(check: Check, *defects: type[Defect]) -> bool:
    """Whether a required check calls anything that one of the defects changes."""
    return not check.advisory and any(point in _changed(*defects) for point in check.needs)


def _changed(*defects: type[Defect]) -> set[str]:
    return {name for defect in defects for name in _entry_points(defect)}


def _entry_points(defect: type[Defect]) -> Iterator[str]:
    layer = layer_of(defect)
    if layer is OracleAdapters and "_result" not in defect.overridden():
        yield from defect.overridden()
        return
    if layer is Oracle or layer is OracleAdapters:
        yield from MODEL_ENTRY_POINTS
    yield from ("get_transformer_lm", "get_transformer_lm_weights")
