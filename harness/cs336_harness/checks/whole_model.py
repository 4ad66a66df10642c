"""The whole model by the oracle: logits, the gradient of every weight, and the rounding noise of both.

The scalar that is differentiated is the sum of the logits times a fixed random direction: it weighs every logit, and
it is linear, so that a gradient says nothing but how the logits depend on a weight.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from torch import Tensor

from cs336_harness.checks.comparing import RoundedFrequencies
from cs336_harness.reference import precision
from cs336_harness.reference.answers import from_run_to_run
from cs336_harness.reference.hidden_inputs import cached, more
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.tolerance import NOISE_SEEDS, perturbed, shake
from cs336_harness.reference.weights import generator, make_token_ids, make_weights, normal
from cs336_harness.shapes import DecoderShape

Gradients = dict[str, Tensor]


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One model and one input: its shape, so many rows and positions, the seed of both, and what a failure
    teaches."""

    shape: DecoderShape
    rows: int
    time: int
    lesson: str | None = None
    seed: int = 5

    def hidden(self) -> Case:
        """This case at sizes that nobody knows, where a secret hides the inputs: what it is about stays."""
        time = 1 if self.time == 1 else min(self.time + more("time", 2), self.shape.context_length)
        rows = 1 if self.rows == 1 else self.rows + more("rows", 1)
        shape = self.shape.replace(vocab_size=self.shape.vocab_size + more("vocab_size", 9))
        return dataclasses.replace(self, shape=shape, rows=rows, time=time)

    def weights(self) -> dict[str, Tensor]:
        """Every weight by its canonical name, float32."""
        return make_weights(self.shape, self.seed)

    def token_ids(self) -> Tensor:
        """Token ids (rows, time)."""
        return make_token_ids(self.shape, self.rows, self.time, self.seed)

    def direction(self) -> Tensor:
        """The weight of each logit in the scalar that is differentiated: (rows, time, V), float64."""
        return normal(self.rows, self.time, self.shape.vocab_size, seed=self.seed).to(torch.float64)

    def __str__(self) -> str:
        shape = self.shape
        if shape.num_kv_heads == shape.num_heads:
            kind = "1 head" if shape.num_heads == 1 else f"{shape.num_heads} heads"
        else:
            kind = f"{'MQA' if shape.num_kv_heads == 1 else 'GQA'}, {shape.num_heads} over {shape.num_kv_heads}"
        tied = "tied" if shape.tie_embeddings else "untied"
        layers = "1 layer" if shape.num_layers == 1 else f"{shape.num_layers} layers"
        return (
            f"{kind}, {tied}, {layers}, d_model {shape.d_model}, theta {shape.rope_theta:g}, token ids"
            f" ({self.rows}, {self.time})"
        )


def _shaken(case: Case, seed: int) -> dict[str, Tensor]:
    """The weights, each element moved to one end of its rounding interval; a tied pair moves as one."""
    weights = perturbed(case.weights(), shake(), generator(seed))
    if case.shape.tie_embeddings:
        weights["lm_head.weight"] = weights["token_embeddings.weight"]
    return weights


@cached
@from_run_to_run
def reference_logits(case: Case) -> tuple[Tensor, float]:
    """The oracle's logits, float64, and their rounding noise as :func:`.tolerance.rounding_noise` has it."""
    token_ids, rounded = case.token_ids(), RoundedFrequencies(case.shape)
    weights = {name: weight.to(torch.float64) for name, weight in case.weights().items()}
    logits = Oracle(case.shape).transformer_lm(weights, token_ids)
    others = [rounded.transformer_lm(_shaken(case, seed), token_ids) for seed in NOISE_SEEDS]
    moved = max(float((other - logits).abs().max()) for other in others)
    half_unit = precision.half_unit()
    return logits, moved * half_unit / shake() + half_unit * float(logits.abs().max())


@cached
@from_run_to_run
def reference_gradients(case: Case) -> tuple[Gradients, float]:
    """The oracle's gradients by canonical name, and their noise relative to the largest element of each.

    A tied model has one gradient under both vocabulary names, the sum of both uses. Relative to its own largest element
    every weight's gradient moves alike, so the dozens of weights of one pass stand in for as many passes: the largest
    movement is taken for all.
    """
    token_ids, direction = case.token_ids(), case.direction()
    gradients = _gradients(Oracle(case.shape), case.weights(), token_ids, direction)
    moved = 0.0
    for seed in NOISE_SEEDS:
        others = _gradients(RoundedFrequencies(case.shape), _shaken(case, seed), token_ids, direction)
        for name, gradient in gradients.items():
            moved = max(moved, float((others[name] - gradient).abs().max() / gradient.abs().max()))
    half_unit = precision.half_unit()
    return gradients, moved * half_unit / shake() + half_unit


def _gradients(oracle: Oracle, weights: Mapping[str, Tensor], token_ids: Tensor, direction: Tensor) -> Gradients:
    leaves = {name: weight.to(torch.float64).detach().requires_grad_() for name, weight in weights.items()}
    if oracle.shape.tie_embeddings:
        leaves["lm_head.weight"] = leaves["token_embeddings.weight"]
    logits = oracle.transformer_lm(leaves, token_ids)
    gradients = torch.autograd.grad((logits * direction).sum(), list(leaves.values()), allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
    }
