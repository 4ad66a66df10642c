"""Numbers as they were written: the value, the last digit that was written, and the unit, all exact."""

from __future__ import annotations

import dataclasses
import re
from fractions import Fraction

from cs336_harness.cost.ledger import BYTES, FLOPS, PARAMETERS, RATIO, SHARE

_SCALES = {
    **dict.fromkeys(("thousand", "K", "k"), 10**3),
    **dict.fromkeys(("million", "mn", "M", "m", "百万"), 10**6),
    **dict.fromkeys(("billion", "bn", "G", "B", "b", "十亿"), 10**9),
    **dict.fromkeys(("trillion", "tn", "T", "万亿"), 10**12),
    "quadrillion": 10**15,
    "万": 10**4,
    "亿": 10**8,
}
_SCALE = (
    r"(?:(?P<scale>万亿|十亿|百万|亿|万|thousand|million|billion|trillion|quadrillion"
    r"|mn|bn|tn|[kKMGBTmb](?![A-Za-z0-9]))(?:\s|-)?\s?)"
)
_END = r"(?![A-Za-z])"
_SI = r"(?:(?:[kK]ilo|[mM]ega|[gG]iga|[tT]era|[pP]eta|[eE]xa|[kKMGTPE])?)"
_OF_PARAMETERS = r"(?:(?:trainable|learnable|model|total|unique|float32|[Ff][Pp]32|of the|more|fewer)\s+){0,3}"
_UNITS = (
    # What is counted, how much of it one is, what a prefix counts in; the unit's name, its prefixes, its spellings.
    (
        FLOPS,
        1,
        1000,
        "FLOPs",
        _SI,
        rf"[- ]?(?:FLOPs?|FLOPS|flops?|Flops?|floating[- ]point operations?|operations?){_END}",
    ),
    (FLOPS, 1, 1000, "FLOPs", "", r"次?(?:浮点)?运算"),
    (FLOPS, 1, 1000, "FLOPs", "[MGTP]", rf"F{_END}"),
    (FLOPS, 2, 1000, "MACs", _SI, rf"(?:MACs?|macs?|multiply[- ]?(?:adds?|accumulates?)){_END}"),
    (BYTES, 1, 1024, "iB", "[kKMGTP]", rf"i(?:B|bytes?){_END}"),
    (BYTES, 1, 1024, "iB", "kibi|mebi|gibi|tebi", "bytes?"),
    (BYTES, 1, 1000, "B", "[kKMGTP]", rf"(?:B|bytes?|b){_END}"),
    (BYTES, 1, 1000, "B", "kilo|mega|giga|tera", "bytes?"),
    (BYTES, 1, 1000, "bytes", "", rf"bytes?{_END}|个?字节"),
    (BYTES, Fraction(1, 8), 1000, "bits", "", rf"bits?{_END}"),
    (PARAMETERS, 1, 1000, "parameters", "", r"个?(?:可训练)?(?:的)?参数"),
    (PARAMETERS, 1, 1000, "parameters", "", rf"{_OF_PARAMETERS}(?:[Pp]arams?|[Pp]arameters?|[Ww]eights){_END}"),
    (SHARE, Fraction(1, 100), 1000, "%", "", r"%|percent(?:age points?)?|per ?cent|pct"),
    (RATIO, 1, 1000, "times", "", rf"times{_END}|倍|-?\s?fold{_END}|×(?!\s*[\d(A-Za-z])|[xX](?![\w×])(?!\s*[\d(])"),
)
_UNIT = "|".join(
    f"(?P<prefix{number}>{prefixes})(?P<unit{number}>{spelled})"
    for number, (*_, prefixes, spelled) in enumerate(_UNITS)
)
PREFIXES = "KMGTPE"
"""Of units, each a thousand, or 1,024, times the one before."""
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
_SCALED_UNIT = re.compile(rf"(?<![A-Za-z])[\s~]{{0,2}}{_SCALE}?[\s~-]{{0,2}}?(?:{_UNIT})")
_SCALE_ALONE = re.compile(rf"[\s~]?{_SCALE}")
_HEADER_SCALE = re.compile(rf"\((?:in )?{_SCALE}s?\)|\bin {_SCALE}s\b".replace("?P<scale>", "", 1))
_APPROXIMATE = re.compile(
    r"(?:≈|~|about|approximately|approx\.?|around|roughly|some|nearly|almost|ca\.?|circa|约|大约|近|≃)\s*$",
    re.IGNORECASE,
)
_RATIO_BEFORE = re.compile(
    r"(?:factor of|(?:^|[^\w\s)])\s*[×x]|(?<=[A-Za-z] )×)\s*(?:about|roughly|approximately|≈|~)?\s*$", re.IGNORECASE
)
_BOUND = re.compile(
    r"(?:less than|under|below|fewer than|at most|up to|more than|over|above|at least|greater than|exceed(?:s|ing)?"
    r"|beyond|[<>≤≥≪≫]|不到|超过|小于|大于|至少|至多|不足)\s*(?:about|roughly|the)?\s*$",
    re.IGNORECASE,
)
_RATE = re.compile(r"\s?(?:/\s?s(?:ec(?:ond)?)?(?![A-Za-z])|per second|每秒)")
_OTHER_THINGS = re.compile(r"\s?(?:elements?|entries|scalars|positions|samples|steps|元素)(?![a-z])", re.I)
_MORE_LETTERS = re.compile(r"\s*(?:[A-Za-z](?![A-Za-z])|[A-Za-z]_|[\^²³(])")
_OPERATOR_BEHIND = re.compile(r"\s*(?:[×*·/^²³]|\+\s*\(?[\dA-Za-z√]|[xX]\s*[\d(])(?<!/)|\s*/(?!\s*[A-Za-z])")
_OPERATOR_BEFORE = re.compile(r"(?:[×*·/^+]|[\d)]\s*[xX-])\s*\(?\s*$")


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

    def in_binary(self) -> Written | None:
        """These GB read as GiB, which most tools call GB; None for any other number."""
        if self.dimension != BYTES or len(self.unit) != 2 or self.unit[1] != "B":
            return None
        more = Fraction(1024, 1000) ** (1 + PREFIXES.index(self.unit[0].upper()))
        return dataclasses.replace(self, value=self.value * more, step=self.step * more)

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
    return [number for match in _NUMBER.finditer(text) if (number := _written(text, match)) is not None]


