"""Defects of where the rotation is applied, and to which positions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cs336_harness.defects.defect import AdaptersDefect, OracleDefect, Place, defect
from cs336_harness.reference.oracle import LayerWeights

ONE_PAIR = (
    "Rotate the single vector (1, 0, 0, 0) at position 1: channels 0 and 1 become cos 1 and sin 1, the others stay 0.",
    "Then (0, 0, 1, 0): the second pair turns too, and slower.",
)
PLAIN_AND_JUMPING = (
    "Call run_rope with positions 0, 1, 2 and with 0, 5, 9 on the same input: only position 0 may agree.",
)


@defect(
    "rope-theta-not-passed-to-the-block",
    Place.POSITIONS,
    hint=(
        "Your rotation honours theta when it is called alone: which class between it and the model "
        "forgets to pass it on?"
    ),
    steps=("Build the model with theta 100 and with theta 10000, same weights, three tokens: the logits must differ.",),
)
class RopeThetaNotPassedToTheBlock(OracleDefect):
    """run_rope and attention honour theta, but block and model are built with the default of 10000."""

    def attention_sublayer(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        normed = self.rmsnorm(x, weights["ln1.weight"], self.shape.norm_eps)
        return x + self.self_attention(normed, weights, positions, 10000.0)


@defect(
    "rope-missing",
    Place.POSITIONS,
    hint="Is the rotation called at all between the projections and the scores?",
    steps=("Exchange two early tokens: without positions the last token's logits barely notice.",),
)
class RopeMissing(OracleDefect):
    """Nothing is rotated: attention does not know where a token stands."""

    def rotate(self, x: Tensor, positions: Tensor, theta: float) -> Tensor:
        return x


@defect(
    "rope-missing-in-attention",
    Place.POSITIONS,
    hint="Your rotation is right when it is called alone: is it called between the projections and the scores?",
    steps=("Shift all token_positions apart, say 0, 10, 20: the result of attention must change.",),
)
class RopeMissingInAttention(OracleDefect):
    """run_rope is right, but attention never calls it: queries and keys meet without their positions."""

    def rotate_queries(self, queries: Tensor, positions: Tensor, theta: float) -> Tensor:
        return queries

    def rotate_keys(self, keys: Tensor, positions: Tensor, theta: float) -> Tensor:
        return keys


@defect(
    "rope-queries-only",
    Place.POSITIONS,
    hint="Two of the three projections are rotated: which is missing?",
    steps=("Add 7 to every position: scores depend on differences only, so nothing may move.",),
)
class RopeQueriesOnly(OracleDefect):
    """Queries are rotated and keys are not, so a score depends on where the query stands and not on the distance."""

    def rotate_keys(self, keys: Tensor, positions: Tensor, theta: float) -> Tensor:
        return keys


@defect(
    "rope-keys-only",
    Place.POSITIONS,
    hint="Two of the three projections are rotated: which is missing?",
    steps=("Add 7 to every position: scores depend on differences only, so nothing may move.",),
)
class RopeKeysOnly(OracleDefect):
    """Keys are rotated and queries are not, so a score depends on where the key stands and not on the distance."""

    def rotate_queries(self, queries: Tensor, positions: Tensor, theta: float) -> Tensor:
        return queries


@defect(
    "rope-on-values",
    Place.POSITIONS,
    hint="Positions decide who attends to whom, not what is handed over: which projection stays unrotated?",
    steps=("Add 7 to every position: scores depend on differences only, so nothing may move. Does your output?",),
)
class RopeOnValues(OracleDefect):
    """The values are rotated too. Only queries and keys are; a rotated value tells where its token stood."""

    def rotate_keys(self, keys: Tensor, positions: Tensor, theta: float) -> Tensor:
        self.value_rotation = (positions, theta)
        return super().rotate_keys(keys, positions, theta)

    def attend_head(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        rotation = self.__dict__.pop("value_rotation", None)
        return super().attend_head(queries, keys, values if rotation is None else self.rotate(values, *rotation))


@defect(
    "rope-applied-twice",
    Place.POSITIONS,
    hint="How often are queries and keys rotated on their way to the scores: in attention, and in the block as well?",
    steps=ONE_PAIR,
)
class RopeAppliedTwice(OracleDefect):
    """Queries and keys are rotated twice, so every token seems to stand at twice its position."""

    def rotate_queries(self, queries: Tensor, positions: Tensor, theta: float) -> Tensor:
        return super().rotate_queries(self.rotate(queries, positions, theta), positions, theta)

    def rotate_keys(self, keys: Tensor, positions: Tensor, theta: float) -> Tensor:
        return super().rotate_keys(self.rotate(keys, positions, theta), positions, theta)


@defect(
    "rope-before-head-split",
    Place.POSITIONS,
    hint=(
        "Each head turns its own channels from the fastest frequency on: are the heads split before or "
        "after the rotation?"
    ),
    steps=("Print the shape that your rotation receives: its last axis must be d_head, not d_model.",),
)
class RopeBeforeHeadSplit(OracleDefect):
    """The whole width is rotated as if it were one head, so only the first head gets the fast frequencies."""

    def self_attention(self, x: Tensor, weights: LayerWeights, positions: Tensor | None, theta: float | None) -> Tensor:
        self.rotation = None if positions is None or theta is None else (positions, theta)
        return super().self_attention(x, weights, None, None)

    def project_queries(self, x: Tensor, weights: LayerWeights) -> Tensor:
        queries = super().project_queries(x, weights)
        return queries if self.rotation is None else self.rotate(queries, *self.rotation)

    def project_keys(self, x: Tensor, weights: LayerWeights) -> Tensor:
        keys = super().project_keys(x, weights)
        return keys if self.rotation is None else self.rotate(keys, *self.rotation)


@defect(
    "rope-positions-by-head",
    Place.POSITIONS,
    hint="Print the shape that your rotation receives: is the axis before the channels time, or heads?",
    steps=("Call attention with one head and with several: with one, do all positions get the same angle?",),
)
class RopePositionsByHead(OracleDefect):
    """The rotation takes the head axis for the time axis: head h is turned by h everywhere, and time has no effect."""

    def rotate_queries(self, queries: Tensor, positions: Tensor, theta: float) -> Tensor:
        return super().rotate_queries(queries, torch.full_like(positions, self.head), theta)

    def rotate_keys(self, keys: Tensor, positions: Tensor, theta: float) -> Tensor:
        head = self.kv_head_of(self.head, self.shape.num_heads, self.shape.num_kv_heads)
        return super().rotate_keys(keys, torch.full_like(positions, head), theta)


@defect(
    "rope-first-layer-only",
    Place.POSITIONS,
    hint="Which layers are given the rotation, and which are built without it?",
    steps=("Run the model with the first layer silenced: does the order of the tokens still matter?",),
)
class RopeFirstLayerOnly(OracleDefect):
    """Only the first layer rotates; every later one meets queries and keys without positions."""

    def self_attention(self, x: Tensor, weights: LayerWeights, positions: Tensor | None, theta: float | None) -> Tensor:
        return super().self_attention(x, weights, positions if self.layer == 0 else None, theta)


class _OtherPositions(AdaptersDefect):
    def used(self, positions: Tensor | None, time: int) -> Tensor | None:
        raise NotImplementedError

    def run_rope(
        self, d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor
    ) -> Tensor:
        positions = self.used(token_positions, in_query_or_key.shape[-2])
        assert positions is not None
        return super().run_rope(d_k, theta, max_seq_len, in_query_or_key, positions)

    def run_multihead_self_attention_with_rope(self, *sizes: Any, **arguments: Any) -> Tensor:
        positions = self.used(arguments.pop("token_positions", None), arguments["in_features"].shape[-2])
        return super().run_multihead_self_attention_with_rope(*sizes, **arguments, token_positions=positions)


@defect(
    "token-positions-ignored",
    Place.POSITIONS,
    hint="token_positions comes in: is it used for the angles, or is 0, 1, 2, … made anew?",
    steps=PLAIN_AND_JUMPING,
)
class TokenPositionsIgnored(_OtherPositions):
    """The positions given are ignored and 0, 1, 2, … is used, which the course's own test cannot tell apart."""

    def used(self, positions: Tensor | None, time: int) -> Tensor | None:
        return torch.arange(time)


