"""The names that ``cs336_harness`` offers to Python code, used as somebody else uses them."""

from __future__ import annotations

import dataclasses
import html
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import cs336_harness
from cs336_harness import CannotJudgeError, FailedVerdictError, check_decoder, judge
from cs336_harness.places import HOME

pytest_plugins = ["pytester"]

RIGHT = """
import torch
from cs336_harness.reference.oracle_adapters import OracleAdapters

reference = OracleAdapters(dtype=torch.float32)
run_silu, run_swiglu, run_softmax = reference.run_silu, reference.run_swiglu, reference.run_softmax
"""

GELU = "run_silu = torch.nn.functional.gelu\n"

PAGE = (HOME / "docs" / "API.md").read_text(encoding="utf-8")
IDS = "positionwise"


def functions(text: str = RIGHT) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(text, names)
    return names


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "adapters.py").write_text(RIGHT)
    return tmp_path


def test_the_package_itself_imports_nothing() -> None:
    code = "import sys, cs336_harness; print(sorted({'torch', 'rich', 'pytest', 'numpy'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"


def test_the_stable_names_are_those_of_the_page() -> None:
    named = re.findall(r"^\| `(\w+)", PAGE.partition("## The stable names")[2], re.MULTILINE)
    assert sorted(named) == sorted(cs336_harness.__all__)
    for name in cs336_harness.__all__:
        assert getattr(cs336_harness, name).__doc__
        assert name in dir(cs336_harness)
    with pytest.raises(AttributeError, match="has no attribute 'juge'"):
        _ = cs336_harness.juge


@pytest.mark.parametrize("kind", ["mapping", "object", "module"])
def test_a_right_decoder_passes(kind: str) -> None:
    module = ModuleType("mine")
    vars(module).update(functions())
    subject = {"mapping": functions(), "object": SimpleNamespace(**functions()), "module": module}[kind]
    verdict = judge(subject, checks=IDS)
    assert verdict
    assert verdict.passed
    assert verdict.failures == ()
    assert verdict["components.silu"].outcome == "passed"
    assert verdict["components.silu"].error_in_noise < 16
    assert verdict.raise_if_failed() is None
    assert len(verdict) == len(verdict.results) == len(list(verdict))


def test_a_wrong_one_says_what_where_and_which() -> None:
    verdict = judge(functions(RIGHT + GELU), checks=IDS)
    assert not verdict
    first = verdict.failures[0]
    assert (first.id, first.task, first.outcome) == ("components.silu", "positionwise_feedforward", "failed")
    assert first.diagnosis.defects[0].name
    assert first.diagnosis.defects[0].hint
    assert first.diagnosis.confidence in ("certain", "likely")
    assert "run_silu" in first.diagnosis.reproducer
    assert "adapters" not in first.diagnosis.reproducer  # they are defined here, and in no file
    assert "see it for yourself on a small case, where your functions are defined:" in str(verdict)
    exec(first.diagnosis.reproducer, functions(RIGHT + GELU))
    assert {result.blocked_by for result in verdict.of("blocked")} == {"components.silu"}
    assert verdict.summary in repr(verdict)
    assert judge(functions(RIGHT + GELU), checks=IDS, diagnose=False).failures[0].diagnosis is None
    with pytest.raises(KeyError, match=r"no check .components\.rope. was run"):
        _ = verdict["components.rope"]


def test_what_is_not_defined_is_skipped_and_stops_nothing() -> None:
    """A decoder that is judged as a whole has no single components, and no check may call them blank."""

    def get_transformer_lm(**sizes: Any) -> torch.nn.Module:
        raise ValueError("too small")

    decoder = {"get_transformer_lm": get_transformer_lm, "get_transformer_lm_weights": dict}
    verdict = judge(decoder, checks="components or model_builds", diagnose=False)
    assert verdict.of("blank") == ()
    assert {result.outcome for result in verdict if result.id.startswith("components")} == {"skipped"}
    assert "required checks that could run failed" in verdict.summary
    assert "a whole decoder: its components are not defined and not asked" in str(verdict)


def test_a_verdict_on_nothing_is_no_verdict() -> None:
    for call in (judge, check_decoder):
        with pytest.raises(CannotJudgeError, match="none of the checks that were asked can run: run_rope is not"):
            call(functions(), checks="components.rope")


def test_a_failed_verdict_raises_its_report() -> None:
    with pytest.raises(FailedVerdictError, match="what is wrong: ") as caught:
        check_decoder(functions(RIGHT + GELU), checks=IDS)
    assert isinstance(caught.value, AssertionError)
    assert caught.value.verdict.failures
    assert check_decoder(functions(), checks=IDS) is None


@pytest.mark.slow
def test_its_json_is_that_of_the_command(repository: Path, tmp_path: Path) -> None:
    (repository / "tests" / "adapters.py").write_text(RIGHT + GELU)
    command = [sys.executable, "-m", "cs336_harness", "check", "-k", IDS, "--json", str(tmp_path / "out.json")]
    assert subprocess.run(command, cwd=repository, capture_output=True, check=False).returncode == 1
    written = json.loads((tmp_path / "out.json").read_text())
    here = judge(repository, checks=IDS).to_json()
    for results in (written["checks"], here["checks"]):
        for result in results:
            del result["seconds"]
    assert here["checks"] == written["checks"]
    assert here["summary"] == written["summary"]


