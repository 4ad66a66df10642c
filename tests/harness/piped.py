"""Submissions for the tests of grading: written to a folder, or served from this process's fork."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Generator
from pathlib import Path

from cs336_harness.grading import worker
from cs336_harness.grading.remote import RemoteSubject, Wire
from cs336_harness.subject.calling import Subject


@contextlib.contextmanager
def piped(subject: Subject, seconds: float = 30) -> Generator[RemoteSubject]:
    """A subject of this process, served by a fork of it, without a sandbox: for what the pipe does to a verdict."""
    children: list[int] = []

    def connect() -> Wire:
        ours, theirs = socket.socketpair()
        child = os.fork()
        if child == 0:
            try:
                ours.close()
                worker.serve(theirs, subject)
            finally:
                os._exit(0)
        theirs.close()
        children.append(child)

        def end() -> str:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            return "it was stopped"

        return Wire(ours, end, seconds)

    remote = RemoteSubject(connect, subject.name, subject.root, subject.path)
    try:
        remote.open(None)
        yield remote
    finally:
        remote.close()
        for child in children:
            os.waitpid(child, 0)


def written(folder: Path, adapters: str, **files: str) -> Path:
    """A submission of one adapters file, and of more files by name (``__`` for a slash, without ``.py``)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapters.py").write_text(adapters)
    for name, text in files.items():
        file = folder / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder
