"""What is no fault of the decoder: an older Python, another version of a library, a missing library or device.

Each becomes one line that says so and gives the command that mends it. Imports no torch.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

from cs336_harness.subject.locating import NOT_SEARCHED, SEARCH_DEPTH, children_of, folders_of, text_of_file
from cs336_harness.subject.own_modules import (
    RaisedElsewhere,
    file_read_by_an_import,
    is_module,
    missing_own_module,
    settings_of,
)

OWN_PACKAGE = "cs336_basics"
"""What CS336 calls the learner's package, and this repository its own."""

COURSE_MODULES = ("train_bpe", "bpe", "tokenizer", "transformer", "model", "nn_utils", "optimizer", "data", "training")
"""What learners call the modules of the course's parts: the assignment names them, and no library is meant."""

NEWER_NAMES = {
    "collections.abc.Buffer": "3.12",
    "copy.replace": "3.13",
    "itertools.batched": "3.12",
    "math.sumprod": "3.12",
    "typing.NoDefault": "3.13",
    "typing.ReadOnly": "3.13",
    "typing.TypeAliasType": "3.12",
    "typing.TypeIs": "3.13",
    "typing.override": "3.12",
    "warnings.deprecated": "3.13",
}
"""Names of the standard library, and the Python that brought them."""

NEWER_SYNTAX = (
    (re.compile(r"^\s*type\s+\w+\s*(\[.*\])?\s*="), "a type statement", "3.12"),
    (re.compile(r"^\s*(class|def|async\s+def)\s+\w+\["), "type parameters in brackets", "3.12"),
    (re.compile(r"^\s*except\s+[\w.]+\s*,\s*[\w.]+"), "except without parentheses", "3.14"),
)

DEVICES = {
    "cuda": re.compile(r"not compiled with CUDA|no NVIDIA driver|no CUDA GPUs|CUDA-capable device|CUDA driver", re.I),
    "mps": re.compile(r"not linked with support for mps|MPS (backend|device|framework)", re.I),
}


SUBJECT = "{subject}"
"""Stands for what one types, where the line is made in another process."""


def environment_fault(error: BaseException | None, root: Path | None, subject: str) -> str | None:
    """What in the environment made ``error`` of a subject under ``root``, in one line; None for any other error.

    ``subject`` is what one types to judge it.
    """
    if error is None or root is None or isinstance(error, KeyboardInterrupt):
        return None
    if isinstance(error, RaisedElsewhere):
        return error.environment and error.environment.replace(SUBJECT, subject)
    place = place_of(error, root)
    for explain in (_older_python, _other_library, _missing_library, _own_module):
        told = explain(error, root, subject)
        if told is not None:
            joined = " " if told.startswith("imports ") else ": "
            return f"{place}{joined}{told}" if place else told
    return _missing_device(error, root)


def place_of(error: BaseException, root: Path, word: str = "") -> str | None:
    """``file:line`` below ``root`` of the deepest frame in the subject's own files; one that holds ``word`` first."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_below(error.filename, root)}:{error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(root) and "site-packages" not in Path(frame.filename).parts
    ]
    chosen = [frame for frame in frames if word in (frame.line or "")] or frames
    return f"{_below(chosen[-1].filename, root)}:{chosen[-1].lineno}" if chosen else None


def _below(file: str, root: Path) -> str:
    path = Path(file)
    return str(path.relative_to(root)) if path.is_relative_to(root) else file


# Python


def _older_python(error: BaseException, root: Path, subject: str) -> str | None:
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    asked = asked_python(root)
    needed = _needed_python(error)
    if needed is not None and _newer(needed[1], running):
        what, version = needed
        why = f"{what} needs Python {version}"
        if asked is not None and _newer(asked, version):
            version, why = asked, f"{why}, and the repository asks for {asked} or later (requires-python)"
    elif asked is not None and _newer(asked, running) and _may_be_of_another_python(error):
        version, said = asked, " ".join(str(error).split())
        why = f"the repository asks for Python {asked} or later (requires-python), and here it ends in: {said}"
    else:
        return None
    return (
        f"this is Python {running}, and {why}; that is the environment, no fault of the decoder:"
        f" run `uv run --python {version} cs336 check {subject}`"
    )


def _may_be_of_another_python(error: BaseException) -> bool:
    """Whether the language or its standard library refused something; all else is the subject's own or a library's."""
    if isinstance(error, AttributeError):
        owner = error.obj if isinstance(error.obj, ModuleType | type) else type(error.obj)
        module = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
        return module != "builtins" and _is_standard(module)
    return isinstance(error, SyntaxError) or (isinstance(error, ImportError) and _is_standard(error.name or ""))


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _needed_python(error: BaseException) -> tuple[str, str] | None:
    """What is newer than old Pythons, and which Python has it."""
    text = str(error)
    if isinstance(error, SyntaxError):
        for pattern, what, version in NEWER_SYNTAX:
            if pattern.search(error.text or ""):
                return what, version
        nested = (error.msg or "").startswith("f-string")
        return ("an f-string with quotes or backslashes inside", "3.12") if nested else None
    if isinstance(error, TypeError) and re.search(r"Too few arguments for typing\.(Async)?Generator", text):
        return "a generator's type with one argument", "3.13"
    found = re.search(r"cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'", text) or re.search(
        r"module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'", text
    )
    if found is None:
        return None
    name = f"{found['module']}.{found['name']}"
    return (name, NEWER_NAMES[name]) if name in NEWER_NAMES else None


def asked_python(root: Path) -> str | None:
    """The oldest Python that ``requires-python`` of the subject's ``pyproject.toml`` takes; None where it is silent."""
    found = re.search(r"(?:>=|~=|==)\s*(3\.\d+)", str(project_of(root).get("requires-python", "")))
    return found[1] if found else None


