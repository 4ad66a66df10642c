"""Defects of who may know what: leaks that show only at some places, lengths, rows or tokens, and state that stays
behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from cs336_harness.defects.defect import AdaptersDefect, ModelDefect, OracleDefect, Place, defect

CHANGE_LATER_TOKENS = (
    "Run the model on a full context, change everything after position i, and compare the logits up to i: bit by bit.",
    "Do it for every i and for more than one length.",
)


@defect(
    "leak-in-aligned-blocks",
    Place.INFORMATION_FLOW,
    hint="Are positions handled in blocks? Inside one, later positions must stay hidden too.",
    steps=CHANGE_LATER_TOKENS,
)
class LeakInAlignedBlocks(OracleDefect):
    """A position sees to the end of its own block of four, so a cut at a multiple of four shows nothing wrong."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(min((query // 4 + 1) * 4, time))


@defect(
    "leak-past-a-length",
    Place.INFORMATION_FLOW,
    hint="How large is your mask, and what happens to positions beyond it?",
    steps=CHANGE_LATER_TOKENS,
)
class LeakPastALength(OracleDefect):
    """The mask covers the first eight positions only; every later one sees its future."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(time if query >= 8 else query + 1)


@defect(
    "leak-at-full-context",
    Place.INFORMATION_FLOW,
    hint="What is different in your code when the input is exactly as long as the context?",
    steps=CHANGE_LATER_TOKENS,
)
class LeakAtFullContext(OracleDefect):
    """An input that fills the context is not masked at all; every shorter one is."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(time if time == self.shape.context_length else query + 1)


@defect(
    "leak-below-full-context",
    Place.INFORMATION_FLOW,
    hint="Is your mask cut to the length of the input, or used only when the input fills it?",
    steps=CHANGE_LATER_TOKENS,
)
class LeakBelowFullContext(OracleDefect):
    """The mask is used only when the input fills the context; every shorter input sees its future."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(query + 1 if time == self.shape.context_length else time)


@defect(
    "leak-in-last-layer",
    Place.INFORMATION_FLOW,
    hint="Does every layer get the mask, the last one included?",
    steps=CHANGE_LATER_TOKENS,
)
class LeakInLastLayer(OracleDefect):
    """The last layer is not masked."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(time if self.layer == self.shape.num_layers - 1 else query + 1)


@defect(
    "leak-after-first-layer",
    Place.INFORMATION_FLOW,
    hint="Does every layer get the mask, or only the first?",
    steps=CHANGE_LATER_TOKENS,
)
class LeakAfterFirstLayer(OracleDefect):
    """Only the first layer is masked; every later one sees the future."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return range(time if self.layer else query + 1)


class _KnowsTokens(OracleDefect):
    def residual_stream(self, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        self.token_ids = token_ids
        try:
            return super().residual_stream(weights, token_ids)
        finally:
            del self.token_ids

    def id_at(self, position: int) -> int | None:
        ids = self.__dict__.get("token_ids")
        return None if ids is None else int(ids.reshape(-1, ids.shape[-1])[self.row][position])


@defect(
    "leak-of-token-zero",
    Place.INFORMATION_FLOW,
    hint="Token 0 is a token like any other: where does your code treat it differently?",
    steps=("Put token 0 last, change it to token 1, and compare the earlier logits.",),
)
class LeakOfTokenZero(_KnowsTokens):
    """Token 0 is visible to every position, earlier ones too."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return [key for key in range(time) if key <= query or self.id_at(key) == 0]


