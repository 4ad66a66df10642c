"""Modules of the subject's own that an import does not find, and the files that were meant. Imports no torch."""

from __future__ import annotations

import contextlib
import re
import tomllib
import traceback
from pathlib import Path

from cs336_harness.subject.locating import SEARCH_DEPTH, children_of, text_of_file

TO_COMPILE = {".pyi", ".pyx", ".c", ".cc", ".cpp", ".cu", ".rs"}
"""What stands in a repository for a module that an installation compiles."""

COMPILING_BACKENDS = ("scikit_build_core", "maturin", "mesonpy")
"""Build backends whose purpose is to compile modules; the sources may lie anywhere."""


def settings_of(root: Path) -> dict[str, object]:
    """What a subject's ``pyproject.toml`` says, which lies above a folder ``src``; empty without one."""
    file = (root.parent if root.name == "src" else root) / "pyproject.toml"
    with contextlib.suppress(OSError, ValueError):  # no such file, not to be read, no text, no TOML
        return tomllib.loads(text_of_file(file))
    return {}


def is_module(path: Path, depth: int = SEARCH_DEPTH) -> bool:
    """Whether an import can mean a file or folder: a folder of data or settings with no Python in it is none."""
    if path.suffix in {".py", ".so", *TO_COMPILE}:
        return True
    return depth > 0 and any(is_module(child, depth - 1) for child in children_of(path))


def missing_own_module(error: BaseException | None, root: Path) -> str | None:
    """What an import asks for and which file under ``root`` was meant, in words; None where no file is near it."""
    wanted = _wanted(error)
    if wanted is None:
        return None
    for base in (root, root / "src"):
        meant = _meant(base, wanted.split("."))
        if meant is not None:
            return f"imports {wanted}, and {_reason(meant, wanted, root)}"
    return _built(wanted, root)


def _built(wanted: str, root: Path) -> str | None:
    """What to do about a module of which the repository has no file, where its installation compiles some."""
    build = settings_of(root).get("build-system")
    backend = str(build.get("build-backend", "")) if isinstance(build, dict) else ""
    package, _, name = wanted.rpartition(".")
    folders = [base.joinpath(*package.split(".")) for base in (root, root / "src")]
    if not package or not backend.startswith(COMPILING_BACKENDS) or not any(map(is_module, folders)):
        return None
    if any(child.stem == name for folder in folders for child in children_of(folder)):
        return None
    return (
        f"imports {wanted}, and no file of it is there; this repository compiles modules ({backend}), and if it is one"
        " of them, that is the environment, no fault of the decoder: build it as its repository says, often with"
        " `uv sync` or `pip install -e .`"
    )


class RaisedElsewhere(Exception):
    """Mixed into an exception that another process raised, and tells what could be read off its traceback there."""

    environment: str | None = None
    by_an_import: bool = False


def raised_by_an_import(error: BaseException | None, root: Path | None) -> bool:
    """Whether the statements of a file under ``root`` that run when it is imported raised it, and no function did."""
    if isinstance(error, RaisedElsewhere):
        return error.by_an_import
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
