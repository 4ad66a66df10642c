"""Defects of attention itself: projections, scale, weights and values."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cs336_harness.defects.defect import AdaptersDefect, OracleDefect, Place, defect
from cs336_harness.reference.oracle import LayerWeights

SCALE = (
    "Feed one query (1, 1, 1, 1) and the same key: the score must be 4 / sqrt(4) = 2.",
    "Print d_k at the line that scales: it is the size of one head.",
)
ROWS_SUM = ("Print one head's attention weights: each query's row must sum to one over the keys.",)


class _Scale(OracleDefect):
    def factor(self, d_head: int) -> float:
        raise NotImplementedError

    def score_scale(self, d_head: int) -> float:
        return self.factor(d_head)


@defect(
    "attention-scale-missing",
    Place.ATTENTION,
    hint="Between the product of query and key and the softmax there is one more factor: where is yours?",
    steps=SCALE,
)
class AttentionScaleMissing(_Scale):
    """Scores are never divided by sqrt(d_head), so the softmax is far too sharp."""

    def factor(self, d_head: int) -> float:
        return 1.0


@defect(
    "attention-scale-by-d-model",
    Place.ATTENTION,
    hint="A score is a sum over the channels of one head: how many are there?",
    steps=SCALE,
)
class AttentionScaleByDModel(OracleDefect):
    """Scores are divided by sqrt(d_model), the whole width, instead of sqrt(d_head). With one head nobody notices."""

    def score_scale(self, d_head: int) -> float:
        return 1 / math.sqrt(self.shape.d_model)


@defect(
    "attention-scale-without-root",
    Place.ATTENTION,
    hint="By which power of d_head are your scores divided, all factors together?",
    steps=SCALE,
)
class AttentionScaleWithoutRoot(_Scale):
    """Scores are divided by d_head where sqrt(d_head) belongs: the root is missing, or the scale is applied twice."""

    def factor(self, d_head: int) -> float:
        return 1 / d_head


@defect(
    "attention-scale-inverted",
    Place.ATTENTION,
    hint="Larger heads give larger sums, and the factor makes up for it: does yours shrink with d_head?",
    steps=SCALE,
)
class AttentionScaleInverted(_Scale):
    """Scores are multiplied by sqrt(d_head) instead of divided by it."""

    def factor(self, d_head: int) -> float:
        return math.sqrt(d_head)


@defect(
    "attention-scores-soft-capped",
    Place.ATTENTION,
    hint="Scores go into the softmax as they are: what bends yours?",
)
class AttentionScoresSoftCapped(OracleDefect):
    """Scores pass through 50 · tanh(score / 50), as in Gemma 2; this decoder has no cap."""

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return 50 * torch.tanh(super().scores(query, keys) / 50)


@defect(
    "attention-query-key-norm",
    Place.ATTENTION,
    hint="Queries and keys go from projection to rotation to score: what else happens to yours on the way?",
)
class AttentionQueryKeyNorm(OracleDefect):
    """Queries and keys are brought to a root mean square of one (QK-norm) before they meet; this decoder does not do
    that.
    """

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        def normed(x: Tensor) -> Tensor:
            return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)

        return super().scores(normed(query), normed(keys))


@defect(
    "attention-softmax-missing",
    Place.ATTENTION,
    hint="Scores become weights that are positive and sum to one: which function does that?",
    steps=ROWS_SUM,
)
class AttentionSoftmaxMissing(OracleDefect):
    """The scores themselves weigh the values; no softmax is taken."""

    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return scores * allowed


@defect(
    "attention-softmax-over-queries",
    Place.ATTENTION,
    hint="Over which axis must the weights sum to one: over the keys that one query sees, or over the queries?",
    steps=ROWS_SUM,
)
class AttentionSoftmaxOverQueries(OracleDefect):
    """The softmax runs over the queries, not over the keys: rows do not sum to one, and later queries change earlier
    ones.
    """

    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return self.softmax(scores.masked_fill(~allowed, -torch.inf), 0)


@defect(
    "attention-softmax-over-heads",
    Place.ATTENTION,
    hint="Scores have the axes batch, head, query, key: which of them does your softmax count as dim 1?",
    steps=ROWS_SUM,
)
class AttentionSoftmaxOverHeads(OracleDefect):
    """The softmax runs over the heads (dim=1 of batch, head, query, key): the heads share one weight for each key."""

    def attend_head(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        self.__dict__.setdefault("waiting", []).append((self.score_matrix(queries, keys), values))
        return values

    def merge_heads(self, heads: list[Tensor]) -> Tensor:  # ty: ignore[incompatible-method-override]
        scores, values = zip(*self.__dict__.pop("waiting"), strict=True)
        time = scores[0].shape[0]
        weights = self.softmax(torch.stack(scores), 0) * torch.ones(time, time, dtype=torch.float64).tril()
        return super().merge_heads(list(weights @ torch.stack(values)))


@defect(
    "attention-weights-in-bfloat16",
    Place.ATTENTION,
    rounds=True,
    hint="In which dtype are the weights after your softmax?",
)
class AttentionWeightsInBfloat16(OracleDefect):
    """The attention weights pass through bfloat16: three digits of each are kept."""

    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return super().weigh(scores, allowed).to(torch.bfloat16).to(torch.float64)


@defect(
    "attention-values-are-keys",
    Place.ATTENTION,
    hint="Three projections make three things: which one do your weights multiply?",
    steps=("Set v_proj to zero: attention must give zeros.",),
)
class AttentionValuesAreKeys(OracleDefect):
    """The values are made with the key projection (unrotated): v_proj is never used."""

    def project_values(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return self.project_keys(x, weights)


@defect(
    "attention-keys-are-queries",
    Place.ATTENTION,
    hint="Three projections make three things: which of yours is never used?",
    steps=("Set k_proj to zero: attention must become uniform.",),
)
class AttentionKeysAreQueries(OracleDefect):
    """The keys are made with the query projection: k_proj is never used."""

    def project_keys(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return self.project_queries(x, weights)[..., : weights["attn.k_proj.weight"].shape[0]]


@defect(
    "attention-queries-and-keys-exchanged",
    Place.ATTENTION,
    hint="Who asks and who answers? Follow q_proj and k_proj from the adapter to the scores.",
    steps=("Set k_proj so that only token 0 has a key: every query must look at it, whatever q_proj says of token 0.",),
)
class AttentionQueriesAndKeysExchanged(OracleDefect):
    """q_proj makes the keys and k_proj the queries: each score is that of the opposite pair of positions."""

    def self_attention(self, x: Tensor, weights: LayerWeights, positions: Tensor | None, theta: float | None) -> Tensor:
        if weights["attn.q_proj.weight"].shape != weights["attn.k_proj.weight"].shape:
            raise RuntimeError("q_proj and k_proj differ in size and cannot stand in for each other")
        pair = {"q": weights["attn.k_proj.weight"], "k": weights["attn.q_proj.weight"]}
        exchanged = {f"attn.{name}_proj.weight": weight for name, weight in pair.items()}
        return super().self_attention(x, {**weights, **exchanged}, positions, theta)


@defect(
    "attention-keys-and-values-exchanged",
    Place.ATTENTION,
    hint="Follow k_proj and v_proj from the adapter: which of the two meets the query?",
    steps=("Set v_proj to zero: attention must give zeros, not become uniform.",),
)
class AttentionKeysAndValuesExchanged(OracleDefect):
    """k_proj makes the values and v_proj the keys."""

    def self_attention(self, x: Tensor, weights: LayerWeights, positions: Tensor | None, theta: float | None) -> Tensor:
        pair = {"k": weights["attn.v_proj.weight"], "v": weights["attn.k_proj.weight"]}
        exchanged = {f"attn.{name}_proj.weight": weight for name, weight in pair.items()}
        return super().self_attention(x, {**weights, **exchanged}, positions, theta)


@defect(
    "attention-output-projection-missing",
    Place.ATTENTION,
    hint="Four projections belong to attention: three come in, and what is the fourth for?",
    steps=("Set output_proj to zero: attention must give zeros.",),
)
class AttentionOutputProjectionMissing(OracleDefect):
    """The merged heads are returned as they are; output_proj is never applied."""

    def project_output(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return x


@defect(
    "attention-output-projection-transposed",
    Place.ATTENTION,
    hint="Weights are (out, in): which axis of output_proj meets the merged heads?",
    steps=("Use an output_proj that is zero but for row 0: only channel 0 of the output may be non-zero.",),
)
class AttentionOutputProjectionTransposed(OracleDefect):
    """output_proj is multiplied from the wrong side. It is square, so no shape complains."""

    def project_output(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return x @ weights["attn.output_proj.weight"]


@defect(
    "square-weights-transposed",
    Place.ATTENTION,
    hint="Weights are (out, in). A square one fits both ways: which way do you multiply?",
    steps=("Multiply a row with a square weight that is zero but for row 0: only channel 0 may be non-zero.",),
)
class SquareWeightsTransposed(OracleDefect):
    """Weights are used as x W instead of x Wᵀ. Where a weight is square, as the projections of attention are, no shape
    complains.
    """

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return super().linear(x, weight.T if weight.shape[0] == weight.shape[1] else weight)


@defect(
    "attention-no-mask-means-causal",
    Place.ATTENTION,
    hint="What does a missing mask mean: every key may be seen, or only the earlier ones?",
)
class AttentionNoMaskMeansCausal(AdaptersDefect):
    """Without a mask, scaled dot-product attention hides later keys; it must show every key."""

    def run_scaled_dot_product_attention(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            mask = torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool).tril()
        return super().run_scaled_dot_product_attention(Q, K, V, mask)


@defect(
    "attention-scale-by-value-size",
    Place.ATTENTION,
    hint="A score is a sum over d_k channels: which tensor do you read the size from?",
    steps=("Call attention with d_v twice d_k.",),
)
class AttentionScaleByValueSize(OracleDefect):
    """Scores are divided by the root of the values' size, d_v; it is the queries' size, d_k, that counts."""

    def attend_matrix(self, queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
        corrected = queries * math.sqrt(queries.shape[-1] / values.shape[-1])
        return super().attend_matrix(corrected, keys, values, allowed)


@defect(
    "attention-transposes-from-the-front",
    Place.ATTENTION,
    hint="Count the axes to exchange from the end: there may be any number in front.",
    steps=("Call attention with (batch, time, d) and with (batch, heads, time, d).",),
)
class AttentionTransposesFromTheFront(AdaptersDefect):
    """Keys are transposed with axes counted from the front (1 and 2), so only inputs of three axes work."""

    def run_scaled_dot_product_attention(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
        if K.ndim != 3:
            raise RuntimeError("the sizes of the tensors to multiply do not match")
        return super().run_scaled_dot_product_attention(Q, K, V, mask)


@defect(
    "attention-scale-after-softmax",
    Place.ATTENTION,
    hint="What is divided by sqrt(d_head): the scores, or what the softmax made of them?",
    steps=SCALE,
)
class AttentionScaleAfterSoftmax(OracleDefect):
    """The softmax takes the plain scores, and its weights are divided by sqrt(d_head) afterwards: they no longer sum to
    one.
    """

    def attend_matrix(self, queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
        scale = self.score_scale(queries.shape[-1])
        return self.weigh(self.score_matrix(queries, keys) / scale, allowed) * scale @ values
