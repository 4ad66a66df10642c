"""What stands around a number and says what it is: rows, columns, headings and the words of its sentence."""

from __future__ import annotations

import dataclasses
import re

from cs336_harness.cost.ledger import BYTES, FLOPS, PARAMETERS, RATIO, SHARE
from cs336_harness.writeup.numbers import Written

PART_DIMENSIONS = {"a": PARAMETERS, "b": FLOPS, "c": FLOPS, "d": FLOPS, "e": FLOPS}
"""What a bare number of a part is most likely about."""

_DIMENSION_WORDS = (
    (SHARE, re.compile(r"\bshares?\b|\bproportions?\b|\bpercent|%|\bfraction of\b|占比|比例|份额|百分比", re.I)),
    (
        FLOPS,
        re.compile(
            r"\b(?:[mgtp]?flops?|macs?|operations|compute|matmuls?|multipl(?:y|ies|ications?))\b|计算量|运算|浮点", re.I
        ),
    ),
    (BYTES, re.compile(r"\bmemory\b|\bbytes?\b|\bstorage\b|\b[GM]i?B\b|内存|显存|字节", re.I)),
    (PARAMETERS, re.compile(r"\bparam(?:eter)?s?\b|\bweights\b|#\s?param|参数", re.I)),
    (RATIO, re.compile(r"\btimes\b|\bratio\b|\bfactor\b|\bgrowth\b|倍", re.I)),
)
_MODEL_NAMED = re.compile(r"\bgpt-?\s?2[\s_-]*(?:\()?(small|medium|large|xl)\b", re.I)
_SIZE_NAMED = re.compile(r"\b(small|medium|large|xl)\b|(?<![\w大])(小|中|大)(?=型|\s*模型|号)", re.I)
_SIZE_ALONE = re.compile(
    r"\W*(?:the\s+)?(small|medium|large|xl)(?:\W*(?:model|%|share|flops?|[kmgtp]?flops?|占比))*\W*", re.I
)
_HAN_SIZES = {"小": "small", "中": "medium", "大": "large"}
_LENGTH = re.compile(
    r"(?:\b(?:T|S|L|n|seq(?:uence)?(?:[ _]len(?:gth)?)?|context(?:[ _](?:length|window|size))?|ctx(?:_len)?|length"
    r"|at|to|of|from|长度|上下文)"
    r"\s*(?:(?:of|is|为|是)\s*)?[=:→]?\s*|^\W*)"
    r"(512|1,?024|2,?048|4,?096|8,?192|16,?384|32,?768|65,?536|131,?072|16k|1k)\b(?!\s*[×x*·])"
    r"|\b(512|1,?024|2,?048|4,?096|8,?192|16,?384|32,?768|65,?536|131,?072|16k|1k)\s*(?:positions?|tokens?|context)",
    re.I,
)
_BEFORE_AND_AFTER = re.compile(
    r"\bfrom\b|\bbefore\b|\bcompared\b|\bversus\b|\bvs\b|\binstead of\b|\bwas\b|\boriginal|\bthan\b|→|->"
    r"|\bas many\b|从|由|原来|相比|之前",
    re.I,
)
_ASIDE = re.compile(
    r"\bif\b|\bwould\b|\bwere\b|\bcould\b|\bsuppose|\bassum|\bhypothetical|\binstead\b|\brule of thumb\b"
    r"|\bchecks?\b|\bsanity\b|\bcompar"
    r"|\bversus\b|\bvs\b|\boriginal\b|\bopenai|\breported\b|\bpublished\b|\bpaper\b|\bhugging|\bper token\b"
    r"|\bfor (?:each|one) token\b|\badam\w*|\bgrads?\b|\boptim\b|\bpeak\b|\bstatic\b|\boptimi[sz]er|\bgradients?\b"
    r"|\bmoments?\b|\bmemory used\b"
    r"|\bactivations?\b|\btraining\b|\bbackward\b|\bcausal(?:ity|ly)?\b|\bhalf\b|\bhalv|\btied?\b|\btying\b"
    r"|\bwithout\b|\bexclud|\bignor|\bneglect|\bomit"
    r"|\bnot count|\bminus\b|\bexcept\b|\bsubtract|\bsav(?:e|es|ing)\b|\bdifference\b|\bfewer\b|\b[ahv]100\b"
    r"|\bgpus?\b|\bper second\b|\bnot\b|\bmistake|\bwrong"
    r"|\be\.g\.|\bexample\b|\bestimat|\bmarginal|\badd(?:s|itional)?\b|\bextra\b|\bmore\b|\bless\b|\bremain"
    r"|\brest\b|\bother\b"
    r"|如果|假设|假如|若|检验|验证|相比|不含|不包括|除去|去掉|(?<!可)训练|反向|梯度|优化器|激活|其他|其余|剩余|绑定"
    r"|共享",
    re.I,
)
_ANOTHER_QUESTION = re.compile(
    r"\badam\w*|\boptimi[sz]er|\bgradients?\b|\bactivations?\b|\btraining\b|\bbackward\b|\bkv cache|\bmfu\b"
    r"|\bbatch size\b"
    r"|优化器|梯度|激活|(?<!可)训练|反向",
    re.I,
)
_BLOCK_SHARE = re.compile(
    r"\bof (?:the|a|one|each|every) (?:transformer )?(?:block|layer)\b|\b(?:within|inside|in) (?:a|one|each|the"
    r"|every) (?:single )?(?:transformer )?(?:block|layer)\b"
    r"|\bper[- ](?:block|layer)\b|\bof (?:the )?block\b|\bblock share\b|层内|块内|每层|每个块|单层",
    re.I,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """A number and what it may stand for.

    ``readings`` are sets of components, the likeliest first; empty when the text names none. ``scopes`` holds ``layer``
    and ``model`` as far as the text leaves them open. ``certain`` is whether label or sentence says plainly, in known
    words only, what the number is, ``sure`` whether they say what it counts, and ``aside`` whether they speak of
    something that was not asked. ``models`` and ``lengths`` are those that the text names for it; none when it names
    none. ``formula`` is the expression whose value the number is said to be. ``shapeless`` marks words without a verb,
    as of a row that has lost its table.
    """

    number: Written
    line: int
    part: str | None
    dimension: str | None
    readings: tuple[frozenset[str], ...]
    scopes: frozenset[str]
    label: str
    context: str
    certain: bool
    sure: bool = True
    aside: bool = False
    models: frozenset[str] = frozenset()
    lengths: frozenset[int] = frozenset()
    of_block: bool = False
    before_and_after: bool = False
    formula: str = ""
    table: int | None = None
    column: int | None = None
    each: bool = False
    shapeless: bool = False
    paragraph: str = ""


def dimensions_in(text: str) -> list[tuple[int, str]]:
    """The dimensions that a text's words speak of, each with its place."""
    return [(match.start(), name) for name, pattern in _DIMENSION_WORDS for match in pattern.finditer(text)]


def first_dimension(text: str) -> str | None:
    """The dimension that a header or a heading speaks of; a share of FLOPs is a share."""
    return next((name for name, pattern in _DIMENSION_WORDS if pattern.search(text)), None)


def models_named(text: str, *, by_size: bool = False) -> frozenset[str]:
    """The GPT-2 sizes that a text names. An adjective is none, unless ``by_size`` says that sizes are spoken of."""
    if alone := _SIZE_ALONE.fullmatch(text):
        return frozenset((alone.group(1).lower(),))
    pattern = _SIZE_NAMED if by_size else _MODEL_NAMED
    found = (next(group for group in match.groups() if group).lower() for match in pattern.finditer(text))
    return frozenset(_HAN_SIZES.get(name, name) for name in found)


def lengths_named(text: str) -> frozenset[int]:
    """The sequence lengths that a text names."""
    return frozenset(_length(match.group(1) or match.group(2)) for match in _LENGTH.finditer(text))


def _length(text: str) -> int:
    return {"16k": 16384, "1k": 1024}.get(text.lower()) or int(text.replace(",", ""))


def is_before_and_after(text: str) -> bool:
    """Whether a sentence sets two states side by side, so that a number in it may be of either."""
    return bool(_BEFORE_AND_AFTER.search(text))


def is_aside(text: str) -> bool:
    """Whether a sentence speaks of something that was not asked: a supposition, a check, training, another model."""
    return bool(_ASIDE.search(text.replace("_", " ")))


def is_of_block(text: str) -> bool:
    """Whether a share is one of a block's cost, not of the model's."""
    return bool(_BLOCK_SHARE.search(text))


def is_another_question(heading: str) -> bool:
    """Whether a heading is about what training keeps or costs, of which no part of this problem asks."""
    return bool(_ANOTHER_QUESTION.search(heading))
