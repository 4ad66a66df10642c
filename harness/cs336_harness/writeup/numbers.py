"""Numbers as they were written: the value, the last digit that was written, and the unit, all exact."""

from __future__ import annotations

import dataclasses
import re
from fractions import Fraction

from cs336_harness.cost.ledger import BYTES, FLOPS, PARAMETERS, RATIO, SHARE

_PREFIXES = {
    **dict.fromkeys(("k", "K", "kilo", "Kilo"), 10**3),
    **dict.fromkeys(("M", "mega", "Mega"), 10**6),
    **dict.fromkeys(("G", "giga", "Giga"), 10**9),
    **dict.fromkeys(("T", "tera", "Tera"), 10**12),
    **dict.fromkeys(("P", "peta", "Peta"), 10**15),
    **dict.fromkeys(("E", "exa", "Exa"), 10**18),
}
_BINARY = {"k": 1, "K": 1, "kibi": 1, "M": 2, "mebi": 2, "G": 3, "gibi": 3, "T": 4, "tebi": 4, "P": 5}
_WORDS = {
    "thousand": 10**3,
    "million": 10**6,
    "mn": 10**6,
    "billion": 10**9,
    "bn": 10**9,
    "trillion": 10**12,
    "tn": 10**12,
    "quadrillion": 10**15,
    "K": 10**3,
    "k": 10**3,
    "M": 10**6,
    "m": 10**6,
    "G": 10**9,
    "B": 10**9,
    "b": 10**9,
    "T": 10**12,
    "万": 10**4,
    "百万": 10**6,
    "亿": 10**8,
    "十亿": 10**9,
    "万亿": 10**12,
}

_SI = "|".join(sorted(_PREFIXES, key=len, reverse=True))
_UNIT = (
    rf"(?:(?P<flops_prefix>{_SI})?[- ]?(?:FLOPs?|FLOPS|flops?|Flops?|floating[- ]point operations?"
    rf"|operations?)(?![A-Za-z])"
    r"|(?P<han_flops>次?(?:浮点)?运算)"
    rf"|(?P<f_prefix>[MGTP])F(?![A-Za-z])"
    rf"|(?P<macs_prefix>{_SI})?(?P<macs>MACs?|macs?|multiply[- ]?(?:adds?|accumulates?))(?![A-Za-z])"
    r"|(?P<binary>[kKMGTP])i(?:B|bytes?)(?![A-Za-z])|(?P<binary_word>kibi|mebi|gibi|tebi)bytes?"
    r"|(?P<decimal>[kKMGTP])(?:B|bytes?|b)(?![A-Za-z])|(?P<decimal_word>kilo|mega|giga|tera)bytes?"
    r"|(?P<bytes>bytes?(?![A-Za-z])|个?字节)|(?P<bits>bits?)(?![A-Za-z])"
    r"|(?P<han_parameters>个?(?:可训练)?(?:的)?参数)"
    r"|(?P<parameters>(?:(?:trainable|learnable|model|total|unique|float32|[Ff][Pp]32|of the|more|fewer)"
    r"\s+){0,3}(?:[Pp]arams?|[Pp]arameters?|[Ww]eights)(?![A-Za-z]))"
    r"|(?P<percent>%|percent(?:age points?)?|per ?cent|pct)"
    r"|(?P<ratio>times(?![A-Za-z])|倍|-?\s?fold(?![A-Za-z])|×(?!\s*[\d(A-Za-z])|[xX](?![\w×])(?!\s*[\d(])))"
)
_SCALE = (
    r"(?:(?P<scale>万亿|十亿|百万|亿|万|thousand|million|billion|trillion|quadrillion"
    r"|mn|bn|tn|[kKMGBTmb](?![A-Za-z0-9]))(?:\s|-)?\s?)"
)
_NEAR = 60
"""How many characters around a number may say what it is: "about", "factor of", an operator."""

