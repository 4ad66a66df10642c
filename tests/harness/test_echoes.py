"""One mistake, one failure: what only repeats another failure is blocked by it, and a second mistake is told."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from unlisted import UNLISTED, OtherMask, OtherModel
from unlisted import subject_of as unlisted_subject
from variations import Variation, VariationAdapters

from cs336_harness.checks import all_checks
from cs336_harness.defects import OracleDefect, all_defects, subject_of
from cs336_harness.diagnosis import reproduced
from cs336_harness.reference.oracle_adapters import OracleAdapters
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, Evidence
from cs336_harness.verdict import echoes
from cs336_harness.verdict.audit import row_of
from cs336_harness.verdict.suite import Result, Suite

ONE_OF_EACH_KIND = {
    "norm-gain-plus-one": "scores so sharp that no token of 260 arrives",
    "attention-values-are-keys": "values that carry nothing",
    "causal-mask-missing": "a leak, and the wrong numbers that it makes",
    "norm-over-positions": "a leak through a norm",
    "axes-of-size-one-squeezed": "the same words of six entry points",
    "flops-causal-half": "the same words of five shapes",
}


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_one_mistake_is_told_once(name: str) -> None:
    assert len(row_of(name).told) == 1


def told(subject: Subject, *, diagnose: bool = True) -> list[Result]:
    required = [check for check in all_checks().values() if not check.advisory]
    return [result for result in Suite(subject, diagnose=diagnose).run(required) if result.outcome == "failed"]


class Window(OracleDefect):
    """A window of eight positions, which no entry of the dictionary has."""

    def visible_keys(self, query: int, time: int) -> range:
        return range(max(0, query - 7), query + 1)


class LeakAtTheEnd(OracleDefect):
    """A norm before the head that reads the next position."""

    def final_norm(self, x: Tensor, weights: Any) -> Tensor:
        return super().final_norm(
            x + 0.1 * x.roll(-1, 1) * (torch.arange(x.shape[1]) < x.shape[1] - 1)[:, None], weights
        )


@pytest.mark.parametrize("oracle", [Window, LeakAtTheEnd])
@pytest.mark.slow
def test_a_mistake_without_a_name_is_told_once_too(oracle: type[OracleDefect]) -> None:
    assert len(told(Subject(OracleAdapters(oracle, torch.float32), "subject"))) == 1


def judged(subject: Subject, check_id: str) -> dict[str, Result]:
    """One check, and all that was run for it."""
    suite = Suite(subject)
    suite.result(all_checks()[check_id])
    return {result.check.id: result for result in suite.results()}


def test_a_second_mistake_is_told_where_it_is_plainest() -> None:
    both = subject_of(all_defects()["norm-eps-outside-root"], all_defects()["rope-exponent-sign"])
    results = judged(both, "components.transformer_block")
    failed = [name for name, result in results.items() if result.outcome == "failed"]
    assert failed == ["components.rmsnorm", "components.rope"]
    second = results["components.rope"].diagnosis
    assert [defect.name for defect in second.defects] == ["rope-exponent-sign"]
    assert second.confidence == "certain"
    assert second.evidence == ["right at position 0, where nothing turns, wrong at the positions 1, 2, …"]


def test_what_two_mistakes_show_together_is_no_evidence_for_one() -> None:
    both = subject_of(all_defects()["norm-gain-forgotten"], all_defects()["residual-added-twice"])
    second = judged(both, "components.transformer_block")["components.transformer_block"].diagnosis
    assert [defect.name for defect in second.defects] == ["residual-added-twice"]
    assert second.evidence == []


class Damped(OracleDefect):
    """A damped stream, which no entry of the dictionary has."""

    def block(self, x: Tensor, weights: Any, positions: Tensor) -> Tensor:
        return 0.9 * super().block(x, weights, positions)


class FrequenciesOff(OracleDefect):
    """One pair too slow, which no entry of the dictionary has."""

    def inverse_frequencies(self, d_head: int, theta: float) -> Tensor:
        frequencies = super().inverse_frequencies(d_head, theta)
        return torch.cat([frequencies[:1], 0.7 * frequencies[1:]])


@pytest.mark.parametrize(
    ("unnamed", "where"), [(Damped, "components.transformer_block"), (FrequenciesOff, "components.rope")]
)
def test_behind_a_named_mistake_another_is_measured_and_told_once(unnamed: type[OracleDefect], where: str) -> None:
    class Both(unnamed, all_defects()["norm-gain-plus-one"]):  # ty: ignore[unsupported-base]
        pass

    results = judged(Subject(OracleAdapters(Both, torch.float32), "subject"), "components.transformer_block")
    failed = [name for name, result in results.items() if result.outcome == "failed"]
    assert set(failed) == {"components.rmsnorm", where}
    assert results[where].diagnosis.confidence == "measured"


class LongWindow(OtherMask):
    """A window that no short input shows."""

    def seen(self, allowed: Tensor) -> Tensor:
        return allowed.triu(-200)


class MeanOverTime(OtherModel):
    """Every position's logits know the mean over all positions, a single token's too."""

    def after(self, logits: Tensor) -> Tensor:
        return logits - 1e-2 * logits.mean(1, keepdim=True)


ONE_TOLD_BY: dict[type[Variation], tuple[str, str]] = {
    LongWindow: ("slow_oracle.logits[past-256]", "information_flow.every_token_arrives_past_256"),
    MeanOverTime: ("information_flow.prefix_equivalence[short]", "assembly.transformer_lm"),
}
"""A fault -> a check that only repeats, and the one that tells."""


@pytest.mark.parametrize("broken", ONE_TOLD_BY)
def test_a_mask_or_a_mean_is_told_by_the_check_that_says_most(broken: type[Variation]) -> None:
    repeats, tells = ONE_TOLD_BY[broken]
    suite = Suite(Subject(VariationAdapters(broken()), "subject"))
    results = {name: suite.result(all_checks()[name]) for name in (tells, repeats)}
    assert results[tells].outcome == "failed"
    assert (results[repeats].outcome, results[repeats].blocked_by) == ("blocked", tells)


@pytest.mark.parametrize("name", UNLISTED)
@pytest.mark.slow
def test_every_unlisted_fault_is_told_once(name: str) -> None:
    assert len(told(unlisted_subject(name))) == 1


class RefusesTheFullContext(Variation):
    """Compares with >= where > is meant."""

    def transformer_lm(self, shape: DecoderShape, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        if token_ids.shape[-1] >= shape.context_length:
            raise ValueError(f"{token_ids.shape[-1]} tokens, but the context length is {shape.context_length}")
        return super().transformer_lm(shape, weights, token_ids)


class AddsInPlace(Variation):
    """x += attention(...), which writes over what the norm needs for its gradient, and over the caller's tensor."""

    def block(self, x: Tensor, weights: Any, heads: Any, theta: float) -> Tensor:
        x += super().block(x, weights, heads, theta) - x
        return x


