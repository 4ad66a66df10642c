"""The claims of a sentence: numbers by their unit and by the components that the sentence names beside them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from cs336_harness.cost.ledger import BLOCK, BYTES, EVERYTHING, FLOPS, LAYER, MODEL, PARAMETERS
from cs336_harness.writeup.claims import PART_DIMENSIONS, Claim
from cs336_harness.writeup.document import Passage
from cs336_harness.writeup.formulas import parse
from cs336_harness.writeup.lexicon import (
    Mention,
    dimensions_in,
    find_mentions,
    is_aside,
    lengths_named,
    models_named,
    readings_of_label,
    readings_of_mentions,
    scopes_of,
    unknown_words,
    without_groups,
)
from cs336_harness.writeup.numbers import Written, find_numbers
from cs336_harness.writeup.words import any_of, says

_COUNTED = (FLOPS, BYTES, PARAMETERS)
_TIMES_LAYERS = re.compile(r"(?:[×*]|\btimes)\s*(?:L|\d{1,3})\s*(?:layers|blocks)?\s*[=≈]\s*$")
_SIZE_BEHIND = re.compile(
    r"(\s*(?:\(|\b(?:for|in|on)\s)\s*(?:the\s)?(?:gpt-?2[\s-]?)?(?:small|medium|large|xl|[小中大]型?)\b)", re.I
)
"""A model that is named behind its number: 39.8 % (small), 50.1 % for medium."""
_SIZES = ("small", "medium", "large", "xl")
_RANGE = re.compile(
    r"\b(?:small|medium|large|xl)\b\W*(?:to|through|→|->|到|至)\W*(?:the )?(?:gpt-?2[\s-]?)?"
    r"(?:small|medium|large|xl)\b[^:]*$"
)
_RUNS_ON = re.compile(r"→|⇒|[-=]>")
_KEY_AND_VALUE = re.compile(r"[\"'`\s]*[:=：][\"'`\s≈~]*")
_LONGEST_FORMULA = 240
_SMALLEST = 1000
_SMALLEST_BARE = 100_000


def claims_of_passage(passage: Passage) -> Iterator[Claim]:
    """Every number of a sentence, a list item or a line of code that says something about cost."""
    text, words = passage.content.text, passage.content.words
    numbers = [number for number in find_numbers(text) if not number.working and _worth_reading(number)]
    if not numbers:
        return
    mentions = find_mentions(words)
    heading = passage.heading.rpartition(" / ")[2]
    scopes_of_heading = scopes_of(heading)
    label = readings_of_label(passage.label)
    if (
        not label
        and any_of("count_of_all").fullmatch(passage.label)
        and not find_mentions(f"{heading} {passage.intro}")
    ):
        label = [EVERYTHING]
    aside = is_aside(words) or says("another_question", passage.heading)
    # A number alone, as code prints it, answers the question that it stands under, and no other.
    alone = not passage.part and not re.search(r"[^\W\d_]", _without(words, numbers))
    memory = [number for number in numbers if number.dimension == BYTES]
    for number in numbers:
        times_layers = _TIMES_LAYERS.search(text[max(0, number.start - 40) : number.start])
        readings, plain, first = _associated(number, numbers, mentions, words, label, len(passage.label))
        start, end = _clause(words, number, numbers, min(first, number.start))
        formula = _formula_before(text, number)
        clause = re.sub(r"\([^()]*\)", " ", _without(words, numbers)[start:end])
        models, lengths = _of_clause(passage, number, start)
        scopes = scopes_of(_without_their_layers(words, number, numbers)) or scopes_of_heading
        yield Claim(
            number,
            passage.line_of(number.start),
            passage.part,
            # GB behind one number says nothing of the next.
            number.dimension or _dimension_near(number, _without(words, memory), passage),
            tuple(readings),
            frozenset({MODEL} if times_layers else scopes if len(scopes) == 1 else {LAYER, MODEL}),
            passage.label.strip(),
            words,
            certain=plain
            and not (aside or alone or number.rate or number.bound)
            and not unknown_words(clause.replace(formula, " ") if formula else clause),
            sure=number.dimension is not None or bool(dimensions_in(words)),
            aside=aside,
            models=models,
            lengths=lengths,
            of_block=says("of_block", words) or says("of_block", passage.intro[-200:]),
            before_and_after=says("before_and_after", text),
            formula=formula,
            shapeless=not label and not says("says", text),
            each=says("each", words),
            paragraph=passage.intro,
        )


def _worth_reading(number: Written) -> bool:
    if number.dimension in _COUNTED:
        return number.value >= _SMALLEST
    return number.dimension is not None or number.value >= _SMALLEST_BARE


def _without(words: str, numbers: Sequence[Written]) -> str:
    """A sentence with some of its numbers blank."""
    for number in numbers:
        words = words[: number.start] + " " * (number.end - number.start) + words[number.end :]
    return words


def _without_their_layers(words: str, number: Written, numbers: Sequence[Written]) -> str:
    """A sentence without the "per block" that stands right behind another number: it speaks of that one."""
    for per_layer in any_of("per_layer").finditer(words):
        before = [other for other in numbers if other.end <= per_layer.start()]
        if any(other is not number and not words[other.end : per_layer.start()].strip() for other in before):
            words = words[: per_layer.start()] + " " * len(per_layer.group(0)) + words[per_layer.end() :]
    return words


def _clause(words: str, number: Written, numbers: Sequence[Written], first: int) -> tuple[int, int]:
    """The stretch of a sentence that says what a number is: from what names it to the end of its clause."""
    ends = list(any_of("clause_of_number").finditer(words))
    before = [end.end() for end in ends if end.end() <= number.start]
    behind = [end.start() for end in ends if end.start() >= number.end]
    following = [other.start for other in numbers if other.start >= number.end]
    return min(first, before[-1] if before else 0), min([len(words), *behind, *following])


def _of_clause(passage: Passage, number: Written, start: int) -> tuple[frozenset[str], frozenset[int]]:
    """The models and the lengths that a number's clause names, or else its sentence, its list's intro, its heading."""
    text, by_size = passage.content.text, passage.part == "d"
    around = (text[start : number.end + 30], text, passage.intro if passage.in_list else "", passage.heading)
    models = next((found for piece in around if (found := models_named(piece, by_size=by_size))), frozenset())
    lengths = next((found for piece in around[:3] if (found := lengths_named(piece))), frozenset())
    if by_size and (behind := _SIZE_BEHIND.match(text, number.end)):
        models = models_named(behind.group(1), by_size=True)
    elif by_size and len(models) > 1:
        before = text[: number.start].lower()
        sizes = re.findall(r"\b(small|medium|large|xl)\b", before)
        if not _RANGE.search(before):
            models = frozenset(sizes[-1:]) or models
        elif len(models) == 2:  # the two ends of a range
            models = frozenset(_SIZES)
    return models, lengths


def _formula_before(text: str, number: Written) -> str:
    """The expression on the other side of the equals sign that a number stands behind; empty where there is none."""
    before = text[: number.start].rstrip(" ~($")
    if not before.endswith(("=", "≈")):
        return ""
    stretch = re.split(r"[=≈:]", before.rstrip("=≈ "))[-1][-_LONGEST_FORMULA:].strip(" $`*")
    words = [match.start() for match in re.finditer(r"(?<!\S)(?<![×*·/+^x-]\s)\S", stretch)]
    return next((stretch[start:] for start in words if parse(stretch[start:])), "")


def _dimension_near(number: Written, words: str, passage: Passage) -> str | None:
    near = [(abs(place - number.end), name) for place, name in dimensions_in(words) if name in _COUNTED]
    if near:
        return min(near)[1]
    for text in (passage.intro if passage.in_list else "", passage.heading.rpartition(" / ")[2]):
        said = {name for _, name in dimensions_in(text) if name in _COUNTED}
        if len(said) == 1:
            return said.pop()
    return PART_DIMENSIONS.get(passage.part or "")


def _associated(
    number: Written,
    numbers: Sequence[Written],
    mentions: Sequence[Mention],
    text: str,
    label: list[frozenset[str]],
    label_end: int,
) -> tuple[list[frozenset[str]], bool, int]:
    """The components that a number in a sentence belongs to, whether that is plain, and where they are named."""
    if label:
        own = [mention for mention in mentions if label_end <= mention.start and mention.end <= number.start]
        if all(mention.readings[0] == label[0] for mention in own):
            return label, True, 0
        last, adjacent = own[-1], number.start - own[-1].end <= 12
        inside = label[0] != EVERYTHING and last.readings[0] < label[0] and adjacent
        if inside or _KEY_AND_VALUE.fullmatch(text[last.end : number.start]):
            return list(last.readings), True, last.start
        if label[0] in (BLOCK, EVERYTHING):
            return list(last.readings), len(own) == 1 and adjacent, last.start
        after_another = any(other.end <= last.start for other in numbers)  # "Projections: 1.007, FFN 2.023"
        adjacent = adjacent and not last.readings[0] >= BLOCK  # "each per layer, so 42 GFLOPs"
        if after_another and adjacent and says("clause_of_number", text[: last.start + 1]):
            return list(last.readings), True, last.start
        return [*label, *last.readings], all(mention.readings[0] <= label[0] for mention in own), 0
    same = [other for other in numbers if other.dimension == number.dimension]
    run, counted, plain = _run_of(number, same, mentions, text)
    parts = [mention for mention in run if not mention.readings[0] >= BLOCK]
    together: list[frozenset[str]] = []
    if len(parts) == len(counted) > 1:
        # One each; or, as in "scores and values grow from 9 % to 62 %", all of them of both.
        together = readings_of_mentions(run)
        run = [parts[counted.index(number)]]
    alternatives = [reading for mention in run for reading in mention.readings]
    readings = list(dict.fromkeys([*readings_of_mentions(run), *alternatives]))
    if says("result", text[max(0, number.start - 40) : number.start]):
        return list(dict.fromkeys([EVERYTHING, *readings])), True, number.start
    if not run and not mentions and number.dimension in _COUNTED:
        return [], not re.search(r"[=≈]", text[max(0, number.start - 4) : number.start]), 0
    several = len({mention.readings for mention in without_groups(run)}) > 1
    plain = plain and not several and _goes_on(text, counted[: counted.index(number) + 1])
    return list(dict.fromkeys([*readings, *together])), plain, run[0].start if run else number.start


def _goes_on(text: str, chain: Sequence[Written]) -> bool:
    """Whether a number says more of what the numbers before it say: "from 9 % to 62 %", "3.5 TFLOPs (3,517 GFLOPs)".

    An arrow between two amounts is a sum that runs on ("SwiGLU 42 → 70"); between two shares it is a change.
    """
    gaps = [text[one.end : other.start] for one, other in itertools.pairwise(chain)]
    if chain[-1].dimension in _COUNTED and any(_RUNS_ON.search(gap) for gap in gaps):
        return False
    return not any(any_of("goes_on").sub("", gap) for gap in gaps)


def _run_of(
    number: Written, numbers: Sequence[Written], mentions: Sequence[Mention], text: str
) -> tuple[list[Mention], list[Written], bool]:
    """The mentions that go with a number, the numbers that share them, and whether the sentence is plain about it.

    A mention stands before its number ("the head takes 5 %"), or behind it and joined to it ("5 % in the head").
    Several numbers in a row share what stands before them, one each where there are as many of one as of the other.
    """
    free = list(mentions)
    groups: list[tuple[list[Mention], list[Written], bool]] = []
    for counted in numbers:
        behind = next((mention for mention in free if mention.start >= counted.end), None)
        before = [mention for mention in free if mention.end <= counted.start]
        if behind and any_of("joined_behind").fullmatch(text[counted.end : behind.start]):
            free.remove(behind)
            if not before or behind.readings != (BLOCK,):  # "the FFN has 30.7 M per layer": the layer is its scope
                groups.append(([behind], [counted], True))
                continue
        free = [mention for mention in free if mention not in before]
        if before or not groups:
            groups.append((before, [counted], bool(before)))
        else:
            groups[-1][1].append(counted)
    found = next(group for group in groups if number in group[1])
    if not found[0] and len(groups) == 1 and free:
        return [free[0]], found[1], False
    return found