_MANTISSA = (
    r"(?:\d{1,3}(?:,\d{3}){1,9}(?:\.\d{1,20})?(?!\d)|\d{1,3}(?:\.\d{3}){2,9}(?!\d)"
    r"|\d{1,3}(?: \d{3}){2,9}(?!\d)"
    r"|\d{1,30},\d{1,2}(?=\s?(?:[kKMGT]i?B\b|[MGT]?FLOP|billion|million|trillion|%|×\s?10|[eE]\d))"
    r"|\d{1,30}\.\d{1,30}|\d{1,30}(?!\d)|\.\d{1,30})"
)
_NUMBER = re.compile(
    rf"(?<![\w.,^])(?<![A-Za-z]-)(?P<mantissa>{_MANTISSA})"
    r"(?:\s*[×x*·]\s*10\s*\^\s*(?P<power>[+-]?\d+)|[eE](?P<exponent>[+-]?\d+)(?!\w))?"
)
_SCALED_UNIT = re.compile(rf"(?<![A-Za-z])[\s~]{{0,2}}{_SCALE}?[\s~-]{{0,2}}?{_UNIT}")
_SCALE_ALONE = re.compile(rf"[\s~]?{_SCALE}")
_HEADER_SCALE = re.compile(rf"\((?:in )?{_SCALE}s?\)|\bin {_SCALE}s\b".replace("?P<scale>", "", 1))
_APPROXIMATE = re.compile(
    r"(?:≈|~|about|approximately|approx\.?|around|roughly|some|nearly|almost|ca\.?|circa|约|大约|近|≃)\s*$",
    re.IGNORECASE,
)
_RATIO_BEFORE = re.compile(
    r"(?:factor of|(?:^|[^\w\s)])\s*[×x]|(?<=[A-Za-z] )×)\s*(?:about|roughly|approximately|≈|~)?\s*$", re.IGNORECASE
)


