"""Where the gradient of a built model is cut: every step that may be detached is tried, and the one that gives the very
gradients is told.

Shapes: T positions, D = d_model; the model has two layers, and each is cut in the same way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from cs336_harness.defects import OracleDefect, Place
from cs336_harness.defects.blocks import BlockInParts
from cs336_harness.diagnosis.readings.reading import Reading, differ
from cs336_harness.reference.oracle import LayerWeights
from cs336_harness.reference.weights import make_weights, normal
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import build
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import AbsentEntryPoint, BlankEntryPoint, CheckFailure

SHAPE = DecoderShape(
    vocab_size=23, context_length=8, d_model=24, num_layers=2, num_heads=3, num_kv_heads=3, d_ff=64, rope_theta=100.0
)
IDS = torch.tensor([[3, 0, 22, 7, 3], [5, 1, 9, 22, 4]])
EXACT = 1e-3
CUTS: dict[str, type[OracleDefect]] = {}
"""By what is detached, in words: an oracle whose gradient is cut there."""


def cut(what: str, place: Place) -> Callable[[type[OracleDefect]], type[OracleDefect]]:
    """Registers an oracle that detaches something."""

    def register(cls: type[OracleDefect]) -> type[OracleDefect]:
        cls.place, CUTS[what] = place, cls
        return cls

    return register


class Parts(BlockInParts):
    """A block with a place for a cut in front of every sublayer, behind it, and in the stream beside it."""

    def stream(self, x: Tensor) -> Tensor:
        return x

    def attention_sublayer(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return self.stream(x) + self.attention(self.first_norm(x, weights), weights, positions)

    def feed_forward_sublayer(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return self.stream(x) + self.feed_forward(self.second_norm(x, weights), weights)


@cut("the stream that attention reads", Place.ATTENTION)
class AttentionInput(Parts):
    def first_norm(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().first_norm(x.detach(), weights)


@cut("the stream that the feed-forward reads", Place.FEED_FORWARD)
class FeedForwardInput(Parts):
    def second_norm(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().second_norm(x.detach(), weights)


@cut("the normed stream that attention reads", Place.ATTENTION)
class NormedAttentionInput(Parts):
    def first_norm(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().first_norm(x, weights).detach()


@cut("the normed stream that the feed-forward reads", Place.FEED_FORWARD)
class NormedFeedForwardInput(Parts):
    def second_norm(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().second_norm(x, weights).detach()


@cut("the stream that the sublayers' outputs are added to", Place.RESIDUAL)
class Residual(Parts):
    def stream(self, x: Tensor) -> Tensor:
        return x.detach()


@cut("the stream that attention's output is added to", Place.RESIDUAL)
class FirstResidual(Parts):
    def attention_sublayer(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return x.detach() + self.attention(self.first_norm(x, weights), weights, positions)


@cut("the stream that the feed-forward's output is added to", Place.RESIDUAL)
class SecondResidual(Parts):
    def feed_forward_sublayer(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return x.detach() + self.feed_forward(self.second_norm(x, weights), weights)


@cut("the stream between the layers", Place.LAYERS)
class BetweenLayers(Parts):
    def block(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return super().block(x.detach() if self.layer else x, weights, positions)


@cut("the output of the embedding", Place.EMBEDDING)
class EmbeddingOutput(Parts):
    def embed_tokens(self, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        return super().embed_tokens(weights, token_ids).detach()


@cut("attention's output", Place.ATTENTION)
class AttentionOutput(Parts):
    def attention(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return super().attention(x, weights, positions).detach()


@cut("the feed-forward's output", Place.FEED_FORWARD)
class FeedForwardOutput(Parts):
    def feed_forward(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().feed_forward(x, weights).detach()


@cut("what the head reads", Place.FINAL_NORM)
class HeadInput(Parts):
    def final_norm(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        return super().final_norm(x, weights).detach()


@cut("what the final norm reads", Place.FINAL_NORM)
class FinalNormInput(Parts):
    def final_norm(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        return super().final_norm(x.detach(), weights)


@cut("the queries", Place.ATTENTION)
class Queries(Parts):
    def project_queries(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().project_queries(x, weights).detach()


@cut("the keys", Place.ATTENTION)
class Keys(Parts):
    def project_keys(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().project_keys(x, weights).detach()


@cut("the values", Place.ATTENTION)
class Values(Parts):
    def project_values(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().project_values(x, weights).detach()


@cut("the keys and the values", Place.ATTENTION)
class KeysAndValues(Parts):
    def project_keys(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().project_keys(x, weights).detach()

    def project_values(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().project_values(x, weights).detach()


@cut("the attention weights, or at queries and keys both, as in the rotation", Place.ATTENTION)
class AttentionWeights(Parts):
    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return super().weigh(scores, allowed).detach()


@cut("the divisor of the norms (the root mean square)", Place.NORM)
class NormDivisor(Parts):
    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x * gain / torch.sqrt((x * x).mean(-1, keepdim=True) + eps).detach()


@cut("the gate of the feed-forward, silu(w1 x)", Place.FEED_FORWARD)
class Gate(Parts):
    def silu(self, x: Tensor) -> Tensor:
        return super().silu(x).detach()


@cut("the sigmoid in SiLU", Place.FEED_FORWARD)
class Sigmoid(Parts):
    def silu(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x).detach()


@cut("the denominator of attention's softmax (the sum of the exponentials)", Place.ATTENTION)
class SoftmaxDenominator(Parts):
    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        weights = super().weigh(scores, allowed)
        # exp(s - m) / Z, with the maximum m and Z held constant, has the weights' values and d/ds = the weight itself.
        finite = scores.masked_fill(~allowed, 0)
        return weights.detach() * torch.exp(finite - finite.detach())


ONE_FUNCTION = (NormDivisor, Sigmoid, SoftmaxDenominator)
"""Cuts inside one function: its own backward, written without this term, gives the same gradients."""


def _gradients_of(oracle: type[OracleDefect]) -> dict[str, Tensor]:
    """By canonical name; zero for a weight that no gradient reaches."""
    weights = {name: weight.to(torch.float64).requires_grad_() for name, weight in _weights().items()}
    with torch.enable_grad():
        total = (oracle(SHAPE).transformer_lm(weights, IDS) * _direction()).sum()
        found = torch.autograd.grad(total, list(weights.values()), allow_unused=True)
    return {n: torch.zeros_like(weights[n]) if each is None else each for n, each in zip(weights, found, strict=True)}


@functools.cache
def _expected(what: str) -> dict[str, Tensor]:
    return _gradients_of(CUTS[what] if what else Parts)


@functools.cache
def _weights() -> dict[str, Tensor]:
    weights = make_weights(SHAPE, 35)
    weights["token_embeddings.weight"] = 20 * weights["token_embeddings.weight"]
    return weights


@functools.cache
def _direction() -> Tensor:
    return normal(*IDS.shape, SHAPE.vocab_size, seed=36).to(torch.float64)


def read_gradients(subject: Subject) -> Reading | None:
    """The step at which the gradient is cut, where one explains the gradients of all weights."""
    try:
        model = build(subject, SHAPE, _weights())
        found: Any = model.gradients(IDS, [_direction().to(torch.float32)])
    except (AbsentEntryPoint, BlankEntryPoint, CheckFailure):
        return None
    if not found:
        return None
    right = _expected("")
    read = {
        name: torch.zeros_like(right[name]) if each is None else each.detach().to("cpu", torch.float64)
        for name, each in found[0].items()
    }
    if any(read[name].shape != right[name].shape for name in read) or _same(read, right):
        return None
    for what, oracle in CUTS.items():
        if _same(read, _expected(what)):
            text = f"the gradient is cut at {what}: it is detached there, taken with .data, or made under no_grad"
            if oracle in ONE_FUNCTION:
                text += ", or a backward of your own (torch.autograd.Function) leaves its term out"
            return Reading(f"{text}; the values are right", oracle.place)
    return None


def _same(read: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    return all(not differ(read[name], right[name], EXACT) for name in read)
