"""The claims of a sentence: numbers by their unit and by the components that the sentence names beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cs336_harness.cost.ledger import BLOCK, EVERYTHING
from cs336_harness.writeup.claims import PART_DIMENSIONS, Claim, dimensions_in, model_named
from cs336_harness.writeup.document import Passage
from cs336_harness.writeup.mentions import (
    Mention,
    find_mentions,
    readings_of_label,
    readings_of_mentions,
    scopes_of,
    without_groups,
)
from cs336_harness.writeup.numbers import BYTES, FLOPS, OTHER, PARAMETERS, Written, find_numbers

_COUNTED = (FLOPS, BYTES, PARAMETERS)
_TIMES_LAYERS = re.compile(r"(?:[×*]|\btimes)\s*(?:L|\d{1,3})\s*(?:layers|blocks)?\s*[=≈]\s*$")
_RESULT = re.compile(
    r"\b(?:makes?|gives?|yields?|we get|we have|comes? to|adds? up to|amounts? to|sums? to|totals?|for a total of)"
    r"\s+(?:a total of\s+|about\s+|roughly\s+|≈\s*|~\s*|\*{2})*$",
    re.I,
)
_JOINED_BEHIND = re.compile(
    r"\s*(?:of (?:the |all |its )*(?:flops?|compute|cost|work|parameters)?)?\s*"
    r"(?:(?:is|are|was|were)\s+)?(?:goes?|go|spent|used|comes?|come|lies?|sits?)?\s*"
    r"(?:in|into|on|for|to|from|by|with|per)\s+(?:the\s+|its\s+|all\s+)?(?:\w+\s+){0,2}",
    re.I,
)


def claims_of_passage(passage: Passage) -> Iterator[Claim]:
    """Every number of a sentence, a list item or a line of code that says something about cost."""
    content = passage.content
    numbers = [number for number in find_numbers(content.text) if not number.working and _worth_reading(number)]
    if not numbers:
        return
    label = readings_of_label(passage.label.text) if passage.label else []
    label_end = len(passage.label.text) if passage.label else 0
    mentions = find_mentions(content.words)
    scopes = scopes_of(content.words) or scopes_of(passage.heading.rpartition(" / ")[2])
    for number in numbers:
        times_layers = _TIMES_LAYERS.search(content.text[max(0, number.start - 40) : number.start])
        readings, firm = _associated(number, numbers, mentions, content.words, label, label_end)
        yield Claim(
            number,
            passage.line_of(number.start),
            passage.part,
            number.dimension or _dimension_near(number, _without_memory(content.words, numbers), passage),
            tuple(readings),
            frozenset({"model"} if times_layers else scopes if len(scopes) == 1 else {"layer", "model"}),
            (passage.label.text.strip() if passage.label else ""),
            content.words,
            firm,
            model=model_named(content.text) or model_named(passage.intro) or model_named(passage.heading),
            each=bool(re.search(r"\beach\b", content.words)),
            paragraph=passage.intro,
            in_list=passage.in_list,
        )


def _worth_reading(number: Written) -> bool:
    if number.dimension == OTHER:
        return False
    if number.dimension in (PARAMETERS, BYTES, FLOPS):
        return number.value >= 1000
    return number.dimension is not None or number.value >= 100_000


def _dimension_near(number: Written, words: str, passage: Passage) -> str | None:
    near = [(abs(place - number.end), name) for place, name in dimensions_in(words) if name in _COUNTED]
    if near:
        return min(near)[1]
    for text in (passage.intro if passage.in_list else "", passage.heading.rpartition(" / ")[2]):
        said = [name for _, name in dimensions_in(text) if name in _COUNTED]
        if said:
            return said[0]
    return PART_DIMENSIONS.get(passage.part or "")


def _without_memory(words: str, numbers: list[Written]) -> str:
    """The words without the memory that other numbers state: GB behind one number says nothing of the next."""
    for other in numbers:
        if other.dimension == BYTES:
            words = words[: other.start] + " " * (other.end - other.start) + words[other.end :]
    return words


def _associated(
    number: Written,
    numbers: list[Written],
    mentions: Sequence[Mention],
    text: str,
    label: list[frozenset[str]],
    label_end: int,
) -> tuple[list[frozenset[str]], bool]:
    """The components that a number in a sentence belongs to, and whether that is plain."""
    if label:
        own = [mention for mention in mentions if label_end <= mention.start and mention.end <= number.start]
        if own and label[0] != EVERYTHING and own[-1].readings[0] < label[0] and _adjacent(own[-1], number):
            return list(own[-1].readings), True
        return label, True
    same = [other for other in numbers if other.dimension == number.dimension]
    run, counted, plain = _run_of(number, same, mentions, text)
    parts = [mention for mention in run if not mention.readings[0] >= BLOCK]
    if len(parts) == len(counted) > 1:
        run = [parts[counted.index(number)]]
    alternatives = [reading for mention in run for reading in mention.readings]
    if _RESULT.search(text[max(0, number.start - 40) : number.start]):
        return list(dict.fromkeys([EVERYTHING, *readings_of_mentions(run), *alternatives])), True
    firm = plain and len({mention.readings for mention in without_groups(run)}) == 1
    return list(dict.fromkeys([*readings_of_mentions(run), *alternatives])), firm


def _run_of(
    number: Written, numbers: list[Written], mentions: Sequence[Mention], text: str
) -> tuple[list[Mention], list[Written], bool]:
    """The mentions that go with a number, the numbers that share them, and whether the sentence is plain about it.

    A mention stands before its number ("the head takes 5 %"), or behind it and joined to it ("5 % in the head").
    Several numbers in a row share what stands before them, one each where there are as many of one as of the other.
    """
    free = list(mentions)
    groups: list[tuple[list[Mention], list[Written], bool]] = []
    for counted in numbers:
        behind = next((mention for mention in free if mention.start >= counted.end), None)
        if behind and _JOINED_BEHIND.fullmatch(text[counted.end : behind.start]):
            free.remove(behind)
            groups.append(([behind], [counted], True))
            continue
        before = [mention for mention in free if mention.end <= counted.start]
        free = [mention for mention in free if mention not in before]
        if before or not groups:
            groups.append((before, [counted], bool(before)))
        else:
            groups[-1][1].append(counted)
    found = next(group for group in groups if number in group[1])
    if not found[0] and len(groups) == 1 and free:
        return [free[0]], found[1], False
    return found


def _adjacent(mention: Mention, number: Written) -> bool:
    return 0 <= number.start - mention.end <= 12
