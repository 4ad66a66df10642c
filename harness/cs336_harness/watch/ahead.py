"""What a fork server works out while it is idle, so that each judge finds it done: results that harness code keeps."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator

from cs336_harness.checks import all_checks
from cs336_harness.checks.comparing import REFERENCE
from cs336_harness.contract import MODEL_ENTRY_POINTS
from cs336_harness.diagnosis.observing import expected_of, noise_of
from cs336_harness.diagnosis.programs import EVERY, QUICK, candidates, program
from cs336_harness.reference.answers import answers_kept
from cs336_harness.reference.kept import OBSERVATIONS, WORTH_WRITING, kept
from cs336_harness.subject.calling import Subject

PREPARED = ("components", "assembly", "slow_oracle", "configuration")
"""Groups of checks that keep what the oracle gave. The others keep nothing, or take the oracle too long."""


AHEAD_SECONDS = 15.0
"""Seconds of processor time that are spent ahead at most: a watch that waits leaves the machine alone. What known
mistakes show is kept, so that the next watch goes on from there."""


def work_ahead() -> Iterator[None]:
    """One short step at a time, until the time for it is used up."""
    end = time.process_time() + AHEAD_SECONDS
    with answers_kept():
        yield from itertools.takewhile(lambda step: time.process_time() < end, _steps())
    # Once, here: a judge that found it unwritten would write it at each save of the learner's.
    kept(OBSERVATIONS).save(WORTH_WRITING)


def _steps() -> Iterator[None]:
    """What the oracle gives for checks and for diagnoses, then what known mistakes show."""
    oracle = Subject(REFERENCE, "the oracle")
    for check in all_checks().values():
        if check.group in PREPARED:
            with contextlib.suppress(Exception):
                check(oracle)
            yield
    for name in EVERY:
        for experiment in program(name):
            expected_of(experiment)
            noise_of(experiment)
        yield
    for name in QUICK:
        for defect in candidates(name):
            for experiment in program(name):
                expected_of(experiment, (defect,))
            yield
    # Most mistakes are ruled out by the first experiment that differs, which is a simple one: those of all programs
    # come first.
    rest = [name for name in MODEL_ENTRY_POINTS if name not in QUICK]
    ladders = ([experiment for experiment in program(name) if not experiment.decisive] for name in rest)
    for rung in itertools.zip_longest(*ladders):
        for name, experiment in zip(rest, rung, strict=True):
            for defect in candidates(name) if experiment is not None else ():
                expected_of(experiment, (defect,))
                yield
