"""What a label's words name: parts of a decoder, one layer or all of them.

A label is understood *with certainty* when nothing is left of it once every known word is taken away. A word that
nobody here knows may change what the others mean, so a label that holds one convicts no number.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
from collections.abc import Sequence

from cs336_harness.cost.ledger import BYTES, FLOPS, LAYER, MODEL, PARAMETERS, RATIO, SHARE
from cs336_harness.cost.quantities import COMPONENT_GROUPS
from cs336_harness.writeup.words import any_of, phrases, says, table

_ANY_PROJECTION = tuple(COMPONENT_GROUPS[name] for name in ("attention projections", "q_proj", "output_proj"))
_LETTERS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "output_proj"}
_SUFFIX = re.compile(
    r"(?<=[a-z]{2})_(?=(?:flops?|params?|parameters|bytes|memory|shares?|percent|fraction|total|\d)\b)", re.IGNORECASE
)
_DIMENSIONS = (SHARE, FLOPS, BYTES, PARAMETERS, RATIO)
"""What a number may count, the likeliest first where a text speaks of several: a share of FLOPs is a share."""
_MODEL = re.compile(r"\bgpt-?\s?2[\s_-]*(?:\()?(small|medium|large|xl)\b", re.IGNORECASE)
_SIZE = re.compile(r"\b(small|medium|large|xl)\b|(?<![\w大])(小|中|大)(?=型|\s*模型|号)", re.IGNORECASE)
_SIZE_ALONE = re.compile(
    r"\W*(?:the\s+)?(small|medium|large|xl)(?:\W*(?:model|%|share|flops?|[kmgtp]?flops?|占比))*\W*", re.IGNORECASE
)
_HAN_SIZES = {"小": "small", "中": "medium", "大": "large"}
_POWERS = r"(512|1,?024|2,?048|4,?096|8,?192|16,?384|32,?768|65,?536|131,?072|16k|1k)"
_LENGTH = re.compile(
    r"(?:\b(?:T|S|L|n|seq(?:uence)?(?:[ _]len(?:gth)?)?|context(?:[ _](?:length|window|size))?|ctx(?:_len)?|length"
    rf"|at|to|of|from|长度|上下文)\s*(?:(?:of|is|为|是)\s*)?[=:→]?\s*|^\W*){_POWERS}\b(?!\s*[×x*·])"
    rf"|\b{_POWERS}\s*(?:positions?|tokens?|context)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[a-z0-9_]*[a-z][a-z0-9_]*")
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+|\u2028")


@dataclasses.dataclass(frozen=True, slots=True)
class Mention:
    """A stretch of text that names components, and the readings it allows, the likeliest first."""

    start: int
    end: int
    readings: tuple[frozenset[str], ...]


@functools.cache
def _compiled() -> tuple[tuple[re.Pattern[str], tuple[frozenset[str], ...]], ...]:
    return tuple(
        (phrases(entry["names"]), tuple(COMPONENT_GROUPS[name] for name in entry["means"]))
        for entry in table()["components"]
    )


@functools.cache
def _plain_words() -> frozenset[str]:
    """The words, and the Chinese characters, that change nothing of what a label says."""
    plain = table()["plain"]
    return frozenset((*plain["english"].split(), *plain["chinese"]))


@functools.lru_cache(maxsize=1024)
def find_mentions(words: str) -> tuple[Mention, ...]:
    """The mentions in a text, in order; no two overlap, the more special pattern wins."""
    found, _ = _read(words)
    ends = [-9, *(mention.end for mention in found)]
    # "The output layer's projection" names one thing: what a bare projection stands behind.
    return tuple(
        mention
        for mention, end in zip(found, ends, strict=False)
        if mention.readings != _ANY_PROJECTION or mention.start - end > 1
    )


@functools.lru_cache(maxsize=1024)
def unknown_words(words: str) -> tuple[str, ...]:
    """The words of a text that are neither a component's name nor plain English or Chinese of an account."""
    _, rest = _read(words)
    words_left = (*_WORD.findall(rest.lower()), *(han for han in rest if "\u4e00" <= han <= "\u9fff"))
    return tuple(word for word in words_left if word not in _plain_words())


