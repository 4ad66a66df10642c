"""The closing drills of ``drills/attention.py``, optional: a blank one is skipped, a wrong one fails."""

import pytest

from cs336_harness.course.drills import DRILLS, PLACE, judge
from cs336_harness.places import HOME


@pytest.mark.parametrize("name", DRILLS)
def test_drill(name: str) -> None:
    if not (HOME / PLACE).is_file():
        pytest.skip(f"there is no {PLACE} here")
    result = next(result for result in judge(HOME / PLACE) if result.name == name)
    if result.outcome == "blank":
        pytest.skip(result.message)
    if result.outcome == "failed":
        pytest.fail(result.message, pytrace=False)
