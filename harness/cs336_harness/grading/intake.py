"""Takes a submission in: a copy of its regular files, bounded, without following a link or believing an archive.

Nothing of a submission is imported or run here, and no file is opened that is not a plain one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import re
import stat
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.locating import NOT_SEARCHED
from cs336_harness.subject.text import clean

MOST_FILES = 20_000
MOST_BYTES = 400 << 20
LARGEST = 20 << 20
"""Files above this are left out: data sets and checkpoints, which no check asks for."""

DEEPEST = 20
LEFT_OUT = {*NOT_SEARCHED, "__MACOSX", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"}
MOST_LISTED = 10 * MOST_FILES
"""Entries of an archive, with those that are left out."""

ZIP_ENTRY = b"PK\x01\x02"
"""What the description of each file in an archive begins with."""

UNPACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How files of an archive may be packed: of the other ways zipfile unpacks all at once, whatever size was said."""

KINDS = (".zip", ".py")
LONGEST_NAME = 200
"""Bytes of a name: files beside one another add beginnings and ends to it, and a system takes 255."""


class Refused(CannotJudgeError):
    """A submission is not taken in: too many files, too large, or an archive that is none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Submission:
    """One entry of the folder: a name that is safe as a file's, and where it lies."""

    name: str
    path: Path


def submissions(folder: Path) -> list[Submission]:
    """The entries of a folder, by name: folders, adapters files and zips. Hidden ones and other files are none."""
    if not folder.is_dir():
        raise CannotJudgeError(f"{folder} is no folder; give the one that holds a folder, a file or a zip per student")
    if (folder / "adapters.py").is_file() or (folder / "tests" / "adapters.py").is_file():
        raise CannotJudgeError(f"{folder} is one submission; give the folder that holds a folder per student")
    found: list[Submission] = []
    taken: set[str] = set()
    for entry in _visible(folder):
        if not _is_submission(entry):
            continue
        path = Path(entry.path)
        stem = path.stem if entry.is_file(follow_symlinks=False) else entry.name
        base = re.sub(r"[^\w.@+-]", "_", clean(stem, 80)).encode()[:LONGEST_NAME].decode(errors="ignore").strip(".")
        base = base or "unnamed"
        name = next(each for each in _numbered(base) if each.lower() not in taken)
        taken.add(name.lower())
        found.append(Submission(name, path))
    if not found:
        raise CannotJudgeError(f"{folder} holds no submission: neither a folder nor a .zip nor a .py")
    return found


def left_over(folder: Path) -> list[str]:
    """The names of the entries of a folder that are no submissions, and so get no record; hidden ones aside."""
    return [clean(entry.name, 80) for entry in _visible(folder) if not _is_submission(entry)]


