"""What the processes of one job know of each other's progress: a byte for each check, in memory that they share."""

from __future__ import annotations

import mmap
from pathlib import Path

from cs336_harness.checks import all_checks

OPEN, BEGUN, TAKEN, PASSED = range(4)
"""Nobody has it; the judge has, or had it; a runner has it; a runner saw it pass."""


class Board:
    """The board of a job. The judge goes through the checks from the first to the last and alone decides; runners come
    to meet it from the last, and what they saw pass it need not run.

    Nothing locks it: at worst a check is run twice, and what the judge says of it stands.
    """

    def __init__(self, path: Path) -> None:
        self._places = {name: place for place, name in enumerate(all_checks())}
        with open(path, "r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), len(self._places))

    @staticmethod
    def make(path: Path) -> None:
        """A new board, on which all checks are open."""
        path.write_bytes(bytes(len(all_checks())))

    def begin(self, check_id: str) -> None:
        """The judge begins a check."""
        self._bytes[self._places[check_id]] = BEGUN

    def passed(self, check_id: str) -> bool:
        """Whether a runner saw it pass."""
        return self._bytes[self._places[check_id]] == PASSED

    def take(self, check_id: str) -> bool:
        """Gives a runner the check, unless somebody has it."""
        place = self._places[check_id]
        if self._bytes[place] != OPEN:
            return False
        self._bytes[place] = TAKEN
        return True

    def is_taken(self, check_id: str) -> bool:
        """Whether it is still a runner's: the judge has not come to it meanwhile."""
        return self._bytes[self._places[check_id]] == TAKEN

    def note_pass(self, check_id: str) -> None:
        """A runner saw it pass, and has told so."""
        self._bytes[self._places[check_id]] = PASSED
