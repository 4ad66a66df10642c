"""Defects of the softmax itself."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cs336_harness.defects.defect import AdaptersDefect, OracleDefect, Place, defect


@defect(
    "softmax-over-everything",
    Place.ATTENTION,
    hint="Which axis does the sum in your denominator run over?",
    steps=("Take the softmax of a (2, 3) tensor over its last axis: both rows must sum to one.",),
)
class SoftmaxOverEverything(OracleDefect):
    """The denominator sums over the whole tensor; each slice along the axis must sum to one by itself."""

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        powers = torch.exp(x - x.max())
        return powers / powers.sum()


@defect(
    "softmax-not-normalised",
    Place.ATTENTION,
    hint="Positive is not enough: what must the results sum to?",
)
class SoftmaxNotNormalised(OracleDefect):
    """The exponentials are returned undivided; they must sum to one along the axis."""

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        return torch.exp(x - x.amax(dim, keepdim=True))


@defect(
    "softmax-with-one-extra",
    Place.ATTENTION,
    hint="What must the results sum to, exactly, along the axis?",
)
class SoftmaxWithOneExtra(OracleDefect):
    """One is added to the denominator, so the results sum to less than one ("softmax off by one", or an eps in the
    sum).
    """

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        powers = torch.exp(x)
        return powers / (1 + powers.sum(dim, keepdim=True))


@defect(
    "softmax-in-base-two",
    Place.ATTENTION,
    hint="Which number is raised to the power of x?",
)
class SoftmaxInBaseTwo(OracleDefect):
    """Powers of two are taken where powers of e belong, which softens the result."""

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        return super().softmax(x * math.log(2), dim)


@defect(
    "softmax-global-maximum",
    Place.ATTENTION,
    hint="Which maximum do you subtract: each slice's own, or that of the whole tensor?",
    steps=("Take the softmax of the rows (0, 1) and (10000, 10001): both give the same weights.",),
)
class SoftmaxGlobalMaximum(OracleDefect):
    """The maximum of the whole tensor is subtracted, so a slice far below it underflows to 0/0."""

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        powers = torch.exp((x - x.max()).to(torch.float32)).to(torch.float64)
        exact = torch.exp(x - x.amax(dim, keepdim=True))
        alive = powers.sum(dim, keepdim=True) > 0
        return torch.where(alive, exact / exact.sum(dim, keepdim=True), torch.nan)


@defect(
    "softmax-maximum-not-subtracted",
    Place.ATTENTION,
    hint="exp of 100 does not fit a float32: what can be subtracted from every entry without changing the result?",
    steps=("Take the softmax of (10000, 10001).",),
)
class SoftmaxMaximumNotSubtracted(OracleDefect):
    """The maximum is not subtracted first, so large inputs overflow to inf/inf."""

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        fits = x.amax(dim, keepdim=True) < math.log(torch.finfo(torch.float32).max)
        return torch.where(fits, super().softmax(x, dim), torch.nan)


class _OtherShift(OracleDefect):
    """What is subtracted is not the maximum: right wherever nothing overflows float32, and NaN elsewhere."""

    def subtracted(self, x: Tensor, dim: int) -> Tensor:
        raise NotImplementedError

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        largest = (x - self.subtracted(x, dim)).amax(dim, keepdim=True)
        fits = largest < math.log(torch.finfo(torch.float32).max)  # false for the NaN of -inf - -inf too
        return torch.where(fits, super().softmax(x, dim), torch.nan)


@defect(
    "softmax-mean-subtracted",
    Place.ATTENTION,
    hint="exp of 100 does not fit a float32: after which subtraction is no entry above zero?",
    steps=("Take the softmax of (0, 0, 1000).", "Take the softmax of (0, -inf), which a mask makes."),
)
class SoftmaxMeanSubtracted(_OtherShift):
    """The mean is subtracted where the maximum must be, so an entry far above the others still overflows, and a hidden
    score of -inf makes every entry infinite.
    """

    def subtracted(self, x: Tensor, dim: int) -> Tensor:
        return x.mean(dim, keepdim=True)


@defect(
    "softmax-minimum-subtracted",
    Place.ATTENTION,
    hint="exp of 100 does not fit a float32: after which subtraction is no entry above zero?",
    steps=("Take the softmax of (0, 0, 1000).", "Take the softmax of (0, -inf), which a mask makes."),
)
class SoftmaxMinimumSubtracted(_OtherShift):
    """The minimum is subtracted where the maximum must be, so an entry far above it still overflows, and a hidden score
    of -inf makes every entry infinite.
    """

    def subtracted(self, x: Tensor, dim: int) -> Tensor:
        return x.amin(dim, keepdim=True)


@defect(
    "softmax-dim-ignored",
    Place.ATTENTION,
    hint="Is the dim that comes in the dim that is used, everywhere it is needed?",
    steps=("Take the softmax of a (2, 3) tensor over dim 0: the columns must sum to one.",),
)
class SoftmaxDimIgnored(AdaptersDefect):
    """The softmax always runs over the last axis, whatever dim says."""

    def run_softmax(self, in_features: Tensor, dim: int) -> Tensor:
        return super().run_softmax(in_features, -1)


@defect(
    "softmax-sums-over-last-axis",
    Place.ATTENTION,
    hint="Two lines of a softmax name an axis: do both name the same?",
    steps=("Take the softmax of a (2, 3) tensor over dim 0: the columns must sum to one.",),
)
class SoftmaxSumsOverLastAxis(OracleDefect):
    """The maximum is taken along dim, but the sum always runs over the last axis."""

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        powers = torch.exp(x - x.amax(dim, keepdim=True))
        return powers / powers.sum(-1, keepdim=True)


@defect(
    "softmax-maximum-of-last-axis",
    Place.ATTENTION,
    hint="Two lines of a softmax name an axis: do both name the same?",
    steps=("Take the softmax of a (2, 3) tensor over dim 0: the columns must sum to one.",),
)
class SoftmaxMaximumOfLastAxis(OracleDefect):
    """The sum runs along dim, but the maximum that is subtracted is always that of the last axis, so it does not
    cancel.
    """

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        powers = torch.exp(x - x.amax(-1, keepdim=True))
        return powers / powers.sum(dim, keepdim=True)


@defect(
    "softmax-overwrites-input",
    Place.ATTENTION,
    hint="A function that ends in an underscore, or -= on an argument, changes what the caller holds.",
    steps=("Keep a copy of the input, call your softmax, and compare.",),
)
class SoftmaxOverwritesInput(AdaptersDefect):
    """The maximum is subtracted in place, so the caller's own tensor is changed; the result is right."""

    def run_softmax(self, in_features: Tensor, dim: int) -> Tensor:
        result = super().run_softmax(in_features, dim)
        with torch.no_grad():
            in_features -= in_features.amax(dim, keepdim=True)
        return result


@defect(
    "softmax-shift-by-a-constant",
    Place.ATTENTION,
    hint="Nothing to fix.",
    equivalent="a constant added to every kept score cancels between numerator and denominator",
)
class SoftmaxShiftByAConstant(OracleDefect):
    """A constant is added to all scores, as an additive mask with a constant on the kept entries does."""

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        return super().scores(query, keys) + 3.0