@defect(
    "leak-of-last-token-id",
    Place.INFORMATION_FLOW,
    hint="The last id of the vocabulary is a token like any other: where does your code treat it differently?",
    steps=("Put token vocab_size - 1 last, change it to token 1, and compare the earlier logits.",),
)
class LeakOfLastTokenId(_KnowsTokens):
    """The token with the largest id is visible to every position, earlier ones too."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return [key for key in range(time) if key <= query or self.id_at(key) == self.shape.vocab_size - 1]


@defect(
    "token-zero-hidden",
    Place.INFORMATION_FLOW,
    hint="Is there a padding mask in your decoder? In this contract no token is padding.",
    steps=("Change token 0 at position 2 to token 1: every later position must notice.",),
)
class TokenZeroHidden(_KnowsTokens):
    """Token 0 is taken for padding: no other position sees it."""

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        return [key for key in range(query + 1) if key == query or self.id_at(key) != 0]


@defect(
    "rows-averaged",
    Place.INFORMATION_FLOW,
    hint="Rows of a batch are strangers: which operation of yours runs over the batch axis?",
    steps=("Run two rows together and each alone: the results must be the same.",),
)
class RowsAveraged(OracleDefect):
    """The final norm takes its mean square over the rows of the batch as well, so each row's logits know the others."""

    def final_norm(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        mean_square = (x * x).mean((0, -1), keepdim=True)
        return x * weights["ln_final.weight"] / torch.sqrt(mean_square + self.shape.norm_eps)


@defect(
    "dropout-left-on",
    Place.INFORMATION_FLOW,
    hint="Which line of your forward draws random numbers? Dropout is off in this contract.",
    steps=("Call the model twice with the same tokens: the logits must be the same.",),
)
class DropoutLeftOn(OracleDefect):
    """Dropout acts on the attention weights in every call, also in eval: two calls give two results."""

    def weigh(self, scores: Tensor, allowed: Tensor) -> Tensor:
        return torch.nn.functional.dropout(super().weigh(scores, allowed), 0.1)


@defect(
    "dropout-in-training",
    Place.INFORMATION_FLOW,
    hint="What does your model do in train() that it does not do in eval()? Dropout is off in this contract.",
    steps=("Call the model in train() and in eval(): the logits must be the same.",),
)
class DropoutInTraining(ModelDefect):
    """Dropout acts on the logits' input while the model is in training mode; this contract has none, so train and eval
    agree.
    """

    def forward(self, token_ids: Tensor) -> Tensor:
        logits = super().forward(token_ids)
        return torch.nn.functional.dropout(logits, 0.1, training=self.training)


@defect(
    "random-numbers-drawn",
    Place.INFORMATION_FLOW,
    hint="Which line of your forward draws random numbers that it does not use?",
    steps=("Save torch.get_rng_state(), call the model, and compare.",),
)
class RandomNumbersDrawn(ModelDefect):
    """The built model's forward draws random numbers and drops them; nothing in a decoder without dropout is random."""

    def forward(self, token_ids: Tensor) -> Tensor:
        torch.rand(1)
        return super().forward(token_ids)


@defect(
    "state-kept-between-calls",
    Place.INFORMATION_FLOW,
    hint="What does your model remember from one call to the next? It must be nothing.",
    steps=("Call the model with tokens A, then B, then A again: the first and the third must agree.",),
)
class StateKeptBetweenCalls(ModelDefect):
    """Something of the last call is kept: a running mean of the logits is mixed into the next ones."""

    last: Tensor | None = None

    def forward(self, token_ids: Tensor) -> Tensor:
        logits = super().forward(token_ids)
        before, self.last = self.last, logits.detach().mean()
        return logits if before is None else logits + 0.01 * before


@defect(
    "logits-kept-for-a-shape",
    Place.INFORMATION_FLOW,
    hint="What is kept under the shape of the input? Other tokens of that shape need other logits.",
    steps=("Call the model with tokens A, then with tokens B of the same shape: the logits must differ.",),
)
class LogitsKeptForAShape(ModelDefect):
    """The result of the first input of a shape is kept and given again for every later input of that shape."""

    def forward(self, token_ids: Tensor) -> Tensor:
        kept = self.__dict__.setdefault("kept", {})
        if token_ids.shape not in kept or torch.is_grad_enabled():
            kept[token_ids.shape] = super().forward(token_ids)
        return kept[token_ids.shape]


@defect(
    "caller-weights-changed",
    Place.INFORMATION_FLOW,
    hint="The weights belong to the caller: which line of yours writes into them?",
    steps=("Keep a copy of the dict and of one weight, call run_transformer_lm, and compare both.",),
)
class CallerWeightsChanged(AdaptersDefect):
    """run_transformer_lm writes into the weights it is given (or takes entries out of the dict); the result itself is
    right.
    """

    def run_transformer_lm(self, *positional: Any, **arguments: Any) -> Tensor:
        logits = super().run_transformer_lm(*positional, **arguments)
        with torch.no_grad():
            arguments["weights"]["ln_final.weight"].mul_(0.5)
        return logits


@defect(
    "caller-ids-changed",
    Place.INFORMATION_FLOW,
    hint="The token ids belong to the caller: which line of yours writes into them?",
    steps=("Keep a copy of the ids, call the model, and compare.",),
)
class CallerIdsChanged(ModelDefect):
    """The built model's forward writes into the token ids it is given; the result itself is right."""

    def forward(self, token_ids: Tensor) -> Tensor:
        logits = super().forward(token_ids)
        token_ids.clamp_(max=1)
        return logits


@defect(
    "default-dtype-changed",
    Place.INFORMATION_FLOW,
    hint="Which line of yours sets something for the whole process?",
    steps=("Print torch.get_default_dtype() before and after the call.",),
)
class DefaultDtypeChanged(AdaptersDefect):
    """run_transformer_lm leaves the process with another default dtype than it found."""

    def run_transformer_lm(self, *positional: Any, **arguments: Any) -> Tensor:
        logits = super().run_transformer_lm(*positional, **arguments)
        torch.set_default_dtype(torch.float64)
        return logits


@defect(
    "grad-mode-left-off",
    Place.INFORMATION_FLOW,
    hint="no_grad has a beginning and an end: where does yours end?",
    steps=("Print torch.is_grad_enabled() before and after the call.",),
)
class GradModeLeftOff(AdaptersDefect):
    """run_transformer_lm leaves the process with gradients turned off."""

    def run_transformer_lm(self, *positional: Any, **arguments: Any) -> Tensor:
        logits = super().run_transformer_lm(*positional, **arguments)
        torch.set_grad_enabled(False)
        return logits


@defect(
    "rows-count-positions-on",
    Place.INFORMATION_FLOW,
    hint="Nothing to fix.",
    equivalent="each row starts at another position, and scores know distances within a row only",
)
class RowsCountPositionsOn(OracleDefect):
    """Positions run on from row to row: 0 to T - 1 in the first, T to 2T - 1 in the second."""

    def rotate_queries(self, queries: Tensor, positions: Tensor, theta: float) -> Tensor:
        return super().rotate_queries(queries, positions + self.row * len(queries), theta)

    def rotate_keys(self, keys: Tensor, positions: Tensor, theta: float) -> Tensor:
        return super().rotate_keys(keys, positions + self.row * len(keys), theta)
