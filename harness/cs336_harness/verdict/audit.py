"""The suite judged by its own dictionary: which checks each known mistake fails, by how much, and what is said.

:func:`audit` judges one decoder with known mistakes; a :class:`Row` is what is kept of that for one mistake alone.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence

import torch

from cs336_harness.checks import Check, all_checks
from cs336_harness.contract import MODEL_ENTRY_POINTS
from cs336_harness.defects import Defect, all_defects, subject_of
from cs336_harness.defects.defect import layer_of
from cs336_harness.diagnosis import Diagnosis
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.oracle_adapters import OracleAdapters
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE
from cs336_harness.subject.environment import prepare_torch
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
    def told(self) -> list[Result]:
        """The checks that fail and are not blocked: the failures that a learner reads."""
        return [result for result in self.results if result.outcome == "failed"]

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What is said of the first failure."""
        return self.told[0].diagnosis if self.told else None

    @property
    def margin(self) -> float | None:
        """The largest error in tolerances; None where the checks that fail compare no numbers."""
        failing = set(self.failing)
        errors = [r.error_in_noise for r in self.results if r.check.id in failing and r.error_in_noise is not None]
        return max(errors) / TOLERANCE_IN_NOISE if errors else None


def audit(*defects: type[Defect], checks: Iterable[Check] | None = None) -> Audited:
    """Judges a subject with these defects by every required check that they can reach, or by the checks given.

    Some defects draw random numbers; they draw the same ones every time.
    """
    suite = Suite(subject_of(*defects))
    chosen = [check for check in all_checks().values() if within_reach(check, *defects)] if checks is None else checks
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Audited(defects, tuple(suite.run(chosen)))


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """What the suite makes of one known mistake: the checks that tell it, all that fail, and the largest error.

    ``margin`` is in tolerances; None where the checks that fail compare no numbers.
    """

    name: str
    told: tuple[str, ...]
    failing: tuple[str, ...]
    margin: float | None


def row_of(name: str) -> Row:
    """The row of a known mistake, judged alone."""
    audited = audit(all_defects()[name])
    return Row(name, tuple(result.check.id for result in audited.told), tuple(audited.failing), audited.margin)


def rows_of(names: Sequence[str]) -> Iterator[Row]:
    """The rows of several, each as soon as it is there: on every core, because one takes about a second."""
    workers = min(len(names), os.cpu_count() or 1)
    if workers < 2:
        yield from map(row_of, names)
        return
    apart = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=apart, initializer=prepare_torch) as pool:
        yield from pool.map(row_of, names)


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
