"""Names the mistake that reproduces a wrong number, and says nothing when none does."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from fractions import Fraction

from cs336_harness.cost.ledger import BYTES, FLOPS, PARAMETERS, RATIO, SHARE
from cs336_harness.cost.measure import Explanation, explanations, sentence
from cs336_harness.cost.quantities import Quantity
from cs336_harness.writeup.numbers import Written

_NOUNS = {
    PARAMETERS: "the count",
    BYTES: "the memory",
    FLOPS: "the FLOP count",
    SHARE: "the share",
    RATIO: "the ratio",
}


def diagnose(written: Written, quantity: Quantity, together: Mapping[Explanation, int]) -> list[str]:
    """Sentences that name the mistakes that give exactly this number, to the digits that were written.

    ``together`` is how many numbers of the answer each mistake gives: the likelier it is, the earlier it is named.
    """
    if rounding := _rounding(written, quantity.value):
        return [rounding]
    named = sorted(explained(written, quantity), key=lambda named: -together.get(named, 0))
    return [sentence(_NOUNS[quantity.dimension], named, quantity.case.ledger)] if named else []


@functools.lru_cache(maxsize=1024)
def explained(written: Written, quantity: Quantity) -> list[Explanation]:
    """The mistakes that give exactly this number, at most three ways."""
    from cs336_harness.cost.mistakes import mistakes_in, slips  # most answers make none

    measure, ledger = quantity.measure, quantity.case.ledger
    precision = written.step / written.value if written.value else Fraction(1)
    of_unit = slips(measure.dimension, written.unit, ledger, measure.bytes_per_value, measure.scope)
    return explanations(measure, ledger, [*mistakes_in(measure.what), *of_unit], written.matches, precision)


def _rounding(written: Written, true: Fraction) -> str | None:
    step = written.step
    if step and true // step * step == written.value:
        return "The digits were cut off, not rounded."
    if written.value.denominator == 1 and written.value:
        digits = str(written.value.numerator)
        coarse = Fraction(10 ** (len(digits) - len(digits.rstrip("0"))))
        if coarse > max(step, 1) and 2 * abs(written.value - true) <= coarse:
            return "It is rounded, but written as if every digit were meant: say 'about', or write fewer digits."
    return None
