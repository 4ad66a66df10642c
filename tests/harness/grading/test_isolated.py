"""`cs336 check --isolated` gives one submission the verdict of `cs336 check`, and its process reaches nothing else."""

from pathlib import Path

import pytest
from attacks import RIGHT, WRONG

from cs336_harness.checks import all_checks
from cs336_harness.grading import sandbox
from cs336_harness.grading.isolated import IsolatedTrial
from cs336_harness.isolation.trial import Trial
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.verdict.suite import Result

CHECKS = ("components.linear", "components.silu", "components.rmsnorm", "tying.one_parameter", "tying.deepcopy")
BROKEN = f"{RIGHT}\n\ndef run_silu(in_features):\n    raise ValueError('no')\n"
BLANK = f"{RIGHT}\n\ndef run_silu(in_features):\n    raise NotImplementedError\n"


@pytest.fixture(autouse=True)
def _shut_in(tmp_path: Path) -> None:
    if not sandbox.tried(sandbox.Reach(("/usr",), (), str(tmp_path))).enough:
        pytest.skip("submissions cannot be shut in here")


UNWRITTEN = f"{RIGHT}\n\ndef run_silu(in_features):\n    return torch.empty_like(in_features)\n"


def told(results: list[Result]) -> list[tuple[str, str, str]]:
    return [(each.check.id, each.outcome, each.message) for each in results]


def isolated(folder: Path) -> IsolatedTrial:
    return IsolatedTrial(folder, [all_checks()[name] for name in CHECKS], diagnose=False, timeout=20, total=60)


@pytest.mark.slow
@pytest.mark.parametrize("text", [RIGHT, WRONG, BROKEN, BLANK], ids=["right", "wrong", "broken", "blank"])
def test_the_verdict_is_that_of_check(text: str, tmp_path: Path) -> None:
    (tmp_path / "adapters.py").write_text(text)
    checks = [all_checks()[name] for name in CHECKS]
    with Trial(tmp_path, checks, diagnose=False, timeout=20, total=60) as here:
        list(here.run())
        expected = told(here.results)
    with isolated(tmp_path) as there:
        list(there.run())
        assert told(there.results) == expected
        assert there.not_run == here.not_run == []


def test_memory_that_was_never_written_is_told_as_that(tmp_path: Path) -> None:
    (tmp_path / "adapters.py").write_text(UNWRITTEN)
    checks = [all_checks()["components.earlier_calls[silu]"]]
    with IsolatedTrial(tmp_path, checks, diagnose=False, timeout=20, total=60) as trial:
        list(trial.run())
        assert [each.message.partition(",")[0] for each in trial.results] == [
            "run_silu is not repeatable: it returns memory that it never wrote (torch.empty"
        ]


@pytest.mark.slow
def test_a_process_that_ends_is_told_and_passes_nothing(tmp_path: Path) -> None:
    (tmp_path / "adapters.py").write_text(f"{RIGHT}\n\ndef run_silu(in_features):\n    import os; os._exit(0)\n")
    with isolated(tmp_path) as trial:
        list(trial.run())
        assert [each.check.id for each in trial.results] == ["components.linear"]
        assert "exit status 0" in (trial.cut_short or "")
        assert len(trial.not_run) == len(CHECKS) - 1


@pytest.mark.slow
def test_what_does_not_load_is_one_line_that_names_the_folder(tmp_path: Path) -> None:
    (tmp_path / "adapters.py").write_text("import nothing_of_that_name")
    with pytest.raises(CannotJudgeError, match="nothing_of_that_name") as error:
        isolated(tmp_path)
    assert "cs336-submission" not in str(error.value)


def test_a_process_that_ends_at_import_is_one_line_that_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "adapters.py").write_text("import os; os._exit(3)")
    with pytest.raises(CannotJudgeError, match=r"adapters\.py was imported, its process ended .* exit status 3"):
        isolated(tmp_path)
