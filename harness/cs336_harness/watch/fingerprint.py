"""Which entry points a save changed: a fingerprint of the code that each can reach in the subject's own files."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from cs336_harness.contract import ENTRY_POINTS
from cs336_harness.subject.calling import Subject


def fingerprints(subject: Subject) -> dict[str, str]:
    """A digest for each entry point that the subject defines. Comments and line numbers do not count.

    The code is followed by name, without being run: functions, classes and modules of the subject's own folder. What is
    reached in another way (an import inside a function) is missed; so a fingerprint orders checks and never skips one.
    """
    root = subject.root
    if root is None:
        return {}
    defined = [name for name in ENTRY_POINTS if subject.has(name)]
    return {name: _fingerprint(getattr(subject.module, name), root) for name in defined}


def _fingerprint(function: Any, root: Path) -> str:
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
            waiting += _reached(item, root)
        elif isinstance(item, type):
            waiting += [base for base in item.__bases__ if _is_own(base, root)]
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


def _reached(function: FunctionType, root: Path) -> list[Any]:
    """What the function's names mean: in its module, and in the modules of the subject that it names."""
    names = list(_names(function.__code__))
    found = [function.__globals__[name] for name in names if name in function.__globals__]
    found += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    modules = [value for value in found if isinstance(value, ModuleType) and _is_own(value, root)]
    found += [vars(module)[name] for module in modules for name in names if name in vars(module)]
    return [
        value for value in found if _is_plain(value) or (_is_own(value, root) and not isinstance(value, ModuleType))
    ]


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str | bytes | tuple | None)


def _is_own(value: Any, root: Path) -> bool:
    if not isinstance(value, FunctionType | type | ModuleType):
        return False
    try:
        return Path(inspect.getfile(value)).resolve().is_relative_to(root)
    except (TypeError, OSError):
        return False
