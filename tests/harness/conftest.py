"""The tests of the checker itself: what breaks in a diagnosis is raised here, where a learner is spared it."""

import pytest

from cs336_harness.diagnosis.diagnosing import RAISES


@pytest.fixture(autouse=True)
def exceptions_of_the_diagnosis_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in the diagnosis fails the test; without this it would only lose a hint."""
    monkeypatch.setenv(RAISES, "1")
