"""Numbers as people write and read them: grouped digits, decimal and binary units, shares, times."""

from __future__ import annotations

import re
from fractions import Fraction

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}
_NUMBER = r"\s*(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?)\s*"


def grouped(number: int) -> str:
    """1640452800 -> 1,640,452,800."""
    return f"{number:,}"


def readable(number: int, unit: str) -> str:
    """A count in the largest decimal unit that leaves at least one whole: 3516769894400 FLOPs -> 3.517 TFLOPs."""
    for exponent, prefix in ((21, "Z"), (18, "E"), (15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if number >= 10**exponent:
            return f"{number / 10**exponent:,.4g} {prefix}{unit}"
    return f"{number} {unit}"


def readable_count(number: int) -> str:
    """A count in words: 1640452800 -> 1.640 billion."""
    for exponent, word in ((12, "trillion"), (9, "billion"), (6, "million"), (3, "thousand")):
        if number >= 10**exponent:
            return f"{number / 10**exponent:,.3f} {word}"
    return str(number)


def readable_bytes(number: int) -> str:
    """Bytes in decimal and binary units, both named: 6.562 GB (6.111 GiB)."""
    for exponent, prefix in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "k")):
        if number >= 1000**exponent:
            binary = number / 1024**exponent
            return f"{number / 1000**exponent:,.4g} {prefix}B ({binary:,.4g} {prefix.upper()}iB)"
    return f"{number} bytes"


def percent(part: int, whole: int) -> str:
    """A share with one decimal; one that is too small to show is not shown as none."""
    if 0 < 2000 * part < whole:
        return "<0.1 %"
    return f"{100 * part / whole:.1f} %"


def readable_time(seconds: Fraction) -> str:
    """Seconds in the unit that people would choose: 0.18 s, 5.3 minutes, 31 days, 13.1 years."""
    for size, unit in ((365 * 86400, "years"), (2 * 86400, "days"), (2 * 3600, "hours"), (120, "minutes")):
        if seconds >= size:
            per = {"years": 365 * 86400, "days": 86400, "hours": 3600, "minutes": 60}[unit]
            return f"{float(seconds / per):,.4g} {unit}"
    for size, unit in ((Fraction(1), "s"), (Fraction(1, 1000), "ms")):
        if seconds >= size:
            return f"{float(seconds / size):.4g} {unit}"
    return f"{float(seconds * 10**6):.4g} µs"


def read_bytes(option: str, text: str) -> int:
    """80GB, 24 GiB, 512MB as bytes. Raises ValueError for anything else."""
    found = re.fullmatch(_NUMBER + r"(?P<prefix>[kmgtp]?)(?P<binary>i?)b(?:ytes?)?\s*", text, re.IGNORECASE)
    if not found or (found["binary"] and not found["prefix"]):
        raise ValueError(f"{option} is {text!r}; write it like 80GB or 24GiB")
    base = 1024 if found["binary"] else 1000
    size = int(Fraction(found["number"]) * base ** _POWERS[found["prefix"].lower()])
    if not 0 < size < 10**24:
        raise ValueError(f"{option} is {text!r}; it must be above 0 bytes and below 10^24")
    return size


def read_rate(option: str, text: str) -> Fraction:
    """312T, 19.5e12, "989 TFLOP/s" as FLOP/s. Raises ValueError for anything else."""
    found = re.fullmatch(_NUMBER + r"(?P<prefix>[kmgtpe]?)\s*(?:flops?(?:/s)?)?\s*", text, re.IGNORECASE)
    if not found:
        raise ValueError(f"{option} is {text!r}; write it like 312T or 19.5e12")
    rate = Fraction(found["number"]) * 1000 ** _POWERS[found["prefix"].lower()]
    if not 0 < rate < 10**30:
        raise ValueError(f"{option} is {text!r}; it must be above 0 FLOP/s and below 10^30")
    return rate


def read_share(option: str, text: str) -> Fraction:
    """0.5 or 50% as a share of one. Raises ValueError for anything else."""
    found = re.fullmatch(_NUMBER + r"(?P<percent>%?)\s*", text)
    share = Fraction(found["number"]) / (100 if found["percent"] else 1) if found else Fraction(0)
    if not 0 < share <= 1:
        raise ValueError(f"{option} is {text!r}; write a share above 0 and at most 1, like 0.5 or 50%")
    return share
