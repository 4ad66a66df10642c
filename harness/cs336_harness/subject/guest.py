"""A subject judged inside somebody's own process, which is left as it was found.

Loading a subject changes what is imported and where Python looks, and judging it wants one thread. A command may leave
that to the end of its process; a notebook or a test run may not: what it imported itself stays its own, and a file
edited since is read again.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from cs336_harness.contract import ENTRY_POINTS
from cs336_harness.subject.calling import Output, Subject
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.loading import forget_modules_of, is_from, load, root_of
from cs336_harness.subject.locating import locate, repository_here
from cs336_harness.subject.setting import USUAL, Setting


class Guest:
    """Somebody's decoder; inside :meth:`at_work` it finds what it imported, outside everybody else does."""

    def __init__(self, given: Any, *, show_output: bool = False, setting: Setting = USUAL) -> None:
        """``given`` is a path, an imported module, a mapping or object with entry points, or None for the repository
        that one stands in. Nothing is loaded before :meth:`at_work`. ``setting`` is what it is run on."""
        self._given, self._show_output, self._setting = given, show_output, setting
        self._subject: Subject | None = None
        self._path: list[str] | None = None
        self._modules: dict[str, ModuleType] = {}
        self._dropped: set[str] = set()
        self._version: Callable[[str], str] = importlib.metadata.version

    @contextlib.contextmanager
    def at_work(self) -> Generator[Subject]:
        """The subject, loaded when asked for first, on one thread; afterwards the process is as it was."""
        path, modules, version = list(sys.path), dict(sys.modules), importlib.metadata.version
        precision = torch.get_float32_matmul_precision()
        threads, level = torch.get_num_threads(), os.environ.get("KINETO_LOG_LEVEL")
        torch.set_num_threads(1)
        os.environ["KINETO_LOG_LEVEL"] = level or "99"  # PyTorch's profiler writes lines of its own to standard error
        try:
            self._bring_back()
            if self._subject is None:
                self._setting.require()
                self._subject = self._load()
                self._subject.setting = self._setting
            self._setting.enter()
            yield self._subject
        finally:
            self._put_away(modules)
            torch.set_num_threads(threads)
            torch.set_float32_matmul_precision(precision)
            if level is None:
                del os.environ["KINETO_LOG_LEVEL"]
            sys.path[:] = path
            sys.modules.update(
                {name: module for name, module in modules.items() if sys.modules.get(name) is not module}
            )
            vars(importlib.metadata)["version"] = version

    def _bring_back(self) -> None:
        if self._path is None:
            return
        sys.path[:] = self._path
        for name in self._dropped:
            sys.modules.pop(name, None)
        sys.modules.update(self._modules)
        vars(importlib.metadata)["version"] = self._version

    def _put_away(self, before: Mapping[str, ModuleType]) -> None:
        self._path, self._version = list(sys.path), importlib.metadata.version
        self._dropped = {name for name in before if name not in sys.modules}
        root = self._subject.root if self._subject is not None else None
        new = {name: module for name, module in sys.modules.items() if before.get(name) is not module}
        self._modules = {name: module for name, module in new.items() if root is not None and is_from(name, root)}
        for name in self._modules:
            del sys.modules[name]

    def _load(self) -> Subject:
        if self._given is None or isinstance(self._given, str | Path):
            file = locate(repository_here() if self._given is None else Path(self._given))
            forget_modules_of(root_of(file))
            return load(file, show_output=self._show_output)
        return subject_of_object(self._given, Output(shown=self._show_output))


def subject_of_object(given: Any, output: Output | None = None) -> Subject:
    """A subject made of what is in memory already: an imported module, or an object or mapping with entry points.

    Raises:
        CannotJudgeError: it has none of them.
    """
    entry_points = SimpleNamespace(**given) if isinstance(given, Mapping) else given
    file = getattr(given, "__file__", None) if isinstance(given, ModuleType) else None
    name = getattr(given, "__name__", None) or f"a {type(given).__name__}"
    if not any(callable(getattr(entry_points, point, None)) for point in ENTRY_POINTS):
        also = "; docs/GLUE.md shows how to put a model behind them" if isinstance(given, torch.nn.Module) else ""
        raise CannotJudgeError(f"{name} has none of the entry points (run_linear, run_rmsnorm, …){also}")
    if file is None:
        return Subject(entry_points, name, output=output, importable=False)
    path = Path(file).resolve()
    return Subject(given, name, root=root_of(path), path=path, output=output)
