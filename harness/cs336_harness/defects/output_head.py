"""Defects after the last block: the final norm and the head."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from cs336_harness.defects.defect import OracleDefect, Place, defect

LAST_THREE = (
    "Name the last three things your model does: final norm, head, return. What stands between or after them?",
)
RAW = (
    "Set the head to zero: every logit must be zero.",
    "Double the head: every logit must double.",
)
Weights = Mapping[str, Tensor]


@defect(
    "final-norm-missing",
    Place.FINAL_NORM,
    hint="What happens between the last block and the head?",
    steps=("Multiply the last block's output by ten: the logits must not move.", *LAST_THREE),
)
class FinalNormMissing(OracleDefect):
    """The last block's output goes straight to the head; ln_final is never applied."""

    def final_norm(self, x: Tensor, weights: Weights) -> Tensor:
        return x


@defect(
    "final-norm-twice",
    Place.FINAL_NORM,
    hint="How often does the stream pass a norm after the last block?",
    steps=LAST_THREE,
)
class FinalNormTwice(OracleDefect):
    """The final norm is applied twice. Gains of one hide it; yours act twice."""

    def final_norm(self, x: Tensor, weights: Weights) -> Tensor:
        return super().final_norm(super().final_norm(x, weights), weights)


@defect(
    "final-norm-gain-forgotten",
    Place.FINAL_NORM,
    hint="ln_final has one learned weight per channel: is it loaded, or still all ones?",
    steps=("Set every gain of ln_final to 2: the logits must double.",),
)
class FinalNormGainForgotten(OracleDefect):
    """The final norm keeps gains of one; ln_final.weight never gets there, although the other norms are right."""

    def final_norm(self, x: Tensor, weights: Weights) -> Tensor:
        return self.rmsnorm(x, torch.ones_like(weights["ln_final.weight"]), self.shape.norm_eps)


@defect(
    "final-norm-gain-of-last-layer",
    Place.FINAL_NORM,
    hint="Which norm object is called after the last block?",
    steps=("Set every gain of ln_final to 2: the logits must double.",),
)
class FinalNormGainOfLastLayer(OracleDefect):
    """The last layer's ln2 is used again as the final norm; ln_final has no effect."""

    def final_norm(self, x: Tensor, weights: Weights) -> Tensor:
        return self.rmsnorm(x, weights[f"layers.{self.shape.num_layers - 1}.ln2.weight"], self.shape.norm_eps)


@defect(
    "final-norm-is-layer-norm",
    Place.FINAL_NORM,
    hint="RMSNorm dropped one of LayerNorm's two steps: which one is still in your final norm?",
)
class FinalNormIsLayerNorm(OracleDefect):
    """The final norm subtracts the mean first, as LayerNorm does, although the norms in the blocks do not."""

    def final_norm(self, x: Tensor, weights: Weights) -> Tensor:
        return super().final_norm(x - x.mean(-1, keepdim=True), weights)


@defect(
    "final-norm-over-positions",
    Place.INFORMATION_FLOW,
    hint="Which axes does the mean of your final norm run over?",
    steps=("Silence every sublayer and change the last token: no other position's logits may move.",),
)
class FinalNormOverPositions(OracleDefect):
    """The final norm takes one mean square over all positions of a row, so early logits know the later tokens."""

    def final_norm(self, x: Tensor, weights: Weights) -> Tensor:
        mean_square = (x * x).mean((-2, -1), keepdim=True)
        return x * weights["ln_final.weight"] / torch.sqrt(mean_square + self.shape.norm_eps)


@defect(
    "final-norm-before-first-block",
    Place.FINAL_NORM,
    hint="Where in your model's forward does ln_final stand: before the loop, or after it?",
    steps=LAST_THREE,
)
class FinalNormBeforeFirstBlock(OracleDefect):
    """ln_final norms the embedding before the first block; nothing norms the stream before the head."""

    def embed_tokens(self, weights: Weights, token_ids: Tensor) -> Tensor:
        return self.rmsnorm(super().embed_tokens(weights, token_ids), weights["ln_final.weight"], self.shape.norm_eps)

    def final_norm(self, x: Tensor, weights: Weights) -> Tensor:
        return x


@defect(
    "final-norm-after-every-block",
    Place.FINAL_NORM,
    hint="Is ln_final inside the loop over layers, or after it?",
    steps=LAST_THREE,
)
class FinalNormAfterEveryBlock(OracleDefect):
    """ln_final stands inside the loop and norms the stream after every block, not only after the last one."""

    def residual_stream(self, weights: Weights, token_ids: Tensor) -> Tensor:
        self.gain: Tensor | None = weights["ln_final.weight"]
        try:
            return super().residual_stream(weights, token_ids)
        finally:
            self.gain = None

    def block(self, x: Tensor, weights: Weights, positions: Tensor) -> Tensor:
        x, gain = super().block(x, weights, positions), self.__dict__.get("gain")
        return x if gain is None or self.layer == self.shape.num_layers - 1 else self.rmsnorm(x, gain, 1e-5)


@defect(
    "head-is-embedding",
    Place.HEAD,
    hint="Tying is a choice: with tie_embeddings off, whose weight does the head use?",
    steps=("Set lm_head.weight to zero, untied: the logits must be zero.",),
)
class HeadIsEmbedding(OracleDefect):
    """The head uses the embedding table even when the decoder is untied; lm_head.weight has no effect."""

    def head_weight(self, weights: Weights) -> Tensor:
        return weights["token_embeddings.weight"]


@defect(
    "embedding-is-head",
    Place.EMBEDDING,
    hint="Tying is a choice: with tie_embeddings off, whose weight does the look-up use?",
    steps=("Set token_embeddings.weight to zero, untied: every token must look the same.",),
)
class EmbeddingIsHead(OracleDefect):
    """The look-up uses the head's matrix even when the decoder is untied: whichever weight is loaded last wins."""

    def embed_tokens(self, weights: Weights, token_ids: Tensor) -> Tensor:
        return self.embedding(self.head_weight(weights), token_ids)


@defect(
    "head-scaled",
    Place.HEAD,
    hint="The head is one matrix multiply: which factor is on yours?",
    steps=RAW,
)
class HeadScaled(OracleDefect):
    """The logits are divided by sqrt(d_model); only attention scores are scaled, and by sqrt(d_head)."""

    def project_logits(self, x: Tensor, weights: Weights) -> Tensor:
        return super().project_logits(x, weights) / math.sqrt(self.shape.d_model)


@defect(
    "head-rows-shifted",
    Place.HEAD,
    hint="Which row of the head makes logit 0?",
)
class HeadRowsShifted(OracleDefect):
    """Logit v is made by the row before v: ids are counted from one somewhere."""

    def project_logits(self, x: Tensor, weights: Weights) -> Tensor:
        return super().project_logits(x, weights).roll(1, -1)
