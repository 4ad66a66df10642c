"""The words of ``words.toml``, English and Chinese: which of its lists a text speaks of."""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path
from typing import Any


@functools.cache
def table() -> dict[str, Any]:
    """The whole table."""
    return tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


@functools.cache
def any_of(name: str) -> re.Pattern[str]:
    """A pattern of any phrase of a list of signs."""
    return phrases(table()["signs"][name])


def says(name: str, text: str) -> bool:
    """Whether a text holds a phrase of a list of signs."""
    return bool(any_of(name).search(text))


def phrases(listed: str) -> re.Pattern[str]:
    """A pattern of any phrase of a list."""
    return re.compile(alternatives(listed), re.IGNORECASE)


def alternatives(listed: str) -> str:
    """The phrases of a list, as the head of the table describes them, as one regular expression."""
    found = (phrase.strip(" ,") for line in listed.splitlines() for phrase in re.split(r",\s", line))
    return f"{_EDGE}(?:{'|'.join(_written_out(phrase) for phrase in found if phrase)}){_EDGE}"


_EDGE = r"(?!(?<=[A-Za-z0-9_])[A-Za-z0-9_])"


def _written_out(phrase: str) -> str:
    parts = table()["parts"]
    while re.search(r"\{[a-z_]+\}", phrase):
        phrase = re.sub(r"\{([a-z_]+)\}", lambda match: parts[match.group(1)], phrase)
    return phrase.replace("~", r"[\s_-]*").replace("…", "[A-Za-z0-9_]*")
