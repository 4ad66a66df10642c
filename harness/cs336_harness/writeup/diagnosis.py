"""Names the mistake that reproduces a wrong number, and says nothing when none does."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from cs336_harness.cost.ledger import BYTES, EVERYTHING, FLOPS, PARAMETERS, SHARE, Ledger
from cs336_harness.cost.measure import Measure, explanations, sentence
from cs336_harness.cost.mistake import Mistake, Slip
from cs336_harness.cost.mistakes import mistakes_in, slips
from cs336_harness.writeup.numbers import Written

_NOUNS = {PARAMETERS: "the count", BYTES: "the memory", FLOPS: "the FLOP count", SHARE: "the share"}


@dataclasses.dataclass(frozen=True, slots=True)
class Role:
    """What a number claims to be: some components, in one ``layer`` or the ``model``, in a dimension, by a ledger."""

    dimension: str
    components: frozenset[str]
    scope: str
    ledger: Ledger
    bytes_per_value: int = 4
    share_of: str = FLOPS

    @property
    def measure(self) -> Measure:
        """What the number measures, whichever ledger it is read off."""
        if self.dimension == SHARE:
            return Measure(SHARE, self.components, counted=self.share_of, whole=EVERYTHING)
        return Measure(self.dimension, self.components, self.scope, self.bytes_per_value)

    @property
    def true(self) -> Fraction:
        """The right number, in base units."""
        return self.measure.of(self.ledger)


def diagnose(written: Written, role: Role) -> list[str]:
    """Sentences that name the mistakes that give exactly this number, to the digits that were written."""
    if rounding := _rounding(written, role.true):
        return [rounding]
    precision = written.step / written.value if written.value else Fraction(1)
    measure = role.measure
    mistakes: list[Mistake | Slip] = [
        *mistakes_in(measure.what),
        *slips(role.dimension, written.unit, role.ledger, role.bytes_per_value, role.scope),
    ]
    named = explanations(measure, role.ledger, mistakes, written.matches, precision)
    return [sentence(_NOUNS[role.dimension], named, role.ledger)] if named else []


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
