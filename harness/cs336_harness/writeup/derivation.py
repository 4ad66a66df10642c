"""The closed forms of a write-up, judged by what they evaluate to, and the answers to the self-test."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from fractions import Fraction

from cs336_harness.cost.ledger import BLOCK, FLOPS, LAYER, MODEL, PARAMETERS, POSITION_PAIRS
from cs336_harness.cost.quantities import COMPONENT_GROUPS, Case
from cs336_harness.writeup.books import Books, measure
from cs336_harness.writeup.claims import LEFT_OUT, MISSING, RIGHT, WRONG
from cs336_harness.writeup.document import Document, Passage
from cs336_harness.writeup.formulas import letters_of, values_of
from cs336_harness.writeup.lexicon import find_mentions
from cs336_harness.writeup.words import phrases, says, table

_STEPS = re.compile(r"[=≈:;,：；，]|#.*$|\bFLOPs?\b|\bparameters\b|\.\s")
_OTHER_SIZES = {"vocab_size": 211, "d_model": 48, "d_ff": 134, "num_heads": 6, "num_kv_heads": 6, "num_layers": 5}

Verdict = tuple[str, str, tuple[int, ...]]
"""A verdict, a message, and the lines that it is about."""


def judge_derivation(document: Document, books: Books) -> Verdict:
    """Whether the closed forms of the derivation evaluate to what they are said to be.

    A form is right when it equals a true quantity at the stated sizes and at others. One that holds the vocabulary and
    the layers claims to be a total, and is wrong when it equals none.
    """
    passages = [block for block in document.blocks if isinstance(block, Passage)]
    section = [passage for passage in passages if says("derivation", passage.heading)]
    if not any(says("derivation", heading) for heading in document.headings):
        return LEFT_OUT, "", ()
    for passage, form in _forms(section):
        letters = letters_of(form)
        if {"vocab_size", "num_layers", "d_model"} <= letters and not _equal(form, books):
            what = FLOPS if "context_length" in letters else PARAMETERS
            message = f"{form.strip()} does not evaluate to the {what} of the model, nor to a part of them."
            return WRONG, message, (passage.line,)
    right: dict[str, int] = {}
    for passage, form in (*_forms(section), *_forms(passages if section else [])):
        for dimension in _equal(form, books):
            right.setdefault(dimension, passage.line)
    missing = [dimension for dimension in (PARAMETERS, FLOPS) if dimension not in right]
    if missing:
        return MISSING, f"No closed form for the {' and the '.join(missing)} was found that evaluates to them.", ()
    return RIGHT, "", tuple(sorted(set(right.values())))


def _forms(passages: list[Passage]) -> Iterator[tuple[Passage, str]]:
    """What may be closed forms: the pieces of each formula, which the words of a passage leave blank, and of it all."""
    for passage in passages:
        text = passage.content.text
        formulas = (text[match.start() : match.end()] for match in re.finditer(r" {3,}", passage.content.words))
        for piece in (piece for stretch in (*formulas, text) for piece in _STEPS.split(stretch)):
            if piece and sum(character.isalpha() for character in piece) >= 2:
                yield passage, piece.strip(" .$`*")


def _equal(form: str, books: Books) -> list[str]:
    """What a form counts that equals true quantities at the stated sizes and at other ones: parameters, FLOPs."""
    other = Case("other", books.main.shape.replace(**_OTHER_SIZES), 1, 37)
    here, there = values_of(form, books.main), values_of(form, other)
    equal = (what for what, value, elsewhere in _true_forms(books.main, other) if value in here and elsewhere in there)
    return list(dict.fromkeys(equal)) if here else []


@functools.lru_cache(maxsize=8)
def _true_forms(case: Case, other: Case) -> list[tuple[str, Fraction, Fraction]]:
    """Every amount that a form may be of: what it counts, and its values in two cases."""
    asked = [
        measure(dimension, components, scope)
        for dimension in (PARAMETERS, FLOPS)
        for components in COMPONENT_GROUPS.values()
        for scope in ((MODEL, LAYER) if components <= BLOCK else (MODEL,))
    ]
    return [(what.dimension, what.of(case.ledger), what.of(other.ledger)) for what in asked if what.components]


def judge_self_test(document: Document) -> Verdict:
    """Whether the questions of the self-test are answered, and those that a word decides, rightly."""
    if not any(says("self_test", heading) for heading in document.headings):
        return LEFT_OUT, "", ()
    answers: dict[str, list[Passage]] = {}
    asked: str | None = None
    questions: dict[str, str] = table()["questions"]
    for block in document.blocks:
        if not isinstance(block, Passage) or not says("self_test", block.heading):
            continue
        text = block.content.text
        if text.rstrip().endswith("?"):
            asked = next((name for name, listed in questions.items() if phrases(listed).search(text)), asked)
            if asked:
                answers.setdefault(asked, [])
        elif asked and re.search(r"\w", text):
            answers[asked].append(block)
    if not answers:
        return LEFT_OUT, "", ()
    unanswered = [name for name, given in answers.items() if not given]
    if unanswered:
        return MISSING, f"Not answered: {', '.join(unanswered)}.", ()
    for name, wrong in (("whether tying removes compute", _says_yes), ("which terms quadruple", _names_no_pairs)):
        if (given := answers.get(name)) and wrong(given):
            return WRONG, f"{name[0].upper()}{name[1:]}: think again.", (given[0].line,)
    return RIGHT, "", ()


def _says_yes(given: list[Passage]) -> bool:
    return bool(re.match(r"\W*(?:yes|it does\b(?! not)|是的|会)", given[0].content.text, re.I))


def _names_no_pairs(given: list[Passage]) -> bool:
    named = [mention.readings for passage in given for mention in find_mentions(passage.content.words)]
    return bool(named) and not any(reading & POSITION_PAIRS for readings in named for reading in readings)
