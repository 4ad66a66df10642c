"""Broken subjects: the entry points that a test breaks, and nothing else, judged by the checks that need only those."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from variations import Variation, VariationAdapters

from cs336_harness.checks import all_checks
from cs336_harness.subject.calling import Subject
from cs336_harness.verdict.suite import Result, Suite

RIGHT = VariationAdapters(Variation())
"""A correct decoder, to break in one place."""


def broken(**entry_points: Callable[..., Any]) -> SimpleNamespace:
    """A subject that defines these entry points only; every check that needs another one is skipped."""
    return SimpleNamespace(**entry_points)


def results(module: Any, *beginnings: str) -> dict[str, Result]:
    """What becomes of each check whose id begins so and that the module has the entry points for."""
    suite = Suite(Subject(module, "subject"), diagnose=False)
    chosen = [check for check in all_checks().values() if check.id.startswith(beginnings)]
    return {check.id: suite.result(check) for check in chosen if all(hasattr(module, name) for name in check.needs)}


def failures(module: Any, *beginnings: str, outcome: str = "failed") -> dict[str, str]:
    """Id to message of the checks that fail (``advisory``: that would, if they were required). Blocked ones are not."""
    judged = results(module, *beginnings)
    return {name: result.message for name, result in judged.items() if result.outcome == outcome}
