"""Which entry points a save changed: a fingerprint of the code that each can reach in the subject's own files."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from cs336_harness.contract import ENTRY_POINTS
from cs336_harness.places import is_own_file
from cs336_harness.subject.calling import Subject


def fingerprints(subject: Subject) -> dict[str, str]:
    """A digest for each entry point that the subject defines. Comments and line numbers do not count.

    The code is followed by name, without being run: functions, classes and modules of the subject's own files, and not
    of an environment that lies in its folder. What is reached in another way (an import inside a function) is missed;
    so a fingerprint orders checks and never skips one.
    """
    root = subject.root
    if root is None:
        return {}
    own = _Own(root)
    defined = [name for name in ENTRY_POINTS if subject.has(name)]
    return {name: _fingerprint(getattr(subject.module, name), own) for name in defined}


class _Own:
    """Tells whether a function, class or module is the subject's own, by the file that it comes from."""

    def __init__(self, root: Path) -> None:
        environments = [Path(prefix).resolve() for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix}]

        @functools.cache  # thousands of values come from a few hundred files
        def own(file: str) -> bool:
            path = Path(file).resolve()
            inside = any(path.is_relative_to(prefix) and not root.is_relative_to(prefix) for prefix in environments)
            return not inside and is_own_file(str(path), root)

        self._own = own

    def __call__(self, value: Any) -> bool:
        file = _file_of(value)
        return file is not None and self._own(file)


def _file_of(value: Any) -> str | None:
    if isinstance(value, FunctionType):
        return value.__code__.co_filename
    if isinstance(value, type):
        value = sys.modules.get(value.__module__)
    return getattr(value, "__file__", None) if isinstance(value, ModuleType) else None


def _fingerprint(function: Any, own: _Own) -> str:
    total = hashlib.sha256()
    seen: set[int] = set()
    waiting = [inspect.unwrap(function)]
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, FunctionType):
            total.update(repr(list(_code(item.__code__))).encode())
            waiting += _reached(item, own)
        elif isinstance(item, type):
            waiting += [base for base in item.__bases__ if own(base)]
            for name, value in vars(item).items():
                value = getattr(value, "__func__", getattr(value, "fget", value))
                if isinstance(value, FunctionType):
                    waiting.append(value)
                elif not name.startswith("__"):
                    total.update(f"{name}={value!r}".encode() if _is_plain(value) else name.encode())
        else:
            total.update(repr(item).encode())
    return total.hexdigest()


def _code(code: CodeType) -> Iterator[tuple[Any, ...]]:
    plain = [sorted(map(repr, value)) if isinstance(value, frozenset) else value for value in code.co_consts]
    yield code.co_code, code.co_names, code.co_varnames, [value for value in plain if not isinstance(value, CodeType)]
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _code(inner)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _reached(function: FunctionType, own: _Own) -> list[Any]:
    """What the function's names mean: in its module, and in the modules of the subject that it names."""
    names = list(_names(function.__code__))
    found = [function.__globals__[name] for name in names if name in function.__globals__]
    found += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    modules = [value for value in found if isinstance(value, ModuleType) and own(value)]
    found += [vars(module)[name] for module in modules for name in names if name in vars(module)]
    return [value for value in found if _is_plain(value) or (own(value) and not isinstance(value, ModuleType))]


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str | bytes | tuple | None)
