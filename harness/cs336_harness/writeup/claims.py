"""What a number of a write-up claims to be, and the words that say it for tables and sentences alike."""

from __future__ import annotations

import dataclasses
import re

from cs336_harness.writeup.numbers import BYTES, FLOPS, PARAMETERS, RATIO, SHARE, Written

PART_DIMENSIONS = {"a": PARAMETERS, "b": FLOPS, "c": FLOPS, "d": FLOPS, "e": FLOPS}
"""What a bare number of a part is most likely about."""

_DIMENSION_WORDS = (
    (SHARE, re.compile(r"\bshares?\b|\bproportions?\b|\bpercent|%|\bfraction of\b", re.I)),
    (FLOPS, re.compile(r"\b(?:flops?|macs?|operations|compute|matmuls?|multipl(?:y|ies|ications?))\b", re.I)),
    (BYTES, re.compile(r"\bmemory\b|\bbytes?\b|\bstorage\b|\b[GM]i?B\b", re.I)),
    (PARAMETERS, re.compile(r"\bparam(?:eter)?s?\b|\bweights\b|#\s?param", re.I)),
    (RATIO, re.compile(r"\btimes\b|\bratio\b|\bfactor\b|\bgrowth\b", re.I)),
)
_MODEL = re.compile(r"\b(?:gpt-?2[\s-]?)?(small|medium|large|xl)\b", re.I)
_LENGTH = re.compile(
    r"(?:\b(?:T|S|seq(?:uence)?(?:[ _]len(?:gth)?)?|context(?:[ _]length)?|ctx|length|at|to|of)\s*[=:]?\s*|^\W*)"
    r"(1,?024|2,?048|4,?096|8,?192|16,?384|32,?768|16k|1k)\b",
    re.I,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """A number and what it may stand for.

    ``readings`` are sets of components, the likeliest first; empty when the text names none. ``scopes`` holds ``layer``
    and ``model`` as far as the text leaves them open. ``firm`` is whether label or sentence says plainly what it is.
    """

    number: Written
    line: int
    part: str | None
    dimension: str | None
    readings: tuple[frozenset[str], ...]
    scopes: frozenset[str]
    label: str
    context: str
    firm: bool
    model: str | None = None
    length: int | None = None
    table: int | None = None
    column: int | None = None
    each: bool = False
    in_list: bool = False
    paragraph: str = ""


def dimensions_in(text: str) -> list[tuple[int, str]]:
    """The dimensions that a text's words speak of, each with its place."""
    return [(match.start(), name) for name, pattern in _DIMENSION_WORDS for match in pattern.finditer(text)]


def first_dimension(text: str) -> str | None:
    """The dimension that a header or a heading speaks of; a share of FLOPs is a share."""
    return next((name for name, pattern in _DIMENSION_WORDS if pattern.search(text)), None)


def model_named(text: str) -> str | None:
    """The GPT-2 size that a text names, if it names exactly one."""
    names = {match.group(1).lower() for match in _MODEL.finditer(text)}
    return names.pop() if len(names) == 1 else None


def length_named(text: str) -> int | None:
    """The sequence length that a text names, if it names exactly one."""
    lengths = {_length(match.group(1)) for match in _LENGTH.finditer(text)}
    return lengths.pop() if len(lengths) == 1 else None


def _length(text: str) -> int:
    return {"16k": 16384, "1k": 1024}.get(text.lower()) or int(text.replace(",", ""))
