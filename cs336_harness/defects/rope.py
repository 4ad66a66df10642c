"""Defects of rotary positions: which channels turn together, how fast, which way, and by whose position."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cs336_harness.defects.registry import AdaptersDefect, OracleDefect, Place, defect
from cs336_harness.oracle import LayerWeights

ONE_PAIR = (
    "Rotate the single vector (1, 0, 0, 0) at position 1: channels 0 and 1 become cos 1 and sin 1, the others stay 0.",
    "Then (0, 0, 1, 0): the second pair turns too, and slower.",
)
TWO_THETAS = ("Call run_rope with theta 10000 and with theta 100: position 0 agrees, every later one must differ.",)
PLAIN_AND_JUMPING = (
    "Call run_rope with positions 0, 1, 2 and with 0, 5, 9 on the same input: only position 0 may agree.",
)


@defect(
    "rope-half-split-pairs",
    Place.POSITIONS,
    hint="Which two channels turn together? Here they are neighbours; in other decoders they lie half a head apart.",
    steps=ONE_PAIR,
)
class RopeHalfSplitPairs(OracleDefect):
    """Channel i is paired with channel i + d_head/2, as GPT-NeoX and Hugging Face do. Here the pairs are (2i, 2i + 1).

    Both conventions train; with given weights only one of them is right.
    """

    def rotary_pairs(self, d_head: int) -> tuple[slice, slice]:
        return slice(0, d_head // 2), slice(d_head // 2, d_head)


@defect(
    "rope-direction-reversed",
    Place.POSITIONS,
    hint="Write the two-by-two rotation matrix on paper: which of its two sines carries the minus?",
    steps=ONE_PAIR,
)
class RopeDirectionReversed(OracleDefect):
    """Every pair turns by minus its angle: the transposed rotation matrix."""

    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        return -super().angles(positions, d_head, theta)


@defect(
    "rope-sign-missing",
    Place.POSITIONS,
    hint="A rotation keeps the length of every pair: does yours? One of its four terms carries a minus.",
    steps=("Compare the norm of a vector before and after: a rotation never changes it.", *ONE_PAIR),
)
class RopeSignMissing(OracleDefect):
    """Both new channels are sums; the minus of the rotation is missing, so the pair is stretched, not turned."""

    def rotate(self, x: Tensor, positions: Tensor, theta: float) -> Tensor:
        first, second = self.rotary_pairs(x.shape[-1])
        angles = self.angles(positions, x.shape[-1], theta)
        rotated = torch.empty_like(x)
        rotated[..., first] = x[..., first] * angles.cos() + x[..., second] * angles.sin()
        rotated[..., second] = x[..., first] * angles.sin() + x[..., second] * angles.cos()
        return rotated


@defect(
    "rope-sin-and-cos-exchanged",
    Place.POSITIONS,
    hint="At position 0 a rotation changes nothing. Which of sine and cosine is one there?",
    steps=ONE_PAIR,
)
class RopeSinAndCosExchanged(OracleDefect):
    """Sine and cosine have changed places: position 0, which must stay as it is, comes out turned by a right angle."""

    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        return torch.pi / 2 - super().angles(positions, d_head, theta)


@defect(
    "rope-tables-half-split",
    Place.POSITIONS,
    hint="Your pairs are neighbours; are the two entries of your cosine table that they read equal?",
    steps=(
        "Print the cosines of one position: neighbours must be equal, as 0, 0, 1, 1, 2, 2. Repeating is not tiling.",
    ),
)
class RopeTablesHalfSplit(OracleDefect):
    """Neighbouring channels are paired, but cosines and sines are laid out as two halves, so a pair mixes two
    frequencies.
    """

    def rotate(self, x: Tensor, positions: Tensor, theta: float) -> Tensor:
        angles = self.angles(positions, x.shape[-1], theta)
        angles = torch.cat([angles, angles], -1)
        turned = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
        return x * angles.cos() + turned * angles.sin()


@defect(
    "rope-output-not-interleaved",
    Place.POSITIONS,
    hint="After the rotation, the channels must stand in their old order: where is the first of each pair now?",
    steps=ONE_PAIR,
)
class RopeOutputNotInterleaved(OracleDefect):
    """The right pairs are turned, then written as all first channels followed by all second ones.

    Inside attention nobody notices, because queries and keys are permuted alike; run_rope by itself is wrong.
    """

    def rotate(self, x: Tensor, positions: Tensor, theta: float) -> Tensor:
        rotated = super().rotate(x, positions, theta)
        return torch.cat([rotated[..., 0::2], rotated[..., 1::2]], -1)


class _Frequencies(OracleDefect):
    def exponent(self, pair: int, d_head: int) -> float:
        raise NotImplementedError

    def inverse_frequencies(self, d_head: int, theta: float) -> Tensor:
        exponents = [self.exponent(pair, d_head) for pair in range(d_head // 2)]
        return torch.tensor([theta**-exponent for exponent in exponents], dtype=torch.float64)


FREQUENCIES = (
    "Print the frequencies for d_head 4 and theta 10000: they must be 1 and 0.01.",
    "Print them for d_head 8: 1, 0.1, 0.01, 0.001.",
)


@defect(
    "rope-pairs-counted-from-one",
    Place.POSITIONS,
    hint="The first pair turns by exactly one radian per position: does yours? The handout counts pairs from 1.",
    steps=FREQUENCIES,
)
class RopePairsCountedFromOne(_Frequencies):
    """Pairs are counted from 1, so every pair turns at the speed of the next one, and none turns by one radian."""

    def exponent(self, pair: int, d_head: int) -> float:
        return 2 * (pair + 1) / d_head


@defect(
    "rope-exponent-halved",
    Place.POSITIONS,
    hint="The exponent counts channels, not pairs: by how much does it grow from one pair to the next?",
    steps=FREQUENCIES,
)
class RopeExponentHalved(_Frequencies):
    """The exponent of theta is i/d_head where 2i/d_head belongs: the frequencies fall half as fast as they should."""

    def exponent(self, pair: int, d_head: int) -> float:
        return pair / d_head


@defect(
    "rope-exponent-doubled",
    Place.POSITIONS,
    hint="What is the exponent divided by: the head size, or the number of pairs?",
    steps=FREQUENCIES,
)
class RopeExponentDoubled(_Frequencies):
    """The exponent of theta is 4i/d_head where 2i/d_head belongs: the frequencies fall twice as fast as they should."""

    def exponent(self, pair: int, d_head: int) -> float:
        return 4 * pair / d_head


@defect(
    "rope-exponent-reaches-one",
    Place.POSITIONS,
    hint="The last pair's exponent is (d_head - 2)/d_head, not 1: does your range include its end?",
    steps=FREQUENCIES,
)
class RopeExponentReachesOne(_Frequencies):
    """The exponents are spread evenly from 0 to 1 with both ends included; the last one must stop short of 1."""

    def exponent(self, pair: int, d_head: int) -> float:
        return pair / max(d_head // 2 - 1, 1)


@defect(
    "rope-frequencies-reversed",
    Place.POSITIONS,
    hint="Which pair turns fastest: the first or the last?",
    steps=FREQUENCIES,
)
class RopeFrequenciesReversed(OracleDefect):
    """The slowest frequency comes first: the last pair turns by one radian per position, the first one hardly moves."""

    def inverse_frequencies(self, d_head: int, theta: float) -> Tensor:
        return super().inverse_frequencies(d_head, theta).flip(0)


@defect(
    "rope-same-frequency",
    Place.POSITIONS,
    hint="Every pair turns at a speed of its own: where does the pair's index enter your angles?",
    steps=FREQUENCIES,
)
class RopeSameFrequency(_Frequencies):
    """All pairs turn by one radian per position; theta and the pair's index have no effect."""

    def exponent(self, pair: int, d_head: int) -> float:
        return 0.0


