"""How many times as much ("the total becomes 38 times as large"), and which way a share goes ("the head falls")."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from fractions import Fraction

from cs336_harness.cost.ledger import BLOCK, EVERYTHING, FLOPS, MODEL, SHARE, components_of
from cs336_harness.cost.quantities import Case, Quantity, quantity
from cs336_harness.writeup.books import Books, measure, share_of_model
from cs336_harness.writeup.claims import RIGHT, UNRECOGNISED, WRONG, Claim, Finding
from cs336_harness.writeup.document import Document, Passage
from cs336_harness.writeup.lexicon import find_mentions, is_aside, readings_of_mentions, unknown_words
from cs336_harness.writeup.numbers import Written
from cs336_harness.writeup.words import any_of, says


def growth(books: Books, components: frozenset[str]) -> Quantity | None:
    """How the FLOPs of some components grow from the context of the model to that of part (e)."""
    counted = components_of(FLOPS, components)
    return quantity(measure(FLOPS, counted, MODEL), books.long, books.main) if counted else None


def judge_ratio(claim: Claim, books: Books) -> Finding:
    """A ratio between the long context of part (e) and the short one."""
    number = claim.number
    said = [role for components in claim.readings if (role := growth(books, components))]
    for role in said:
        if number.matches(role.value):
            return Finding(claim, RIGHT, role)
    about_length = claim.part == "e" or books.long_length in claim.lengths
    before = claim.context[: number.start]
    if said and about_length and claim.certain and not says("of_the_length", _after_mention(before)):
        return Finding(claim, WRONG, said[0], _why(number, books))
    if _says_of_the_total(claim, books):
        return Finding(claim, WRONG, growth(books, EVERYTHING), _why(number, books))
    for components in (frozenset(("w1",)), frozenset(("scores",)), EVERYTHING):
        role = growth(books, components)
        if role and number.matches(role.value) and about_length:
            return Finding(claim, RIGHT, role)
    return Finding(claim, UNRECOGNISED, None)


def _says_of_the_total(claim: Claim, books: Books) -> bool:
    """Whether a total is said to grow as the length or its square does, whatever else the sentence says."""
    before = claim.context[: claim.number.start]
    named = [mention.readings for mention in find_mentions(before)]
    return (
        claim.part == "e"
        and not claim.aside
        and bool(_why(claim.number, books))
        and bool(named)
        and set(named) == {(EVERYTHING,)}
        and not says("of_the_length", _after_mention(before))
    )


def _after_mention(before: str) -> str:
    mentions = find_mentions(before)
    return before[mentions[-1].end :] if mentions else before


def _why(number: Written, books: Books) -> tuple[str, ...]:
    longer = Fraction(books.long.sequence_length, books.main.sequence_length)
    if number.matches(longer):
        return ("That is how the length grows; the T² terms grow with its square, so not everything grows alike.",)
    if number.matches(longer**2):
        return ("Only the two T² terms grow with the square of the length; everything else grows with the length.",)
    return ()


def judge_trends(document: Document, books: Books) -> list[Finding]:
    """A finding for every clause of (d) and (e) that says which way a component's share goes."""
    return [
        finding
        for block in document.blocks
        if isinstance(block, Passage) and block.part in ("d", "e")
        for finding in _trends_of(block, books)
    ]


def _trends_of(passage: Passage, books: Books) -> Iterator[Finding]:
    text = any_of("as_it_grows").sub(lambda match: " " * len(match.group(0)), passage.content.words)
    if (
        not _of_share(text)
        or says("backwards", text)
        or is_aside(any_of("falls").sub("", any_of("rises").sub("", text)))
    ):
        return
    cases = list(books.models.values()) if passage.part == "d" else [books.main, books.long]
    for start, clause in _clauses(text):
        mentions = find_mentions(clause)
        verbs = [
            (match, up) for sign, up in (("rises", True), ("falls", False)) for match in any_of(sign).finditer(clause)
        ]
        readings = [reading for reading in readings_of_mentions(mentions) if not reading >= BLOCK - {"ln1", "ln2"}]
        if len(verbs) != 1 or not readings or len(mentions) > 2 or (says("amount", clause) and not _of_share(clause)):
            continue
        match, rises = verbs[0]
        directions = [_direction(reading, cases) for reading in readings]
        if rises in directions:
            yield _finding(passage, match, start, RIGHT, readings[directions.index(rises)], cases)
        elif set(directions) == {not rises} and not unknown_words(_without_share(clause.replace(match.group(0), ""))):
            yield _finding(passage, match, start, WRONG, readings[0], cases)


def _of_share(text: str) -> bool:
    return says("share", text) or says("relative", text)


def _without_share(text: str) -> str:
    return any_of("share").sub("", any_of("relative").sub("", text))


def _clauses(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for match in any_of("clause").finditer(text):
        yield start, text[start : match.start()]
        start = match.end()
    yield start, text[start:]


def _direction(components: frozenset[str], cases: Sequence[Case]) -> bool | None:
    """Whether a share grows from ledger to ledger; None where it does neither throughout."""
    shares = [share_of_model(components).of(case.ledger) for case in cases]
    pairs = list(itertools.pairwise(shares))
    if all(one < other for one, other in pairs):
        return True
    return False if all(one > other for one, other in pairs) else None


def _finding(
    passage: Passage, match: re.Match[str], start: int, verdict: str, components: frozenset[str], cases: Sequence[Case]
) -> Finding:
    said = Written(
        match.group(0), Fraction(0), Fraction(0), SHARE, "", start + match.start(), start + match.end(), working=False
    )
    line = passage.line_of(start + match.start())
    claim = Claim(
        said, line, passage.part, SHARE, (components,), frozenset((MODEL,)), "", passage.content.words, certain=True
    )
    role = quantity(share_of_model(components), cases[-1])
    first, last = (float(100 * role.measure.of(case.ledger)) for case in (cases[0], cases[-1]))
    hints = (f"It goes the other way: {'up' if last > first else 'down'}.",) if verdict == WRONG else ()
    return Finding(claim, verdict, role, hints)
