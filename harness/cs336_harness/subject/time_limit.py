"""A limit on how long one check may run, so that an endless loop in a subject ends in a message."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Generator
from types import FrameType


@contextlib.contextmanager
def time_limit(seconds: float | None) -> Generator[None, None, None]:
    """Raises ``TimeoutError`` inside the block when ``seconds`` have passed, and again and again if it still goes on.

    Without effect for None, outside of the main thread, and on systems without ``SIGALRM``. A call that never comes
    back from C code cannot be ended this way.
    """
    possible = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if seconds is None or not possible:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"still running after {seconds:g} s: an endless loop?")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