class WithoutATiedHead(VariationAdapters):
    def get_transformer_lm_weights(self, model: Any) -> Any:
        weights = dict(super().get_transformer_lm_weights(model))
        if model.shape.tie_embeddings:
            del weights["lm_head.weight"]
        return weights


class FrozenGains(VariationAdapters):
    def get_transformer_lm(self, **sizes: Any) -> Any:
        model = super().get_transformer_lm(**sizes)
        for name, weight in model.named().items():
            weight.requires_grad_("ln" not in name)
        return model


@pytest.mark.parametrize(
    ("adapters", "words"),
    [
        (VariationAdapters(RefusesTheFullContext()), "20 tokens, but the context length is 20"),
        (VariationAdapters(AddsInPlace()), "run_transformer_block overwrites in_features"),
        (WithoutATiedHead(Variation()), "get_transformer_lm_weights has no lm_head.weight; of a tied model both"),
        (FrozenGains(Variation()), "layers.0.ln1.weight and 6 more of the model that get_transformer_lm built take no"),
    ],
)
@pytest.mark.slow
def test_one_exception_is_told_once_whatever_asks(adapters: VariationAdapters, words: str) -> None:
    (failure,) = told(Subject(adapters, "subject"), diagnose=False)
    assert words in failure.message


class CountsFromOne(VariationAdapters):
    """Looks its positions up in a table of as many rows as the context has, and begins at row 1."""

    def run_transformer_lm(self, context_length: int, in_indices: Tensor, **arguments: Any) -> Tensor:
        torch.zeros(context_length)[torch.arange(in_indices.shape[-1]) + 1]
        return super().run_transformer_lm(context_length=context_length, in_indices=in_indices, **arguments)


def test_an_index_beyond_the_full_context_asks_where_positions_begin() -> None:
    suite = Suite(Subject(CountsFromOne(Variation()), "subject"), diagnose=False)
    result = suite.result(all_checks()["assembly.transformer_lm_full_context"])
    assert result.outcome == "failed"
    assert result.failure is not None
    assert "do yours count from 1, or is a table one row short?" in " ".join(result.failure.evidence.details)


def test_an_exception_is_the_same_in_the_same_lines_but_for_its_numbers() -> None:
    place, other = "model.py:7 in forward: x = self.ln1(x)", "model.py:9 in forward: x = self.ln2(x)"
    refused = Evidence(raised=("ValueError", "20 tokens, at most 19", place))
    assert echoes.raised_alike(refused, Evidence(raised=("ValueError", "13 tokens, at most 12", place)))
    assert not echoes.raised_alike(refused, Evidence(raised=("ValueError", "20 tokens, at most 19", other)))
    assert not echoes.raised_alike(refused, Evidence(raised=("TypeError", "20 tokens, at most 19", place)))
    assert not echoes.raised_alike(Evidence(), Evidence())


class OwnRotation(Variation):
    """Turns by a theta and positions of its own."""

    def self_attention(self, x: Tensor, projections: Any, heads: Any, positions: Any, theta: float) -> Tensor:
        own = None if positions is None else torch.arange(x.shape[-2])
        return super().self_attention(x, projections, heads, own, 10000.0)


