"""Where the saves, the keys and the events of a watch come together."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

from rich.console import Console

from cs336_harness.places import PACKAGE
from cs336_harness.subject.locating import NOT_SEARCHED, locate
from cs336_harness.watch.session import Session
from cs336_harness.watch.workers import CAN_FORK, ForkServer, FreshProcesses

TICK = 0.05
"""Seconds between two looks at what takes long, while a job is running."""
STEP_MS = 20
"""How long the disk must be quiet after a change before it counts as saved: an editor writes more than once."""
DEBOUNCE_MS = 200
"""How long a stream of changes may go on before it is judged all the same."""


def watch(
    console: Console, path: Path, *, timeout: float, keyword: str | None, fork: bool | None, diagnose: bool
) -> None:
    """Judges the subject now and after each save, until the person quits."""
    file = locate(path)
    root = file.parent.parent if file.parent.name == "tests" else file.parent
    inbox: queue.Queue[tuple[str, Any]] = queue.Queue()
    forking = CAN_FORK if fork is None else fork

    def tell(event: dict[str, Any]) -> None:
        inbox.put(("event", event))

    # The server is forked before any thread is there.
    workers = ForkServer(tell) if forking else FreshProcesses(tell)
    if not forking:
        console.print("a fresh process is started for each save: this platform cannot fork one that has torch loaded")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the terminal is put back, whoever ends the watch
    stopping = threading.Event()
    with tempfile.TemporaryDirectory(prefix="cs336-watch-") as folder, keys_of_terminal(inbox):
        log = Path(folder) / "log"
        session = Session(console, workers, file, root, log, timeout=timeout, keyword=keyword, diagnose=diagnose)
        threading.Thread(target=_report_saves, args=(root, inbox, stopping), daemon=True).start()
        try:
            session.run(f"watching {root}")
            while _take(inbox, session, console):
                pass
        except KeyboardInterrupt:
            pass
        finally:
            stopping.set()
            workers.close()


def _take(inbox: queue.Queue[tuple[str, Any]], session: Session, console: Console) -> bool:
    """Handles one thing that happened; False when the watch is over."""
    session.tick()
    try:
        kind, what = inbox.get(timeout=TICK if session.live else None)
    except queue.Empty:
        return True
    if kind == "key":
        return session.key(what)
    if kind == "saved":
        session.saved(what)
    elif kind == "harness":
        console.print(f"{what} changed: start the watch again to use it")
    elif what["event"] == "gone":
        console.print("the process that has torch loaded is gone; start the watch again")
        return False
    else:
        session.event(what)
    return True


def folders(root: Path) -> set[Path]:
    """The folders whose files make the subject: all but hidden ones, environments, and this harness."""
    found, waiting = set(), [root]
    while waiting:
        folder = waiting.pop()
        found.add(folder)
        with contextlib.suppress(OSError):
            waiting += [
                child
                for child in folder.iterdir()
                if child.is_dir()
                and not child.is_symlink()
                and not child.name.startswith(".")
                and child.name not in NOT_SEARCHED
                and not (child / "pyvenv.cfg").exists()
            ]
    return found


def _stamps(watched: set[Path]) -> dict[Path, int]:
    """When each Python file of the folders was last written."""
    found = {}
    for file in (file for folder in watched for file in folder.glob("*.py")):
        with contextlib.suppress(OSError):
            found[file] = file.stat().st_mtime_ns
    return found


def _report_saves(root: Path, inbox: queue.Queue[tuple[str, Any]], stopping: threading.Event) -> None:
    """Reports each save until the watch stops. New folders are taken in; a root that is gone is waited for."""
    import watchfiles

    def report(files: set[Path]) -> None:
        own = {file for file in files if not file.is_relative_to(PACKAGE)}
        for file in files - own:
            inbox.put(("harness", file.name))
        if own:
            inbox.put(("saved", own))

    known: dict[Path, int] | None = None
    while not stopping.is_set():
        watched = folders(root)
        if known is not None:
            now = _stamps(watched)
            report({file for file in {*known, *now} if known.get(file) != now.get(file)})
        known = _stamps(watched)
        try:
            for changes in watchfiles.watch(
                *watched,
                watch_filter=None,
                recursive=False,
                step=STEP_MS,
                debounce=DEBOUNCE_MS,
                stop_event=stopping,
                raise_interrupt=False,
            ):
                report({Path(name) for _, name in changes if name.endswith(".py")})
                known = _stamps(watched)
                if folders(root) != watched:
                    break
        except OSError:  # a folder went away between two looks at it
            stopping.wait(0.2)


@contextlib.contextmanager
def keys_of_terminal(inbox: queue.Queue[tuple[str, Any]]) -> Generator[None]:
    """Sends each key that is pressed, as long as this lasts; nothing when standard input is no terminal."""
    if not sys.stdin.isatty():
        yield
        return
    try:
        import termios
        import tty
    except ImportError:  # Windows: the letter and Enter
        threading.Thread(target=_report_lines, args=(inbox,), daemon=True).start()
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    threading.Thread(target=_report_keys, args=(descriptor, inbox), daemon=True).start()
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _report_keys(descriptor: int, inbox: queue.Queue[tuple[str, Any]]) -> None:
    """Reports each byte; the end of input, or of the terminal, is a q."""
    pressed = b"first"
    while pressed:
        try:
            pressed = os.read(descriptor, 1)
        except OSError:
            pressed = b""
        inbox.put(("key", pressed.decode(errors="replace") or "q"))


def _report_lines(inbox: queue.Queue[tuple[str, Any]]) -> None:
    for line in sys.stdin:
        inbox.put(("key", line.strip()[:1] or "\n"))
