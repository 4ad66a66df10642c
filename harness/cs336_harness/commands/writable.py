"""Files that a command is asked to write: refused in one line before the work, not after it. Imports no torch."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from cs336_harness.subject.failures import CannotJudgeError

MADE_BY = b'<meta name="generator" content="cs336">'
"""Stands in the head of every page, so that a file of somebody else's is not overwritten."""


def require_writable_file(option: str, path: Path) -> None:
    """:class:`CannotJudgeError` unless a file can be written there: through another one beside it, in its place."""
    folder = path.resolve().parent
    if path.is_dir():
        raise CannotJudgeError(f"{option} {path}: that is a folder; give the name of a file")
    if path.exists() and not path.is_file():
        raise CannotJudgeError(f"{option} {path}: that is no plain file; give the name of one")
    if not folder.is_dir():
        raise CannotJudgeError(f"{option} {path}: there is no folder {folder}")
    if not all(os.access(each, os.W_OK) for each in (folder, path) if each.exists()):
        raise CannotJudgeError(f"{option} {path}: it may not be written")


def unwritten(option: str, path: Path, write: Callable[[], None]) -> str | None:
    """Writes a file; one line where what was seen before the work is no longer so, and the work is not lost for it."""
    try:
        write()
    except OSError as error:
        return f"{option} {path}: it could not be written: {error.strerror or error}"
    return None


def require_html(path: Path) -> None:
    """:class:`CannotJudgeError` unless a page can be written there, in place of nothing or of an earlier page."""
    require_writable_file("--html", path)
    try:
        beginning = path.read_bytes()[:2000] if path.exists() else MADE_BY
    except OSError as error:
        raise CannotJudgeError(f"--html {path}: {error.strerror}") from None
    if beginning and MADE_BY not in beginning:
        raise CannotJudgeError(f"--html {path}: a file that is no report of cs336 is there; give another name")


def require_plots(folder: Path) -> None:
    """:class:`CannotJudgeError` unless pictures can be drawn and written into the folder, which may not exist yet."""
    if folder.exists() and not folder.is_dir():
        raise CannotJudgeError(f"--plots {folder}: that is a file; give the name of a folder")
    nearest = next(parent for parent in (folder.resolve(), *folder.resolve().parents) if parent.exists())
    if not os.access(nearest, os.W_OK):
        raise CannotJudgeError(f"--plots {folder}: it may not be written")
    if importlib.util.find_spec("matplotlib") is None:
        raise CannotJudgeError(
            "--plots needs matplotlib, which is not installed here;"
            " run it with `uv run --extra plots cs336 check …` (or `pip install matplotlib`)"
        )


def write_json(data: dict[str, Any], path: Path) -> None:
    """Writes a JSON result through a temporary file, so that a reader never sees half of one."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(json.dumps(data, indent=2, allow_nan=False, default=str) + "\n")
    os.replace(unfinished, path)


@contextlib.contextmanager
def errors_told(subject: Path, json_path: Path | None, html_path: Path | None) -> Generator[None]:
    """Writes why nothing could be judged where the verdict was to stand: a loop over submissions has a file for each,
    and nothing of an earlier verdict stays behind.
    """
    try:
        yield
    except CannotJudgeError as error:
        told = {"subject": str(subject), "error": str(error)}
        if json_path is not None:
            write_json(told, json_path)
        if html_path is not None:
            from cs336_harness.picture import page

            page.write(told, html_path)
        raise
