"""Closed forms and sums as people write them, evaluated: 2VD + L(4D² + 3DF + 2D) + D, 6*T*D*d_ff, 3 · 1600 · 4288.

A small parser of its own and never ``eval``: what is read was written by somebody else. Letters have the meaning that
accounts give them; one that has several (L is the layers or the length) is tried in each.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction

from cs336_harness.shapes import DecoderShape

_MOST_CHARACTERS = 400
_DEEPEST = 20
_LARGEST_POWER = 6
_LARGEST_BASE = 10**15

_MEANINGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("V", "vocab", "vocab_size", "n_vocab", "vocabulary", "v"), ("vocab_size",)),
    **dict.fromkeys(("D", "d", "d_model", "dmodel", "d_m", "C", "E", "n_embd", "hidden", "hidden_size"), ("d_model",)),
    **dict.fromkeys(("F", "f", "d_ff", "dff", "d_f", "d_ffn", "ffn_dim"), ("d_ff",)),
    **dict.fromkeys(("H", "n_heads", "num_heads", "n_h", "heads", "n_head"), ("num_heads",)),
    "h": ("num_heads", "d_model"),
    **dict.fromkeys(
        (
            "T",
            "S",
            "s",
            "t",
            "seq",
            "seq_len",
            "sequence_length",
            "seq_length",
            "context_length",
            "ctx",
            "n_ctx",
            "context",
            "ctx_len",
        ),
        ("length",),
    ),
    "n": ("length", "num_layers"),
    "N": ("num_layers", "length", "parameters"),
    "L": ("num_layers", "length"),
    "l": ("num_layers", "length"),
    **dict.fromkeys(("n_layers", "num_layers", "n_layer", "layers", "n_l", "N_layers", "n_L"), ("num_layers",)),
    **dict.fromkeys(("B", "b", "batch", "batch_size"), ("batch_size",)),
    **dict.fromkeys(("d_k", "d_v", "d_head", "d_h", "dk", "dv", "head_dim", "d_q"), ("d_head",)),
    "P": ("parameters",),
}

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)|(?P<name>[A-Za-z]+(?:_[A-Za-z]+)*)"
    r"|(?P<operator>\*\*|//|[-+*/^()\[\]×·⋅x|])|(?P<power>[²³⁴]))"
)
_SUPERSCRIPTS = {"²": 2, "³": 3, "⁴": 4}


class _NotAFormulaError(ValueError):
    """The text is no expression of known letters."""


Expression = Callable[[Mapping[str, Fraction]], Fraction]


@functools.lru_cache(maxsize=512)
def parse(text: str) -> tuple[Expression, frozenset[str]] | None:
    """A text as an expression and the letters in it; None for what is none, or holds a letter that nobody knows."""
    if not text.strip() or len(text) > _MOST_CHARACTERS:
        return None
    try:
        reader = _Reader(text)
        expression = reader.sum(0)
        reader.require_end()
    except (_NotAFormulaError, ZeroDivisionError, OverflowError):
        return None
    return expression, frozenset(reader.names)


def values_of(text: str, shape: DecoderShape, length: int, batch_size: int, parameters: int) -> set[Fraction]:
    """What a text evaluates to at the sizes of a shape, in every meaning of its letters; empty for no formula."""
    parsed = parse(text)
    if parsed is None:
        return set()
    expression, names = parsed
    found: set[Fraction] = set()
    for sizes in _assignments(names, shape, length, batch_size, parameters):
        try:
            found.add(expression(sizes))
        except (ZeroDivisionError, OverflowError, _NotAFormulaError):
            continue
    return found


def letters_of(text: str) -> set[str]:
    """The sizes that the letters of a formula stand for, in their first meaning; empty for no formula."""
    parsed = parse(text)
    return {_MEANINGS[name][0] for name in parsed[1]} if parsed else set()


def _assignments(
    names: frozenset[str], shape: DecoderShape, length: int, batch_size: int, parameters: int
) -> Iterator[dict[str, Fraction]]:
    sizes = {
        **{
            field: getattr(shape, field)
            for field in ("vocab_size", "d_model", "d_ff", "num_heads", "num_layers", "d_head")
        },
        "length": length,
        "batch_size": batch_size,
        "parameters": parameters,
    }
    ordered = sorted(names)
    for meanings in itertools.islice(itertools.product(*(_MEANINGS[name] for name in ordered)), 64):
        yield {name: Fraction(sizes[meaning]) for name, meaning in zip(ordered, meanings, strict=True)}


class _Reader:
    """A recursive descent over sums of products of powers; a product may leave out its sign."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = 0
        self.names: set[str] = set()

    def require_end(self) -> None:
        if self.at < len(self.tokens):
            raise _NotAFormulaError

    def _peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _next(self) -> str:
        token = self._peek()
        if token is None:
            raise _NotAFormulaError
        self.at += 1
        return token

    def sum(self, depth: int) -> Expression:
        if depth > _DEEPEST:
            raise _NotAFormulaError
        left = self._product(depth)
        while self._peek() in ("+", "-"):
            left = _combined(self._next(), left, self._product(depth))
        return left

    def _product(self, depth: int) -> Expression:
        left = self._power(depth)
        while (token := self._peek()) is not None and token not in ("+", "-", ")"):
            operator = self._next() if token in ("*", "/") else "*"
            left = _combined(operator, left, self._power(depth))
        return left

    def _power(self, depth: int) -> Expression:
        base = self._atom(depth)
        if self._peek() == "^":
            self._next()
            token = self._next()
            if not token.isdigit() or int(token) > _LARGEST_POWER:
                raise _NotAFormulaError
            base = _raised(base, int(token))
        return base

    def _atom(self, depth: int) -> Expression:
        token = self._next()
        if token == "(":
            inner = self.sum(depth + 1)
            if self._next() != ")":
                raise _NotAFormulaError
            return inner
        if token[0].isdigit():
            value = Fraction(token)
            return lambda _: value
        if token[0].isalpha():
            self.names.add(token)
            return lambda sizes: sizes[token]
        raise _NotAFormulaError