def test_a_notebook_gets_text_that_runs_nothing() -> None:
    def run_silu(in_features: torch.Tensor) -> torch.Tensor:
        raise ValueError("<script>alert(1)</script>")

    shown = judge({"run_silu": run_silu}, checks="components.silu")._repr_html_()
    assert "required checks failed" in shown
    assert 'sandbox="allow-scripts"' in shown  # in a frame of its own, of no origin
    assert "<script" not in shown
    framed = html.unescape(shown.partition('srcdoc="')[2].partition('"')[0])
    assert "&lt;script&gt;alert(1)" in framed
    assert framed.count("<script") == 1


def state() -> dict[str, Any]:
    return {
        "cwd": Path.cwd(),
        "path": list(sys.path),
        "version": importlib.metadata.version,
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "grad": torch.is_grad_enabled(),
        "rng": torch.get_rng_state().tolist(),
        "environment": dict(os.environ),
        "filters": len(__import__("warnings").filters),
    }


def test_the_process_is_left_as_it_was(repository: Path) -> None:
    """And what it had imported from there itself stays its own, while the file on disk is what is judged."""
    adapters = repository / "tests" / "adapters.py"
    (repository / "mine.py").write_text("factor = 2\n")
    adapters.write_text(f"import torch\nfrom mine import factor\ntorch.manual_seed(1)\n{RIGHT}")
    sys.path.insert(0, str(repository))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        import mine

        (repository / "mine.py").write_text("factor = 300\n")
        adapters.write_text(f"{adapters.read_text()}\nassert factor == 300\n")
        before, modules = state(), dict(sys.modules)
        assert judge(repository, checks="components.silu")
        assert state() == before
        assert {name: sys.modules[name] for name in modules} == modules
        assert sys.modules["mine"] is mine
        new = {name for name in sys.modules if name not in modules}
        assert not [name for name in new if str(repository) in str(getattr(sys.modules[name], "__file__", ""))]
    finally:
        torch.set_num_threads(threads)
        sys.path.remove(str(repository))
        sys.modules.pop("mine", None)


def test_an_edit_counts_at_once(repository: Path) -> None:
    assert judge(repository, checks="components.silu")
    (repository / "tests" / "adapters.py").write_text(RIGHT + GELU)
    os.utime(repository / "tests" / "adapters.py", (1, 1))
    assert not judge(repository, checks="components.silu", diagnose=False)


def test_the_default_is_the_repository_that_one_stands_in(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository / "tests")
    assert judge(checks="components.silu").subject == "adapters.py"


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        ("nowhere", "no such file or directory: nowhere"),
        (
            torch.nn.Linear(1, 1),
            "a Linear has none of the entry points .* docs/GLUE.md shows how to put a model behind",
        ),
        ({}, "a dict has none of the entry points"),
    ],
)
def test_what_cannot_be_judged_is_one_line(subject: Any, words: str) -> None:
    with pytest.raises(CannotJudgeError, match=words) as caught:
        judge(subject)
    assert "\n" not in str(caught.value)
    with pytest.raises(CannotJudgeError, match="selects no check"):
        judge(functions(), checks="no_such_check")


TESTS = """
from cs336_harness import parametrize_with_checks

@parametrize_with_checks("adapters.py", checks="silu or swiglu or rope or rmsnorm_eps", diagnose=False)
def test_decoder(check):
    check()
"""

LATE = """
def run_swiglu(d_model, d_ff, w1_weight, w2_weight, w3_weight, in_features):
    from late import silu
    return (silu(in_features @ w1_weight.T) * (in_features @ w3_weight.T)) @ w2_weight.T
"""


def test_one_test_for_each_check(pytester: pytest.Pytester) -> None:
    """What the decoder imports at call time is found in the tenth test as in the first."""
    pytester.makepyfile(
        test_it=TESTS, adapters=RIGHT + GELU + LATE, late="from torch.nn.functional import gelu as silu\n"
    )
    options = ("-p", "no:logging", "-p", "no:hypothesispytest", "-p", "no:timeout", "--strict-markers")
    result = pytester.runpytest_inprocess(*options, "-v", "test_it.py")
    text = result.stdout.str()
    assert re.search(r"test_decoder\[components\.silu\] FAILED", text)
    assert re.search(r"test_decoder\[components\.swiglu\] SKIPPED", text)
    assert re.search(r"test_decoder\[components\.rope\] SKIPPED \(run_rope is", text)
    assert "run_silu differs from the reference" in text
    alone = pytester.runpytest_inprocess(*options, "-k", "components.swiglu", "test_it.py")
    assert "blocked by components.silu, which fails; run that first" in alone.stdout.str()


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_the_page_s_code_runs(block: str, pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    (pytester.path / "tests").mkdir()
    (pytester.path / "tests" / "adapters.py").write_text("def run_silu(x):\n    return x / (1 + (-x).exp())\n")
    if "def test" not in block:
        exec(block, {})
        assert "every required check that could run passed" in capsys.readouterr().out
        return
    options = ("-p", "no:logging", "-p", "no:hypothesispytest", "-p", "no:timeout", "--strict-markers")
    pytester.makepyfile(test_page=block)
    outcomes = pytester.runpytest_inprocess(*options, "test_page.py").parseoutcomes()
    assert outcomes["passed"] >= 1
    assert outcomes.keys() <= {"passed", "skipped"}


@pytest.mark.parametrize("kind", ["CheckResult", "Diagnosis", "KnownDefect"])
def test_the_page_names_the_fields_that_are_there(kind: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "API.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith(f"| `{kind}` |"))
    fields = [field.name for field in dataclasses.fields(getattr(cs336_harness, kind))]
    assert row.split("|")[2].replace("`", "").strip().split(", ") == fields