def _visible(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        shown = [entry for entry in entries if not entry.name.startswith((".", "__"))]
    return sorted(shown, key=lambda entry: entry.name)


def _is_submission(entry: os.DirEntry[str]) -> bool:
    if entry.is_file(follow_symlinks=False):
        return entry.name.lower().endswith(KINDS)
    return entry.is_dir(follow_symlinks=False)


def _numbered(base: str) -> Iterator[str]:
    yield base
    number = 2
    while True:
        yield f"{base}-{number}"
        number += 1


class _Budget:
    """What may still be taken in."""

    def __init__(self) -> None:
        self.entries, self.bytes = 0, 0
        self.digest = hashlib.sha256()

    def meet(self) -> None:
        """One more file or folder, whether it is taken or not."""
        self.entries += 1
        if self.entries > MOST_FILES:
            raise Refused(f"it holds more than {MOST_FILES} files")

    def take(self, name: str, data: bytes) -> None:
        self.bytes += len(data)
        self.digest.update(f"{len(name)} {name} {len(data)}\n".encode("utf-8", "surrogateescape"))
        self.digest.update(data)
        if self.bytes > MOST_BYTES:
            raise Refused(f"it holds more than {MOST_BYTES >> 20} MB")


def take_in(path: Path, into: Path) -> tuple[Path, str]:
    """Copies a submission into an empty folder; the folder that it lies in there, and a digest of what was copied.

    Raises :class:`Refused` with one line.
    """
    budget = _Budget()
    if path.is_dir():
        _copy(path, into, "", budget, 0)
    elif path.suffix.lower() == ".zip":
        _unpack(path, into, budget)
    else:
        data = read_plain(path)
        budget.take("adapters.py", data)
        (into / "adapters.py").write_bytes(data)
    return _inner(into), budget.digest.hexdigest()


def read_plain(path: Path, largest: int = LARGEST) -> bytes:
    """The bytes of a regular file, no link, no pipe, no device, and no longer than may be."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Refused(f"{clean(path.name, 80)} cannot be read ({error.strerror})") from None
    with os.fdopen(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise Refused(f"{clean(path.name, 80)} is no plain file")
        data = file.read(largest + 1)
    if len(data) > largest:
        raise Refused(f"{clean(path.name, 80)} is larger than {largest >> 20} MB")
    return data


def _copy(folder: Path, into: Path, prefix: str, budget: _Budget, depth: int) -> None:
    if depth > DEEPEST:
        raise Refused(f"its folders are more than {DEEPEST} deep")
    into.mkdir(exist_ok=True)
    try:
        with os.scandir(folder) as found:
            entries = sorted(_met(found, budget), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        name = f"{prefix}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            _copy(Path(entry.path), into / entry.name, f"{name}/", budget, depth + 1)
        elif entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_size <= LARGEST:
            data = read_plain(Path(entry.path))
            budget.take(name, data)
            (into / entry.name).write_bytes(data)


def _met(entries: Iterable[os.DirEntry[str]], budget: _Budget) -> Iterator[os.DirEntry[str]]:
    """Entries that a copy can be asked for; those that are left out cost nothing and do not count."""
    for entry in entries:
        if entry.name not in LEFT_OUT or not entry.is_dir(follow_symlinks=False):
            budget.meet()
            yield entry


def _unpack(path: Path, into: Path, budget: _Budget) -> None:
    packed = read_plain(path, MOST_BYTES)
    if packed.count(ZIP_ENTRY) > MOST_LISTED:  # asked before an object is made of each
        raise Refused(f"it holds more than {MOST_LISTED} files")
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            for entry in archive.infolist():
                parts = _safe_parts(entry)
                if parts is None:
                    continue
                budget.meet()
                if entry.compress_type not in UNPACKED:
                    raise Refused("its zip is packed in another way than deflate; pack it again with a usual program")
                if entry.file_size > LARGEST:  # no more than it says is ever unpacked of it
                    continue
                with archive.open(entry) as file:
                    data = file.read()
                budget.take("/".join(parts), data)
                target = into.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
    except Refused:
        raise
    except Exception as error:  # whatever the bytes make zipfile raise
        raise Refused(f"its zip cannot be read ({type(error).__name__}: {clean(str(error), 120)})") from None


def _safe_parts(entry: zipfile.ZipInfo) -> list[str] | None:
    """The path of an entry below the folder that it is unpacked to; None for what is left out."""
    name = entry.filename.replace("\\", "/")  # as some programs on Windows write it
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or "\0" in name or ".." in parts or len(parts) > DEEPEST:
        raise Refused(f"its zip holds a path that leaves it: {clean(name, 80)}")
    if any(len(part.encode("utf-8", "surrogateescape")) > 200 for part in parts):
        raise Refused("its zip holds a name that is too long")
    mode = entry.external_attr >> 16
    if entry.is_dir() or not parts or (stat.S_IFMT(mode) not in (0, stat.S_IFREG)):
        return None
    return None if LEFT_OUT & set(parts[:-1]) else parts


def _inner(folder: Path) -> Path:
    """The one folder that everything lies in, as most archives have it; otherwise the folder itself."""
    entries = list(os.scandir(folder))
    alone = len(entries) == 1 and entries[0].is_dir()
    return Path(entries[0].path) if alone and entries[0].name not in ("tests", "src") else folder
