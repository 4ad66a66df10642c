"""Outcomes: what becomes of a check, and how one mistake reads as one failure."""

import dataclasses
import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cs336_harness import diagnosis
from cs336_harness.checks import Check, all_checks
from cs336_harness.checks.registry import GROUPS
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.oracle_adapters import OracleAdapters
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CannotJudgeError, CheckFailure, Evidence
from cs336_harness.verdict.report import blank_lines, to_json, verdict_line
from cs336_harness.verdict.suite import OUTCOMES, Result, Suite, select, summary


class ForgottenGain(Oracle):
    """A norm without its gain."""

    def rmsnorm(self, x: torch.Tensor, gain: torch.Tensor, eps: float) -> torch.Tensor:
        return super().rmsnorm(x, torch.ones_like(gain), eps)


MODEL_CHECKS = [check for check in all_checks().values() if check.snapshot]


def judge(module: Any) -> list[Any]:
    return list(Suite(Subject(module, "subject"), diagnose=False).run(MODEL_CHECKS))


def test_one_mistake_reads_as_one_failure() -> None:
    outcomes = {r.check.id: r for r in judge(OracleAdapters(ForgottenGain, torch.float32))}
    assert [name for name, r in outcomes.items() if r.outcome == "failed"] == ["components.rmsnorm"]
    for name in ("components.transformer_block", "assembly.transformer_lm", "assembly.transformer_lm_one_token"):
        assert outcomes[name].outcome == "blocked"
        assert outcomes[name].blocked_by == "components.rmsnorm"
    assert outcomes["components.swiglu"].outcome == "passed"
    assert verdict_line(list(outcomes.values())).startswith("1 of 16 required checks failed, 5 more are blocked")


def test_a_check_that_passes_is_passed_whatever_it_builds_on() -> None:
    adapters, right = OracleAdapters(dtype=torch.float32), OracleAdapters(dtype=torch.float32)
    adapters.run_rmsnorm = lambda **arguments: 2 * right.run_rmsnorm(**arguments)  # type: ignore[method-assign]
    outcomes = {result.check.id: result.outcome for result in judge(adapters)}
    assert outcomes["components.rmsnorm"] == "failed"
    assert outcomes["components.transformer_block"] == "passed"


def test_blank_and_absent_entry_points_are_told_in_one_line_each() -> None:
    def run_transformer_lm(**arguments: Any) -> Any:
        raise NotImplementedError

    reference = OracleAdapters(dtype=torch.float32)
    results = judge(SimpleNamespace(run_silu=reference.run_silu, run_transformer_lm=run_transformer_lm))
    counts = summary(results)
    assert counts == dict.fromkeys(OUTCOMES, 0) | {"passed": 1, "blank": 4, "skipped": 11}
    assert blank_lines(results) == ["run_transformer_lm is blank: it raises NotImplementedError (4 checks wait)"]
    assert verdict_line(results) == "4 of 16 required checks wait for blank entry points"
    assert any(result.message == "run_rope is not defined in subject" for result in results)


def test_results_are_kept() -> None:
    calls = []

    def run_silu(in_features: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return OracleAdapters(dtype=torch.float32).run_silu(in_features)

    suite = Suite(Subject(SimpleNamespace(run_silu=run_silu), "subject"))
    check = all_checks()["components.silu"]
    assert suite.result(check) is suite.result(check)
    assert len(calls) == 1


def test_json_has_every_field_that_a_program_reads() -> None:
    results = judge(OracleAdapters(ForgottenGain, torch.float32))
    data = to_json("subject", results)
    assert data["subject"] == "subject"
    assert set(data["summary"]) == set(OUTCOMES)
    failed = next(entry for entry in data["checks"] if entry["outcome"] == "failed")
    assert failed["error_in_noise"] > 16
    assert failed["message"].startswith("run_rmsnorm differs from the reference, first at row 0, position 0, channel ")
    blocked = next(entry for entry in data["checks"] if entry["outcome"] == "blocked")
    assert blocked["blocked_by"] == failed["id"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("components.silu", {"components.silu"}),
        ("Components.SiLU", {"components.silu"}),
        ("components.silu or components.softmax and not 4d", {"components.silu", "components.softmax"}),
        ("not assembly and not . or silu", {"components.silu"}),
        ("silu and not not components", {"components.silu"}),
    ],
)
def test_selection(expression: str, expected: set[str]) -> None:
    chosen = {check.id for check in select(expression)}
    assert {name for name in chosen if all_checks()[name].snapshot} == expected


