"""What a fork server works out while it is idle, so that each judge finds it done: results that harness code keeps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cs336_harness.checks import all_checks
from cs336_harness.checks.judging import REFERENCE
from cs336_harness.checks.registry import TASKS
from cs336_harness.contract import MODEL_ENTRY_POINTS
from cs336_harness.diagnosis.observing import expected_of
from cs336_harness.diagnosis.programs import candidates, program
from cs336_harness.progress import entry_points_of
from cs336_harness.subject import Subject

PREPARED = ("components", "assembly", "slow_oracle", "configuration")
"""Groups of checks that keep what the oracle gave. The others keep nothing, or take the oracle too long."""


def work_ahead() -> Iterator[None]:
    """One short step at a time: the oracle's results for the checks, then what each known mistake shows."""
    oracle = Subject(REFERENCE, "the oracle")
    for check in all_checks().values():
        if check.group in PREPARED:
            with contextlib.suppress(Exception):
                check(oracle)
            yield
    for name in (name for task in TASKS for name in entry_points_of(task)):
        if name in MODEL_ENTRY_POINTS:
            for defects in ((), *((defect,) for defect in candidates(name))):
                for experiment in program(name):
                    expected_of(experiment, defects)
                yield
