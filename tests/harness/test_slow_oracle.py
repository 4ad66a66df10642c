"""The slow oracle: each shape has a subject that is right at every shape before it and wrong at this one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from broken import RIGHT, broken
from torch import Tensor
from vectorised import Vectorised, result_of, subject_of

from cs336_harness.checks import all_checks
from cs336_harness.checks.slow_oracle import BUILT, GQA, MQA, SMALL, UNTIED_MHA, judge_random_shape
from cs336_harness.checks.whole_model import Case, reference_gradients, reference_logits
from cs336_harness.reference.oracle import LayerWeights, Oracle
from cs336_harness.reference.oracle_adapters import OracleModel
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure


class AtLeastTwoLayers(Vectorised):
    def layers(self) -> Sequence[int]:
        return [0, *range(1, self.shape.num_layers)] if self.shape.num_layers > 1 else [0, 0]


class LayersSortedAsText(Vectorised):
    def layers(self) -> Sequence[int]:
        return sorted(super().layers(), key=str)


class SqueezesTheBatch(Vectorised):
    def project_logits(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        return super().project_logits(x, weights).squeeze(0)


class ThetaOfAtLeastAThousand(Vectorised):
    def inverse_frequencies(self, d_head: int, theta: float) -> Tensor:
        return super().inverse_frequencies(d_head, max(theta, 1000.0))


class ThetaOfAtMostTenThousand(Vectorised):
    """In the whole model alone: a rotation that is asked for by itself takes the theta that it is given."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__(shape.replace(rope_theta=min(shape.rope_theta, 10000.0)))


class HeadSizeRoundedUp(Vectorised):
    def score_scale(self, d_head: int) -> float:
        return super().score_scale(1 << (d_head - 1).bit_length())


class PositionsInBfloat16(Vectorised):
    def positions(self, time: int) -> Tensor:
        return super().positions(time).to(torch.bfloat16)


class ThetaNotPassedOn(OracleModel):
    def __init__(self, oracle: Oracle) -> None:
        super().__init__(type(oracle)(oracle.shape.replace(rope_theta=10000.0)))


class LogSoftmax(OracleModel):
    def forward(self, token_ids: Tensor) -> Tensor:
        return super().forward(token_ids).log_softmax(-1)