@pytest.mark.parametrize(
    "expression", ["(silu)", "silu or", "and silu", "silu and or rope", "not", "silu softmax", "silu or not", " "]
)
def test_an_expression_that_is_none_is_refused_with_the_grammar(expression: str) -> None:
    with pytest.raises(CannotJudgeError) as caught:
        select(expression)
    assert str(caught.value) == (
        f"-k {expression!r}: give words joined by and, or, not; no parentheses, such as 'rope or softmax'"
    )


def test_an_expression_that_selects_nothing_is_refused() -> None:
    with pytest.raises(CannotJudgeError, match=r"^-k 'nobody' selects no check; `cs336 explain` lists their ids$"):
        select("nobody")
    with pytest.raises(CannotJudgeError, match=r"^-k 'rmsnrm and rope' selects no check; did you mean rmsnorm\?"):
        select("rmsnrm and rope")


@pytest.mark.parametrize("wanted", [True, False])
def test_second_mistakes_are_searched_for_only_where_diagnoses_are_wanted(
    wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = []
    monkeypatch.setattr(diagnosis, "diagnose_check", lambda subject, check, failure: None)
    monkeypatch.setattr(diagnosis, "diagnose_blocked", lambda subject, check, failure: searched.append(check.id))
    block = all_checks()["components.transformer_block"]
    subject = Subject(OracleAdapters(ForgottenGain, torch.float32), "subject")
    result = Suite(subject, diagnose=lambda check: wanted or check is not block).result(block)
    assert result.blocked_by == "components.rmsnorm"
    assert searched == [block.id] * wanted


def test_every_check_explains_itself_and_waits_only_for_what_runs_before() -> None:
    for check in all_checks().values():
        assert check.title, check.id
        assert check.group in GROUPS


def test_no_circle_of_prerequisites() -> None:
    def depth(name: str, seen: tuple[str, ...] = ()) -> int:
        assert name not in seen, f"circle: {' -> '.join((*seen, name))}"
        return 1 + max((depth(other, (*seen, name)) for other in all_checks()[name].after), default=0)

    assert all(depth(name) < 24 for name in all_checks())


def test_an_infinite_error_is_still_json() -> None:
    failure = CheckFailure("it differs", Evidence(error_in_noise=math.inf))
    result = Result(all_checks()["components.silu"], "failed", error_in_noise=math.inf, failure=failure)
    assert json.loads(json.dumps(result.to_json(), allow_nan=False))["error_in_noise"] is None


def test_a_check_that_breaks_is_a_failure_of_the_harness_and_stops_nothing() -> None:
    def breaks(subject: Subject) -> float:
        raise KeyError("oops")

    broken = Check("components.broken", breaks, "linear", ())
    suite = Suite(Subject(SimpleNamespace(), "subject"), diagnose=False)
    result = suite.result(broken)
    assert result.outcome == "failed"
    assert result.message == "the check itself broke, with KeyError: 'oops'; report this bug of the harness"
    assert suite.result(all_checks()["components.silu"]).outcome == "skipped"


def test_an_endless_loop_fails_once_and_what_needs_the_same_entry_point_waits() -> None:
    def run_softmax(in_features: torch.Tensor, dim: int) -> torch.Tensor:
        while True:
            pass

    suite = Suite(Subject(SimpleNamespace(run_softmax=run_softmax), "subject"), timeout=0.05)
    first, second = (suite.result(all_checks()[f"components.{name}"]) for name in ("softmax", "softmax_dim"))
    assert first.outcome == "failed"
    assert first.message == "run_softmax did not end in 0.05 s: an endless loop?"
    assert second.outcome == "blocked"
    assert second.blocked_by == "components.softmax"


def test_an_advisory_that_does_not_end_keeps_nothing_from_running() -> None:
    calls = 0

    def run_softmax(in_features: torch.Tensor, dim: int) -> torch.Tensor:
        nonlocal calls
        calls += 1
        while calls == 1:
            pass
        return torch.softmax(in_features, dim)

    required = all_checks()["components.softmax_dim"]
    advisory = dataclasses.replace(all_checks()["components.softmax"], advisory=True)
    suite = Suite(Subject(SimpleNamespace(run_softmax=run_softmax), "subject"), diagnose=False, timeout=0.05)
    assert suite.result(advisory).outcome == "advisory"
    assert suite.result(required).outcome == "passed"


def test_a_subject_that_raises_a_timeout_itself_has_not_run_out_of_ours() -> None:
    def run_softmax(in_features: torch.Tensor, dim: int) -> torch.Tensor:
        raise TimeoutError("no answer from the server")

    suite = Suite(Subject(SimpleNamespace(run_softmax=run_softmax), "subject"), diagnose=False)
    result = suite.result(all_checks()["components.softmax"])
    assert result.message == "run_softmax raised TimeoutError: no answer from the server"
    assert suite.result(all_checks()["components.softmax_every_dim[0]"]).message != "run_softmax does not end"
