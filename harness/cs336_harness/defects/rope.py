"""Defects of the rotation itself: which channels turn together, how fast, and which way."""

from __future__ import annotations

import torch
from torch import Tensor

from cs336_harness.defects.defect import OracleDefect, Place, defect

ONE_PAIR = (
    "Rotate the single vector (1, 0, 0, 0) at position 1: channels 0 and 1 become cos 1 and sin 1, the others stay 0.",
    "Then (0, 0, 1, 0): the second pair turns too, and slower.",
)
TWO_THETAS = ("Call run_rope with theta 10000 and with theta 100: position 0 agrees, every later one must differ.",)


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
    "rope-exponent-sign",
    Place.POSITIONS,
    hint="Is the exponent of theta negative? Later pairs turn slower, never faster.",
    steps=FREQUENCIES,
)
class RopeExponentSign(_Frequencies):
    """The exponent of theta is +2i/d_head where -2i/d_head belongs: every pair after the first turns by more than one
    radian per position, the later the faster.
    """

    def exponent(self, pair: int, d_head: int) -> float:
        return -2 * pair / d_head


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
    hint="In which dtype are the cosines and sines at the line that multiplies? They must be float32 there.",
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


@defect(
    "rope-positions-interpolated",
    Place.POSITIONS,
    hint="How far does the first pair turn from one position to the next? Exactly one radian.",
    steps=ONE_PAIR,
)
class RopePositionsInterpolated(OracleDefect):
    """The positions are divided by four ("linear scaling"), which stretches a trained model to a longer context; here
    every pair turns four times too slowly.
    """

    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        return super().angles(positions / 4, d_head, theta)


@defect(
    "rope-scaled-as-in-llama-3-1",
    Place.POSITIONS,
    hint="Is there a rope_scaling in your configuration? This decoder has none.",
    steps=("Print the frequencies of all pairs: each is theta ** (-2 i / d_head), the slow ones too.",),
)
class RopeScaledAsInLlama31(OracleDefect):
    """The slow pairs turn up to eight times slower, as in Llama 3.1 (factor 8, from a context of 8192); here every
    frequency is used as it is.
    """

    def inverse_frequencies(self, d_head: int, theta: float) -> Tensor:
        frequencies = super().inverse_frequencies(d_head, theta)
        turns = 8192 * frequencies / (2 * torch.pi)
        kept = ((turns - 1) / 3).clamp(0, 1)
        return frequencies * (kept + (1 - kept) / 8)
