"""Every weight and every matrix multiply of a decoder, listed one by one. Imports no torch.

This is the count that closed forms are checked against, so it holds no formula: a weight has a size, a matrix multiply
has (m, k) times (k, n) and how often it happens, and totals are sums over the list.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator

from cs336_harness.contract import FLOP_TERMS
from cs336_harness.shapes import DecoderShape

CONVENTION = (
    "One multiply-add is two FLOPs, so (m, k) times (k, n) costs 2mkn. Matrix multiplies only: the embedding is a "
    "look-up, and norms, rotations, softmax and activations are left out. The score matrix is counted whole, with no "
    "causal halving."
)


@dataclasses.dataclass(frozen=True, slots=True)
class Weight:
    """One kind of weight: its name (within a layer, where there is one), its size, and how many of it there are."""

    name: str
    shape: tuple[int, ...]
    count: int = 1

    @property
    def parameters(self) -> int:
        """Parameters of all of them together."""
        return math.prod(self.shape) * self.count


@dataclasses.dataclass(frozen=True, slots=True)
class MatMul:
    """One kind of matrix multiply, (m, k) times (k, n), done ``count`` times in a forward pass."""

    name: str
    what: str
    term: str
    m: int
    k: int
    n: int
    count: int
    per_layer: bool

    @property
    def flops(self) -> int:
        """m·n dot products of k multiply-adds, two operations each, ``count`` times."""
        return 2 * self.m * self.k * self.n * self.count


def list_weights(shape: DecoderShape) -> list[Weight]:
    """Every weight that a decoder of this shape owns; a tied head owns none and is not listed."""
    listed = [Weight("token_embeddings.weight", (shape.vocab_size, shape.d_model))]
    listed += [Weight(name, size, shape.num_layers) for name, size in shape.layer_weight_shapes().items()]
    listed.append(Weight("ln_final.weight", (shape.d_model,)))
    if not shape.tie_embeddings:
        listed.append(Weight("lm_head.weight", (shape.vocab_size, shape.d_model)))
    return listed


def list_matmuls(shape: DecoderShape, batch_size: int, sequence_length: int) -> list[MatMul]:
    """Every matrix multiply of a forward pass over token ids (batch_size, sequence_length), in order."""
    return list(_matmuls(shape, batch_size, sequence_length))


def _matmuls(shape: DecoderShape, batch_size: int, sequence_length: int) -> Iterator[MatMul]:
    rows = batch_size * sequence_length
    layers = shape.num_layers
    per_head = batch_size * shape.num_heads * layers
    projections = "attention_projections"
    yield MatMul("q_proj", "queries from the normed input", projections, rows, shape.d_model, shape.d_q, layers, True)
    yield MatMul("k_proj", "keys from the normed input", projections, rows, shape.d_model, shape.d_kv, layers, True)
    yield MatMul("v_proj", "values from the normed input", projections, rows, shape.d_model, shape.d_kv, layers, True)
    yield MatMul(
        "scores",
        "every query with every key, Q Kᵀ, in each query head",
        "attention_scores",
        sequence_length,
        shape.d_head,
        sequence_length,
        per_head,
        True,
    )
    yield MatMul(
        "values",
        "attention weights times V, in each query head",
        "attention_values",
        sequence_length,
        sequence_length,
        shape.d_head,
        per_head,
        True,
    )
    yield MatMul(
        "output_proj", "merged heads back to the width", projections, rows, shape.d_q, shape.d_model, layers, True
    )
    yield MatMul("w1", "gate of the feed-forward", "feed_forward", rows, shape.d_model, shape.d_ff, layers, True)
    yield MatMul("w3", "value of the feed-forward", "feed_forward", rows, shape.d_model, shape.d_ff, layers, True)
    yield MatMul("w2", "back to the width", "feed_forward", rows, shape.d_ff, shape.d_model, layers, True)
    yield MatMul("lm_head", "logits of every position", "lm_head", rows, shape.d_model, shape.vocab_size, 1, False)


def count_parameters(weights: Iterable[Weight]) -> int:
    """Parameters of a list of weights."""
    return sum(weight.parameters for weight in weights)


def count_flops(matmuls: Iterable[MatMul]) -> int:
    """FLOPs of a list of matrix multiplies."""
    return sum(matmul.flops for matmul in matmuls)


def flops_by_term(matmuls: Iterable[MatMul]) -> dict[str, int]:
    """FLOPs of a list of matrix multiplies under the five names of ``run_forward_flops``."""
    terms = dict.fromkeys(FLOP_TERMS, 0)
    for matmul in matmuls:
        terms[matmul.term] += matmul.flops
    return terms
