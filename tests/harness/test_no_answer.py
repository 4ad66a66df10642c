"""An entry point that gives no answer passes no check that calls it: what compares nothing has shown nothing."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from broken import RIGHT

from cs336_harness.checks import all_checks
from cs336_harness.checks.registry import plain_check
from cs336_harness.contract import ENTRY_POINTS
from cs336_harness.reference.oracle_adapters import OracleAdapters
from cs336_harness.subject.calling import Subject
from cs336_harness.verdict.suite import Result, Suite


def raises(*args: Any, **arguments: Any) -> Any:
    raise RuntimeError("broken")


def refuses(*args: Any, **arguments: Any) -> Any:
    raise ValueError("no such sizes")


def takes_other_arguments(x: Any, y: Any, z: Any) -> Any:
    return x


def returns_nothing(*args: Any, **arguments: Any) -> Any:
    return None


ACCOUNTING = OracleAdapters()


OF_AN_EXTRA = {"run_transformer_lm": ("slow_oracle.grouped_logits",)}
"""The checks of an argument that none of these functions takes, and that nobody has to take."""


def results(entry_point: str, put_in_its_place: Callable[..., Any]) -> dict[str, Result]:
    """What becomes of every required check that needs the entry point, where all others are right."""
    module = SimpleNamespace(**{name: getattr(RIGHT, name, None) or getattr(ACCOUNTING, name) for name in ENTRY_POINTS})
    setattr(module, entry_point, put_in_its_place)
    suite = Suite(Subject(module, "subject"), diagnose=False)
    checks = [check for check in all_checks().values() if entry_point in check.needs and not check.advisory]
    return {result.check.id: result for result in suite.run(checks)}


def cases() -> Iterator[Any]:
    """Every entry point broken in every way; all but a few are slow."""
    for entry_point in ENTRY_POINTS:
        for broken in (raises, refuses, takes_other_arguments, returns_nothing):
            quick = (entry_point, broken) in QUICK
            yield pytest.param(entry_point, broken, marks=[] if quick else pytest.mark.slow)


QUICK = (
    ("run_softmax", raises),
    ("run_rmsnorm", takes_other_arguments),
    ("run_rope", returns_nothing),
    ("get_transformer_lm", refuses),
)


@pytest.mark.parametrize(("entry_point", "broken"), list(cases()))
def test_no_check_passes_and_one_failure_blocks_all_others(entry_point: str, broken: Callable[..., Any]) -> None:
    judged = results(entry_point, broken)
    outcomes = {name: result.outcome for name, result in judged.items()}
    first = plain_check(entry_point)
    assert outcomes.pop(first) == "failed"
    unasked = {name for name in outcomes if name.startswith(OF_AN_EXTRA.get(entry_point, ()))}
    assert {outcomes.pop(name) for name in unasked} <= {"skipped"}
    assert set(outcomes.values()) == {"blocked"}, {name: how for name, how in outcomes.items() if how != "blocked"}
    assert {judged[name].blocked_by for name in outcomes} == {first}


def test_a_refusal_that_is_asked_for_is_an_answer() -> None:
    suite = Suite(Subject(RIGHT, "subject"), diagnose=False)
    refused = [check for check in all_checks().values() if check.id.startswith("configuration.refuses")]
    assert refused
    assert {result.outcome for result in suite.run(refused)} == {"passed"}
