"""Files that a command is asked to write: refused in one line before the work, not after it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from cs336_harness.subject.failures import CannotJudgeError


def require_writable_file(option: str, path: Path) -> None:
    """:class:`CannotJudgeError` unless a file can be written there."""
    folder = path.resolve().parent
    if path.is_dir():
        raise CannotJudgeError(f"{option} {path}: that is a folder; give the name of a file")
    if not folder.is_dir():
        raise CannotJudgeError(f"{option} {path}: there is no folder {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise CannotJudgeError(f"{option} {path}: it may not be written")


def require_html(path: Path) -> None:
    """:class:`CannotJudgeError` unless a page can be written there, in place of nothing or of an earlier page."""
    from cs336_harness.picture.page import require_page

    require_writable_file("--html", path)
    require_page("--html", path)


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
