"""What a learner hands in: adapters, package and written answer in one zip, without what nobody needs."""

from __future__ import annotations

import ast
import dataclasses
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.locating import NOT_SEARCHED, locate

WRITEUP = "WRITEUP.md"
LARGEST = 5 << 20
FIRST_DATE = (1980, 1, 1, 0, 0, 0)
"""The time of every entry, so that the same work packs into the same bytes."""


@dataclasses.dataclass(frozen=True)
class Packed:
    """What was packed, and what a submission should have and this one has not."""

    zip: Path
    files: tuple[str, ...]
    left_out: tuple[str, ...]
    missing: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """For a person."""
        files = "1 file" if len(self.files) == 1 else f"{len(self.files)} files"
        yield f"packed {files} into {self.zip}: {', '.join(self._heads())}"
        if self.left_out:
            yield f"left out, above {LARGEST >> 20} MB: {', '.join(self.left_out)}"
        yield from (f"missing: {each}" for each in self.missing)

    def _heads(self) -> list[str]:
        heads: dict[str, int] = {}
        for file in self.files:
            head, slash, _ = file.partition("/")
            heads[head + slash] = heads.get(head + slash, 0) + 1
        return [f"{head} ({number})" if head.endswith("/") else head for head, number in heads.items()]


def pack(repository: Path, out: Path) -> Packed:
    """Packs a repository's adapters, the packages that it imports from there, and its written answer.

    Raises :class:`CannotJudgeError` where there are no adapters, or where ``out`` is there and no zip.
    """
    adapters = locate(repository)
    root = repository.resolve()
    if not adapters.is_relative_to(root):
        raise CannotJudgeError(f"{adapters} lies outside of {repository}")
    if out.exists() and not zipfile.is_zipfile(out):
        raise CannotJudgeError(f"--out {out} is there and no zip; give another name")
    home = adapters.parent.parent if adapters.parent.name == "tests" else adapters.parent
    chosen, left_out = [adapters], []
    for tree in _packages(home, adapters):
        for file in _python_files(tree):
            (left_out if file.stat().st_size > LARGEST else chosen).append(file)
    chosen += [file for name in (WRITEUP, "pyproject.toml") if (file := home / name).is_file()]
    chosen = sorted(set(chosen))
    missing = []
    if not (home / WRITEUP).is_file():
        missing.append(f"{WRITEUP}, the written answer")
    elif _is_template(home / WRITEUP):
        missing.append(f"numbers in {WRITEUP}: it is still the template")
    missing += [f"{name}, which {adapters.name} imports" for name in _absent(home, adapters)]
    _write(out, [(str(file.relative_to(home)), file) for file in chosen])
    names = tuple(file.relative_to(home).as_posix() for file in chosen)
    return Packed(out, names, tuple(str(file.relative_to(home)) for file in left_out), tuple(missing))


def _packages(home: Path, adapters: Path) -> list[Path]:
    """Folders of Python files beside the adapters, those of the course's own tests aside."""
    bases = [home, home / "src"]
    folders = [
        child
        for base in bases
        if base.is_dir()
        for child in base.iterdir()
        if child.is_dir() and not child.is_symlink() and child.name not in {*NOT_SEARCHED, "tests", "src", "harness"}
    ]
    imported = _imported(adapters)
    named = [child for child in folders if child.name in imported]
    return named or [child for child in folders if (child / "__init__.py").is_file() and child.name != "cs336_harness"]


def _imported(file: Path) -> set[str]:
    """The top names of what a file imports, read from its text."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError, RecursionError):
        return set()
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _absent(home: Path, adapters: Path) -> list[str]:
    name = "cs336_basics"
    places = (home / name, home / "src" / name, home / f"{name}.py")
    return [name] if name in _imported(adapters) and not any(place.exists() for place in places) else []


def _python_files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each not in NOT_SEARCHED and not each.startswith(".")]
        yield from (Path(parent, each) for each in files if each.endswith((".py", ".toml", ".json", ".md")))


def _is_template(file: Path) -> bool:
    from cs336_harness.places import TEMPLATES

    template = TEMPLATES / WRITEUP
    return template.is_file() and file.read_bytes() == template.read_bytes()


def _write(out: Path, entries: list[tuple[str, Path]]) -> None:
    handle, unfinished = tempfile.mkstemp(prefix=".submission", dir=out.resolve().parent)
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, path in entries:
                archive.writestr(zipfile.ZipInfo(Path(name).as_posix(), FIRST_DATE), path.read_bytes())
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, out)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
