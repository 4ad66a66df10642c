"""Numbers as people read them: grouped digits, decimal and binary units, shares."""


def grouped(number: int) -> str:
    """1640452800 -> 1,640,452,800."""
    return f"{number:,}"


def readable(number: int, unit: str) -> str:
    """A count in the largest decimal unit that leaves at least one whole: 3516769894400 FLOPs -> 3.517 TFLOPs."""
    for exponent, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
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
