"""The closing drills of ``drills/attention.py``, optional: a blank one is skipped, a wrong one fails."""

import pytest

from cs336_harness.course.drills import DRILLS, PLACE, DrillResult
from cs336_harness.isolation.trial import Bench, judge_drills
from cs336_harness.places import HOME


@pytest.fixture(scope="module")
def judged(pytestconfig: pytest.Config) -> list[DrillResult]:
    if not (HOME / PLACE).is_file():
        pytest.skip(f"there is no {PLACE} here")
    with Bench(timeout=pytestconfig.getoption("check_timeout")) as bench:
        return judge_drills(HOME / PLACE, bench)


@pytest.mark.parametrize("name", DRILLS)
def test_drill(name: str, judged: list[DrillResult]) -> None:
    result = next(result for result in judged if result.name == name)
    if result.outcome == "blank":
        pytest.skip(result.message)
    if result.outcome == "failed":
        pytest.fail(result.message, pytrace=False)
