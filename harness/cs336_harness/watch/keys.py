"""The keys of a watch: single letters that act at once, and a name that is typed and ended with Enter."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any

COMMANDS = {"q": "quit", "h": "hints", "f": "failed", "a": "all", "?": "legend"}
"""Letters that act at once where no name is being typed; no task begins with one of them."""

END = ("\x03", "\x04", "")
"""Ctrl-C, Ctrl-D and the end of input, which quit wherever they come."""

BACK = ("\x7f", "\x08")

Tell = Callable[[str, str], None]


def read_keys(characters: Iterable[str], tell: Tell) -> None:
    """Tells ``("command", …)``, ``("typing", what is typed so far)`` and ``("focus", a name)``.

    It takes no character after the one that quits: what is typed then is for the shell.
    """
    typed = ""
    for character in characters:
        command = COMMANDS.get(character.lower()) if not typed else None
        if character in END or command == "quit":
            break
        if command is not None:
            tell("command", command)
        elif character in ("\r", "\n"):
            tell("focus", typed) if typed else tell("command", "again")
            typed = ""
        elif character in BACK or character.isprintable():
            typed = typed[:-1] if character in BACK else typed + character
            tell("typing", typed)
    tell("command", "quit")


@contextlib.contextmanager
def keys_of_terminal(inbox: queue.Queue[tuple[str, Any]]) -> Generator[None]:
    """Sends what is typed, as long as this lasts; nothing when standard input is no terminal."""
    if not sys.stdin.isatty():
        yield
        return

    def tell(kind: str, what: str) -> None:
        inbox.put((kind, what))

    try:
        import termios
        import tty
    except ImportError:  # Windows: whole lines
        characters = (character for line in sys.stdin for character in _as_keys(line.strip()))
        threading.Thread(target=read_keys, args=(characters, tell), daemon=True).start()
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    threading.Thread(target=read_keys, args=(characters_of(descriptor), tell), daemon=True).start()
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _as_keys(line: str) -> str:
    return line if line.lower() in COMMANDS else f"{line}\n"


def characters_of(descriptor: int) -> Generator[str]:
    """One character at a time, as it is typed; an empty one when the input or the terminal is gone."""
    pressed = b"first"
    while pressed:
        try:
            pressed = os.read(descriptor, 1)
        except OSError:
            pressed = b""
        yield pressed.decode(errors="replace")
