"""Defects of the causal mask and of masks in general."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cs336_harness.defects.defect import OracleDefect, Place, defect

PRINT_THE_TRIANGLE = (
    "Print your mask for four positions: row t must be open for the keys 0 to t and closed after that.",
    "Change the last token: the logits of every earlier position must stay as they are, to the last bit.",
)
LOW_FILL = ("Print the attention weights of one query: a hidden key's must be exactly zero.",)


@defect(
    "causal-mask-missing",
    Place.MASK,
    hint="Who may see whom? Look for the line that hides later positions from earlier ones.",
    steps=PRINT_THE_TRIANGLE,
)
class CausalMaskMissing(OracleDefect):
    """Every position sees every other, the future included. Training loss falls beautifully; nothing can be
    generated.
    """

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(time)


@defect(
    "causal-mask-off-by-one",
    Place.MASK,
    hint="Which diagonal does your triangle start on? Position 0 must see itself and nothing more.",
    steps=PRINT_THE_TRIANGLE,
)
class CausalMaskOffByOne(OracleDefect):
    """Every position also sees the next one, which is the very token it has to predict."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(min(query + 2, time))


@defect(
    "causal-mask-hides-self",
    Place.MASK,
    hint="Which diagonal does your triangle start on? A position sees itself too.",
    steps=PRINT_THE_TRIANGLE,
)
class CausalMaskHidesSelf(OracleDefect):
    """The diagonal is closed: a position does not see itself, and the first one sees nothing and becomes NaN."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(query)


@defect(
    "causal-mask-hides-self-finite-fill",
    Place.MASK,
    hint="Which diagonal does your triangle start on? A position sees itself too.",
    steps=PRINT_THE_TRIANGLE,
)
class CausalMaskHidesSelfFiniteFill(OracleDefect):
    """The diagonal is closed: a position does not see itself. Filled with a large finite number, the first one sees
    all alike.
    """

    def attend_head(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        attended = super().attend_head(queries, keys, values)
        return torch.cat([values.mean(0, keepdim=True), attended[1:]])

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(query) if query else range(1)


@defect(
    "causal-mask-inverted",
    Place.MASK,
    hint="In this contract True means attend: which half of your triangle is True?",
    steps=PRINT_THE_TRIANGLE,
)
class CausalMaskInverted(OracleDefect):
    """The triangle of hidden positions is handed over where True means attend: each position sees only later ones, the
    last none.
    """

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(query + 1, time)


@defect(
    "causal-mask-inverted-finite-fill",
    Place.MASK,
    hint="In this contract True means attend: which half of your triangle is True?",
    steps=PRINT_THE_TRIANGLE,
)
class CausalMaskInvertedFiniteFill(OracleDefect):
    """Each position sees only later ones; filled with a large finite number, the last one sees all alike."""

    def attend_head(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        attended = super().attend_head(queries, keys, values)
        return torch.cat([attended[:-1], values.mean(0, keepdim=True)])

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(query + 1, time) if query + 1 < time else range(1)


@defect(
    "causal-mask-transposed",
    Place.MASK,
    hint="Rows of the mask are queries and columns are keys: which way round is yours?",
    steps=PRINT_THE_TRIANGLE,
)
class CausalMaskTransposed(OracleDefect):
    """The triangle is transposed: each position sees itself and the later ones, never the earlier ones."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(query, time)


@defect(
    "causal-mask-first-key-hidden",
    Place.MASK,
    hint="Every position may look back to the very beginning: does yours?",
    steps=("Change token 0 and see which later positions notice: all of them must.",),
)
class CausalMaskFirstKeyHidden(OracleDefect):
    """The first position can be seen by itself only; every later query starts looking at key 1."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(1, query + 1) if query else range(1)


@defect(
    "causal-mask-sees-self-only",
    Place.MASK,
    hint="How many keys does the last position see?",
    steps=("Change token 0 and see which later positions notice: all of them must.",),
)
class CausalMaskSeesSelfOnly(OracleDefect):
    """Each position sees itself and nothing else, so no information flows between positions at all."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(query, query + 1)


@defect(
    "causal-mask-window-of-four",
    Place.MASK,
    hint="How far back can a position look? There is no limit here.",
    steps=("Change token 0 and see which later positions notice: all of them must.",),
)
class CausalMaskWindowOfFour(OracleDefect):
    """A position sees itself and the three before it only: a sliding window."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(max(0, query - 3), query + 1)


@defect(
    "causal-mask-first-row-of-batch-only",
    Place.MASK,
    hint="Does the mask reach every row of the batch? Look at the shape it has when it meets the scores.",
    steps=("Run the second row alone and as part of the batch.",),
)
class CausalMaskFirstRowOfBatchOnly(OracleDefect):
    """Only the first row of the batch is masked; every other row sees its future."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(time) if self.row else super().visible_keys(query, time)


