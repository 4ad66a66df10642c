"""Keeps uv.lock index-neutral: exact versions, no download addresses, so that every mirror works.

    python .ci/strip_lock.py           strips the file in place
    python .ci/strip_lock.py --check   exit 1 and one line when the file holds an address or a checksum of a download

uv completes the stripped file in the work tree on first use, from whatever index its user has set up.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LOCK = Path(__file__).resolve().parent.parent / "uv.lock"


def strip(text: str) -> str:
    """The lock without ``sdist`` and ``wheels`` entries and metadata tables, every registry called ``index``."""
    text = re.sub(r"^sdist = .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^wheels = \[\n(?: .*\n)*\]\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\[package\.metadata[^\n]*\]\n(?:(?!\[)[^\n]+\n|\n(?!\[\[?))*", "", text, flags=re.MULTILINE)
    text = re.sub(r'registry = "[^"]*"', 'registry = "index"', text)
    return re.sub(r"\n{3,}", "\n\n", text)


def main() -> int:
    """Strips or checks; the exit status of the script."""
    text = LOCK.read_text(encoding="utf-8")
    if "--check" not in sys.argv[1:]:
        LOCK.write_text(strip(text), encoding="utf-8")
        return 0
    if strip(text) == text and "://" not in text:
        return 0
    print("uv.lock holds download addresses; strip it with `python .ci/strip_lock.py` and commit that", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
