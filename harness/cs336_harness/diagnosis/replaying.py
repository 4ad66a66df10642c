"""Whether known mistakes explain a failed check: a decoder that has them, and no other, is put through the check."""

from __future__ import annotations

import re
from collections.abc import Iterable

import torch
from torch import Tensor

from cs336_harness.checks import Check
from cs336_harness.defects import Defect, contradiction, subject_of
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE
from cs336_harness.subject.failures import CheckFailure, Evidence

CLOSE = 1e-3
"""Two wrong results are one when they are this much nearer to each other than to the right one: what float32 makes of
large wrong numbers is not bounded by the noise of right ones."""

NEAR_FOR_FEW_BITS = 0.2
"""The same where few bits are kept, on average: float32 decides which way a value is rounded."""


def reproduced(check: Check, failure: CheckFailure, defects: Iterable[type[Defect]]) -> bool:
    """Whether a decoder that has these known mistakes, and no other, fails the check in the very same way."""
    defects = tuple(defects)
    if not defects or contradiction(*defects) is not None:
        return False
    try:
        with torch.random.fork_rng(devices=[]):
            check(subject_of(*defects))
    except CheckFailure as expected:
        return _same_failure(failure, expected, any(defect.rounds for defect in defects))
    except Exception:
        return False
    return False


def _same_failure(failure: CheckFailure, expected: CheckFailure, few_bits: bool) -> bool:
    seen, known = failure.evidence, expected.evidence
    if seen.influence is not None or known.influence is not None:
        return _same_picture(seen, known)
    if isinstance(seen.actual, Tensor) and isinstance(known.actual, Tensor):
        return _same_numbers(seen, known, few_bits)
    if failure.__cause__ is not None or expected.__cause__ is not None:
        return type(failure.__cause__) is type(expected.__cause__)
    return _integers_kept(failure.message) == _integers_kept(expected.message)


def _same_picture(seen: Evidence, known: Evidence) -> bool:
    """Whether nearly the same tokens reach, or miss, the same positions."""
    if seen.influence is None or known.influence is None:
        return False
    ours, theirs = set(seen.influence.wrong()), set(known.influence.wrong())
    return len(ours & theirs) >= 0.9 * len(ours | theirs)


def _same_numbers(seen: Evidence, known: Evidence, few_bits: bool) -> bool:
    actual, expected, right = (t.detach().to(torch.float64) for t in (seen.actual, known.actual, known.expected))
    if actual.shape != expected.shape or not torch.equal(actual.isfinite(), expected.isfinite()):
        return False
    gap, effect = (difference.abs().nan_to_num(0.0, 0.0, 0.0) for difference in (actual - expected, expected - right))
    if not gap.numel():
        return True
    if few_bits:
        return float(gap.mean()) <= NEAR_FOR_FEW_BITS * float(effect.mean())
    noise = float(effect.max()) / known.error_in_noise if known.error_in_noise else 0.0
    return float(gap.max()) <= max(CLOSE * float(effect.max()), TOLERANCE_IN_NOISE * noise)


def _integers_kept(message: str) -> str:
    """A message without the numbers that rounding can change."""
    return re.sub(r"[-+]?\d+(\.\d+(e[-+]?\d+)?|e[-+]?\d+)", "#", message)
