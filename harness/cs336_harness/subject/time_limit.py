"""How long a subject may compute: a limit that counts its processor time, and only while its code runs.

What the harness itself needs (its modules, the oracle, a busy machine) never counts against the subject.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from cs336_harness.places import is_own_file

CHECK_SECONDS = 30.0
"""Seconds that a decoder may compute in one check, wherever it is judged: a hundred times what a slow one needs."""

SECONDS_WHILE_SOMEBODY_WAITS = 10.0
"""The same in a watch: whoever saved an endless loop sits in front of the screen."""

COMPILED_CHECK_SECONDS = 600.0
"""The same where each new shape is compiled first."""

TOTAL_SECONDS, COMPILED_TOTAL_SECONDS = 600.0, 7200.0
"""Seconds that a whole run may take by the clock."""

AGAIN = 0.1
"""Seconds after which the limit speaks up again when somebody caught what it raised."""

GRACE = 1.0
"""Seconds past the limit after which the system ends the process: a call that never comes back hears nothing."""

Mark = Callable[[str], None]


class TimeUp(BaseException):
    """The time is over. No ``Exception``, so that no ``except Exception`` swallows it.

    ``what`` was being called, ``entry_point`` is the one it belongs to, ``places`` are the subject's own frames, and
    ``elsewhere`` is where it stood if that was in none of them.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds
        self.what = ""
        self.entry_point: str | None = None
        self.places: list[str] = []
        self.elsewhere: str | None = None

    def __str__(self) -> str:
        return did_not_end(self.what, self.seconds, self.elsewhere)


def did_not_end(what: str, seconds: float, elsewhere: str | None = None) -> str:
    """A sentence for a person; ``elsewhere`` is the file, none of the subject's own, in which it was at the end."""
    return f"{what} did not end in {seconds:g} s" + (
        f", while it was in {elsewhere}" if elsewhere else ": an endless loop?"
    )


class Clock:
    """Counts the processor time of what runs inside :meth:`running`, and raises :class:`TimeUp` there when it is over.

    ``mark`` is told what runs, and an empty string when that is over. With ``deadly`` the system ends the whole process
    with ``SIGVTALRM`` when it goes on all the same: only for a process that judges and does nothing else. Without a
    limit (None), outside of the main thread and on systems without such timers nothing is counted.
    """

    def __init__(self, seconds: float | None = None, *, mark: Mark | None = None, deadly: bool = False) -> None:
        self.seconds = seconds
        self.left = seconds or 0.0
        """Seconds that are not used up yet."""
        self._mark = mark or (lambda what: None)
        self._what = ""
        self._deadly = deadly
        self._inside = False
        self._before: Any = signal.SIG_DFL

    def restart(self, seconds: float | None) -> None:
        """Gives what runs next this many seconds."""
        self.seconds, self.left = seconds, seconds or 0.0

    @contextlib.contextmanager
    def running(self, what: str = "") -> Generator[None]:
        """Counts the time inside. Of one inside another, the outer counts and the inner is what runs."""
        counts = not self._inside and self.seconds is not None and _can_count()
        outer, self._what = self._what, what
        self._mark(what)
        try:
            if counts:
                self._start()
            yield
        finally:
            if counts:
                self._stop()
            self._what = outer
            self._mark(outer)

    def _start(self) -> None:
        self._before = signal.signal(signal.SIGPROF, self._over)
        left = max(self.left, AGAIN / 100)
        self._inside = True
        if self._deadly:
            signal.setitimer(signal.ITIMER_VIRTUAL, left + GRACE)
        signal.setitimer(signal.ITIMER_PROF, left, AGAIN)

    def _stop(self) -> None:
        self._inside = False
        left, _ = signal.setitimer(signal.ITIMER_PROF, 0)
        if self._deadly:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGPROF, self._before)
        self.left = min(self.left, left)

    def _over(self, number: int, frame: FrameType | None) -> None:
        self.left = 0.0
        if self._inside:
            raise TimeUp(self.seconds or 0.0)


def innermost_elsewhere(files: Iterable[str], root: Path | None) -> str | None:
    """Of the files of a stack, innermost first, the first if it is none of the subject's: where a library took long."""
    file = next((file for file in files if not file.startswith("<") and file != __file__), None)
    if file is None or root is None or is_own_file(file, root):
        return None
    parts = Path(file).parts
    return Path(*parts[parts.index("site-packages") + 1 :]).as_posix() if "site-packages" in parts else file


def _can_count() -> bool:
    return hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