@defect(
    "rope-theta-fixed",
    Place.POSITIONS,
    hint="Follow theta from the adapter's argument to the line that computes the frequencies: where is it dropped?",
    steps=TWO_THETAS,
)
class RopeThetaFixed(OracleDefect):
    """theta is 10000 whatever the caller says: it is written into the code, or a default that is never replaced."""

    def inverse_frequencies(self, d_head: int, theta: float) -> Tensor:
        return super().inverse_frequencies(d_head, 10000.0)


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
    "rope-first-half-of-channels",
    Place.POSITIONS,
    hint="How many of a head's channels come out changed at position 1: all of them, or half?",
    steps=ONE_PAIR,
)
class RopeFirstHalfOfChannels(OracleDefect):
    """Only the first half of each head is rotated (partial rotary, as some decoders have it); here all of it is."""

    def rotate(self, x: Tensor, positions: Tensor, theta: float) -> Tensor:
        half = x.shape[-1] // 4 * 2
        return torch.cat([super().rotate(x[..., :half], positions, theta), x[..., half:]], -1)


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


@defect(
    "rope-positions-in-bfloat16",
    Place.POSITIONS,
    hint="Up to which whole number can your dtype count? bfloat16 skips 257.",
    steps=("Rotate at positions 256 and 257: in bfloat16 they are one and the same number.",),
)
class RopePositionsInBfloat16(OracleDefect):
    """Positions pass through bfloat16, which holds whole numbers exactly up to 256 only: from 257 on neighbours
    coincide.
    """

    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        return super().angles(positions.to(torch.bfloat16), d_head, theta)


@defect(
    "rope-tables-in-bfloat16",
    Place.POSITIONS,
    rounds=True,
    hint="In which dtype are the cosines and sines kept? Casting the model casts its buffers too.",
    steps=("Print the cosine of position 1, pair 0: cos 1 is 0.540302, bfloat16 makes 0.539062 of it.",),
)
class RopeTablesInBfloat16(OracleDefect):
    """The cosines and sines are kept in bfloat16: three digits, whatever the precision of queries and keys."""

    def rotate(self, x: Tensor, positions: Tensor, theta: float) -> Tensor:
        first, second = self.rotary_pairs(x.shape[-1])
        angles = self.angles(positions, x.shape[-1], theta)
        cos, sin = (table.to(torch.bfloat16).to(torch.float64) for table in (angles.cos(), angles.sin()))
        rotated = torch.empty_like(x)
        rotated[..., first] = x[..., first] * cos - x[..., second] * sin
        rotated[..., second] = x[..., first] * sin + x[..., second] * cos
        return rotated


@defect(
    "rope-positions-plus-one",
    Place.POSITIONS,
    hint="What happens to position 0? It must come out as it went in.",
    steps=ONE_PAIR,
)
class RopePositionsPlusOne(OracleDefect):
    """Every position is taken for the next one. Attention, which knows differences only, hides it; run_rope does
    not.
    """

    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        return super().angles(positions + 1, d_head, theta)


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
