"""Text that somebody else wrote, made fit to show: bounded, and without what moves a terminal or breaks a file."""

from __future__ import annotations

import unicodedata
from typing import Any

LONGEST = 2000


def clean(text: str, longest: int = LONGEST) -> str:
    """A text without control, surrogate and private characters, and no longer than it may be; lines stay lines.

    A tab becomes a space.
    """
    kept = "".join(
        each if each == "\n" or unicodedata.category(each)[0] != "C" else "\N{REPLACEMENT CHARACTER}"
        for each in text[: longest + 1].replace("\t", " ")
    )
    return kept if len(kept) <= longest else f"{kept[: longest - 2]} …"


def text_of(value: Any) -> str:
    """``str(value)``, cleaned; a value whose ``__str__`` raises has none."""
    try:
        return clean(str(value))
    except Exception as error:
        return f"(no text: its __str__ raised {type(error).__name__})"
