"""The written answer of a submission: text that somebody else wrote, read by a process that can be ended."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

from cs336_harness.subject.text import clean

WRITEUP = "WRITEUP.md"
LONGEST = 512 << 10
SECONDS = 20.0
"""How long reading it may take, by the clock: no text is worth more, and some make a parser take for ever."""

TOO_LONG = f"it could not be read in {SECONDS:g} s"


def judged(folder: Path, seconds: float = SECONDS) -> dict[str, Any] | None:
    """How many of the questions are answered right; None when there is no written answer.

    The keys are ``passed``, ``right``, ``asked``, and ``reason`` where it cannot be judged.
    """
    file = folder / WRITEUP
    if not file.is_file() or file.stat().st_size > LONGEST:
        return None
    if sys.platform != "linux":  # a fork of a process that has PyTorch loaded is not safe everywhere
        return _read(file)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            os.write(writing, json.dumps(_read(file)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        return json.loads(_all_of(reading, time.monotonic() + seconds))
    except (TimeoutError, ValueError):
        return {"passed": False, "right": 0, "asked": 0, "reason": TOO_LONG}
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _all_of(reading: int, until: float) -> bytes:
    data = b""
    while select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]:
        part = os.read(reading, 1 << 16)
        if not part:
            return data
        data += part
    raise TimeoutError


def _read(file: Path) -> dict[str, Any]:
    from cs336_harness.writeup.questions import judge_file
    from cs336_harness.writeup.summary import judgement_json

    try:
        answer = judge_file(file)
        counts = judgement_json(answer, WRITEUP)["summary"]
    except Exception as error:
        return {"passed": False, "right": 0, "asked": 0, "reason": clean(str(error), 300)}
    asked = counts["right"] + counts["wrong"] + counts["missing"]
    return {"passed": answer.passed, "right": counts["right"], "asked": asked, "reason": None}
