"""The saves of a watch: which Python files of the subject's repository were written."""

from __future__ import annotations

import contextlib
import queue
import threading
from pathlib import Path
from typing import Any

from cs336_harness.places import PACKAGE
from cs336_harness.subject.locating import NOT_SEARCHED

STEP_MS = 20
"""How long the disk must be quiet after a change before it counts as saved: an editor writes more than once."""
DEBOUNCE_MS = 200
"""How long a stream of changes may go on before it is judged all the same."""


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


def stamps(watched: set[Path]) -> dict[Path, int]:
    """When each Python file of the folders was last written."""
    found = {}
    for folder in watched:
        with contextlib.suppress(OSError):  # the folder went away
            for file in folder.glob("*.py"):
                with contextlib.suppress(OSError):
                    found[file] = file.stat().st_mtime_ns
    return found


def report_saves(root: Path, inbox: queue.Queue[tuple[str, Any]], stopping: threading.Event) -> None:
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
            now = stamps(watched)
            report({file for file in {*known, *now} if known.get(file) != now.get(file)})
        known = stamps(watched)
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
                known = stamps(watched)
                if folders(root) != watched:
                    break
        except OSError:  # a folder went away between two looks at it
            stopping.wait(0.2)