@defect(
    "token-positions-first-row-only",
    Place.POSITIONS,
    hint="Positions may differ from row to row: how many rows of them does your table look-up read?",
    steps=(
        "Give row 0 the positions 0, 1, 2 and row 1 the positions 5, 6, 7, with equal inputs: the rows must differ.",
    ),
)
class TokenPositionsFirstRowOnly(_OtherPositions):
    """Only the first row of token_positions is used, for every row of the batch."""

    def used(self, positions: Tensor | None, time: int) -> Tensor | None:
        return positions if positions is None or positions.ndim < 2 else positions.flatten(0, -2)[0]


@defect(
    "token-positions-from-first",
    Place.POSITIONS,
    hint=(
        "Between the first position and the last there may be gaps: do you read each position, or count "
        "on from the first?"
    ),
    steps=PLAIN_AND_JUMPING,
)
class TokenPositionsFromFirst(_OtherPositions):
    """Only the first position is read, and the others are counted on from it; positions that jump are not followed."""

    def used(self, positions: Tensor | None, time: int) -> Tensor | None:
        return None if positions is None else positions[..., :1] + torch.arange(time)


@defect(
    "rope-table-of-input-length",
    Place.POSITIONS,
    hint=(
        "How many rows does your table have: as many as positions can occur (max_seq_len), or as many as "
        "tokens came in?"
    ),
    steps=("Rotate one token at position 7: there is one token, and the table needs eight rows.",),
)
class RopeTableOfInputLength(_OtherPositions):
    """The table of angles has as many rows as the input has tokens; a position beyond them is out of range."""

    def used(self, positions: Tensor | None, time: int) -> Tensor | None:
        if positions is not None and int(positions.max()) >= time:
            raise IndexError(f"index {int(positions.max())} is out of bounds for dimension 0 with size {time}")
        return positions


