"""How many times as much ("the total becomes 38 times as large"), and which way a share goes ("the head falls")."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction

from cs336_harness.cost.ledger import BLOCK, BLOCK_NORMS, EVERYTHING, FLOPS, MODEL, SHARE, components_of
from cs336_harness.cost.quantities import Case, Quantity, quantity
from cs336_harness.writeup.books import Books, measure
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


def judge_trends(document: Document, books: Books) -> Iterator[Finding]:
    """A finding for every clause of (d) and (e) that says which way a component's share goes."""
    for block in document.blocks:
        if isinstance(block, Passage) and block.part in ("d", "e"):
            yield from _trends_of(block, books)


def _trends_of(passage: Passage, books: Books) -> Iterator[Finding]:
    text = any_of("as_it_grows").sub(lambda match: " " * len(match.group(0)), passage.content.words)
    said_otherwise = says("backwards", text) or is_aside(_without(text, "rises", "falls"))
    if said_otherwise or not _of_share(text):
        return
    cases = list(books.models.values()) if passage.part == "d" else [books.main, books.long]
    ends = [match.span() for match in any_of("clause").finditer(text)]
    for start, end in zip([0, *(end for _, end in ends)], [*(start for start, _ in ends), len(text)], strict=True):
        clause = text[start:end]
        mentions = find_mentions(clause)
        verbs = [(match, sign) for sign in ("rises", "falls") for match in any_of(sign).finditer(clause)]
        readings = [reading for reading in readings_of_mentions(mentions) if not reading >= BLOCK - BLOCK_NORMS]
        if len(verbs) != 1 or not readings or len(mentions) > 2 or (says("amount", clause) and not _of_share(clause)):
            continue
        verb, said = verbs[0]
        directions = [_direction(reading, cases) for reading in readings]
        rest = _without(clause.replace(verb.group(0), ""), "relative", "share")
        if said in directions:
            meant, hints = readings[directions.index(said)], ()
        elif len(set(directions)) == 1 and directions[0] and not unknown_words(rest):
            meant = readings[0]
            hints = (f"It goes the other way: {'up' if directions[0] == 'rises' else 'down'}.",)
        else:
            continue
        at = start + verb.start(), start + verb.end()
        number = Written(verb.group(0), Fraction(0), Fraction(0), SHARE, "", *at, working=False)
        line, words = passage.line_of(at[0]), passage.content.words
        claim = Claim(number, line, passage.part, SHARE, (meant,), frozenset((MODEL,)), "", words, certain=True)
        role = quantity(measure(SHARE, meant, MODEL), cases[-1])
        yield Finding(claim, WRONG if hints else RIGHT, role, hints)


def _of_share(text: str) -> bool:
    return says("share", text) or says("relative", text)


def _without(text: str, *signs: str) -> str:
    for sign in signs:
        text = any_of(sign).sub("", text)
    return text


def _direction(components: frozenset[str], cases: Sequence[Case]) -> str | None:
    """Whether a share rises or falls from case to case; None where it does neither throughout."""
    shares = [measure(SHARE, components, MODEL).of(case.ledger) for case in cases]
    ways = {"rises" if one < other else "falls" if one > other else "" for one, other in itertools.pairwise(shares)}
    return ways.pop() or None if len(ways) == 1 else None
