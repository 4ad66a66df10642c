"""A uv.lock without the addresses of any package index: exact versions, so that every mirror works.

uv completes such a file in the work tree on first use, from whatever index its user has set up.
"""

from __future__ import annotations

import re


def strip(text: str) -> str:
    """The lock without ``sdist`` and ``wheels`` entries and metadata tables, every registry called ``index``."""
    text = re.sub(r"^sdist = .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^wheels = \[\n(?: .*\n)*\]\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\[package\.metadata[^\n]*\]\n(?:(?!\[)[^\n]+\n|\n(?!\[\[?))*", "", text, flags=re.MULTILINE)
    text = re.sub(r'registry = "[^"]*"', 'registry = "index"', text)
    return re.sub(r"\n{3,}", "\n\n", text)
