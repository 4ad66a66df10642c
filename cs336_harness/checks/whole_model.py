"""The whole model by the oracle: logits, the gradient of every weight, and the rounding noise of both.

The scalar that is differentiated is the sum of the logits times a fixed random direction: it weighs every logit, and
it is linear, so that a gradient says nothing but how the logits depend on a weight.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import torch
from torch import Tensor

from cs336_harness.checks.judging import RoundedFrequencies
from cs336_harness.compare import HALF_UNIT, NOISE_SEEDS, perturbed
from cs336_harness.inputs import generator, make_token_ids, make_weights, normal
from cs336_harness.oracle import Oracle
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
        kind = {shape.num_heads: f"{shape.num_heads} heads", 1: f"MQA, {shape.num_heads} over 1"}.get(
            shape.num_kv_heads, f"GQA, {shape.num_heads} over {shape.num_kv_heads}"
        )
        tied = "tied" if shape.tie_embeddings else "untied"
        layers = "1 layer" if shape.num_layers == 1 else f"{shape.num_layers} layers"
        return (
            f"{kind}, {tied}, {layers}, d_model {shape.d_model}, theta {shape.rope_theta:g}, token ids"
            f" ({self.rows}, {self.time})"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """What the oracle says of a case.

    ``gradients`` are by canonical name; a tied model has one under both vocabulary names, the sum of both uses.
    ``relative_noise`` is how far a gradient moves under float32 rounding, as a part of that gradient's largest
    element.
    """

    logits: Tensor
    logits_noise: float
    gradients: Gradients
    relative_noise: float


def logits_and_gradients(
    oracle: Oracle, weights: Mapping[str, Tensor], token_ids: Tensor, direction: Tensor
) -> tuple[Tensor, Gradients]:
    """One forward and one backward pass of an oracle in float64."""
    leaves = {name: weight.to(torch.float64).detach().requires_grad_() for name, weight in weights.items()}
    if oracle.shape.tie_embeddings:
        leaves["lm_head.weight"] = leaves["token_embeddings.weight"]
    logits = oracle.transformer_lm(leaves, token_ids)
    gradients = torch.autograd.grad((logits * direction).sum(), list(leaves.values()))
    return logits.detach(), dict(zip(leaves, gradients, strict=True))


@functools.cache
def reference(case: Case) -> Reference:
    """The oracle's answer to a case and its noise, made once.

    The noise of the logits is that of :func:`cs336_harness.compare.rounding_noise`. The noise of the gradients comes
    from one of its passes: relative to its own largest element every weight's gradient moves alike, so the dozens of
    weights of one pass stand in for dozens of passes, and the largest of them is taken for all.
    """
    weights, token_ids, direction = case.weights(), case.token_ids(), case.direction()
    logits, gradients = logits_and_gradients(Oracle(case.shape), weights, token_ids, direction)
    half_unit = HALF_UNIT[torch.float32]
    rounded = RoundedFrequencies(case.shape)
    shaken = [perturbed(weights, half_unit, generator(seed)) for seed in NOISE_SEEDS]
    for one in shaken:
        one["lm_head.weight"] = one["token_embeddings.weight" if case.shape.tie_embeddings else "lm_head.weight"]
    first_logits, first_gradients = logits_and_gradients(rounded, shaken[0], token_ids, direction)
    others = [first_logits, *(rounded.transformer_lm(one, token_ids) for one in shaken[1:])]
    moved = max(float((other - logits).abs().max()) for other in others)
    relative = max(
        float((first_gradients[name] - gradient).abs().max() / gradient.abs().max())
        for name, gradient in gradients.items()
    )
    return Reference(logits, moved + half_unit * float(logits.abs().max()), gradients, relative + half_unit)
