"""A result that depends on earlier calls comes with two calls that show it, in a fresh Python too."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broken import RIGHT
from test_diagnosis import known
from test_earlier_calls import NAMES, KeepsTheFirstOfAShape, SharesATable, growing, kept_by_shape
from vectorised import Vectorised, subject_of

from cs336_harness.checks import all_checks
from cs336_harness.diagnosis import Probe, diagnose_check
from cs336_harness.diagnosis.observing import same
from cs336_harness.diagnosis.reproducing import reproducer
from cs336_harness.diagnosis.two_calls import CALLS, experiments
from cs336_harness.subject.calling import Subject
from cs336_harness.verdict.suite import Suite


def shown(subject: Subject, check_id: str) -> list[str]:
    """The lines to paste that come with a failure."""
    result = Suite(subject).result(all_checks()[check_id])
    assert result.outcome == "failed"
    assert result.diagnosis is not None
    return result.diagnosis.reproducer


@pytest.mark.parametrize("breaking", [kept_by_shape, growing])
@pytest.mark.parametrize("name", NAMES)
def test_two_calls_show_it(name: str, breaking: Callable[[str], Any]) -> None:
    subject = Subject(SimpleNamespace(**{f"run_{name}": breaking(f"run_{name}")}), "subject")
    lines = shown(subject, f"components.earlier_calls[{name}]")
    assert f"from adapters import run_{name}" in lines
    assert lines[-1].startswith("# a correct decoder gives ")
    assert lines[-1].endswith("this one False") is (breaking is growing)


def test_a_fresh_python_shows_the_same(tmp_path: Path) -> None:
    subject = Subject(SimpleNamespace(run_rope=kept_by_shape("run_rope")), "subject")
    lines = shown(subject, "components.earlier_calls[rope]")
    (tmp_path / "adapters.py").write_text(
        "from test_earlier_calls import kept_by_shape\nrun_rope = kept_by_shape('run_rope')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-c", "\n".join(lines)]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert float(ran.stdout) == pytest.approx(float(lines[-1].rpartition(" ")[2]), rel=1e-4)


def test_two_models_show_that_they_share_a_table() -> None:
    SharesATable.thetas.clear()
    subject = subject_of(SharesATable)
    check = all_checks()["information_flow.models_apart"]
    with pytest.raises(AssertionError) as caught:
        check(subject)
    found = diagnose_check(subject, check, caught.value)  # ty: ignore[invalid-argument-type]
    assert found is not None
    assert "models[0](tokens)" in found.reproducer
    assert "logits = models[1](tokens)" in found.reproducer


def test_a_model_that_keeps_the_first_of_a_shape_is_named() -> None:
    subject = subject_of(Vectorised, KeepsTheFirstOfAShape)
    result = Suite(subject).result(all_checks()["information_flow.repeated_calls_of_a_model"])
    assert result.diagnosis is not None
    assert [defect.name for defect in result.diagnosis.defects] == ["logits-kept-for-a-shape"]
    assert "    logits = model(torch.tensor([[2, 2, 9, 5]]))" in result.diagnosis.reproducer


def test_a_fault_that_one_call_shows_is_shown_by_one_call() -> None:
    subject = known("embedding-scaled-up-in-model")
    lines = reproducer(Probe(subject), "built")
    assert sum("model(" in line for line in lines) == 1


@pytest.mark.parametrize("name", [*CALLS, "built"])
def test_a_right_decoder_is_right_in_both_calls(name: str) -> None:
    probe = Probe(Subject(RIGHT, "right"))
    assert [e.name for e in experiments(name) if not same(probe.see(e), e)] == []
    assert {probe.see(e).text for e in experiments(name)} <= {"", "True"}
