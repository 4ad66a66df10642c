"""Defects after the last block: the final norm, the head, and what is done to the logits."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from cs336_harness.defects.registry import AdaptersDefect, OracleDefect, Place, defect

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


class _PostProcessing(OracleDefect):
    def processed(self, logits: Tensor) -> Tensor:
        raise NotImplementedError

    def transformer_lm(self, weights: Weights, token_ids: Tensor) -> Tensor:
        return self.processed(super().transformer_lm(weights, token_ids))


@defect(
    "logits-softmax",
    Place.POST_PROCESSING,
    hint="The loss takes raw logits: what does the last line of your forward do to them?",
    steps=("Sum one position's logits: raw ones do not sum to one.", *RAW),
)
class LogitsSoftmax(_PostProcessing):
    """A softmax stands at the end of the model; it must return raw logits, and the loss takes the softmax."""

    def processed(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits, -1)


@defect(
    "logits-log-softmax",
    Place.POST_PROCESSING,
    hint="The loss takes raw logits: what does the last line of your forward do to them?",
    steps=("Take the log-sum-exp of one position's logits: for raw ones it is not zero.", *RAW),
)
class LogitsLogSoftmax(_PostProcessing):
    """A log-softmax stands at the end of the model. The loss comes out the same, so training hides it; logits must be
    raw.
    """

    def processed(self, logits: Tensor) -> Tensor:
        return torch.log_softmax(logits, -1)


@defect(
    "logits-softmax-over-positions",
    Place.POST_PROCESSING,
    hint="The loss takes raw logits: what does the last line of your forward do to them?",
    steps=RAW,
)
class LogitsSoftmaxOverPositions(_PostProcessing):
    """A softmax over the positions (dim=1) stands at the end of the model; logits must be raw."""

    def processed(self, logits: Tensor) -> Tensor:
        return torch.softmax(logits, -2)


@defect(
    "logits-sigmoid",
    Place.POST_PROCESSING,
    hint="The loss takes raw logits: what does the last line of your forward do to them?",
    steps=RAW,
)
class LogitsSigmoid(_PostProcessing):
    """A sigmoid stands at the end of the model; logits must be raw."""

    def processed(self, logits: Tensor) -> Tensor:
        return torch.sigmoid(logits)


@defect(
    "logits-soft-capped",
    Place.POST_PROCESSING,
    hint="Raw logits have no bound: what bounds yours?",
    steps=("Multiply the head by 1000: the logits must grow a thousandfold.",),
)
class LogitsSoftCapped(_PostProcessing):
    """Logits pass through 30 · tanh(logit / 30), as in Gemma 2; this decoder has no cap."""

    def processed(self, logits: Tensor) -> Tensor:
        return 30 * torch.tanh(logits / 30)


@defect(
    "logits-centred",
    Place.POST_PROCESSING,
    hint="Do your logits sum to zero at every position? Raw ones do not.",
    steps=("Set the head to zero but for one row: only that row's logit may differ from zero.",),
)
class LogitsCentred(_PostProcessing):
    """The mean over the vocabulary is subtracted. Probabilities do not notice; the logits are not raw."""

    def processed(self, logits: Tensor) -> Tensor:
        return logits - logits.mean(-1, keepdim=True)


@defect(
    "logits-maximum-subtracted",
    Place.POST_PROCESSING,
    hint="Is the largest of your logits zero at every position? Raw ones have no such bound.",
    steps=RAW,
)
class LogitsMaximumSubtracted(_PostProcessing):
    """The largest logit is subtracted at every position. Probabilities do not notice; the logits are not raw."""

    def processed(self, logits: Tensor) -> Tensor:
        return logits - logits.amax(-1, keepdim=True)


@defect(
    "logits-in-bfloat16",
    Place.POST_PROCESSING,
    rounds=True,
    hint="In which dtype are your logits when they are made, and when they are returned?",
    steps=("Print one logit with ten digits, cast it to bfloat16 and back, and compare.",),
)
class LogitsInBfloat16(_PostProcessing):
    """The logits pass through bfloat16: three digits of each are kept, although the dtype that comes back is
    float32.
    """

    def processed(self, logits: Tensor) -> Tensor:
        return logits.to(torch.bfloat16).to(torch.float64)


@defect(
    "logits-in-float16",
    Place.POST_PROCESSING,
    rounds=True,
    hint="In which dtype are your logits when they are made, and when they are returned?",
    steps=("Print one logit with ten digits, cast it to float16 and back, and compare.",),
)
class LogitsInFloat16(_PostProcessing):
    """The logits pass through float16: three to four digits of each are kept."""

    def processed(self, logits: Tensor) -> Tensor:
        return logits.to(torch.float16).to(torch.float64)


@defect(
    "logits-one-position-late",
    Place.POST_PROCESSING,
    hint="The logits at position t predict token t + 1: are they made from position t?",
    steps=("Change the last token: only the last position's logits may move.",),
)
class LogitsOnePositionLate(_PostProcessing):
    """Position t returns the logits of position t - 1, and the first one those of the last."""

    def processed(self, logits: Tensor) -> Tensor:
        return logits.roll(1, -2)


@defect(
    "logits-one-position-early",
    Place.INFORMATION_FLOW,
    hint="The logits at position t predict token t + 1 without having seen it: from which position are yours made?",
    steps=("Change the last token: only the last position's logits may move.",),
)
class LogitsOnePositionEarly(_PostProcessing):
    """Position t returns the logits of position t + 1, which has seen the token that position t must predict."""

    def processed(self, logits: Tensor) -> Tensor:
        return torch.cat([logits[..., 1:, :], logits[..., -1:, :]], -2)


@defect(
    "logits-of-last-position-only",
    Place.POST_PROCESSING,
    hint="Every position predicts its next token: how many rows of logits do you return?",
)
class LogitsOfLastPositionOnly(_PostProcessing):
    """Only the last position's logits are returned, as generation needs; training and this contract need all of
    them.
    """

    def processed(self, logits: Tensor) -> Tensor:
        return logits[..., -1:, :]


@defect(
    "logits-flattened",
    Place.POST_PROCESSING,
    hint="Which shape does the contract ask for: (batch, time, vocab)?",
)
class LogitsFlattened(_PostProcessing):
    """Batch and time are joined into one axis, as a loss function wants them; the contract asks for (batch, time,
    vocab).
    """

    def processed(self, logits: Tensor) -> Tensor:
        return logits.flatten(0, -2)


@defect(
    "axes-of-size-one-squeezed",
    Place.POST_PROCESSING,
    hint="squeeze without an axis removes every axis of size one: also a batch of one, also a single token.",
    steps=("Call the model with one row, then with one token, and print the shapes.",),
)
class AxesOfSizeOneSqueezed(AdaptersDefect):
    """squeeze() drops every axis of size one, so a batch of one row or an input of one token loses an axis."""

    def _result(self, value: Tensor) -> Tensor:
        return super()._result(value).squeeze()
