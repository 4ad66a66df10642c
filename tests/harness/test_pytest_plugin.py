"""What pytest says of a subject: outcomes, exit codes, sections and properties."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cs336_harness.verdict.report  # noqa: F401 (imported early, see CHECKS)
from cs336_harness.checks import all_checks
from cs336_harness.places import HOME
from cs336_harness.reference import recipes, snapshots

pytest_plugins = ["pytester"]

CHECKS = all_checks()
"""Imported here once, with all that the plugin needs: an inner run forgets what it imported itself."""

PLUGINS = [
    "--code-highlight=no",
    "-p",
    "cs336_harness.pytest_plugin",
    "-p",
    "no:hypothesispytest",
    "-p",
    "no:jaxtyping",
    "-p",
    "no:timeout",
    "-p",
    "no:logging",
]
"""Only what is tested: other plugins cost a second a run."""

RIGHT = """
import torch
from cs336_harness.reference.oracle_adapters import OracleAdapters

reference = OracleAdapters(dtype=torch.float32)
run_silu, run_softmax = reference.run_silu, reference.run_softmax
run_swiglu, run_rmsnorm = reference.run_swiglu, reference.run_rmsnorm
"""

TESTS = """
from cs336_harness.pytest_plugin import judged_by

test_silu = judged_by("components.silu")
test_swiglu = judged_by("components.swiglu")
test_rmsnorm = judged_by("components.rmsnorm")
test_rope = judged_by("components.rope")
"""


@pytest.fixture
def judge(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the four tests above on an adapters file made of ``RIGHT`` and more text."""

    def run(more: str = "", *options: str) -> pytest.RunResult:
        subject = pytester.makepyfile(subject=RIGHT + more)
        pytester.makepyfile(test_it=TESTS)
        arguments = [*PLUGINS, "--no-diagnosis", "--adapters", str(subject), *options]
        return pytester.runpytest_inprocess(*arguments, "test_it.py")

    return run


def test_a_right_subject_passes_and_an_absent_entry_point_is_skipped(judge: Any) -> None:
    result = judge("", "-rs")
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(["cs336: judging *subject.py*", "*run_rope is not defined in*"])
    assert result.ret == 0


def test_a_mistake_fails_once_and_blocks_what_builds_on_it(judge: Any) -> None:
    wrong = "\nimport torch.nn.functional as F\nrun_silu = F.gelu\n"
    wrong += "run_swiglu = lambda d_model, d_ff, w1_weight, w2_weight, w3_weight, in_features: in_features\n"
    result = judge(wrong)
    text = result.stdout.str()
    assert "1 failed, 1 passed, 1 skipped, 1 blocked" in text
    result.stdout.fnmatch_lines(["run_silu*differs from the reference*", "*elements differ*", "*got*must be*"])
    assert "Traceback" not in text
    assert result.ret == 1


def test_a_blocked_check_alone_is_no_success(judge: Any) -> None:
    wrong = "\nimport torch.nn.functional as F\nrun_silu = F.gelu\n"
    wrong += "run_swiglu = lambda d_model, d_ff, w1_weight, w2_weight, w3_weight, in_features: in_features\n"
    result = judge(wrong, "-k", "swiglu")
    assert result.ret == 1
    assert "1 blocked" in result.stdout.str()


def test_blank_entry_points_are_one_line_each(judge: Any) -> None:
    result = judge("\ndef run_silu(in_features):\n    raise NotImplementedError\n")
    result.stdout.fnmatch_lines(["*blank, not written yet*", "run_silu is blank: *(1 check waits)"])
    assert "FAILURES" not in result.stdout.str()
    assert "1 blank" in result.stdout.str()
    assert result.ret == 1


@pytest.mark.parametrize(
    ("text", "message"), [("\n)", "SyntaxError"), ("\nimport nowhere_to_be_found", "which is not installed here")]
)
def test_a_subject_that_does_not_load_ends_the_run_with_status_2(judge: Any, text: str, message: str) -> None:
    result = judge(text)
    assert result.ret == 2
    assert message in result.stdout.str() + result.stderr.str()


def test_a_path_that_is_not_there_is_a_usage_error(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(*PLUGINS, "--adapters", "nowhere.py")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--adapters: no such file or directory: nowhere.py"])


def test_snapshot_update_rewrites_only_what_ran(judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixtures = tmp_path / "fixtures"
    monkeypatch.setattr(snapshots, "FIXTURES", fixtures)
    result = judge("", "--snapshot-update", "-k", "silu")
    result.stdout.fnmatch_lines(["snapshots written: silu"])
    assert [path.name for path in fixtures.iterdir()] == ["silu.safetensors"]


def test_a_missing_snapshot_fails_with_what_to_do(judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "FIXTURES", tmp_path / "fixtures")
    result = judge("", "-k", "silu")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*silu.safetensors is missing; write it with*"])


def test_junit_properties_name_the_check_and_what_became_of_it(judge: Any, pytester: pytest.Pytester) -> None:
    judge("\nrun_silu = lambda x: x.relu()\n", "--junitxml=out.xml")
    xml = (pytester.path / "out.xml").read_text()
    assert '<property name="check" value="components.silu" />' in xml
    assert '<property name="task" value="positionwise_feedforward" />' in xml
    assert '<property name="outcome" value="failed" />' in xml


def test_every_check_is_judged_by_exactly_one_test() -> None:
    judged: list[str] = []
    for path in sorted((HOME / "tests").glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"judging_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for test in vars(module).values():
            for mark in getattr(test, "pytestmark", ()):
                if mark.name == "check":
                    judged.append(mark.args[0])
                elif mark.name == "parametrize" and mark.args[0] == "check_id":
                    judged += [parameter.values[0] for parameter in mark.args[1]]
    assert sorted(judged) == sorted(CHECKS)


def test_every_recipe_is_a_snapshot_that_a_test_reads() -> None:
    assert {check.snapshot for check in CHECKS.values()} - {None} == set(recipes.RECIPES)


@pytest.mark.slow
def test_a_path_outside_of_this_repository_may_follow_a_space(pytester: pytest.Pytester) -> None:
    subject = pytester.mkpydir("elsewhere") / "subject.py"
    subject.write_text(RIGHT)
    (subject.parent / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "--adapters", str(subject), "-k", "silu"]
    result = subprocess.run(command, cwd=HOME, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert "subject.py" in result.stdout
    assert not (subject.parent / ".pytest_cache").exists()


def test_an_advisory_that_is_blocked_is_counted_as_little_as_by_check(
    judge: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        f"test_{n} = judged_by({name!r})" for n, name in enumerate(["components.rmsnorm", HALF, "components.silu"])
    ]
    monkeypatch.setitem(globals(), "TESTS", "\n".join(["from cs336_harness.pytest_plugin import judged_by", *lines]))
    wrong = "\nrun_rmsnorm = lambda weights, **others: reference.run_rmsnorm(weights=weights * weights, **others)\n"
    text = judge(wrong).stdout.str()
    assert "1 failed, 1 passed in" in text


HALF = "components.rmsnorm_half_precision[bfloat16]"