def _newer(version: str, than: str) -> bool:
    return [int(part) for part in version.split(".")] > [int(part) for part in than.split(".")]


def project_of(root: Path) -> dict[str, object]:
    """The table ``project`` of a subject's ``pyproject.toml``; empty without one."""
    project = settings_of(root).get("project")
    return project if isinstance(project, dict) else {}


# Libraries


def _other_library(error: BaseException, root: Path, subject: str) -> str | None:
    """Something that another version of a library has. A name that no version has is a slip of the subject's own."""
    text = " ".join(str(error).split())
    removed = re.match(r"(?P<name>(?P<library>\w+)[\w.]*) has been removed since version (?P<version>[\d.]*\d)", text)
    if removed is not None:
        library, name, wanted = removed["library"], removed["name"], f"<{removed['version']}"
    else:
        found = re.search(r"module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'", text) or re.search(
            r"cannot import name '(?P<name>\w+)' from '(?P<module>[\w.]+)'", text
        )
        if found is None:
            return None
        library, name = found["module"].partition(".")[0], f"{found['module']}.{found['name']}"
        locked = _locked(library, root)
        if locked is None or library in ("torch", "numpy", *_names_of(root)):
            return None
        wanted = f"=={locked}"
    installed = _installed(library)
    if installed is None or wanted == f"=={installed}":
        return None
    return (
        f"{library} {installed}, which is installed here, has no {name}; that is the environment, no fault of the"
        f" decoder: run `uv run --with '{library}{wanted}' cs336 check {subject}`"
    )


def _installed(library: str) -> str | None:
    try:
        return importlib.metadata.distribution(library).version
    except importlib.metadata.PackageNotFoundError:
        return None


def _locked(library: str, root: Path) -> str | None:
    """The version in the subject's own ``uv.lock``."""
    with contextlib.suppress(OSError):
        found = re.search(rf'^name = "{re.escape(library)}"\nversion = "([^"]+)"', text_of_file(root / "uv.lock"), re.M)
        return found[1] if found else None
    return None


def _missing_library(error: BaseException, root: Path, subject: str) -> str | None:
    # A folder of data with the library's name makes the import of it succeed, and that of its names fail.
    missing = isinstance(error, ModuleNotFoundError) or (isinstance(error, ImportError) and error.path is None)
    name = (getattr(error, "name", None) or "").partition(".")[0] if missing else ""
    if not name or is_own_name(name, root) or name in sys.stdlib_module_names:
        return None
    return missing_library(name, subject)


def _own_module(error: BaseException, root: Path, subject: str) -> str | None:
    return missing_own_module(error, root) or file_read_by_an_import(error, root)


def missing_library(name: str, subject: str) -> str:
    """What to do about a library that is not installed; what imports it stands before that."""
    return (
        f"imports {name}, which is not installed here; run it with `uv run --with {name} cs336 check {subject}`"
        f" (or `pip install {name}`), or move the import into the function that needs it"
    )


def is_own_name(name: str, root: Path) -> bool:
    """Whether a module that is not found is the subject's or the course's own, so that no registry has it."""
    course = name.startswith("cs336") or name in ("tests", "adapters", *COURSE_MODULES)
    return course or name in _names_of(root) or bool(folder_of(name, root))


def _names_of(root: Path) -> set[str]:
    project = str(project_of(root).get("name", "")).replace("-", "_")
    return {
        project,
        *(child.stem for base in (root, root / "src") for child in children_of(base) if is_module(child)),
    } - {""}


def folder_of(name: str, root: Path, depth: int = SEARCH_DEPTH) -> Path | None:
    """Where below ``root`` a module of that name lies, relative to it."""
    if depth == 0:
        return None
    for child in folders_of(root):
        if child.name in NOT_SEARCHED or child.is_symlink():
            continue
        if child.name == name and is_module(child):
            return Path(child.name)
        if (child / f"{name}.py").is_file():
            return Path(child.name, f"{name}.py")
        below = folder_of(name, child, depth - 1)
        if below is not None:
            return Path(child.name) / below
    return None


# Devices


def _missing_device(error: BaseException, root: Path) -> str | None:
    if isinstance(error, RuntimeError) and "NVTX functions not installed" in str(error):
        return (
            f"{place_of(error, root, 'nvtx') or 'the decoder'}: torch.cuda.nvtx needs PyTorch with CUDA, and the checks"
            " run on the CPU; that is no fault of the numbers: open such ranges where torch.cuda.is_available()"
        )
    for device, pattern in DEVICES.items():
        if isinstance(error, RuntimeError | AssertionError) and pattern.search(str(error)):
            place = place_of(error, root, device)
            where = f" at {place}" if place else ""
            return (
                f"the device {device} is hard-coded{where}, and the checks run on the CPU; that is no fault of the"
                " numbers: use the weights' device (device=weights.device), and the decoder runs on every machine"
            )
    return None
