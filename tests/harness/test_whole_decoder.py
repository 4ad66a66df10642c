"""A file that defines a whole decoder and no component: nothing is asked, or counted, that it need not have."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from variations import Variation, VariationAdapters

from cs336_harness import cli, judge
from cs336_harness.checks import all_checks
from cs336_harness.picture.page import render
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.setting import Setting
from cs336_harness.verdict.suite import WHOLE_DECODER, Suite

RIGHT = VariationAdapters(Variation())
FUNCTION = {"run_transformer_lm": RIGHT.run_transformer_lm}
MODEL = {"get_transformer_lm": RIGHT.get_transformer_lm, "get_transformer_lm_weights": RIGHT.get_transformer_lm_weights}

FILE = """
import torch
from cs336_harness.reference.oracle_adapters import OracleAdapters

run_transformer_lm = OracleAdapters(dtype=torch.float32).run_transformer_lm
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "glue.py"
    path.write_text(FILE)
    return path


def cs336(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["cs336", "check", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


ONE_OF_EACH = "assembly.transformer_lm or components.silu or accounting.flop_terms or one_piece"


def test_nothing_is_told_of_what_it_need_not_have(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tmp_path / "result.json"
    assert cs336(monkeypatch, str(file), "--strict", "-v", "-k", ONE_OF_EACH, "--json", str(result)) == 0
    out = capsys.readouterr().out
    assert WHOLE_DECODER in out
    assert "all required checks that were asked passed" in out
    for word in ("skipped", "blank", "silu", "flop_terms", "one_piece", "complete when", "next:", "tasks"):
        assert word not in out, word
    outcomes = {check["id"]: check["outcome"] for check in json.loads(result.read_text())["checks"]}
    assert outcomes["assembly.transformer_lm"] == "passed"
    assert outcomes["components.silu"] == "skipped"  # the file has every check
    assert "not defined</b>" not in render(json.loads(result.read_text()))


def test_a_function_alone_is_told_once_that_a_model_would_be_asked_more(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is missing there are checks of the whole decoder, and so the strict exit status counts them."""
    chosen = ("-k", "assembly.transformer_lm or built_logits[mha]")
    assert cs336(monkeypatch, str(file), *chosen) == 0
    out = capsys.readouterr().out
    assert "every required check that could run passed" in out
    assert "get_transformer_lm is not defined in glue.py (1 check)" in out
    assert cs336(monkeypatch, str(file), "--strict", *chosen) == 1


def test_checks_that_cannot_run_at_all_are_no_verdict(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cs336(monkeypatch, str(file), "-k", "rmsnorm") == 2
    captured = capsys.readouterr()
    assert captured.err == "cs336: none of the checks that were asked can run: run_rmsnorm is not defined\n"


def test_a_model_is_asked_what_a_model_can_be_asked() -> None:
    verdict = judge(FUNCTION | MODEL, checks="built_logits[mha] or one_token or parameter_count", diagnose=False)
    assert verdict.summary == "all required checks that were asked passed"
    assert {result.message for result in verdict.of("skipped")} == {WHOLE_DECODER}
    assert WHOLE_DECODER in str(verdict)


def test_a_wrong_one_fails_and_one_blank_component_is_a_beginning() -> None:
    def wrong(**arguments: object) -> object:
        return 2 * RIGHT.run_transformer_lm(**arguments)  # ty: ignore[invalid-argument-type]

    assert judge({"run_transformer_lm": wrong}, checks="assembly", diagnose=False).failures
    blocked = judge({"run_transformer_lm": wrong}, checks="one_token", diagnose=False)
    assert "✗ assembly.transformer_lm " in str(blocked)  # what blocks it is read, though not asked for

    def run_silu(in_features: object) -> object:
        raise NotImplementedError

    verdict = judge(FUNCTION | {"run_silu": run_silu}, checks="one_token or silu or rope", diagnose=False)
    assert "wait for blank entry points" in verdict.summary
    assert any(result.message.startswith("run_rope is not defined") for result in verdict.of("skipped"))
    assert WHOLE_DECODER not in str(verdict)


def test_where_components_are_asked_there_is_no_whole_decoder() -> None:
    """A graded submission without its components lacks them."""
    subject = Subject(SimpleNamespace(**FUNCTION), "submission")
    result = Suite(subject, components_asked=True).result(all_checks()["components.silu"])
    assert (result.outcome, result.unasked) == ("skipped", False)
    assert result.message == "run_silu is not defined in submission"


@pytest.mark.parametrize("setting", [Setting(dtype="bfloat16"), Setting(compile=True, backend="eager")], ids=str)
def test_no_setting_makes_its_components_count(setting: Setting) -> None:
    suite = Suite(Subject(SimpleNamespace(**FUNCTION), "glue.py", setting=setting), diagnose=False)
    for name in ("components.silu", "components.float32_kept[silu]", "components.bfloat16_kept"):
        assert suite.result(all_checks()[name]).message == WHOLE_DECODER, name