def unit_of_header(header: str) -> Unit | None:
    """The unit that a header states for the bare numbers below it: FLOPs (GFLOPs), Memory (GiB), Share (%)."""
    best: Unit | None = None
    for match in _SCALED_UNIT.finditer(header):
        unit = _unit(match)
        if unit.dimension != RATIO and (best is None or (unit.scale != 1 and best.scale == 1)):
            best = unit
    if (best is None or best.scale == 1) and (match := _HEADER_SCALE.search(header)):
        word = match.group("scale") or match.group(1)
        best = Unit(best.dimension if best else None, Fraction(_SCALES[word]), f"{word} {best.name}" if best else word)
    return best


def _written(text: str, match: re.Match[str]) -> Written | None:
    before = text[max(0, match.start() - _NEAR) : match.start()]
    mantissa_text, end = match.group("mantissa"), match.end()
    # A PDF may set digits apart: 29 .44, 1 ,328.
    if re.search(r"\d\s$" if mantissa_text[0] == "." else r"\d\s[.,]\d+\s$", before) or re.match(
        r"\s[.,]\d", text[end:]
    ):
        return None
    unit = Unit(None, Fraction(1), "")
    if found := _SCALED_UNIT.match(text, end) or _SCALE_ALONE.match(text, end):
        unit, end = _unit(found), found.end()
    rest = text[end : end + _NEAR]
    power = int(match.group("power") or match.group("exponent") or 0)
    if abs(power) > 60 or (mantissa_text == "10" and re.match(r"\s*\^", rest)):
        return None
    if unit.dimension is None and (
        (unit.name == "" and re.match(r"[A-Za-z_(√]", rest))
        or (len(unit.name) == 1 and _MORE_LETTERS.match(rest))  # 2 T D V is a formula, and no two trillions
        or _OTHER_THINGS.match(rest)
    ):
        return None
    mantissa, digits_after = _mantissa(mantissa_text)
    step = Fraction(0)
    if unit == Unit(None, Fraction(10**9), "B") and not digits_after and mantissa >= 10**6 and not power:
        unit = Unit(BYTES, Fraction(1), "bytes")  # 6,561,811,200 B are bytes; 1.64 B are billions
    else:
        scale = unit.scale * Fraction(10) ** power
        approximate = bool(_APPROXIMATE.search(before))
        if match.group("power") or match.group("exponent") or digits_after or unit.scale != 1:
            step = Fraction(1, 10**digits_after) * scale
        if approximate and not digits_after and mantissa % 10 == 0 and mantissa:
            step = max(step, Fraction(10 ** (len(str(mantissa)) - len(str(mantissa).rstrip("0")))) * scale)
        mantissa *= scale
        if unit.dimension is None and unit.name == "" and _RATIO_BEFORE.search(before):
            unit = Unit(RATIO, Fraction(1), "times")
        if unit.dimension in (SHARE, RATIO) and not step:
            step = scale
    operated = _OPERATOR_BEHIND.match(rest) or (unit.dimension != RATIO and _OPERATOR_BEFORE.search(before))
    # "1.64 B parameters / 6.56 GB" gives two answers
    two = unit.dimension is not None and (re.match(r"\s+/\s", rest) or re.search(r"[A-Za-z]\s+/\s+$", before))
    return Written(
        " ".join(text[match.start() : end].split()),
        mantissa,
        step,
        unit.dimension,
        unit.name,
        match.start(),
        end,
        working=bool(operated) and not two,
        rate=unit.dimension == FLOPS and bool(_RATE.match(rest)),
        bound=bool(_BOUND.search(before)),
        loose=unit.dimension == SHARE or bool(_APPROXIMATE.search(before)),
    )


def _mantissa(text: str) -> tuple[Fraction, int]:
    if re.fullmatch(r"\d{1,3}(?:\.\d{3}){2,}", text):
        text = text.replace(".", "")
    elif re.fullmatch(r"\d+,\d{1,2}", text):
        text = text.replace(",", ".")
    text = text.replace(",", "").replace(" ", "")
    whole, _, fraction = text.partition(".")
    return Fraction(int(whole + fraction or "0"), 10 ** len(fraction)), len(fraction)


def _unit(match: re.Match[str]) -> Unit:
    groups = match.groupdict()
    scale = Fraction(_SCALES.get(groups.get("scale") or "", 1))
    for number, (dimension, size, base, name, *_) in enumerate(_UNITS):
        if groups.get(f"unit{number}") is not None:
            prefix = groups[f"prefix{number}"][:1]
            factor = base ** (1 + PREFIXES.index(prefix.upper())) if prefix else 1
            return Unit(
                dimension, scale * size * factor, (prefix if name == "B" and prefix == "k" else prefix.upper()) + name
            )
    return Unit(None, scale, groups.get("scale") or "")
