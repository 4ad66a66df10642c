"""Defects of what is done to the logits behind the head."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cs336_harness.defects.defect import AdaptersDefect, OracleDefect, Place, defect

RAW = (
    "Set the head to zero: every logit must be zero.",
    "Double the head: every logit must double.",
)
Weights = Mapping[str, Tensor]


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