@defect(
    "rope-table-one-row-short",
    Place.POSITIONS,
    hint="Positions run from 0 to max_seq_len - 1: how many rows are that?",
    steps=("Rotate one token at the last position there is, max_seq_len - 1.",),
)
class RopeTableOneRowShort(AdaptersDefect):
    """The table of angles ends one row early: the last position of the context is out of range."""

    def run_rope(
        self, d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor
    ) -> Tensor:
        if int(token_positions.max()) >= max_seq_len - 1:
            raise IndexError(f"index {max_seq_len - 1} is out of bounds for dimension 0 with size {max_seq_len - 1}")
        return super().run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions)


@defect(
    "positions-shifted",
    Place.POSITIONS,
    hint="Nothing to fix.",
    equivalent="a score depends on the distance between query and key, and the same shift on both leaves it alone",
)
class PositionsShifted(OracleDefect):
    """The model counts positions from 1 instead of from 0, for queries and keys alike."""

    def positions(self, time: int) -> Tensor:
        return super().positions(time) + 1


@defect(
    "positions-reversed",
    Place.POSITIONS,
    hint="Which position does the first token get?",
    steps=("Print the positions that your model hands to its layers.",),
    same_as=["rope-direction-reversed"],
)
class PositionsReversed(OracleDefect):
    """The model counts positions from the end: the last token has position 0. Distances change their sign."""

    def positions(self, time: int) -> Tensor:
        return super().positions(time).flip(0)


@defect(
    "rope-in-plain-attention",
    Place.POSITIONS,
    hint="Two entry points call attention: which of them knows of positions?",
    steps=("Exchange two earlier positions of the input: without rotation, the last position's output must not move.",),
)
class RopeInPlainAttention(AdaptersDefect):
    """run_multihead_self_attention rotates queries and keys by their positions; only the entry point with RoPE in its
    name does.
    """

    def run_multihead_self_attention(self, *positional: Any, **arguments: Any) -> Tensor:
        rotary = {"max_seq_len": arguments["in_features"].shape[-2], "theta": 10000.0}
        return super().run_multihead_self_attention_with_rope(*positional, **arguments, **rotary)
