"""The verdicts on a number or a question, and what becomes of a number."""

from __future__ import annotations

import dataclasses

from cs336_harness.cost.quantities import Quantity
from cs336_harness.writeup.evidence import Claim

RIGHT, WRONG, MISSING, UNRECOGNISED, LEFT_OUT = "right", "wrong", "missing", "not recognised", "left out"


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One number and what became of it: what it was held against, and the mistakes that fit, if any does.

    ``follows`` is the line of the wrong number that this one was worked out from, where it was.
    """

    claim: Claim
    verdict: str
    quantity: Quantity | None
    hints: tuple[str, ...] = ()
    follows: int | None = None

    @property
    def line(self) -> int:
        """The line of the write-up that the number stands on."""
        return self.claim.line

    @property
    def dimension(self) -> str | None:
        """What the number was taken to count, if it was taken for anything."""
        return self.quantity.dimension if self.quantity else None

    @property
    def components(self) -> frozenset[str]:
        """The components that it was taken to count."""
        return self.quantity.measure.components if self.quantity else frozenset()
