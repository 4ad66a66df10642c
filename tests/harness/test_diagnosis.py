"""Diagnosis: silent on what is right, right on what it names, and a place for what it cannot name."""

import json
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from listed import LISTED
from unlisted import UNLISTED
from unlisted import subject_of as unlisted_subject
from variations import COVERING, VARIATIONS, Variation, VariationAdapters

from cs336_harness.checks import all_checks
from cs336_harness.contract import MODEL_ENTRY_POINTS
from cs336_harness.defects import all_defects, subject_of
from cs336_harness.diagnosis import Diagnosis, Probe, diagnose_check, diagnosing
from cs336_harness.diagnosis.localising import locate
from cs336_harness.diagnosis.matching import match, match_pair
from cs336_harness.diagnosis.programs import EVERY, program, programs_for
from cs336_harness.diagnosis.readings import reading_of
from cs336_harness.diagnosis.reproducing import reproducer
from cs336_harness.diagnosis.snippets import CODES
from cs336_harness.reference.oracle_adapters import OracleAdapters
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure
from cs336_harness.verdict.suite import Result, Suite


def first_failure(subject: Subject, *checks: str) -> Result:
    """The first required check (or the first of those given) that fails and is not blocked."""
    suite = Suite(subject, diagnose=False)
    ids = checks or [check.id for check in all_checks().values() if not check.advisory]
    return next(result for result in suite.run(all_checks()[name] for name in ids) if result.outcome == "failed")


def diagnosis(subject: Subject, *checks: str, pairs: bool = False) -> Diagnosis:
    result = first_failure(subject, *checks)
    assert result.failure is not None
    found = diagnose_check(subject, result.check, result.failure, pairs=pairs)
    assert found is not None
    return found


def known(*names: str) -> Subject:
    return subject_of(*(all_defects()[name] for name in names))


@pytest.mark.parametrize("name", ["fused", "renormalise"])
def test_a_correct_decoder_differs_from_the_oracle_in_no_experiment(name: str) -> None:
    probe = Probe(Subject(VariationAdapters(COVERING[name]), name))
    assert [e.name for program_name in EVERY for e in probe.differing(program_name)] == []
    assert [reading_of(probe.subject, name) for name in EVERY] == [None] * len(EVERY)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIATIONS)
def test_no_correct_variation_is_named(name: str) -> None:
    probe = Probe(Subject(VariationAdapters(VARIATIONS[name]), name))
    assert [match(probe, name) or match_pair(probe, name) for name in EVERY] == [None] * len(EVERY)
    assert [reading_of(probe.subject, name) for name in EVERY] == [None] * len(EVERY)


def test_a_learner_reads_what_is_wrong_where_the_evidence_and_a_hint() -> None:
    found = diagnosis(known("causal-mask-off-by-one"), "components.multihead_self_attention")
    lines = found.lines()
    assert lines[0] == (
        "what is wrong: Every position also sees the next one, which is the very token it has to predict. "
        " [causal-mask-off-by-one]"
    )
    assert lines[1] == "where: mask (certain)"
    assert lines[2].startswith("why there: one token alone is right, several are wrong")
    assert lines[2].endswith("position 0 notices a change at position 1, which comes later")
    assert "hint: Which diagonal does your triangle start on? Position 0 must see itself and nothing more." in lines
    assert [line for line in found.lines(hint=True) if line.startswith("  1. ")]
    assert found.title == "causal-mask-off-by-one"


def test_what_is_right_at_position_0_is_not_called_wrong_there() -> None:
    found = diagnosis(known("rope-exponent-sign"), "components.rope")
    assert found.evidence == ["right at position 0, where nothing turns, wrong at the positions 1, 2, …"]


def test_the_json_has_the_promised_shape() -> None:
    said = json.loads(json.dumps(diagnosis(known("silu-is-gelu"), "components.silu").to_json()))
    assert said["where"] == "feed-forward"
    assert said["defects"][0]["name"] == "silu-is-gelu"
    assert said["defects"][0]["hint"]


REPRODUCED = {
    "norm-gain-forgotten": "components.rmsnorm",
    "final-norm-missing": "assembly.transformer_lm",
    "tied-flag-ignored": "tying.one_parameter",
    "heads-not-validated": "configuration.refuses[heads_that_do_not_divide]",
    "flops-head-forgotten": "accounting.forward_flops[mha]",
}


WIDEST = 74
"""Code wider than this would be broken by an ordinary terminal, and could not be pasted."""


