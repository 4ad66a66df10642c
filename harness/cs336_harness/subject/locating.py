"""Which adapters file is meant: by a path, or by the folder that one stands in. Imports no torch."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from cs336_harness.subject.failures import CannotJudgeError

ADAPTERS = "adapters.py"
PLACES = (ADAPTERS, f"tests/{ADAPTERS}")
"""Where a repository may keep its adapters, in order."""

SEARCH_DEPTH = 3
"""How many folders deep a repository is searched when neither place has an adapters file."""

NOTEBOOK = ".ipynb"
IN_A_NOTEBOOK = "in a notebook, `from cs336_harness import judge` and `judge(globals())` judge what stands above"

LISTED = 4
"""How many of several candidates a message names."""

NOT_SEARCHED = {".git", ".venv", "venv", "node_modules", "site-packages", "__pycache__"}


def locate(path: Path) -> Path:
    """The adapters file that ``path`` means: the file itself, or the one a repository holds. Absolute."""
    if not path.exists():
        raise CannotJudgeError(f"no such file or directory: {path}")
    if path.is_file():
        if path.suffix != ".py":
            other = f"; {IN_A_NOTEBOOK}" if path.suffix == NOTEBOOK else ""
            raise CannotJudgeError(
                f"{path} is no Python file; give an adapters file or a repository that holds one{other}"
            )
        return path.resolve()
    if not path.is_dir():
        raise CannotJudgeError(f"{path} is neither a file nor a folder; give an adapters file or a repository")
    found = _held_by(path)
    if found is not None:
        return found.resolve()
    nested = sorted(_nested(path.resolve(), SEARCH_DEPTH, PLACES[1]))
    nested = [file for file in nested if _is_of_this_contract(file)] or nested
    if not nested:  # in a package, such as src/cs336_basics
        nested = [file for file in _nested(path.resolve(), SEARCH_DEPTH, PLACES[0]) if _is_of_this_contract(file)]
    if len(nested) == 1:
        return nested[0]
    if nested:
        listed = ", ".join(str(found.relative_to(path.resolve())) for found in nested[:LISTED])
        more = f" and {len(nested) - LISTED} more" if len(nested) > LISTED else ""
        raise CannotJudgeError(f"{path} holds several adapters files: {listed}{more}; give one of them")
    other = f"; {IN_A_NOTEBOOK}" if any(child.suffix == NOTEBOOK for child in children_of(path)) else ""
    raise CannotJudgeError(
        f"{path} holds no adapters file: neither {' nor '.join(PLACES)} is there; give the path of one{other}"
    )


def root_of(file: Path) -> Path:
    """The folder that an adapters file's own imports begin at: above ``tests``, or above a package that it names."""
    return file.parent.parent if file.parent.name == "tests" or _imports(file, file.parent.name) else file.parent


def _imports(file: Path, package: str) -> bool:
    """Whether a file imports from the very package that it lies in, by the package's name."""
    return is_file(file.parent / "__init__.py") and bool(
        re.search(rf"^\s*(?:from|import)\s+{re.escape(package)}\b", _text(file), re.MULTILINE)
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def repository_here() -> Path:
    """The folder that is judged when no path is given: the one stood in, or the nearest above it that holds adapters.

    The search ends at the root of the repository: the folder with ``.git``, or else the nearest ``pyproject.toml``.
    """
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise CannotJudgeError("the folder that you stand in was deleted; give the path of an adapters file") from None
    folders = list(_up_to_the_root(here))
    return next((folder for folder in folders if _held_by(folder) is not None), folders[-1])


def _up_to_the_root(here: Path) -> Iterator[Path]:
    upwards = [here, *here.parents]
    for sign in (".git", "pyproject.toml"):
        for number, folder in enumerate(upwards, 1):
            if (folder / sign).exists():
                yield from upwards[:number]
                return
    yield here


def _held_by(folder: Path) -> Path | None:
    held = [folder / place for place in PLACES if is_file(folder / place)]
    return next((file for file in held if _is_of_this_contract(file)), held[0] if held else None)


def _is_of_this_contract(file: Path) -> bool:
    """Whether a file defines ``run_linear``: adapters of the course's other assignments do not."""
    return "def run_linear(" in _text(file)


def _nested(folder: Path, depth: int, place: str) -> Iterator[Path]:
    for child in folders_of(folder):
        if not child.is_symlink() and child.name not in NOT_SEARCHED:
            if is_file(child / place):
                yield child / place
            elif depth > 1:
                yield from _nested(child, depth - 1, place)


def children_of(folder: Path) -> list[Path]:
    """What a folder holds; nothing when it is not there or may not be read."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def folders_of(folder: Path) -> list[Path]:
    """The folders of a folder that may be read."""
    return [child for child in children_of(folder) if child.is_dir() and os.access(child, os.R_OK | os.X_OK)]


def is_file(path: Path) -> bool:
    """Whether a file is there; another user's closed folder has none for us."""
    try:
        return path.is_file()
    except OSError:
        return False


def text_of_file(path: Path) -> str:
    """The text of a subject's file, whatever is no UTF-8 replaced.

    Raises:
        OSError: it cannot be read, or is no regular file: a pipe would be waited for without end.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file")
    return path.read_text(encoding="utf-8", errors="replace")
