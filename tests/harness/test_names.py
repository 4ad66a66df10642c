"""A name is given only where nothing that was measured speaks against it."""

from typing import Any

import torch
from torch import Tensor
from variations import Variation, VariationAdapters

from cs336_harness.checks import all_checks
from cs336_harness.defects import all_defects
from cs336_harness.diagnosis import Diagnosis, diagnose_check
from cs336_harness.diagnosis.matching import Probe, match_pair
from cs336_harness.subject.calling import Subject
from cs336_harness.verdict.suite import Suite


def said_of(module: Any, check_id: str) -> Diagnosis | None:
    subject, check = Subject(module, "broken"), all_checks()[check_id]
    result = Suite(subject, diagnose=False).result(check)
    assert result.failure is not None
    return diagnose_check(subject, check, result.failure)


class OtherEpsInside(Variation):
    def block(self, *args: Any) -> Tensor:
        return OtherEps().block(*args)

    def transformer_lm(self, *args: Any) -> Tensor:
        return OtherEps().transformer_lm(*args)


class OtherEps(Variation):
    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return super().rmsnorm(x, gain, 1e-8)


def test_an_eps_that_is_wrong_only_inside_the_model_is_not_certainly_wrong_always() -> None:
    found = said_of(VariationAdapters(OtherEpsInside()), "assembly.transformer_lm")
    assert found is not None
    assert found.confidence != "certain" or not found.defects


class RandomBias(VariationAdapters):
    def run_transformer_lm(self, **arguments: Any) -> Tensor:
        logits = super().run_transformer_lm(**arguments)
        return logits + 0.1 * torch.randn(logits.shape[-1])


def test_a_bias_that_is_drawn_in_every_call_is_no_dropout() -> None:
    found = said_of(RandomBias(Variation()), "assembly.transformer_lm")
    assert found is not None
    assert found.defects == ()
    assert "the same call with another random seed gives other numbers" in found.reading


class PartialRotary(Variation):
    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        kept = torch.arange(d_head // 2) < max(1, d_head // 8)
        return super().angles(positions, d_head, theta) * kept


def test_a_partial_rotary_is_one_reading_and_no_name() -> None:
    found = said_of(VariationAdapters(PartialRotary()), "components.rope")
    assert found is not None
    assert found.defects == ()
    assert "pairs 1 to 3 of 0 to 3 do not turn, must turn" in found.reading


class HeadBias(VariationAdapters):
    def run_transformer_lm(self, **arguments: Any) -> Tensor:
        logits = super().run_transformer_lm(**arguments)
        return logits + 0.1 * torch.arange(logits.shape[-1]).cos()


def test_a_bias_of_the_head_is_placed_at_the_head() -> None:
    found = said_of(HeadBias(Variation()), "assembly.transformer_lm")
    assert found is not None
    assert found.where == "head"
    assert "the head has a bias" in found.reading


class NormBehind(Variation):
    """A norm in front of a sublayer and one behind it."""

    def block(self, x: Tensor, weights: Any, heads: Any, theta: float) -> Tensor:
        matrices = tuple(weights[f"attn.{name}_proj.weight"] for name in ("q", "k", "v", "output"))
        ones = torch.ones(x.shape[-1])
        normed = self.rmsnorm(x, weights["ln1.weight"], 1e-5)
        attended = self.self_attention(normed, matrices, heads, torch.arange(x.shape[-2]), theta)  # ty: ignore
        x = x + self.rmsnorm(attended, ones, 1e-5)
        normed = self.rmsnorm(x, weights["ln2.weight"], 1e-5)
        return x + self.rmsnorm(self.swiglu(normed, *(weights[f"ffn.w{i}.weight"] for i in (1, 2, 3))), ones, 1e-5)


def test_a_norm_behind_a_sublayer_is_not_placed_in_attention() -> None:
    found = said_of(VariationAdapters(NormBehind()), "components.transformer_block")
    assert found is not None
    assert found.where != "attention"


def test_no_pair_holds_a_mistake_that_fits_loosely() -> None:
    class NoSecondNorm(Variation):
        def block(self, x: Tensor, weights: Any, heads: Any, theta: float) -> Tensor:
            return super().block(x, {**weights, "ln2.weight": 0.99 * weights["ln2.weight"]}, heads, theta)

    found = match_pair(Probe(Subject(VariationAdapters(NoSecondNorm()), "broken")), "run_transformer_block", 2.0)
    rounding = {name for name, defect in all_defects().items() if defect.rounds}
    assert found is None or not {defect.name for defect in found.defects} & rounding
