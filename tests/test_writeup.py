"""The written answer to transformer_accounting: one test for each question, judged as ``cs336 writeup`` judges it.

It judges the WRITEUP.md of this repository, or of the repository that ``--adapters`` names if there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cs336_harness.writeup.questions import QUESTIONS, Judgement, judge_file
from cs336_harness.writeup.summary import explain


@pytest.fixture(scope="module")
def judgement(pytestconfig: pytest.Config) -> Judgement:
    path: Path | None = pytestconfig.getoption("adapters")
    home = pytestconfig.rootpath if path is None else path if path.is_dir() else path.parent
    if path is not None and not (home / "WRITEUP.md").exists():
        pytest.skip(f"{home} holds no WRITEUP.md")
    try:
        return judge_file(home / "WRITEUP.md")
    except ValueError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.mark.transformer_accounting
@pytest.mark.parametrize("question", QUESTIONS)
def test_writeup(judgement: Judgement, question: str, record_property: Callable[[str, object], None]) -> None:
    answer = judgement.answers[question]
    record_property("task", "transformer_accounting")
    record_property(
        "outcome", {"right": "passed", "missing": "blank", "left out": "skipped"}.get(answer.verdict, "failed")
    )
    if answer.verdict == "left out":
        pytest.skip(f"{answer.title}: left out, as it may be")
    if answer.verdict != "right":
        pytest.fail(explain(answer, judgement.source), pytrace=False)
