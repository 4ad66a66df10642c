"""The words of a verdict: short, about what must be read first, and in plain English."""

import io
from types import SimpleNamespace

from rich.console import Console
from variations import Variation, VariationAdapters

from cs336_harness.checks import all_checks
from cs336_harness.contract import MODEL_ENTRY_POINTS
from cs336_harness.diagnosis import Diagnosis
from cs336_harness.subject.calling import Subject
from cs336_harness.verdict.report import print_report, verdict_line, verdict_sentence
from cs336_harness.verdict.suite import Result, Suite, blockers


def told(*results: Result, blockers: tuple[Result, ...] = (), verbose: bool = False) -> str:
    text = io.StringIO()
    print_report(Console(file=text, width=120), results, 1.0, blockers=blockers, verbose=verbose)
    return text.getvalue()


def result(check_id: str, outcome: str, **fields: str) -> Result:
    return Result(all_checks()[check_id], outcome, **fields)  # ty: ignore[invalid-argument-type]


FAILED = result("components.silu", "failed", message="run_silu differs")
BLOCKED = result("components.swiglu", "blocked", blocked_by="components.silu")
ADVISORY = result("components.rmsnorm_half_precision[bfloat16]", "advisory", message="a long story")


def test_what_is_blocked_is_counted_and_not_listed() -> None:
    text = told(FAILED, BLOCKED)
    assert "1 more check is blocked by this one" in text
    assert "components.swiglu" not in text
    assert "wait" not in text


def test_advisories_are_one_line_while_something_required_fails() -> None:
    text = told(FAILED, ADVISORY)
    assert "1 advisory check failed too; it does not count, -v shows it" in text
    assert "a long story" not in text
    assert "a long story" in told(FAILED, ADVISORY, verbose=True)
    assert "a long story" in told(result("components.silu", "passed"), ADVISORY)


def test_a_selection_that_is_all_blocked_shows_what_blocks_it() -> None:
    text = told(BLOCKED, blockers=(FAILED,))
    assert "✗ components.silu" in text
    assert "run_silu differs" in text
    why = "-k does not select this check; it is shown because it fails and blocks 1 check that -k selects"
    assert why in text
    assert why not in told(FAILED, BLOCKED)
    assert verdict_line([BLOCKED]) == "1 of 1 required checks are blocked by one that fails and was not asked for"


def test_what_blocks_advisory_checks_alone_is_not_shown() -> None:
    advisory = next(check.id for check in all_checks().values() if check.advisory)
    known = {"components.silu": FAILED}
    assert blockers([result(advisory, "blocked", blocked_by="components.silu")], known) == []
    assert blockers([BLOCKED], known) == [FAILED]


def test_what_is_blocked_has_one_count() -> None:
    advisory = next(check.id for check in all_checks().values() if check.advisory)
    text = told(FAILED, BLOCKED, result(advisory, "blocked", blocked_by="components.silu"))
    assert "1 of 2 required checks failed, 1 more is blocked by it" in text
    assert "1 more check is blocked by this one" in text
    assert "· 1 blocked" in text


def test_the_table_has_nothing_that_a_learner_cannot_read() -> None:
    assert "noise" not in told(FAILED, BLOCKED)


def test_no_terminal_shows_the_marks_of_a_docstring() -> None:
    titled = next(check for check in all_checks().values() if "``" in check.title)
    assert "``" not in told(result(titled.id, "failed", message="wrong"))


def test_a_failure_says_what_is_wrong_before_the_numbers() -> None:
    right = VariationAdapters(Variation())
    slip = SimpleNamespace(**{name: getattr(right, name) for name in MODEL_ENTRY_POINTS})
    slip.run_silu = lambda in_features: 1.5 * right.run_silu(in_features)
    suite = Suite(Subject(slip, "slip"))
    text = told(suite.result(all_checks()["components.silu"]))
    assert "what is wrong: the activation is 1.5 × z sigmoid(z), must be z sigmoid(z)" in text
    assert text.index("what is wrong") < text.index("elements differ")
    assert "see it for yourself on a small case, in the folder that holds adapters.py:" in text


def test_what_could_not_run_is_not_among_those_of_which_some_failed() -> None:
    assert verdict_sentence({"failed": 1, "passed": 4, "skipped": 80}, []) == (
        "1 of 5 required checks that could run failed"
    )


def test_a_legend_says_what_the_words_behind_a_place_mean() -> None:
    def failed(confidence: str, told_before: str | None = None) -> Result:
        found = result("components.silu", "failed", message="run_silu differs")
        found.diagnosis = Diagnosis("norm", confidence, told_before=told_before)
        return found

    assert "(likely): the best guess, not proven" in told(failed("likely"))
    assert "(certain)" not in told(failed("likely")).replace("where: norm (certain)", "")
    assert "(measured): read off your own results" in " ".join(told(failed("measured"), failed("certain")).split())
    assert "not proven" not in told(FAILED)
    assert "not proven" not in told(failed("likely", told_before="components.rmsnorm"))


def test_tied_and_untied_are_explained_where_a_failure_says_them() -> None:
    wrong = result("slow_oracle.built_logits[mha]", "failed", message="the built model (4 heads, untied) differs")
    assert "untied: each has its own" in told(wrong)
    assert "untied: each has its own" not in told(FAILED)


def test_a_check_that_lasts_is_told_in_seconds() -> None:
    long, short = result("components.silu", "passed"), result("components.swiglu", "passed")
    long.seconds, short.seconds = 37.195, 0.042
    text = told(long, short, verbose=True)
    assert "37.2 s" in text
    assert "42 ms" in text
