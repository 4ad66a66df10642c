"""Names the mistake that reproduces a wrong number, and says nothing when none does."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from fractions import Fraction

from cs336_harness.writeup.ledger import EVERYTHING, Ledger
from cs336_harness.writeup.mistakes import Mistake, Slip, ledger_mistakes, slips
from cs336_harness.writeup.numbers import BYTES, FLOPS, PARAMETERS, SHARE, Written

_NOUNS = {PARAMETERS: "the count", BYTES: "the memory", FLOPS: "the FLOP count", SHARE: "the share"}
_MOST_NAMED = 3


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
    def true(self) -> Fraction:
        """The right number, in base units."""
        return self.predicted(self.ledger)

    def predicted(self, ledger: Ledger) -> Fraction:
        """The number that another ledger gives for this role."""
        if self.dimension == SHARE:
            whole = ledger.amount(self.share_of, EVERYTHING, "model")
            return Fraction(ledger.amount(self.share_of, self.components, "model"), whole or 1)
        amount = ledger.amount(self.dimension, self.components, self.scope)
        return Fraction(amount * (self.bytes_per_value if self.dimension == BYTES else 1))


def diagnose(written: Written, role: Role) -> list[str]:
    """Sentences that name the mistakes that give exactly this number, to the digits that were written.

    Single mistakes first; pairs only where none of them fits and the number has digits enough to tell pairs apart;
    three together only for a number that was written out in full.
    """
    if rounding := _rounding(written, role.true):
        return [rounding]
    precision = written.step / written.value if written.value else Fraction(1)
    mistakes: list[Mistake | Slip] = [m for m in ledger_mistakes(role.ledger) if role.dimension in m.dimensions]
    mistakes += slips(role.dimension, written.unit, role.ledger, role.bytes_per_value, role.scope)
    mistakes.sort(key=lambda mistake: not mistake.usual)
    usual = [mistake for mistake in mistakes if mistake.usual]
    named: list[tuple[Mistake | Slip, ...]] = []
    for size, pool in _attempts(precision, mistakes, usual):
        found = list(_fitting(written, role, itertools.combinations(pool, size)))
        if len(found) > _MOST_NAMED and size > 1 and precision:
            # So many fit because the number has too few digits, and one of them by name would be a guess.
            found = []
        if precision and any(mistake.usual for combination in found for mistake in combination):
            # On few digits an unusual mistake fits beside a usual one by chance.
            found = [combination for combination in found if all(mistake.usual for mistake in combination)]
        named += found
        # An unusual mistake alone does not rule out two usual ones together.
        if named and (size > 1 or any(mistake.usual for mistake in named[0])):
            break
    return [_sentence(role, named[:_MOST_NAMED])] if named else []


def _attempts(
    precision: Fraction, mistakes: list[Mistake | Slip], usual: list[Mistake | Slip]
) -> Iterator[tuple[int, list[Mistake | Slip]]]:
    # A number of two digits fits something by chance; how many may be tried depends on the digits that were written.
    yield 1, mistakes if precision <= Fraction(2, 100) else usual
    if precision <= Fraction(1, 1000):
        yield 2, usual
    if precision <= Fraction(1, 50000):
        yield 2, mistakes
    if precision == 0:
        yield 3, usual


def _fitting(
    written: Written, role: Role, tries: Iterable[tuple[Mistake | Slip, ...]]
) -> Iterator[tuple[Mistake | Slip, ...]]:
    alone: dict[str, Fraction] = {}
    for combination in tries:
        ledger = role.ledger
        factor = Fraction(1)
        summed = role.true
        for mistake in combination:
            if isinstance(mistake, Slip):
                factor *= mistake.factor
                continue
            ledger = mistake.change(ledger)
            if mistake.name not in alone:
                alone[mistake.name] = role.predicted(mistake.change(role.ledger))
            summed += alone[mistake.name] - role.true
        # Whoever forgets a matrix may still have counted its bias: together, or each on its own.
        given = {role.predicted(ledger) * factor, summed * factor} - {role.true, Fraction(0)}
        if any(map(written.matches, given)) and _each_counts(combination, alone, role):
            yield combination


def _each_counts(combination: tuple[Mistake | Slip, ...], alone: dict[str, Fraction], role: Role) -> bool:
    """Whether every mistake of several changes the number: one that does not is no part of the explanation."""
    return all(isinstance(mistake, Slip) or alone[mistake.name] != role.true for mistake in combination)


def _sentence(role: Role, named: list[tuple[Mistake | Slip, ...]]) -> str:
    noun = _NOUNS[role.dimension]
    first, *others = (_joined([mistake.phrase.partition("; ")[0] for mistake in combination]) for combination in named)
    sentence = f"This is {noun} {first}."
    # The reason stands behind a phrase's semicolon; it is a sentence of its own once phrases are put together.
    for reason in dict.fromkeys(mistake.phrase.partition("; ")[2] for mistake in named[0]):
        sentence += f" {reason[0].upper()}{reason[1:]}." if reason else ""
    if others:
        sentence += f" It is also consistent with {noun} {', or '.join(others)}."
    return sentence


def _joined(phrases: list[str]) -> str:
    return phrases[0] if len(phrases) == 1 else f"{', '.join(phrases[:-1])} and {phrases[-1]}"


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