class ScaledWhenTied(Vectorised):
    def embed_tokens(self, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        scale = self.shape.d_model**0.5 if self.shape.tie_embeddings else 1.0
        return super().embed_tokens(weights, token_ids) * scale


class KeyValueHeadsTiled(Vectorised):
    def kv_head_of(self, head: int, num_heads: int, num_kv_heads: int) -> int:
        return head % num_kv_heads


class HeadsAndGroupsExchanged(Vectorised):
    def kv_head_of(self, head: int, num_heads: int, num_kv_heads: int) -> int:
        own = super().kv_head_of(head, num_heads, num_kv_heads)
        return own if num_kv_heads == num_heads else min(head // num_kv_heads, num_kv_heads - 1)


class GroupedOnlyWhenUntied(Vectorised):
    def kv_head_of(self, head: int, num_heads: int, num_kv_heads: int) -> int:
        own = super().kv_head_of(head, num_heads, num_kv_heads)
        return num_kv_heads - 1 - own if self.shape.tie_embeddings and num_kv_heads < num_heads else own


class MqaAveragesItsQueries(Vectorised):
    def project_queries(self, x: Tensor, weights: LayerWeights) -> Tensor:
        queries = super().project_queries(x, weights)
        if self.shape.num_kv_heads > 1 or self.shape.num_heads == 1:
            return queries
        heads = queries.unflatten(-1, (self.shape.num_heads, -1))
        return heads.mean(-2, keepdim=True).expand_as(heads).flatten(-2)


class SqueezesTheTokens(Vectorised):
    def project_values(self, x: Tensor, weights: LayerWeights) -> Tensor:
        values = super().project_values(x, weights)
        return values * 2 if self.shape.num_kv_heads == 1 and values.shape[-2] == 1 else values


class MqaLayersSortedAsText(LayersSortedAsText):
    def layers(self) -> Sequence[int]:
        return super().layers() if self.shape.num_kv_heads < self.shape.num_heads else range(self.shape.num_layers)


def detached(step: str, **at: object) -> type[Vectorised]:
    """A subject whose ``step`` carries no gradient at shapes that have these sizes."""

    def cut(self: Vectorised, *arguments: Tensor) -> Tensor:
        result = getattr(Vectorised, step)(self, *arguments)
        return result.detach() if all(getattr(self.shape, name) == size for name, size in at.items()) else result

    return type(f"Detached_{step}", (Vectorised,), {step: cut})


class DoubledGradient(Vectorised):
    def final_norm(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        return super().final_norm(2 * x - x.detach(), weights)


class NoGradient(OracleModel):
    def forward(self, token_ids: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(token_ids)


LOGITS = [
    ("logits[one-layer]", AtLeastTwoLayers, OracleModel),
    ("logits[eleven-layers]", LayersSortedAsText, OracleModel),
    ("logits[batch-1]", SqueezesTheBatch, OracleModel),
    ("logits[theta-100]", ThetaOfAtLeastAThousand, OracleModel),
    ("logits[theta-500000]", ThetaOfAtMostTenThousand, OracleModel),
    ("logits[odd-width]", HeadSizeRoundedUp, OracleModel),
    ("logits[past-256]", PositionsInBfloat16, OracleModel),
    ("built_logits[mha]", Vectorised, ThetaNotPassedOn),
    ("built_logits[mha]", Vectorised, LogSoftmax),
    ("built_logits[mha-tied]", ScaledWhenTied, OracleModel),
    ("built_logits[gqa-6-over-2]", KeyValueHeadsTiled, OracleModel),
    ("built_logits[gqa-6-over-2]", HeadsAndGroupsExchanged, OracleModel),
    ("built_logits[gqa-6-over-2-tied]", GroupedOnlyWhenUntied, OracleModel),
    ("built_logits[mqa]", MqaAveragesItsQueries, OracleModel),
    ("built_logits[mqa-one-token]", SqueezesTheTokens, OracleModel),
    ("built_logits[mqa-eleven-layers]", MqaLayersSortedAsText, OracleModel),
]

GROUPED = [
    ("gqa-6-over-2", KeyValueHeadsTiled),
    ("gqa-6-over-2", HeadsAndGroupsExchanged),
    ("mqa", MqaAveragesItsQueries),
]

GRADIENTS = [
    ("gradients[mha]", detached("project_values"), "layers.0.attn.v_proj.weight and 2 more get no gradient"),
    ("gradients[mha]", DoubledGradient, "token_embeddings.weight is 2 times the right one (and 27 more are wrong)"),
    ("gradients[mha]", detached("embed_tokens"), "token_embeddings.weight gets no gradient"),
    (
        "gradients[mha-tied]",
        detached("embed_tokens", tie_embeddings=True, num_kv_heads=4),
        "token_embeddings.weight is wrong",
    ),
    (
        "gradients[gqa-6-over-2]",
        detached("project_keys", num_kv_heads=2, num_layers=2),
        "layers.0.attn.k_proj.weight and 1 more get no gradient",
    ),
    (
        "gradients[gqa-6-over-2-tied]",
        detached("head_weight", num_kv_heads=2, tie_embeddings=True),
        "the gradient of token_embeddings.weight is wrong (GQA",
    ),
    (
        "gradients[mqa]",
        detached("project_output", num_kv_heads=1, num_layers=2),
        "layers.0.attn.q_proj.weight and 9 more get no gradient",
    ),
    (
        "gradients[mqa-eleven-layers]",
        detached("project_queries", num_layers=11, num_kv_heads=1),
        "layers.0.attn.q_proj.weight and 10 more get no gradient",
    ),
]


@pytest.mark.parametrize(
    ("name", "oracle", "model"), LOGITS, ids=[f"{name}-{o.__name__}-{m.__name__}" for name, o, m in LOGITS]
)
def test_a_broken_subject_fails_this_check_first(name: str, oracle: type[Vectorised], model: type[OracleModel]) -> None:
    result = result_of(f"slow_oracle.{name}", subject_of(oracle, model))
    assert result.outcome == "failed", (result.outcome, result.blocked_by)
    assert name.endswith("[batch-1]") or (result.error_in_noise or 0) > 10 * TOLERANCE_IN_NOISE
    assert "a correct" in result.message


@pytest.mark.parametrize(("case", "oracle"), GROUPED)
def test_grouped_heads_are_told_by_the_function_where_only_it_is_wrong(case: str, oracle: type[Vectorised]) -> None:
    both = subject_of(oracle)
    function = Subject(broken(run_transformer_lm=both.module.run_transformer_lm), "function")
    result = result_of(f"slow_oracle.grouped_logits[{case}]", function)
    assert result.outcome == "failed"
    assert "in a correct decoder" in result.message
    told = result_of(f"slow_oracle.grouped_logits[{case}]", both)
    assert told.blocked_by == f"slow_oracle.built_logits[{case}]"


@pytest.mark.parametrize(
    ("name", "oracle", "words"), GRADIENTS, ids=[f"{name}-{o.__name__}" for name, o, _ in GRADIENTS]
)
def test_a_gradient_that_is_lost_is_named(name: str, oracle: type[Vectorised], words: str) -> None:
    result = result_of(f"slow_oracle.{name}", subject_of(oracle))
    assert result.outcome == "failed", (result.outcome, result.blocked_by, result.message)
    assert words in result.message
    assert "in a correct decoder" in result.message


class PaddedEmbedding(OracleModel):
    """Token 0 counts as padding: its row is used and never learns."""

    def forward(self, token_ids: Tensor) -> Tensor:
        table = self.weights()["token_embeddings.weight"]
        hook = table.register_hook(lambda gradient: gradient.index_fill(0, torch.tensor([0]), 0.0))
        try:
            return super().forward(token_ids)
        finally:
            self.hook = hook


def test_a_row_that_never_learns_is_named() -> None:
    result = result_of("slow_oracle.gradients[mha]", subject_of(Vectorised, PaddedEmbedding))
    assert "token_embeddings.weight is zero in row 0 and right in all others" in result.message


def test_a_model_without_any_gradient_is_told_so_once() -> None:
    result = result_of("slow_oracle.gradients[mha]", subject_of(Vectorised, NoGradient))
    assert result.outcome == "blocked"
    assert "carry no gradient" in result_of(str(result.blocked_by), subject_of(Vectorised, NoGradient)).message


def test_who_does_not_take_num_kv_heads_is_not_asked() -> None:
    def run_transformer_lm(**arguments: Any) -> Tensor:
        assert "num_kv_heads" not in arguments
        return RIGHT.run_transformer_lm(**arguments)

    result = result_of("slow_oracle.grouped_logits[mqa]", Subject(broken(run_transformer_lm=run_transformer_lm), "s"))
    assert result.outcome == "skipped"
    assert result.message == "run_transformer_lm takes no num_kv_heads; it may, and need not"
    assert not result.stops_exit_zero


@pytest.mark.parametrize("misread", [lambda heads, kv: heads, lambda heads, kv: heads // kv, lambda heads, kv: 1])
@pytest.mark.parametrize("case", ["gqa-6-over-2", "mqa"])
def test_who_takes_num_kv_heads_must_be_right(misread: Callable[[int, int], int], case: str) -> None:
    def run_transformer_lm(num_heads: int, num_kv_heads: int = 0, **arguments: Any) -> Tensor:
        heads = misread(num_heads, num_kv_heads) if num_kv_heads else num_heads
        return RIGHT.run_transformer_lm(num_heads=num_heads, num_kv_heads=heads, **arguments)

    right = misread(6, 1) == 1 and case == "mqa"
    subject = Subject(broken(run_transformer_lm=run_transformer_lm), "s")
    assert result_of(f"slow_oracle.grouped_logits[{case}]", subject).outcome == ("passed" if right else "failed")


def test_every_shape_has_a_violator() -> None:
    own = {
        item.id.removeprefix("slow_oracle.")
        for item in all_checks().values()
        if item.function.__module__.endswith("slow_oracle")
    }
    elsewhere = {"gradient_of_repeated_ids"}  # tests/harness/test_fresh_models.py
    grouped = {f"grouped_logits[{case}]" for case, _ in GROUPED}
    assert own == {name for name, _, _ in [*LOGITS, *GRADIENTS]} | grouped | elsewhere


@pytest.mark.parametrize("case", [*UNTIED_MHA.values(), *BUILT.values()], ids=str)
def test_the_vectorised_oracle_is_right(case: Case) -> None:
    """The reference that is slow and the one that is broken above agree in float64: two ways to one number."""
    expected, noise = reference_logits(case)
    weights = {name: weight.double() for name, weight in case.weights().items()}
    actual = Vectorised(case.shape).transformer_lm(weights, case.token_ids())
    assert float((actual - expected).abs().max()) < 1e-6 * noise


@pytest.mark.parametrize("case", [case for case in BUILT.values() if case.time > 1], ids=str)
def test_rounding_moves_gradients_by_a_few_units(case: Case) -> None:
    gradients, noise = reference_gradients(case)
    assert list(gradients) == list(case.shape.weight_shapes())
    assert 2**-24 < noise < 2**-15
    assert all(float(gradient.abs().max()) > 0 for gradient in gradients.values())


def test_a_random_shape_is_reproducible_from_the_message() -> None:
    case = Case(GQA.replace(num_layers=1), 2, 3, seed=41)
    with pytest.raises(CheckFailure) as raised:
        judge_random_shape(subject_of(KeyValueHeadsTiled), case)
    assert "reproduce with judge_random_shape(subject, Case(shape=DecoderShape(" in raised.value.message
    assert "num_kv_heads=2" in raised.value.message
    assert "seed=41" in raised.value.message


@pytest.mark.parametrize(
    "case", [Case(SMALL, 2, 3, seed=8), Case(MQA, 1, 2, seed=9), Case(GQA, 3, 1, seed=10)], ids=str
)
def test_a_right_subject_passes_random_shapes(case: Case) -> None:
    judge_random_shape(subject_of(Vectorised), case)