def _combined(operator: str, left: Expression, right: Expression) -> Expression:
    if operator == "+":
        return lambda sizes: left(sizes) + right(sizes)
    if operator == "-":
        return lambda sizes: left(sizes) - right(sizes)
    if operator == "*":
        return lambda sizes: left(sizes) * right(sizes)
    return lambda sizes: left(sizes) / right(sizes)


def _raised(base: Expression, power: int) -> Expression:
    def raised(sizes: Mapping[str, Fraction]) -> Fraction:
        value = base(sizes)
        if abs(value) > _LARGEST_BASE:  # powers of powers would fill the memory
            raise _NotAFormulaError
        return value**power

    return raised


def _tokens(text: str) -> Iterator[str]:
    position = 0
    text = text.rstrip().replace("_{", "_").replace("|V|", "V")
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _NotAFormulaError
        position = match.end()
        if number := match.group("number"):
            yield number.replace(",", "")
        elif power := match.group("power"):
            yield "^"
            yield str(_SUPERSCRIPTS[power])
        elif operator := match.group("operator"):
            yield _operator(operator)
        else:
            yield from _names(match.group("name"))


def _operator(operator: str) -> str:
    if operator == "|":
        raise _NotAFormulaError
    return {"**": "^", "//": "/", "[": "(", "]": ")", "×": "*", "·": "*", "⋅": "*", "x": "*"}.get(operator, operator)


def _names(word: str) -> Iterator[str]:
    """A word as the names in it: BTD is three, d_model one, and Ld_model two."""
    if word in _MEANINGS:
        yield word
        return
    if word == "x":
        yield "*"
        return
    for size in range(len(word), 0, -1):
        if word[:size] in _MEANINGS and (size > 1 or word[0].isalpha()):
            rest = word[size:].lstrip("_") if not word[size:].startswith("_") else None
            if rest is None:
                continue
            yield word[:size]
            if rest:
                yield from _names(rest)
            return
    raise _NotAFormulaError
