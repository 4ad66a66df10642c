"""Closed forms and sums as people write them, evaluated: 2VD + L(4D² + 3DF + 2D) + D, 6*T*D*d_ff, 3 · 1600 · 4288.

Python's own parser reads them once every product has its sign; what it reads is walked, sums and products only, and
never run: somebody else wrote it. A letter that has several meanings (L is the layers or the length) is tried in each.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction

from cs336_harness.cost.ledger import EVERYTHING, PARAMETERS
from cs336_harness.cost.quantities import Case
from cs336_harness.writeup.words import table

_MOST_CHARACTERS = 400
_LARGEST_POWER = 6
_LARGEST_BASE = 10**15

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)|(?P<name>[A-Za-z]+(?:_[A-Za-z]+)*)"
    r"|(?P<operator>\*\*|//|[-+*/^()\[\]×·⋅])|(?P<power>[²³⁴]))"
)
_OPERATORS = {"^": "**", "//": "/", "[": "(", "]": ")", "×": "*", "·": "*", "⋅": "*", "x": "*"}
_POWERS = {"²": "**2", "³": "**3", "⁴": "**4"}


class _NotAFormulaError(ValueError):
    """The text is no expression of known letters."""


@functools.cache
def _meanings() -> dict[str, tuple[str, ...]]:
    """What each letter or name of a formula may stand for, the likeliest first."""
    meanings: dict[str, tuple[str, ...]] = {}
    for kind in ("letters", "in_formulas"):
        for size, said in table()["sizes"].items():
            for name in said.get(kind, "").split():
                meanings[name] = (*meanings.get(name, ()), size)
    return meanings


@functools.lru_cache(maxsize=512)
def parse(text: str) -> tuple[ast.expr, frozenset[str]] | None:
    """A text as an expression and the letters in it; None for what is none, or holds a letter that nobody knows."""
    if not text.strip() or len(text) > _MOST_CHARACTERS:
        return None
    try:
        tree = ast.parse("".join(_tokens(text)), mode="eval").body
        names = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
        _value(tree, dict.fromkeys(names, Fraction(1)))
    except ZeroDivisionError:
        return tree, names
    except (_NotAFormulaError, SyntaxError, MemoryError, RecursionError, OverflowError):
        return None
    return tree, names


def values_of(text: str, case: Case) -> set[Fraction]:
    """What a text evaluates to at the sizes of a case, in every meaning of its letters; empty for no formula."""
    parsed = parse(text)
    if parsed is None:
        return set()
    tree, names = parsed
    parameters = case.ledger.amount(PARAMETERS, EVERYTHING)
    given = {"context_length": case.sequence_length, "batch_size": case.batch_size, "parameters": parameters}
    choices = [[(name, meaning) for meaning in _meanings()[name]] for name in sorted(names)]
    found: set[Fraction] = set()
    for chosen in itertools.islice(itertools.product(*choices), 64):
        sizes = {name: Fraction(given.get(meaning) or getattr(case.shape, meaning)) for name, meaning in chosen}
        try:
            found.add(_value(tree, sizes))
        except (ZeroDivisionError, OverflowError, _NotAFormulaError):
            continue
    return found


def letters_of(text: str) -> set[str]:
    """The sizes that the letters of a formula stand for, in their first meaning; empty for no formula."""
    parsed = parse(text)
    return {_meanings()[name][0] for name in parsed[1]} if parsed else set()


def _value(node: ast.expr, sizes: Mapping[str, Fraction]) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number):
            return Fraction(repr(number))
        case ast.Name(id=name):
            return sizes[name]
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)) if power <= _LARGEST_POWER:
            base = _value(left, sizes)
            if abs(base) > _LARGEST_BASE:  # powers of powers would fill the memory
                raise _NotAFormulaError
            return base**power
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() as operator, right=right):
            one, other = _value(left, sizes), _value(right, sizes)
            if isinstance(operator, ast.Add | ast.Sub):
                return one + other if isinstance(operator, ast.Add) else one - other
            return one * other if isinstance(operator, ast.Mult) else one / other
    raise _NotAFormulaError


def _tokens(text: str) -> Iterator[str]:
    """The text in Python's words, with a sign between factors that stand side by side."""
    position, open_ended = 0, False
    text = text.rstrip().replace("_{", "_").replace("|V|", "V")
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _NotAFormulaError
        position = match.end()
        number, word, operator, power = match.groups()
        for token in (
            _names(word) if word else [number.replace(",", "") if number else _POWERS.get(power or "", operator)]
        ):
            token = _OPERATORS.get(token, token)
            if open_ended and (token == "(" or token[0].isalnum()):
                yield "*"
            yield token
            open_ended = token == ")" or token[-1].isalnum()


def _names(word: str) -> Iterator[str]:
    """A word as the names in it: BTD is three, d_model one, and Ld_model two."""
    if word in _meanings() or word == "x":
        yield word
        return
    for size in range(len(word) - 1, 0, -1):
        if word[:size] in _meanings() and not word[size:].startswith("_"):
            yield word[:size]
            yield from _names(word[size:])
            return
    raise _NotAFormulaError
