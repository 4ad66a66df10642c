"""Modules of the subject's own that an import does not find, and the files that were meant. Imports no torch."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from cs336_harness.subject.locating import children_of

TO_COMPILE = {".pyi", ".pyx", ".c", ".cc", ".cpp", ".cu", ".rs"}
"""What stands in a repository for a module that an installation compiles."""


def missing_own_module(error: BaseException | None, root: Path) -> str | None:
    """What an import asks for and which file under ``root`` was meant, in words; None where no file is near it."""
    wanted = _wanted(error)
    if wanted is None:
        return None
    for base in (root, root / "src"):
        meant = _meant(base, wanted.split("."))
        if meant is not None:
            return f"imports {wanted}, and {_reason(meant, wanted, root)}"
    return None


def raised_by_an_import(error: BaseException | None, root: Path | None) -> bool:
    """Whether the statements of a file under ``root`` that run when it is imported raised it, and no function did."""
    if error is None or root is None:
        return False
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).is_relative_to(root)]
    return bool(frames) and frames[-1].name == "<module>"


def file_read_by_an_import(error: BaseException, root: Path) -> str | None:
    """What to do where importing a file under ``root`` opens another that is not there; None for any other error."""
    if not isinstance(error, OSError) or not raised_by_an_import(error, root):
        return None
    return (
        f"importing this file raised {type(error).__name__}: {error}; what is to happen only when the file is run"
        ' belongs under `if __name__ == "__main__":`'
    )


def _wanted(error: BaseException | None) -> str | None:
    """The full name of the module that an import did not find."""
    if isinstance(error, ModuleNotFoundError):
        return error.name
    if isinstance(error, ImportError):
        found = re.search(r"cannot import name '(\w+)' from (?:partially initialized module )?'([\w.]+)'", str(error))
        return f"{found[2]}.{found[1]}" if found else None
    return None


def _meant(folder: Path, parts: list[str]) -> Path | None:
    """What lies where the first missing part of the name is looked for, and has nearly its name."""
    for part in parts:
        children = children_of(folder)
        if folder / f"{part}.py" in children:
            return None
        if folder / part in children:
            folder /= part
            continue
        python = [child for child in children if child.suffix == ".py" or child.is_dir()]
        compiled = [child for child in children if child.suffix in TO_COMPILE and child.stem == part]
        return next((child for child in python if child.stem.lower() == part.lower()), next(iter(compiled), None))
    return None


def _reason(meant: Path, wanted: str, root: Path) -> str:
    file = meant.relative_to(root)
    if meant.suffix in TO_COMPILE:
        return (
            f"{file} stands for a module that is compiled first, which has not been done here; that is the environment,"
            " no fault of the decoder: build it as its repository says, often with `uv sync` or `pip install -e .`"
        )
    return f"the file is {file}: Linux tells capital letters from small ones, so write both names alike"
