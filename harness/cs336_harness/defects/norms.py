"""Defects of RMSNorm itself."""

from __future__ import annotations

import torch
from torch import Tensor

from cs336_harness.defects.defect import AdaptersDefect, OracleDefect, Place, defect

TINY_INPUT = (
    "Norm one row of 1e-3 by hand, with eps 1e-5: the mean square is 1e-6, so eps is ten times larger "
    "and decides the result.",
    "Write the denominator on paper, term by term, and compare each with your line.",
)


@defect(
    "norm-eps-outside-root",
    Place.NORM,
    hint="Both terms of the denominator belong under the root: which of yours stands outside?",
    steps=TINY_INPUT,
)
class NormEpsOutsideRoot(OracleDefect):
    """eps is added after the root is taken, so it acts like 1e-5 on a root-mean-square where it should act like 3e-3.

    Large activations hide it; a small embedding shows it at once.
    """

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x * gain / (torch.sqrt((x * x).mean(-1, keepdim=True)) + eps)


@defect(
    "norm-eps-missing",
    Place.NORM,
    hint="Look for eps in the denominator of your norm: does the argument get there?",
    steps=TINY_INPUT,
)
class NormEpsMissing(OracleDefect):
    """The norm divides by the root-mean-square alone; eps is never added, and a row of zeros would divide by zero."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x * gain / torch.sqrt((x * x).mean(-1, keepdim=True))


class _FixedEps(AdaptersDefect):
    EPS: float

    def run_rmsnorm(self, d_model: int, eps: float, weights: Tensor, in_features: Tensor) -> Tensor:
        return super().run_rmsnorm(d_model, self.EPS, weights, in_features)


@defect(
    "norm-eps-not-passed-on",
    Place.NORM,
    hint="Follow eps from the argument of run_rmsnorm to the line that adds it: where is it dropped?",
    steps=("Call run_rmsnorm twice, with eps 1e-5 and with 1.0: the results must differ.",),
)
class NormEpsNotPassedOn(_FixedEps):
    """run_rmsnorm takes eps and does not use it: the module keeps its own default of 1e-5, whatever the caller says."""

    EPS = 1e-5


class _OtherEps(OracleDefect):
    EPS: float

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return super().rmsnorm(x, gain, self.EPS)


@defect(
    "norm-eps-1e-6",
    Place.NORM,
    hint="This contract's eps is 1e-5: find the default in your norm, and whether a caller's eps replaces it.",
)
class NormEps1e6(_OtherEps):
    """The norm uses eps = 1e-6, the default of other decoders, and not the 1e-5 of this contract or the eps
    given.
    """

    EPS = 1e-6


@defect(
    "norm-eps-1e-8",
    Place.NORM,
    hint="This contract's eps is 1e-5: find the default in your norm, and whether a caller's eps replaces it.",
)
class NormEps1e8(_OtherEps):
    """The norm uses eps = 1e-8 and not the 1e-5 of this contract or the eps given."""

    EPS = 1e-8


@defect(
    "norm-gain-forgotten",
    Place.NORM,
    hint="A norm has one learned weight per channel: follow it from the adapter to the output.",
    steps=("Set every gain to 2: the output must double.",),
)
class NormGainForgotten(OracleDefect):
    """The learned gain never multiplies the result. A test whose gains are all ones cannot see it; yours are random."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return super().rmsnorm(x, torch.ones_like(gain), eps)


@defect(
    "norm-gain-plus-one",
    Place.NORM,
    hint="Here the stored weight is the gain itself, with no offset: what do you multiply by when the weight is zero?",
)
class NormGainPlusOne(OracleDefect):
    """The result is multiplied by (1 + gain). Some decoders store the gain less one; this contract stores the gain."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return super().rmsnorm(x, 1 + gain, eps)


@defect(
    "norm-gain-before-statistics",
    Place.NORM,
    hint="The mean square is that of the input alone: at which point of your code does the gain come in?",
)
class NormGainBeforeStatistics(OracleDefect):
    """The input is multiplied by the gain first, and the mean square is then taken of the product."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return super().rmsnorm(x * gain, torch.ones_like(gain), eps)


@defect(
    "norm-subtracts-mean",
    Place.NORM,
    hint="RMSNorm dropped one of LayerNorm's two steps: which one is still in yours?",
    steps=("Add 100 to every channel of a row: RMSNorm's output becomes nearly the gain; LayerNorm's does not move.",),
)
class NormSubtractsMean(OracleDefect):
    """The mean is subtracted before the norm, as LayerNorm does. RMSNorm divides by the root mean square and no
    more.
    """

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return super().rmsnorm(x - x.mean(-1, keepdim=True), gain, eps)


