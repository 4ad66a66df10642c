"""Grading: a class of submissions, each judged in a process of its own that can reach nothing but its own files."""

from __future__ import annotations

import os
import sys

from cs336_harness.subject.failures import CannotJudgeError


def require_linux() -> None:
    """:class:`CannotJudgeError` on another system, where not even the modules of this room can be imported."""
    if sys.platform != "linux" or not hasattr(os, "fork"):
        raise CannotJudgeError("other people's code cannot be shut in here: that takes Linux 5.13 or newer")
