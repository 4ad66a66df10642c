"""Explanations and hints: one source, the docstrings; and a name that is nearly right finds its way."""

import pytest
from typer.testing import CliRunner

from cs336_harness.checks import all_checks
from cs336_harness.checks.registry import TASKS
from cs336_harness.cli import app_of
from cs336_harness.contract import ENTRY_POINTS
from cs336_harness.defects import all_defects
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.verdict.explain import catalogue, explanation, hints, topic
from cs336_harness.verdict.suite import select

EPS_MISSING = all_defects()["norm-eps-missing"]


def test_every_check_can_be_explained_and_says_what_it_does_and_where_it_belongs() -> None:
    for check in all_checks().values():
        lines = explanation(check.id)
        assert lines[1].strip().startswith(check.title.split()[0])
        where = f"handout {check.section}" if "§" in check.section else "beyond the handout"
        assert f"  task        {check.task}, {where}" in lines


def test_what_it_does_why_and_what_usually_breaks_it() -> None:
    docstring = " ".join(all_checks()["components.rmsnorm"].explanation.split())
    lines = [line.strip() for line in explanation("components.rmsnorm")]
    assert " ".join(lines[1:4]) == docstring
    assert lines[3].startswith("Usually broken by a forgotten gain")


def test_a_check_with_cases_is_explained_once_and_lists_them() -> None:
    assert "  cases       ordinary, loud" in explanation("information_flow.changed_suffix")


def test_cases_that_differ_in_task_and_call_are_all_named() -> None:
    lines = explanation("components.axes_of_size_one")
    cases = [check for name, check in all_checks().items() if name.startswith("components.axes_of_size_one[")]
    assert len(cases) == 11
    (tasks,) = (line for line in lines if line.startswith("  tasks "))
    (calls,) = (line for line in lines if line.startswith("  calls "))
    assert all(f"{check.task}, handout {check.section}" in tasks for check in cases)
    assert all(need in calls for check in cases for need in check.needs)
    assert calls.endswith(", by case")


@pytest.mark.parametrize("name", ["positionwise_feedforward", "tying", "run_swiglu"])
def test_a_task_a_group_and_an_entry_point_list_their_checks(name: str) -> None:
    shown = {check.id.partition("[")[0] for check in topic(name).checks}
    assert {line.split()[0].rstrip(":") for line in explanation(name) if line.startswith("  ")} == shown
    assert len(shown) > 3


def test_the_catalogue_holds_every_check_in_the_order_of_the_tasks() -> None:
    lines = catalogue()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == list(TASKS)
    listed = {line.split()[0].rstrip(":") for line in lines if line.startswith("  ")}
    assert listed == {check_id.partition("[")[0] for check_id in all_checks()}


def test_a_known_mistake_is_explained_by_its_docstring() -> None:
    assert any(EPS_MISSING.explanation() in line for line in explanation("norm-eps-missing"))


@pytest.mark.parametrize(
    ("name", "near"), [("rmsnrm", "rmsnorm"), ("run_ropes", "run_rope"), ("norm-eps-mising", "norm-eps-missing")]
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, near: str) -> None:
    with pytest.raises(CannotJudgeError, match=f"is called {name}; did you mean .*{near}"):
        topic(name)


def test_a_name_means_to_explain_what_it_means_to_check() -> None:
    lines = explanation("rmsnorm")
    assert lines[0] == (
        f"rmsnorm is a task too: `uv run cs336 check -k rmsnorm` runs {len(select('rmsnorm'))} checks, listed below;"
        " first the one of that name"
    )
    assert lines[2] == "components.rmsnorm  (required)"
    bases = {check.id.partition("[")[0] for check in select("rmsnorm")}
    rest = lines[lines.index("", 3) :]
    listed = {line.split()[0].rstrip(":") for line in rest if line.startswith("  components.")}
    assert listed == bases


def test_a_title_is_the_whole_first_sentence() -> None:
    titles = {check.id: check.title for check in all_checks().values()}
    assert titles["slow_oracle.built_logits[mha]"].endswith("reference's weights: MHA, GQA, MQA, tied or not.")
    assert titles["tying.safetensors"] == "A tied model comes back from a safetensors file tied."
    assert all(title.endswith((".", "…")) and "\n" not in title for title in titles.values())


def test_the_formula_is_the_last_step() -> None:
    *steps, last = hints("transformer_accounting")
    assert "2VD + L(4D² + 3DF + 2D) + D" in last
    assert not any("2VD" in step or "8BTD²" in step for step in steps[:3])


def test_hints_begin_with_a_question_and_end_with_the_mistake() -> None:
    steps = hints("norm-eps-missing")
    assert steps == [EPS_MISSING.hint, *EPS_MISSING.steps, f"The mistake: {EPS_MISSING.explanation()}"]


@pytest.mark.parametrize("name", [*TASKS, *ENTRY_POINTS, "components.softmax", "tying"])
def test_hints_for_a_check_or_a_task_never_begin_with_what_breaks_it(name: str) -> None:
    steps = hints(name)
    assert len(steps) >= 3
    assert "sually broken" not in steps[0] + steps[1]
    assert any("holds your numbers against every known mistake" in step for step in steps)
    assert steps[0].startswith("What is it that ")


def test_the_commands_show_step_by_step_and_say_how_to_go_on() -> None:
    first = CliRunner().invoke(app_of(), ["hint", "norm-eps-missing"])
    assert first.output.splitlines()[0] == f"1. {EPS_MISSING.hint}"
    assert "uv run cs336 hint norm-eps-missing --steps 2" in first.output
    everything = CliRunner().invoke(app_of(), ["hint", "norm-eps-missing", "--steps", "99"])
    assert len(everything.output.splitlines()) == len(hints("norm-eps-missing"))
    assert CliRunner().invoke(app_of(), ["explain", "rmsnorm"]).output.startswith("rmsnorm is a task too: ")
