"""What a number about cost measures, and which mistakes give exactly a wrong one. Imports no torch."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction

from cs336_harness.cost.ledger import BYTES, MODEL, RATIO, SHARE, Ledger, components_of
from cs336_harness.cost.mistake import Mistake, Slip

Explanation = tuple[Mistake | Slip, ...]
"""Mistakes that give a number, all of them at once."""

MOST_NAMED = 3


@dataclasses.dataclass(frozen=True, slots=True)
class Measure:
    """What is measured: a dimension, the components that are added up, and the scope.

    ``scope`` is ``layer`` (one block) or ``model`` (all of it). A share or a ratio is that of ``components`` to
    ``whole``, both of them amounts of ``counted`` (parameters or FLOPs) at the same scope. ``per_token`` divides FLOPs
    by B·T.
    """

    dimension: str
    components: frozenset[str]
    scope: str = MODEL
    bytes_per_value: int = 4
    per_token: bool = False
    counted: str = ""
    whole: frozenset[str] = frozenset()

    def of(self, ledger: Ledger) -> Fraction:
        """The number by a ledger, in base units: parameters, bytes, FLOPs, a share of one, times."""
        counted = self.what
        amount = ledger.amount(counted, components_of(counted, self.components), self.scope)
        if self.dimension in (SHARE, RATIO):
            return Fraction(amount, ledger.amount(counted, components_of(counted, self.whole), self.scope) or 1)
        if self.dimension == BYTES:
            return Fraction(amount * self.bytes_per_value)
        return Fraction(amount, ledger.tokens) if self.per_token else Fraction(amount)

    @property
    def what(self) -> str:
        """The dimension whose amounts are added up: of a share or a ratio, that of its two sides."""
        return self.counted or self.dimension


def explanations(
    measure: Measure,
    ledger: Ledger,
    mistakes: Iterable[Mistake | Slip],
    fits: Callable[[Fraction], bool],
    precision: Fraction,
) -> list[Explanation]:
    """The mistakes that give a number that ``fits``, at most three ways.

    Single mistakes come first; pairs only where none of them fits and the number has digits enough to tell pairs apart;
    three together only for a number that was written out in full. ``precision`` is the last written digit relative to
    the number, 0 for one that was written out.
    """
    pool = sorted(mistakes, key=lambda mistake: not mistake.usual)
    usual = [mistake for mistake in pool if mistake.usual]
    named: list[Explanation] = []
    for size, tried in _attempts(precision, pool, usual):
        found = list(_fitting(measure, ledger, itertools.combinations(tried, size), fits))
        if len(found) > MOST_NAMED and size > 1 and precision:
            # So many fit because the number has too few digits, and one of them by name would be a guess.
            found = []
        if precision and any(mistake.usual for combination in found for mistake in combination):
            # On few digits an unusual mistake fits beside a usual one by chance.
            found = [combination for combination in found if all(mistake.usual for mistake in combination)]
        named += found
        # An unusual mistake alone does not rule out two usual ones together.
        if named and (size > 1 or any(mistake.usual for mistake in named[0])):
            break
    return named[:MOST_NAMED]


def _attempts(
    precision: Fraction, pool: list[Mistake | Slip], usual: list[Mistake | Slip]
) -> Iterator[tuple[int, list[Mistake | Slip]]]:
    # A number of two digits fits something by chance; how many may be tried depends on the digits that were written.
    yield 1, pool if precision <= Fraction(2, 100) else usual
    if precision <= Fraction(1, 1000):
        yield 2, usual
    if precision <= Fraction(1, 50000):
        yield 2, pool
    if precision == 0:
        yield 3, usual


def _fitting(
    measure: Measure, ledger: Ledger, tries: Iterable[Explanation], fits: Callable[[Fraction], bool]
) -> Iterator[Explanation]:
    true = measure.of(ledger)
    alone: dict[str, Fraction] = {}
    for combination in tries:
        changed = ledger
        factor = Fraction(1)
        summed = true
        for mistake in combination:
            if isinstance(mistake, Slip):
                factor *= mistake.factor
                continue
            changed = mistake.change(changed)
            if mistake.name not in alone:
                alone[mistake.name] = measure.of(mistake.change(ledger))
            summed += alone[mistake.name] - true
        if any(isinstance(mistake, Mistake) and alone[mistake.name] == true for mistake in combination):
            continue  # a mistake that does not change the number is no part of the explanation
        # Whoever forgets a matrix may still have counted its bias: together, or each on its own.
        given = {measure.of(changed) * factor, summed * factor} - {true, Fraction(0)}
        if any(map(fits, given)):
            yield combination


def sentence(noun: str, named: list[Explanation], ledger: Ledger) -> str:
    """The explanations as a sentence or two: "This is the count without the head. ..."."""
    first, *others = dict.fromkeys(
        _joined([mistake.said_of(ledger).partition("; ")[0] for mistake in combination]) for combination in named
    )
    said = f"This is {noun} {first}."
    # The reason stands behind a phrase's semicolon; it is a sentence of its own once phrases are put together.
    for reason in dict.fromkeys(mistake.said_of(ledger).partition("; ")[2] for mistake in named[0]):
        said += f" {reason[0].upper()}{reason[1:]}." if reason else ""
    if others:
        said += f" It is also consistent with {noun} {', or '.join(others)}."
    return said


def _joined(phrases: list[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"