@pytest.mark.parametrize("name", REPRODUCED)
def test_the_reproducer_runs_as_pasted_and_prints_what_it_says(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subject = known(name)
    lines = diagnosis(subject, REPRODUCED[name]).reproducer
    module = ModuleType("adapters")
    for entry_point in dir(subject.module):
        if entry_point.startswith(("run_", "get_")):
            setattr(module, entry_point, getattr(subject.module, entry_point))
    monkeypatch.setitem(sys.modules, "adapters", module)
    with torch.random.fork_rng(devices=[]):
        exec("\n".join(lines), {})
    printed, said = capsys.readouterr().out.strip(), lines[-1].rpartition("this one ")[2]
    assert lines[-1].startswith("# a correct decoder gives ")
    assert len(lines) <= 22
    assert max(map(len, lines[:-1])) <= WIDEST
    if said.replace(".", "").replace("-", "").replace("e", "").isdigit():
        assert float(printed) == pytest.approx(float(said), rel=1e-4)
    else:
        assert printed == said or printed.startswith(said.removesuffix("..."))


def test_two_mistakes_in_one_function_are_named_together() -> None:
    found = diagnosis(known("norm-gain-forgotten", "norm-subtracts-mean"), "components.rmsnorm", pairs=True)
    assert found.together
    assert {defect.name for defect in found.defects} == {"norm-gain-forgotten", "norm-subtracts-mean"}
    assert found.title.startswith("two mistakes: ")


def test_a_second_mistake_behind_the_first_is_a_failure_of_its_own() -> None:
    suite = Suite(known("silu-is-relu", "final-norm-missing"))
    names = ("components.silu", "components.swiglu", "components.transformer_block", "assembly.transformer_lm")
    outcomes = {name: suite.result(all_checks()[name]) for name in names}
    assert [result.outcome for result in outcomes.values()] == ["failed", "blocked", "blocked", "failed"]
    assert outcomes["assembly.transformer_lm"].diagnosis.title == "final-norm-missing"


def test_the_same_mistake_is_told_once() -> None:
    subject = known("causal-mask-missing")
    diagnosis(subject, "components.multihead_self_attention")
    again = diagnosis(subject, "information_flow.prefix_equivalence[short]")
    assert again.lines() == ["the same as in components.multihead_self_attention: causal-mask-missing"]


@pytest.mark.parametrize("name", ["rope-half-split-pairs", "norm-in-bfloat16"])
def test_a_mistake_made_in_float32_by_other_means_gets_its_name(name: str) -> None:
    assert [defect.name for defect in diagnosis(LISTED[name]).defects] == [name]


@pytest.mark.slow
@pytest.mark.parametrize("name", LISTED)
def test_every_mistake_made_in_float32_by_other_means_gets_its_name(name: str) -> None:
    assert [defect.name for defect in diagnosis(LISTED[name]).defects] == [name]


@pytest.mark.parametrize("name", ["A window of six positions", "The last head silent", "The gate squared"])
def test_a_fault_that_nobody_listed_is_placed_and_not_named(name: str) -> None:
    check_placed(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", UNLISTED)
def test_every_unlisted_fault_is_caught_and_placed_and_not_named(name: str) -> None:
    check_placed(name)


WITHOUT_A_SNIPPET = (
    "Token ids taken modulo 16",
    "The mean of the logits over the positions subtracted",
    "Pairs with a wavelength of more than 8192 positions turned at an eighth of their rate, as in Llama 3.1",
)
"""Faults that no small case shows: few ids, one position, or pairs that turn fast, and they are gone."""


def check_placed(name: str) -> None:
    """Caught, not named, and placed: by the diagnosis, or where the message of the failure says it, by the ladder."""
    subject, places = unlisted_subject(name), {str(place) for place in UNLISTED[name][1]}
    result = first_failure(subject)
    assert result.failure is not None
    found = diagnose_check(subject, result.check, result.failure, pairs=False)
    probe = Probe(subject)
    shown = next(program_name for program_name in programs_for(result.check) if probe.differing(program_name))
    located, read = locate(probe, shown), probe.reading(shown)
    assert located is not None
    if read is None or read.vague or located.certainly_flow(read.place):
        assert str(located.place) in places
        assert located.evidence or "part is missing" in result.failure.message
    else:  # what is read says more than the place of the first experiment that differs
        assert str(read.place) in places
    assert reproducer(probe, shown) or name in WITHOUT_A_SNIPPET
    if result.failure.evidence.error_in_noise is not None:
        assert found is not None
        assert found.where in places
    assert found is None or found.defects == ()


def test_a_black_box_is_placed_through_the_model_alone() -> None:
    places = {}
    for name in (
        "rope-direction-reversed",
        "silu-is-tanh",
        "last-layer-skipped",
        "final-norm-missing",
        "logits-centred",
    ):
        whole = subject_of(all_defects()[name]).module
        alone = Subject(SimpleNamespace(run_transformer_lm=whole.run_transformer_lm), name)
        found = locate(Probe(alone), "run_transformer_lm")
        places[name] = None if found is None else str(found.place)
    assert places == {
        "rope-direction-reversed": "positions",
        "silu-is-tanh": "feed-forward",
        "last-layer-skipped": "layer order or count",
        "final-norm-missing": "final norm",
        "logits-centred": "post-processing",
    }


class Raises:
    def __getattr__(self, name: str) -> Any:
        def entry_point(*args: Any, **kwargs: Any) -> Any:
            raise RecursionError("nothing works here")

        return entry_point


def test_a_subject_that_only_raises_is_not_named_and_nothing_is_raised() -> None:
    subject = Subject(Raises(), "hopeless")
    for check_id in ("components.rope", "assembly.transformer_lm", "tying.one_parameter", "accounting.flop_terms"):
        found = diagnose_check(subject, all_checks()[check_id], CheckFailure("it raised"))
        assert found is None or found.defects == ()


def test_a_diagnosis_that_breaks_hides_no_failure_but_fails_our_own_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(check: Any) -> list[str]:
        raise RecursionError("a bug of the diagnosis")

    monkeypatch.setattr(diagnosing, "programs_for", broken)
    subject, check, failure = known("silu-is-relu"), all_checks()["components.silu"], CheckFailure("it failed")
    with pytest.raises(RecursionError, match="a bug of the diagnosis"):
        diagnose_check(subject, check, failure)
    monkeypatch.delenv(diagnosing.RAISES)
    assert diagnose_check(subject, check, failure) is None


def test_every_experiment_has_a_name_of_its_own_and_words_for_it() -> None:
    beginnings = (
        "on ",
        "for ",
        "with ",
        "when ",
        "at ",
        "in ",
        "under ",
        "along ",
        "between ",
        "after ",
        "without ",
        "past ",
        "token ",
    )
    for name in EVERY:
        names = [experiment.name for experiment in program(name)]
        assert len(set(names)) == len(names)
        assert [e.what for e in program(name) if not e.what.startswith(beginnings)] == []


def test_no_reproducer_is_wider_than_a_terminal() -> None:
    codes = [code for make in CODES.values() for code in make()]
    codes += [experiment.code for name in EVERY for experiment in program(name) if experiment.code]
    printed = [f"print({code[-1]})" for code in codes]
    assert {line for line in (*printed, *(line for code in codes for line in code[:-1])) if len(line) > WIDEST} == set()


def test_a_subject_that_has_only_a_part_is_diagnosed_by_that_part() -> None:
    right = VariationAdapters(Variation())
    partial = SimpleNamespace(run_silu=lambda x: x, run_swiglu=right.run_swiglu)
    found = diagnosis(Subject(partial, "partial"), "components.silu")
    assert found.title == "silu-missing"
    assert set(MODEL_ENTRY_POINTS) - set(vars(partial))


def test_a_failure_that_a_known_mistake_does_not_show_is_not_given_its_name() -> None:
    """Two slips that have nothing to do with one another: one is a known mistake, and the other is not told as it."""
    right = OracleAdapters(dtype=torch.float32)

    class Slips(OracleAdapters):
        def get_transformer_lm_weights(self, model: Any) -> Any:
            weights = right.get_transformer_lm_weights(model)
            if model.oracle.shape.tie_embeddings:
                del weights["lm_head.weight"]
            return weights

        def get_transformer_lm(self, tie_embeddings: bool, **sizes: Any) -> Any:
            accepted = {name: max(1, size) for name, size in sizes.items()}
            return right.get_transformer_lm(tie_embeddings=tie_embeddings, **accepted)

    suite = Suite(Subject(Slips(dtype=torch.float32), "slips"))
    result = suite.result(all_checks()["tying.one_parameter"])
    assert result.outcome == "failed"
    assert "no lm_head.weight" in result.message
    assert result.diagnosis is None


def test_a_product_with_a_weight_that_is_not_transposed_is_told_as_that() -> None:
    right = VariationAdapters(Variation())
    slip = SimpleNamespace(**{name: getattr(right, name) for name in MODEL_ENTRY_POINTS})
    slip.run_linear = lambda d_in, d_out, weights, in_features: in_features @ weights
    found = diagnosis(Subject(slip, "slip"), "components.linear")
    assert found.lines()[0] == (
        "what is wrong: x @ W is computed with W of shape (128, 48); weights are stored (out, in), so y = W x is"
        " x @ W.T: (48) times (48, 128) gives (128)"
    )


def test_the_evidence_of_a_name_never_denies_its_place() -> None:
    found = diagnosis(known("causal-mask-inverted"), "components.multihead_self_attention")
    assert found.title == "causal-mask-inverted"
    assert found.where == "mask"
    assert not any("not the mask" in line for line in found.evidence)
