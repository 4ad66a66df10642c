"""What a mistake of accounting is: a change of the ledger, or a slip of unit, with the words that tell it.

Imports no torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction

from cs336_harness.cost.ledger import BYTES, FLOPS, PARAMETERS, Ledger

WEIGHTS = frozenset((PARAMETERS, BYTES))
WORK = frozenset((FLOPS,))
BOTH = WEIGHTS | WORK

_LIST_THE_WEIGHTS = ("Write down the name and the size of every weight of a one-layer decoder, and add.",)
_LIST_THE_PRODUCTS = (
    "List the matrix multiplies of one layer with their sizes (m, k) times (k, n); each costs 2mkn.",
    "There are four projections, two products in attention and three in the feed-forward; the head "
    "comes once, at the end.",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """One mistake in what is counted.

    ``phrase`` is how it reads after "this is the count ..."; what stands behind its semicolon is the reason. In it,
    ``{ledger}`` is the true ledger and ``{d_ff}`` what ``d_ff`` gives. ``change`` takes the true ledger to that of
    somebody who makes the mistake, and leaves alone a decoder in which there is nothing to get wrong.

    ``prose`` holds the dimensions in which a written number can show it; a share shows what its parts show. ``code``
    holds those in which a closed form can, parameters for ``run_parameter_count`` and FLOPs for ``run_forward_flops``:
    the fault dictionary takes its entries from there. ``usual`` marks what published answers get wrong most; it is
    named even on few digits.
    """

    name: str
    phrase: str
    explanation: str
    hint: str
    change: Callable[[Ledger], Ledger]
    prose: frozenset[str] = frozenset()
    code: frozenset[str] = frozenset()
    steps: tuple[str, ...] = ()
    usual: bool = False
    d_ff: Callable[[int], int | None] | None = None

    def steps_in(self, dimension: str) -> tuple[str, ...]:
        """What a teaching assistant would have one try: its own steps, then those for all counts of this dimension."""
        return (*self.steps, *(_LIST_THE_PRODUCTS if dimension in WORK else _LIST_THE_WEIGHTS))

    def said_of(self, ledger: Ledger) -> str:
        """The phrase, with the numbers of one decoder."""
        d_ff = self.d_ff(ledger.shape.d_model) if self.d_ff else None
        return self.phrase.format(ledger=ledger, d_ff=d_ff)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """One mistake of unit, of precision or of scope: the right number times ``factor``."""

    name: str
    phrase: str
    hint: str
    factor: Fraction
    usual: bool = False

    def said_of(self, ledger: Ledger) -> str:
        """The phrase; it depends on no decoder."""
        return self.phrase
