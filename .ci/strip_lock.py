"""Keeps uv.lock index-neutral: exact versions, no download addresses, so that every mirror works.

python .ci/strip_lock.py           strips the file in place
python .ci/strip_lock.py --check   exit 1 and one line when the file holds an address or a checksum of a download
"""

from __future__ import annotations

import sys
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
LOCK = HOME / "uv.lock"
sys.path.insert(0, str(HOME / "harness"))

from cs336_harness.course.neutral_lock import strip  # noqa: E402 (found in the clone, before anything is installed)


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
