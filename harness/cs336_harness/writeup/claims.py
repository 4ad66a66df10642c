"""Every number that says something about cost: what it may stand for, and what became of it."""

from __future__ import annotations

import dataclasses

from cs336_harness.cost.ledger import FLOPS, PARAMETERS
from cs336_harness.cost.quantities import Quantity
from cs336_harness.writeup.numbers import Written

PART_DIMENSIONS = {"a": PARAMETERS, "b": FLOPS, "c": FLOPS, "d": FLOPS, "e": FLOPS}
"""What a bare number of a part is most likely about."""
RIGHT, WRONG, MISSING, UNRECOGNISED, LEFT_OUT = "right", "wrong", "missing", "not recognised", "left out"


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """A number and what it may stand for.

    ``readings`` are sets of components, the likeliest first; empty when the text names none. ``scopes`` holds ``layer``
    and ``model`` as far as the text leaves them open. ``certain`` is whether label or sentence says plainly, in known
    words only, what the number is, ``sure`` whether they say what it counts, and ``aside`` whether they speak of
    something that was not asked. ``models`` and ``lengths`` are those that the text names for it; none when it names
    none. ``formula`` is the expression whose value the number is said to be. ``shapeless`` marks words without a verb,
    as of a row that has lost its table.
    """

    number: Written
    line: int
    part: str | None
    dimension: str | None
    readings: tuple[frozenset[str], ...]
    scopes: frozenset[str]
    label: str
    context: str
    certain: bool
    sure: bool = True
    aside: bool = False
    models: frozenset[str] = frozenset()
    lengths: frozenset[int] = frozenset()
    of_block: bool = False
    before_and_after: bool = False
    formula: str = ""
    table: int | None = None
    column: int | None = None
    each: bool = False
    shapeless: bool = False
    paragraph: str = ""


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