def test_what_rotates_by_its_own_theta_is_not_said_not_to_rotate() -> None:
    result = judged(Subject(VariationAdapters(OwnRotation()), "subject"), "components.attention_theta")
    message = result["components.attention_theta"].message
    assert "turns by a theta and positions of its own" in message
    missing = judged(subject_of(all_defects()["rope-missing-in-attention"]), "components.attention_theta")
    assert "does not rotate" in missing["components.attention_theta"].message


class NoSecondNorm(Variation):
    """The feed-forward reads the stream as it is."""

    def block(self, x: Tensor, weights: Any, heads: Any, theta: float) -> Tensor:
        matrices = tuple(weights[f"attn.{name}_proj.weight"] for name in ("q", "k", "v", "output"))
        normed = self.rmsnorm(x, weights["ln1.weight"], 1e-5)
        x = x + self.self_attention(normed, matrices, heads, torch.arange(x.shape[-2]), theta)  # ty: ignore
        return x + self.swiglu(x, *(weights[f"ffn.w{i}.weight"] for i in (1, 2, 3)))


def test_a_missing_norm_is_not_called_a_low_precision() -> None:
    block = judged(Subject(VariationAdapters(NoSecondNorm()), "subject"), "components.transformer_block")
    found = block["components.transformer_block"].diagnosis
    assert [defect.name for defect in found.defects] == ["second-norm-missing"]
    assert found.confidence == "certain"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("silu-is-gelu", "causal-mask-missing"),
        ("norm-eps-missing", "rope-theta-fixed"),
        ("softmax-maximum-not-subtracted", "residual-added-twice"),
        ("norm-eps-outside-root", "rope-exponent-sign"),
        ("kv-heads-tiled", "first-norm-missing"),
        ("rope-theta-fixed", "tie-lost-on-load"),
        ("layers-reversed", "second-norm-used-twice"),
        ("residual-from-normed-input", "logits-softmax"),
        ("heads-merged-without-transpose", "head-scaled"),
        ("mask-fills-with-minus-ten", "norm-in-bfloat16"),
    ],
)
@pytest.mark.slow
def test_two_mistakes_are_told_as_two(first: str, second: str) -> None:
    named = [
        result.diagnosis.defects[0].name for result in told(subject_of(all_defects()[first], all_defects()[second]))
    ]
    assert set(named) == {first, second}
    assert len(named) == 2


@pytest.mark.slow
def test_a_second_mistake_without_a_name_is_told_behind_a_named_one() -> None:
    class GeluAndLeak(LeakAtTheEnd, all_defects()["silu-is-gelu"]):  # ty: ignore[unsupported-base]
        pass

    first, second = told(Subject(OracleAdapters(GeluAndLeak, torch.float32), "subject"))
    assert first.check.id == "components.silu"
    assert second.check.id.startswith("assembly.")


def test_a_known_mistake_explains_only_a_failure_with_its_own_numbers() -> None:
    check = all_checks()["components.silu"]
    with pytest.raises(CheckFailure) as caught:
        check(subject_of(all_defects()["silu-is-gelu"]))
    assert reproduced(check, caught.value, [all_defects()["silu-is-gelu"]])
    assert not reproduced(check, caught.value, [all_defects()["silu-is-relu"]])
    assert not reproduced(check, caught.value, [all_defects()["rope-missing"]])
    assert not reproduced(check, caught.value, [])


def test_words_are_compared_without_numbers_and_calls() -> None:
    assert echoes.same_words("run_silu gives (3, 1) for 2.5", "run_rope gives (12,) for -1e-3")
    assert not echoes.same_words("run_silu gives (3, 1)", "run_silu raised TypeError")
    assert echoes.same_words(
        "it gives 7; it is 9. That is 2 too few", "it gives 8; it is 12. That is 4 = D · D too few"
    )
    assert echoes.same_words("it gives 7; it is 9. That is 2 too few", "it gives 8; it is 12. This is the count with")
    assert not echoes.same_words("it gives 7; it is 9. This is one", "it gives 8; it is 12. This is another")


def test_a_component_shows_which_positions_and_rows_it_mixes() -> None:
    subject = subject_of(all_defects()["causal-mask-missing"])
    seen = echoes.sees(subject, "run_multihead_self_attention", 6, [2, 5])
    assert seen is not None
    assert bool(seen[0].all())
    assert not bool(seen[1].any())
    right = echoes.sees(Subject(OracleAdapters(), "the oracle"), "run_multihead_self_attention", 6, [2])
    assert right is not None
    assert right[0, :, 0].tolist() == [False, False, True, True, True, True]


def test_nothing_is_seen_of_an_entry_point_that_is_absent_or_has_no_positions() -> None:
    assert echoes.sees(Subject(SimpleNamespace(), "empty"), "run_rmsnorm", 6, [2]) is None
    assert echoes.sees(Subject(SimpleNamespace(), "empty"), "run_parameter_count", 6, [2]) is None
