"""Defects of the closed forms of FLOPs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cs336_harness.defects.defect import AdaptersDefect, Place, defect
from cs336_harness.shapes import DecoderShape

LIST_THE_PRODUCTS = (
    "List the matrix multiplies of one layer with their sizes (m, k) times (k, n); each costs 2mkn.",
    "There are four projections, two products in attention and three in the feed-forward; the head "
    "comes once, at the end.",
)
ATTENTION = ("attention_projections", "attention_scores", "attention_values")


class _Flops(AdaptersDefect):
    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        raise NotImplementedError

    def run_forward_flops(self, *, batch_size: int, sequence_length: int, **sizes: Any) -> dict[str, int]:
        terms = super().run_forward_flops(batch_size=batch_size, sequence_length=sequence_length, **sizes)
        shape = DecoderShape(context_length=sequence_length, **sizes)
        return {**terms, **self.changed(terms, shape, batch_size, sequence_length)}


@defect(
    "flops-multiply-add-as-one",
    Place.ACCOUNTING,
    hint="A dot product of length k: how many multiplications, and how many additions?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsMultiplyAddAsOne(_Flops):
    """A multiply-add is counted as one operation (MACs); the convention here is two FLOPs, so every term is half of
    what it must be.
    """

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {name: flops // 2 for name, flops in terms.items()}


@defect(
    "flops-causal-half",
    Place.ACCOUNTING,
    hint="Does a dense multiply skip the scores that the mask will hide?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsCausalHalf(_Flops):
    """The two products of attention are halved because the mask hides half of the scores; the convention here counts
    them whole.
    """

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {name: terms[name] // 2 for name in ("attention_scores", "attention_values")}


@defect(
    "flops-head-forgotten",
    Place.ACCOUNTING,
    hint="Tying saves a matrix; does it save the multiplication?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsHeadForgotten(_Flops):
    """The head costs nothing in this count; it is multiplied in every forward pass, tied or not."""

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {"lm_head": 0}


@defect(
    "flops-embedding-counted",
    Place.ACCOUNTING,
    hint="How many multiplications does it take to copy a row out of a table?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsEmbeddingCounted(_Flops):
    """The embedding is counted as a matrix multiply, which doubles the head's term; a look-up multiplies nothing."""

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {"lm_head": 2 * terms["lm_head"]}


@defect(
    "flops-head-in-every-layer",
    Place.ACCOUNTING,
    hint="How often is the head multiplied in one forward pass?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsHeadInEveryLayer(_Flops):
    """The head is counted once for every layer; it comes once, at the end."""

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {"lm_head": shape.num_layers * terms["lm_head"]}


@defect(
    "flops-grouped-heads-counted-in-full",
    Place.ACCOUNTING,
    hint="How many rows do k_proj and v_proj have when key/value heads are fewer than query heads?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsGroupedHeadsCountedInFull(_Flops):
    """k_proj and v_proj are counted as (d_model, d_model) although there are fewer key/value heads than query heads."""

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {"attention_projections": 8 * batch * time * shape.d_model**2 * shape.num_layers}


@defect(
    "flops-grouped-heads-shrink-scores",
    Place.ACCOUNTING,
    hint="Key/value heads are shared; how many query heads still take their own scores?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsGroupedHeadsShrinkScores(_Flops):
    """Scores and values are counted for each key/value head; every query head takes its own, shared keys or not."""

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {name: terms[name] * shape.num_kv_heads // shape.num_heads for name in ATTENTION[1:]}


@defect(
    "flops-output-projection-forgotten",
    Place.ACCOUNTING,
    hint="How many projections belong to attention?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsOutputProjectionForgotten(_Flops):
    """Three projections are counted for attention; the output projection is the fourth."""

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        own = 2 * batch * time * shape.d_model**2 * shape.num_layers
        return {"attention_projections": terms["attention_projections"] - own}


@defect(
    "flops-projections-forgotten",
    Place.ACCOUNTING,
    hint="Where do queries, keys and values come from?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsProjectionsForgotten(_Flops):
    """The four projections of attention cost nothing in this count."""

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {"attention_projections": 0}


@defect(
    "flops-two-matrix-feed-forward",
    Place.ACCOUNTING,
    hint="How many matrices does a SwiGLU multiply with?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsTwoMatrixFeedForward(_Flops):
    """Two multiplications are counted for the feed-forward; SwiGLU has three."""

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {"feed_forward": terms["feed_forward"] * 2 // 3}


@defect(
    "flops-scores-forgotten",
    Place.ACCOUNTING,
    hint="Two products in attention grow with the square of the length: which do you count?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsScoresForgotten(_Flops):
    """Queries times keys costs nothing in this count."""

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {"attention_scores": 0}


@defect(
    "flops-values-forgotten",
    Place.ACCOUNTING,
    hint="Two products in attention grow with the square of the length: which do you count?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsValuesForgotten(_Flops):
    """Weights times values costs nothing in this count."""

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {"attention_values": 0}


@defect(
    "flops-scores-at-full-width",
    Place.ACCOUNTING,
    hint="How long is the dot product of one score: d_model, or d_head?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsScoresAtFullWidth(_Flops):
    """Each head's two products are counted over d_model channels instead of d_head: both terms are num_heads times too
    large.
    """

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {name: terms[name] * shape.num_heads for name in ATTENTION[1:]}


@defect(
    "flops-scores-linear-in-time",
    Place.ACCOUNTING,
    hint="How many scores does a sequence of T positions have?",
    steps=("Double the sequence length: the two products of attention must grow fourfold.", *LIST_THE_PRODUCTS),
)
class FlopsScoresLinearInTime(_Flops):
    """The two products of attention grow with T; there are T² scores."""

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {name: terms[name] // time for name in ATTENTION[1:]}


@defect(
    "flops-one-layer",
    Place.ACCOUNTING,
    hint="By which number are the terms of one block multiplied?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsOneLayer(_Flops):
    """The blocks are counted once, however many layers there are."""

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {name: flops // shape.num_layers for name, flops in terms.items() if name != "lm_head"}


@defect(
    "flops-one-row",
    Place.ACCOUNTING,
    hint="What changes when the batch doubles?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsOneRow(_Flops):
    """The batch size has no effect: one row is counted, however many there are."""

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {name: flops // batch for name, flops in terms.items()}


@defect(
    "flops-of-training",
    Place.ACCOUNTING,
    hint="Which passes do you count: forward, or forward and backward?",
    steps=LIST_THE_PRODUCTS,
)
class FlopsOfTraining(_Flops):
    """Three times the forward pass is counted, as for a training step; the question is the forward pass alone."""

    def changed(self, terms: dict[str, int], shape: DecoderShape, batch: int, time: int) -> Mapping[str, int]:
        return {name: 3 * flops for name, flops in terms.items()}