@defect(
    "norm-sum-for-mean",
    Place.NORM,
    hint="The R, the M and the S of RMS: which of the three is missing from your denominator?",
)
class NormSumForMean(OracleDefect):
    """The squares are summed over the channels, not averaged, so the result is sqrt(d_model) times too small."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x * gain / torch.sqrt((x * x).sum(-1, keepdim=True) + eps)


@defect(
    "norm-divides-by-n-minus-one",
    Place.NORM,
    hint="How many channels do you average over: all of them, or one fewer?",
)
class NormDividesByNMinusOne(OracleDefect):
    """The mean square is divided by d_model - 1, as an unbiased variance is. The norm uses the plain mean."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x * gain / torch.sqrt((x * x).sum(-1, keepdim=True) / (x.shape[-1] - 1) + eps)


@defect(
    "norm-unit-length",
    Place.NORM,
    hint="A row of unit length has a root mean square of 1/sqrt(d_model), not of 1.",
)
class NormUnitLength(OracleDefect):
    """Each row is brought to length one, with no eps, instead of to a root mean square of one."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x * gain / x.norm(dim=-1, keepdim=True).clamp_min(1e-12)


@defect(
    "norm-root-missing",
    Place.NORM,
    hint="The R, the M and the S of RMS: which of the three is missing from your denominator?",
    steps=("Double the input: a norm's output stays where it was. Does yours halve?",),
)
class NormRootMissing(OracleDefect):
    """The input is divided by the mean square itself; no root is taken."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x * gain / ((x * x).mean(-1, keepdim=True) + eps)


@defect(
    "norm-multiplies-by-rms",
    Place.NORM,
    hint="rsqrt is already one over the root: does your next operation undo it?",
    steps=("Double the input: a norm's output stays where it was. Does yours grow fourfold?",),
)
class NormMultipliesByRms(OracleDefect):
    """The input is multiplied by its root mean square (or divided by rsqrt, which is the same), so large gets
    larger.
    """

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x * gain * torch.sqrt((x * x).mean(-1, keepdim=True) + eps)


@defect(
    "norm-mean-absolute",
    Place.NORM,
    hint="What is squared before the mean is taken?",
)
class NormMeanAbsolute(OracleDefect):
    """The mean absolute value stands where the root mean square belongs."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x * gain / (x.abs().mean(-1, keepdim=True) + eps)


@defect(
    "norm-over-positions",
    Place.NORM,
    hint="Which axis holds the channels? The mean runs over that one and no other.",
    steps=("Change the last position of the input: no other position's output may move.",),
)
class NormOverPositions(OracleDefect):
    """The mean square runs over the positions of each channel, not over the channels of each position: the future
    leaks in.
    """

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x * gain / torch.sqrt((x * x).mean(-2 if x.ndim > 1 else -1, keepdim=True) + eps)


@defect(
    "norm-over-positions-and-channels",
    Place.NORM,
    hint="Which axes does the mean run over? One position's norm knows nothing of another position.",
    steps=("Change the last position of the input: no other position's output may move.",),
)
class NormOverPositionsAndChannels(OracleDefect):
    """One mean square is shared by all positions of a row, so every position knows how large the later ones are."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x * gain / torch.sqrt((x * x).mean((-2, -1) if x.ndim > 1 else -1, keepdim=True) + eps)


@defect(
    "norm-over-everything",
    Place.NORM,
    hint="A mean without an axis runs over all of them. Which axis holds the channels?",
)
class NormOverEverything(OracleDefect):
    """One mean square is taken of the whole tensor: rows of a batch and positions all share it."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x * gain / torch.sqrt((x * x).mean() + eps)


@defect(
    "norm-over-axis-two",
    Place.NORM,
    hint="Count the axis from the end: inputs have other numbers of axes too.",
)
class NormOverAxisTwo(OracleDefect):
    """The mean runs over axis 2. That is the last one of (batch, time, channel), and another one of any other shape."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x * gain / torch.sqrt((x * x).mean(2, keepdim=True) + eps)


@defect(
    "norm-in-bfloat16",
    Place.NORM,
    rounds=True,
    hint="In which dtype are the squares summed? A norm is computed in float32, whatever comes in.",
)
class NormInBfloat16(OracleDefect):
    """The normed values pass through bfloat16, which keeps eight bits: each is off by up to four parts in a
    thousand.
    """

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return super().rmsnorm(x, torch.ones_like(gain), eps).to(torch.bfloat16).to(torch.float64) * gain


@defect(
    "norm-eps-inside-mean",
    Place.NORM,
    hint="Nothing to fix.",
    equivalent="the mean of (x² + eps) is the mean of x² plus eps",
)
class NormEpsInsideMean(OracleDefect):
    """eps is added to every square before the mean is taken."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x * gain * torch.rsqrt((x * x + eps).mean(-1, keepdim=True))
