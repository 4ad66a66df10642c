"""What never changes from run to run, kept in the user's cache directory: what the oracle answers where inputs are
public, and what each known mistake gives in each experiment.

A safetensors file of each kind, its name made of the harness's own sources and of PyTorch's version, so that no other
version ever reads it. A file that is damaged, or a directory that cannot be written, costs time and nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from cs336_harness.places import PACKAGE

WORTH_WRITING = 40
"""New entries that are worth a file."""

ABANDONED = 600
"""Seconds after which nobody is still writing a file."""

FACTS = "facts"
"""Under this name the file's header holds, as JSON, what is no tensor."""


def cache_directory() -> Path:
    """Where the user's programs keep what they can make again."""
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local")) / "cs336_harness"
    default = home / "Library" / "Caches" if sys.platform == "darwin" else home / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or default) / "cs336_harness"


def version() -> str:
    """A digest of the harness's own sources and of PyTorch's version."""
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Kept:
    """Tensors and facts by name: each read from the file when it is asked for, new ones written by :meth:`save`.

    A diagnosis asks for a few hundred of the twenty thousand that the file holds.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tensors: dict[str, Tensor] = {}
        self._facts: dict[str, list[str]] = {}
        self._file: Any = None
        self._in_file: frozenset[str] = frozenset()
        self._new = 0
        self._tried = False

    def _open(self) -> None:
        self._tried = True
        file = safetensors.safe_open(self.path, "pt")
        facts = json.loads((file.metadata() or {}).get(FACTS, "{}"))
        self._facts = {name: [str(part) for part in fact] for name, fact in facts.items()} | self._facts
        self._file, self._in_file = file, frozenset(file.keys())

    def get(self, name: str) -> Tensor | list[str] | None:
        """A tensor, or the strings of a fact; None when it is not known yet."""
        if not self._tried and self.path.exists():  # it may come while a watch runs
            with contextlib.suppress(Exception):  # damaged: everything is made again
                self._open()
        if name not in self._tensors and name in self._in_file:
            with contextlib.suppress(Exception):
                self._tensors[name] = self._file.get_tensor(name)
        return self._tensors.get(name, self._facts.get(name))

    def add(self, name: str, value: Tensor | list[str]) -> None:
        """Something new."""
        if isinstance(value, Tensor):
            self._tensors[name] = value.detach().contiguous().clone()
        else:
            self._facts[name] = value
        self._new += 1

    @property
    def new(self) -> int:
        """How many entries are not in the file."""
        return self._new

    def save(self, least: int = 1) -> None:
        """Writes what is new, if it is ``least`` entries or more. A reader never sees half of a file."""
        if self._new < least:
            return
        self._new = 0
        with contextlib.suppress(Exception):
            self._open()  # it may be another file by now: a run has several judges
        for name in self._in_file:
            self.get(name)
        self._file, self._in_file = None, frozenset()  # Windows replaces no file that is open
        with contextlib.suppress(Exception):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            for old in self.path.parent.glob(f"{self.path.stem.partition('-')[0]}-*"):
                if old != self.path:
                    old.unlink()
            for left in self.path.parent.glob(f"{UNFINISHED}*"):  # by who was ended while writing
                if time.time() - left.stat().st_mtime > ABANDONED:
                    left.unlink()
            with tempfile.NamedTemporaryFile(dir=self.path.parent, prefix=UNFINISHED, delete=False) as unfinished:
                name = Path(unfinished.name)
            try:
                safetensors.torch.save_file(self._tensors, name, {FACTS: json.dumps(self._facts)})
                os.replace(name, self.path)
            finally:
                name.unlink(missing_ok=True)


UNFINISHED = "unfinished-"
OBSERVATIONS, ANSWERS = "expected", "oracle"
"""The kinds, by which their files' names begin."""


@functools.cache
def _own_version() -> str:
    return version()


@functools.cache
def kept(kind: str) -> Kept:
    """What is kept of a kind for this version of the harness."""
    try:
        return Kept(cache_directory() / f"{kind}-{_own_version()}.safetensors")
    except (OSError, RuntimeError):  # no home directory, or sources that cannot be read
        return Kept(Path(os.devnull) / "nowhere")