_MORE_LETTERS = re.compile(r"\s*(?:[A-Za-z](?![A-Za-z])|[A-Za-z]_|[\^²³(])")
_RATE = re.compile(r"\s?(?:/\s?s(?:ec(?:ond)?)?(?![A-Za-z])|per second|每秒)")
_BROKEN_BEFORE = re.compile(r"\d\s[.,]\d+\s$")
_BROKEN_BEHIND = re.compile(r"\s[.,]\d")
"""What a PDF makes of a number whose digits it sets one by one: 29 .44, 1 ,328."""
_OTHER_THINGS = re.compile(r"\s?(?:elements?|entries|scalars|positions|samples|steps|元素)(?![a-z])", re.I)
_BOUND = re.compile(
    r"(?:less than|under|below|fewer than|at most|up to|more than|over|above|at least|greater than|exceed(?:s|ing)?"
    r"|beyond|[<>≤≥≪≫]"
    r"|不到|超过|小于|大于|至少|至多|不足)\s*(?:about|roughly|the)?\s*$",
    re.IGNORECASE,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Unit:
    """A unit: its dimension (None when only a scale was written), its size, and how it is called."""

    dimension: str | None
    scale: Fraction
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """A number in a text.

    ``value`` is in base units (parameters, bytes, FLOPs, a share of one, a ratio); ``step`` is what one in the last
    written digit is worth, 0 for a number that was written out exactly. ``dimension`` is None when no unit says it.
    ``working`` marks an operand of a sum or product, which is no answer; ``rate`` a unit per second, and ``bound`` a
    limit such as "less than 1 %", which states no value. ``loose`` marks digits that may as well have been cut off.
    """

    text: str
    value: Fraction
    step: Fraction
    dimension: str | None
    unit: str
    start: int
    end: int
    working: bool
    rate: bool = False
    bound: bool = False
    loose: bool = False

    @property
    def names_itself(self) -> bool:
        """Whether so many digits were written that a quantity equal to it is the quantity that was meant."""
        return self.value >= 10**6 and self.step * 20_000 <= self.value

    def matches(self, true: Fraction | int) -> bool:
        """Whether this is the true value, rounded to the digits that were written and no further.

        What is "about" so much, or a share, which is worked out from rounded numbers, may also be cut off there.
        """
        cut_off = self.loose and 0 < true - self.value < self.step
        return self.value == true or 2 * abs(self.value - true) <= self.step or cut_off

    @property
    def exact(self) -> bool:
        """Whether every digit was written."""
        return self.step == 0

    def in_unit(self, unit: Unit) -> Written:
        """This bare number read in the unit that a table's header states for it."""
        step = self.step if self.step or unit.scale == 1 else Fraction(1)
        return dataclasses.replace(
            self,
            value=self.value * unit.scale,
            step=step * unit.scale,
            dimension=unit.dimension or self.dimension,
            unit=unit.name or self.unit,
        )


def find_numbers(text: str) -> list[Written]:
    """The numbers of a plain text, in order; coefficients such as the 8 of 8TD² are left out."""
    found = []
    for match in _NUMBER.finditer(text):
        number = _written(text, match)
        if number is not None:
            found.append(number)
    return found


def unit_of_header(header: str) -> Unit | None:
    """The unit that a header states for the bare numbers below it: FLOPs (GFLOPs), Memory (GiB), Share (%)."""
    best: Unit | None = None
    for match in _SCALED_UNIT.finditer(header):
        if match.group("ratio"):
            continue
        unit = _unit(match)
        if best is None or (unit.scale != 1 and best.scale == 1):
            best = unit
    if (best is None or best.scale == 1) and (match := _HEADER_SCALE.search(header)):
        word = match.group("scale") or match.group(1)
        scale = Fraction(_WORDS[word])
        best = Unit(best.dimension if best else None, scale, f"{word} {best.name}" if best else word)
    return best


def _written(text: str, match: re.Match[str]) -> Written | None:
    before = text[max(0, match.start() - _NEAR) : match.start()]
    end = match.end()
    mantissa_text = match.group("mantissa")
    if mantissa_text[0] == "." and re.search(r"\d\s$", before):
        return None
    if _BROKEN_BEFORE.search(before) or _BROKEN_BEHIND.match(text, end):
        return None
    unit = Unit(None, Fraction(1), "")
    if found := _SCALED_UNIT.match(text, end) or _SCALE_ALONE.match(text, end):
        unit, end = _unit(found), found.end()
    rest = text[end : end + _NEAR]
    if unit.name == "" and re.match(r"[A-Za-z_(√]", rest):
        return None
    if unit.dimension is None and _OTHER_THINGS.match(rest):
        return None
    if unit.dimension is None and len(unit.name) == 1 and _MORE_LETTERS.match(rest):
        return None  # 2 T D V is a formula, and no two trillions
    mantissa, digits_after = _mantissa(mantissa_text)
    power = int(match.group("power") or match.group("exponent") or 0)
    if abs(power) > 60:
        return None
    if mantissa_text == "10" and re.match(r"\s*\^", rest):
        return None
    scale = unit.scale * Fraction(10) ** power
    approximate = bool(_APPROXIMATE.search(before))
    scaled = bool(match.group("power") or match.group("exponent") or digits_after or unit.scale != 1)
    step = Fraction(1, 10**digits_after) * scale if scaled else Fraction(0)
    if approximate and not digits_after and mantissa:
        zeros = len(str(mantissa)) - len(str(mantissa).rstrip("0"))
        step = max(step, Fraction(10**zeros) * scale) if zeros else step
    if unit.dimension is None and unit.name == "B" and not digits_after and mantissa >= 10**6 and not power:
        # 6,561,811,200 B are bytes; 1.64 B are billions.
        return _make(text, (match.start(), end), mantissa, Fraction(0), Unit(BYTES, Fraction(1), "bytes"))
    if unit.dimension is None and unit.name == "" and _RATIO_BEFORE.search(before):
        unit = Unit(RATIO, Fraction(1), "times")
    if unit.dimension in (SHARE, RATIO) and not step:
        step = scale
    return _make(text, (match.start(), end), mantissa * scale, step, unit)


def _make(text: str, span: tuple[int, int], value: Fraction, step: Fraction, unit: Unit) -> Written:
    before, rest = text[max(0, span[0] - _NEAR) : span[0]], text[span[1] : span[1] + _NEAR]
    working = bool(re.match(r"\s*(?:[×*·/^²³]|\+\s*\(?[\dA-Za-z√]|[xX]\s*[\d(])", rest)) and not re.match(
        r"\s*/\s*[A-Za-z]", rest
    )
    working = working or (unit.dimension != RATIO and bool(re.search(r"(?:[×*·/^+]|[\d)]\s*[xX-])\s*\(?\s*$", before)))
    if unit.dimension is not None and (re.match(r"\s+/\s", rest) or re.search(r"[A-Za-z]\s+/\s+$", before)):
        working = False  # "1.64 B parameters / 6.56 GB" gives two answers
    rate = unit.dimension == FLOPS and bool(_RATE.match(rest))
    bound = bool(_BOUND.search(before))
    loose = unit.dimension == SHARE or bool(_APPROXIMATE.search(before))
    shown = text[span[0] : span[1]].strip()
    return Written(shown, value, step, unit.dimension, unit.name, *span, working, rate, bound, loose)


def _mantissa(text: str) -> tuple[Fraction, int]:
    if re.fullmatch(r"\d{1,3}(?:\.\d{3}){2,}", text):
        text = text.replace(".", "")
    elif re.fullmatch(r"\d+,\d{1,2}", text):
        text = text.replace(",", ".")
    text = text.replace(",", "").replace(" ", "")
    whole, _, fraction = text.partition(".")
    return Fraction(int(whole + fraction or "0"), 10 ** len(fraction)), len(fraction)


def _unit(match: re.Match[str]) -> Unit:
    groups = {name: value for name, value in match.groupdict().items() if value is not None}
    scale = Fraction(_WORDS.get(groups.get("scale", ""), 1))
    matched = match.group(0)
    if any(name in groups for name in ("flops_prefix", "f_prefix")) or re.search(
        r"(?i)flops?|floating|operation|运算", matched
    ):
        prefix = groups.get("flops_prefix") or groups.get("f_prefix") or ""
        return Unit(FLOPS, scale * _PREFIXES.get(prefix, 1), f"{prefix[0].upper() if prefix else ''}FLOPs")
    if "macs" in groups:
        prefix = groups.get("macs_prefix", "")
        return Unit(FLOPS, 2 * scale * _PREFIXES.get(prefix, 1), f"{prefix[:1].upper()}MACs")
    if "binary" in groups or "binary_word" in groups:
        prefix = groups.get("binary") or groups["binary_word"]
        return Unit(BYTES, scale * 1024 ** _BINARY[prefix], f"{prefix[0].upper()}iB")
    if "decimal" in groups or "decimal_word" in groups:
        prefix = groups.get("decimal") or groups["decimal_word"]
        return Unit(BYTES, scale * _PREFIXES[prefix], f"{prefix[0].upper() if prefix[0] != 'k' else 'k'}B")
    if "bytes" in groups:
        return Unit(BYTES, scale, "bytes")
    if "bits" in groups:
        return Unit(BYTES, scale / 8, "bits")
    if "parameters" in groups or "han_parameters" in groups:
        return Unit(PARAMETERS, scale, "parameters")
    if "percent" in groups:
        return Unit(SHARE, scale / 100, "%")
    if "ratio" in groups:
        return Unit(RATIO, scale, "times")
    return Unit(None, scale, groups.get("scale", ""))