@defect(
    "causal-mask-first-head-only",
    Place.MASK,
    hint="Does the mask reach every head? Look at the shape it has when it meets the scores.",
    steps=PRINT_THE_TRIANGLE,
)
class CausalMaskFirstHeadOnly(OracleDefect):
    """Only the first head is masked; every other head sees the future."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(time) if self.head else super().visible_keys(query, time)


@defect(
    "causal-mask-last-head-open",
    Place.MASK,
    hint="Does the mask reach every head, the last one included?",
    steps=PRINT_THE_TRIANGLE,
)
class CausalMaskLastHeadOpen(OracleDefect):
    """The last head is not masked and sees the future."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(time) if self.head == self.shape.num_heads - 1 else super().visible_keys(query, time)


@defect(
    "mask-read-the-other-way",
    Place.MASK,
    hint="In this contract True means attend: what does True mean at the line that fills?",
    steps=("Call attention with a mask that is True for key 0 alone: the output must be value 0.",),
)
class MaskReadTheOtherWay(OracleDefect):
    """A mask given by the caller is read with True meaning hide; here it means attend."""

    def attend_masked(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        return super().attend_masked(queries, keys, values, None if mask is None else ~mask)


@defect(
    "mask-ignored",
    Place.MASK,
    hint="The mask comes in as an argument: where do the scores meet it?",
    steps=("Call attention with a mask that is True for key 0 alone: the output must be value 0.",),
)
class MaskIgnored(OracleDefect):
    """The mask given by the caller has no effect: every query sees every key."""

    def attend_masked(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        return super().attend_masked(queries, keys, values, None)


@defect(
    "mask-after-softmax",
    Place.MASK,
    hint="Weights must sum to one over the keys that are seen: is anything taken away after the softmax?",
    steps=("Print one query's weights and sum them: it must be one.",),
)
class MaskAfterSoftmax(OracleDefect):
    """Hidden keys are taken out after the softmax, so weights sum to less than one and still depend on what is
    hidden.
    """

    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return self.softmax(scores, -1) * allowed


class _Fill(OracleDefect):
    FILL: float

    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return self.softmax(scores.masked_fill(~allowed, self.FILL), -1)


@defect(
    "mask-fills-with-zero",
    Place.MASK,
    hint="exp(0) is 1, not 0: what must a hidden score be so that its exponential vanishes?",
    steps=LOW_FILL,
)
class MaskFillsWithZero(_Fill):
    """Hidden scores are set to zero (or to a tiny negative number, or multiplied by the mask): each still gets exp(0)
    = 1.
    """

    FILL = 0.0


@defect(
    "mask-fills-with-minus-one",
    Place.MASK,
    hint="What is the exponential of your fill value? It must be nothing.",
    steps=LOW_FILL,
)
class MaskFillsWithMinusOne(_Fill):
    """Hidden scores are set to -1, and each hidden key still gets a share."""

    FILL = -1.0


@defect(
    "mask-fills-with-minus-ten",
    Place.MASK,
    hint="What is the exponential of your fill value? It must be nothing.",
    steps=LOW_FILL,
)
class MaskFillsWithMinusTen(_Fill):
    """Hidden scores are set to -10, whose exponential is 5e-5: a leak too small for a loose test and large enough to
    learn from.
    """

    FILL = -10.0


@defect(
    "mask-added-as-number",
    Place.MASK,
    hint="True is 1 and False is 0: what does adding them to the scores do?",
    steps=LOW_FILL,
)
class MaskAddedAsNumber(OracleDefect):
    """The boolean mask is added to the scores as ones and zeros; an additive mask needs minus infinity where a key is
    hidden.
    """

    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return self.softmax(scores + allowed, -1)


@defect(
    "mask-after-softmax-renormalised",
    Place.MASK,
    hint="Nothing to fix.",
    equivalent="dividing by the sum of what is left gives exactly the softmax over the keys that are seen",
)
class MaskAfterSoftmaxRenormalised(OracleDefect):
    """Hidden keys are taken out after the softmax, and the rest is divided by its sum."""

    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        weights = torch.softmax(scores, -1) * allowed
        return weights / weights.sum(-1, keepdim=True)


@defect(
    "mask-fills-with-minus-ten-thousand",
    Place.MASK,
    hint="Nothing to fix.",
    equivalent="exp(-10000) is zero in float32 and in float64 alike",
)
class MaskFillsWithMinusTenThousand(_Fill):
    """Hidden scores are set to -1e4 instead of minus infinity."""

    FILL = -1e4