@functools.lru_cache(maxsize=1024)
def _read(words: str) -> tuple[list[Mention], str]:
    """The mentions in a text, in order, and the text without them."""
    text = _prepared(words)
    found: list[Mention] = []
    for pattern, readings in _compiled():
        for match in pattern.finditer(text):
            found.append(Mention(match.start(), match.end(), readings))
            text = text[: match.start()] + "\x00" * (match.end() - match.start()) + text[match.end() :]
    return sorted(found, key=lambda mention: mention.start), text


def _prepared(words: str) -> str:
    """A text where what names no component is blank, and ``w1_flops`` or ``RMSNorm_1`` are two words."""
    for sign in ("per_head", "reference"):
        words = any_of(sign).sub(lambda match: " " * len(match.group(0)), words)
    return _SUFFIX.sub(" ", words)


def readings_of_label(words: str) -> list[frozenset[str]]:
    """The sets of components that a label may stand for, the likeliest first; see ``readings_of_mentions``."""
    if letter := re.fullmatch(r"\W*([qkvo])\W*", words, re.IGNORECASE):
        return [COMPONENT_GROUPS[_LETTERS[letter.group(1).lower()]]]
    mentions = find_mentions(words)
    readings = readings_of_mentions(mentions)
    if len(mentions) > 1 and re.search(r"[(/（]", words):  # "attention output (scores @ V)" names one thing twice
        readings += [mention.readings[0] for mention in mentions if mention.readings[0] not in readings]
    return readings


def readings_of_mentions(mentions: Sequence[Mention]) -> list[frozenset[str]]:
    """The unions of some mentions. A group gives way to a member that is named beside it: "SwiGLU w1" is w1."""
    kept = without_groups(mentions)
    if not kept:
        return []
    unions: list[frozenset[str]] = []
    for choice in itertools.islice(itertools.product(*(mention.readings for mention in kept)), 24):
        union = frozenset().union(*choice)
        if union not in unions:
            unions.append(union)
    return unions


def without_groups(mentions: Sequence[Mention]) -> list[Mention]:
    """The mentions, less the groups that have a member named among them."""
    first = [mention.readings[0] for mention in mentions]
    return [
        mention for mention, reading in zip(mentions, first, strict=True) if not any(other < reading for other in first)
    ]


def scopes_of(words: str) -> set[str]:
    """Whether a text speaks of one ``layer``, of the whole ``model``, of both, or of neither."""
    return {scope for scope, sign in ((LAYER, "per_layer"), (MODEL, "all_layers")) if says(sign, words)}


def facts_of(text: str) -> str:
    """The sentences of a text that state something; one that asks, allows or instructs says nothing of an answer."""
    sentences = _SENTENCE_END.split(text.replace("\n", " "))
    return " ".join(sentence for sentence in sentences if not says("instruction", sentence))


def dimensions_in(text: str) -> list[tuple[int, str]]:
    """The dimensions that a text's words speak of, each with its place."""
    return [(match.start(), name) for name in _DIMENSIONS for match in any_of(name).finditer(text)]


def first_dimension(text: str) -> str | None:
    """The dimension that a header or a heading speaks of."""
    return next((name for name in _DIMENSIONS if says(name, text)), None)


def models_named(text: str, *, by_size: bool = False) -> frozenset[str]:
    """The GPT-2 sizes that a text names. An adjective is none, unless ``by_size`` says that sizes are spoken of."""
    if alone := _SIZE_ALONE.fullmatch(text):
        return frozenset((alone.group(1).lower(),))
    found = (match.group(match.lastindex or 0).lower() for match in (_SIZE if by_size else _MODEL).finditer(text))
    return frozenset(_HAN_SIZES.get(name, name) for name in found)


def lengths_named(text: str) -> frozenset[int]:
    """The sequence lengths that a text names."""
    found = (match.group(match.lastindex or 0).lower() for match in _LENGTH.finditer(text))
    return frozenset({"16k": 16384, "1k": 1024}.get(text) or int(text.replace(",", "")) for text in found)


def is_aside(text: str) -> bool:
    """Whether a sentence speaks of something that was not asked: a supposition, a check, training, another model."""
    return says("aside", text.replace("_", " "))
