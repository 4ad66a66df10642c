"""Progress says where a learner stands, and never more than was run."""

from pathlib import Path

import pytest

from cs336_harness.checks import all_checks, find
from cs336_harness.checks.registry import TASKS, Check
from cs336_harness.contract import INCREMENTAL_ENTRY_POINTS
from cs336_harness.places import HOME, TEMPLATES
from cs336_harness.verdict.progress import CRITERIA, entry_points_of, progress, progress_lines, required_checks
from cs336_harness.verdict.suite import Outcome, Result

TEMPLATE = TEMPLATES / "WRITEUP.md"


def result(check: Check, outcome: Outcome = "passed", blocked_by: str | None = None) -> Result:
    state = {"blank": "blank", "skipped": "absent"}.get(outcome, "filled")
    return Result(check, outcome, blocked_by=blocked_by, states=dict.fromkeys(check.needs, state))


def results(**outcomes: Outcome) -> list[Result]:
    """Every check, passed but for the tasks that are named."""
    return [result(check, outcomes.get(check.task, "passed")) for check in all_checks().values()]


def test_everything_passed() -> None:
    lines = progress_lines(results(), HOME)
    assert lines[0] == "17 of 17 entry points filled, required checks passed in 13 of 13 tasks"
    assert lines[1] == "complete when"
    assert len(lines) == 2 + len(CRITERIA) + 1
    assert all(line.startswith("  ✓ ") for line in lines[2:])


def test_a_decoder_without_a_cache_lacks_nothing() -> None:
    standing = results(incremental_decoding="skipped")
    for one in standing:
        one.states = {need: "absent" if need in INCREMENTAL_ENTRY_POINTS else "filled" for need in one.check.needs}
    lines = progress_lines(standing, HOME)
    assert lines[:2] == ["16 of 16 entry points filled, required checks passed in 12 of 12 tasks", "complete when"]


def test_a_function_without_num_kv_heads_lacks_nothing() -> None:
    lines = progress_lines(results(grouped_query_attention="skipped"), HOME)
    assert lines[0].endswith("required checks passed in 12 of 12 tasks")
    assert lines[1] == "complete when"
    assert all(line.startswith("  ✓ ") for line in lines[2:])


def test_every_criterion_rests_on_required_checks() -> None:
    for names in CRITERIA.values():
        for name in names:
            assert any(not check.advisory for check in find(name)), name


def test_the_next_task_is_the_first_that_is_blank_and_says_what_to_write() -> None:
    lines = progress_lines(results(positionwise_feedforward="blank", transformer_lm="blank"))
    assert lines[0] == "12 of 17 entry points filled, required checks passed in 11 of 13 tasks"
    assert lines[1] == "next: positionwise_feedforward (§3.4.2): write run_silu and run_swiglu in adapters.py"
    assert "  ○ both public full-model tests pass" in lines


def test_a_failed_check_comes_first_and_is_named() -> None:
    standing = [
        result(check, "failed" if check.id == "components.rope" else "passed") for check in all_checks().values()
    ]
    lines = progress_lines(standing)
    assert lines[1].startswith("next: rope (§3.4.3): components.rope fails; `uv run cs336 explain components.rope`")


def test_a_blocked_task_names_what_blocks_it() -> None:
    standing = [
        result(check, "blocked", "components.linear") if check.task == "rope" else result(check)
        for check in all_checks().values()
    ]
    assert progress_lines(standing)[1].startswith("next: rope (§3.4.3): components.linear fails")


def test_a_part_of_the_suite_never_reads_as_the_whole() -> None:
    standing = [result(check) for check in required_checks("rmsnorm")]
    assert progress_lines(standing, HOME) == [
        "required checks passed in 1 of 11 tasks, the others were not run in full; `uv run cs336 check` runs everything"
    ]
    assert not progress(standing).whole
    assert not any(criterion.passed for criterion in progress(standing).criteria)


def test_a_task_that_ran_in_part_is_not_passed() -> None:
    standing = progress([result(check) for check in required_checks("rope")[:-1]])
    assert not any(task.passed for task in standing.tasks)


def test_skipped_checks_are_told_apart_from_passed_ones() -> None:
    lines = progress_lines(results(transformer_accounting="skipped"))
    assert lines[0].endswith("required checks passed in 12 of 13 tasks")
    assert lines[1].startswith("next: transformer_accounting (§3.5): define run_parameter_count and run_forward_flops")
    in_part = [result(check, "skipped" if check.group == "tying" else "passed") for check in all_checks().values()]
    assert progress_lines(in_part)[0].endswith("in 12 of 13 tasks, in 1 more as far as they could run")


@pytest.mark.parametrize(
    ("absent", "line"),
    [
        (
            "get_transformer_lm",
            "- logits and gradients match the slow reference, tied and untied"
            " (right as far as it could run: needs get_transformer_lm)",
        ),
        (
            "get_transformer_lm",
            "- prefix logits stay when the suffix is replaced, tied and untied"
            " (right as far as it could run: needs get_transformer_lm)",
        ),
        ("run_transformer_lm", "- both public full-model tests pass (could not run: needs run_transformer_lm)"),
    ],
)
def test_a_criterion_is_ticked_only_when_every_check_of_it_ran(absent: str, line: str) -> None:
    standing = [result(check, "skipped" if absent in check.needs else "passed") for check in all_checks().values()]
    for one in standing:
        one.states |= {name: "filled" if name != absent else "absent" for name in one.states}
    told = [line.strip() for line in progress_lines(standing)]
    assert line in told
    failing = [one if one.outcome == "skipped" else result(one.check, "failed") for one in standing]
    assert not any("right as far as" in line for line in progress_lines(failing))


def test_advice_keeps_no_task_from_being_passed() -> None:
    standing = [result(check, "advisory" if check.advisory else "passed") for check in all_checks().values()]
    assert all(task.passed for task in progress(standing).tasks)


def test_every_task_adds_entry_points_of_its_own() -> None:
    own = [name for task in TASKS for name in entry_points_of(task)]
    assert len(own) == len(set(own)) == 17


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (None, "○ every number of the written answer is right (there is no WRITEUP.md)"),
        ("", "✗ every number of the written answer is right (WRITEUP.md cannot be read"),
        (TEMPLATE.read_text(encoding="utf-8"), "○ every number of the written answer is right ("),
    ],
)
def test_the_written_answer_is_judged_where_everything_ran(tmp_path: Path, text: str | None, line: str) -> None:
    if text is not None:
        (tmp_path / "WRITEUP.md").write_text(text, encoding="utf-8")
    assert progress_lines(results(), tmp_path)[-1].startswith(f"  {line}")


def test_what_comes_next_names_the_file_that_is_judged() -> None:
    lines = progress_lines(results(positionwise_feedforward="blank"), file="mine.py")
    assert any(line.startswith("next:") and line.endswith("in mine.py") for line in lines)
