"""Finds and imports an adapters module from anywhere, with its own package, its own directory and its own quirks.

A CS336 repository is imported as its author's tests import it: as ``tests.adapters``, from the repository's root, with
the root first on the path. Whatever of the same name is installed here stays out of its way.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import site
import sys
import sysconfig
import tomllib
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from cs336_harness.contract import ENTRY_POINTS
from cs336_harness.places import HOME, PACKAGE
from cs336_harness.subject.calling import Output, Subject, own_frames, torch_state_kept
from cs336_harness.subject.failures import CannotJudgeError

PLACES = ("adapters.py", "tests/adapters.py")
"""Where a repository may keep its adapters, in order."""

SEARCH_DEPTH = 3
"""How many folders deep a repository is searched for ``tests/adapters.py`` when neither place has one."""

LISTED = 4
"""How many of several candidates a message names."""

NOT_SEARCHED = {".git", ".venv", "venv", "node_modules", "site-packages", "__pycache__"}


def locate(path: Path) -> Path:
    """The adapters file that ``path`` means: the file itself, or the one a repository holds. Absolute."""
    if not path.exists():
        raise CannotJudgeError(f"no such file or directory: {path}")
    if path.is_file():
        if path.suffix != ".py":
            raise CannotJudgeError(f"{path} is no Python file; give an adapters file or a repository that holds one")
        return path.resolve()
    for place in PLACES:
        if (path / place).is_file():
            return (path / place).resolve()
    nested = sorted(_nested(path.resolve(), SEARCH_DEPTH))
    if len(nested) == 1:
        return nested[0]
    if nested:
        listed = ", ".join(str(found.relative_to(path.resolve())) for found in nested[:LISTED])
        more = f" and {len(nested) - LISTED} more" if len(nested) > LISTED else ""
        raise CannotJudgeError(f"{path} holds several adapters files: {listed}{more}; give one of them")
    raise CannotJudgeError(f"{path} holds no adapters file: neither {' nor '.join(PLACES)} is there")


def _nested(folder: Path, depth: int) -> Iterator[Path]:
    for child in _folders(folder):
        if not child.is_symlink() and child.name not in NOT_SEARCHED:
            if _is_file(child / PLACES[1]):
                yield child / PLACES[1]
            elif depth > 1:
                yield from _nested(child, depth - 1)


def _children(folder: Path) -> list[Path]:
    """What a folder holds; nothing when it is not there or may not be read."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _folders(folder: Path) -> list[Path]:
    """The folders of a folder that may be read."""
    return [child for child in _children(folder) if child.is_dir() and os.access(child, os.R_OK | os.X_OK)]


def _is_file(path: Path) -> bool:
    """Whether a file is there; another user's closed folder has none for us."""
    try:
        return path.is_file()
    except OSError:
        return False


def load(path: Path | None = None, *, show_output: bool = False) -> Subject:
    """The subject behind an adapters file or a repository (default: this repository's own).

    ``show_output`` lets through what it prints, which is counted and hidden otherwise. Raises
    :class:`CannotJudgeError` with one line that says what is wrong and what to do.
    """
    file = locate(path if path is not None else HOME)
    in_tests = file.parent.name == "tests"
    root = file.parent.parent if in_tests else file.parent
    module_name = f"tests.{file.stem}" if in_tests else file.stem
    _prepare_path(root)
    _forget_other_roots(root)
    _claim_packages_without_init(root)
    _answer_for_versions(root)
    output = Output(shown=show_output)
    module = _import(file, module_name, root, output)
    if not any(callable(getattr(module, name, None)) for name in ENTRY_POINTS):
        raise CannotJudgeError(
            f"{file} defines none of the entry points (run_linear, run_rmsnorm, …); is it an adapters file?"
        )
    return Subject(module, name=_display(file), root=root, path=file, output=output)


def _display(file: Path) -> str:
    """A path as a person would type it from here."""
    relative = os.path.relpath(file)
    return str(file) if relative.startswith(os.path.join("..", "..")) else relative


def _prepare_path(root: Path) -> None:
    """The root first; ``src`` next; last the packages themselves, for code that imports its neighbours by bare name."""
    inner = sorted(child for child in _folders(root) if any(file.suffix == ".py" for file in _children(child)))
    ours = [str(root), str(root / "src")]
    sys.path[:] = ours + [entry for entry in sys.path if entry not in ours]
    sys.path.extend(str(child) for child in inner if child.name not in {"tests", "src"} and str(child) not in sys.path)


def _forget_other_roots(root: Path) -> None:
    """Drops already imported modules that the subject brings under the same name: its own are the ones to import.

    Installed libraries stay: a folder that happens to be called like one must not take it away from everybody else.
    """
    own = {child.stem for base in (root, root / "src") for child in _children(base)} - {PACKAGE.name}
    libraries = {Path(folder).resolve() for folder in (*site.getsitepackages(), *sysconfig.get_paths().values())}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in own or name.partition(".")[0] in sys.stdlib_module_names:
            continue
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        folders = [Path(place).resolve() for place in places if place is not None]
        if not any(folder.is_relative_to(kept) for folder in folders for kept in (root, *libraries)):
            del sys.modules[name]


def _claim_packages_without_init(root: Path) -> None:
    """Makes the subject's folders packages where a name without ``__init__.py`` would lose to this repository's own.

    Python prefers a regular package anywhere on the path to a folder without ``__init__.py`` at its beginning: our
    ``cs336_basics`` would be judged in place of the subject's.
    """
    if root == HOME:
        return
    for folder in (child for base in (root, root / "src") for child in _folders(base)):
        ours = (HOME / folder.name / "__init__.py").is_file() and folder.name != PACKAGE.name
        if ours and not (folder / "__init__.py").is_file():
            _make_package(folder.name, folder)


def _answer_for_versions(root: Path) -> None:
    """Lets ``importlib.metadata.version`` of the subject's own, uninstalled package answer.

    Course repositories read their version in ``__init__``; judging them must not need an install.
    """
    versions = {child.name: "0" for child in _folders(root) if (child / "__init__.py").is_file()}
    with contextlib.suppress(OSError, ValueError):  # no such file, no text, no TOML
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project")
        if isinstance(project, dict):
            versions[str(project.get("name"))] = str(project.get("version", "0"))
    _Versions({name.lower().replace("-", "_"): version for name, version in versions.items()}).install()


class _Versions:
    """``importlib.metadata.version`` that knows a few names more than what is installed."""

    def __init__(self, known: dict[str, str]) -> None:
        self.known = known
        current = importlib.metadata.version
        self.installed = current.installed if isinstance(current, _Versions) else current

    def install(self) -> None:
        """Takes the function's place; a later subject's takes this one's."""
        vars(importlib.metadata)["version"] = self

    def __call__(self, distribution_name: str) -> str:
        try:
            return self.installed(distribution_name)
        except importlib.metadata.PackageNotFoundError:
            known = self.known.get(distribution_name.lower().replace("-", "_"))
            if known is None:
                raise
            return known


def _import(file: Path, module_name: str, root: Path, output: Output) -> ModuleType:
    try:
        with torch_state_kept(), contextlib.chdir(root), output.caught():
            return _execute(file, module_name)
    except (CannotJudgeError, KeyboardInterrupt):
        raise
    except SyntaxError as error:
        where = _display(Path(error.filename)) if error.filename else _display(file)
        where += f":{error.lineno}" if error.lineno else ""
        parts = (where, type(error).__name__, error.msg, (error.text or "").strip())
        raise CannotJudgeError(": ".join(filter(None, parts))) from error
    except ModuleNotFoundError as error:
        raise CannotJudgeError(_missing_module(error, file, root)) from error
    except BaseException as error:  # sys.exit() and pytest.skip() at import are no Exception
        text = " ".join(str(error).split()) or "no message"
        place = _innermost(error, root) or _display(file)
        raise CannotJudgeError(
            f"importing {_display(file)} raised {type(error).__name__}: {text} (at {place})"
        ) from error


def _execute(file: Path, module_name: str) -> ModuleType:
    """Imports one file under a name. Its folder becomes that name's package, so that relative imports work."""
    package_name, _, _ = module_name.rpartition(".")
    if not package_name and _imports_relatively(file):
        package_name = file.parent.name
        module_name = f"{package_name}.{file.stem}"
    if package_name:
        _make_package(package_name, file.parent)
    spec = importlib.util.spec_from_file_location(module_name, file)
    if spec is None or spec.loader is None:
        raise CannotJudgeError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(module_name, None)
        raise
    return module


def _imports_relatively(file: Path) -> bool:
    return any(
        line.lstrip().startswith("from .") for line in file.read_text(encoding="utf-8", errors="replace").splitlines()
    )


def _make_package(name: str, folder: Path) -> None:
    """Puts the folder into ``sys.modules`` as a package, whatever else of that name is installed."""
    init = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(
        name, init if init.is_file() else None, submodule_search_locations=[str(folder)]
    )
    if spec is None:
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    if spec.loader is not None and init.is_file():
        spec.loader.exec_module(package)


def _innermost(error: BaseException, root: Path) -> str | None:
    """``file:line`` of the deepest frame in the subject's own files."""
    frames = own_frames(traceback.extract_tb(error.__traceback__), root)
    return f"{_display(Path(frames[-1].filename))}:{frames[-1].lineno}" if frames else None


def _missing_module(error: ModuleNotFoundError, file: Path, root: Path) -> str:
    name = (error.name or "").partition(".")[0]
    importer = _innermost(error, root) or _display(file)
    own = {child.stem for child in _children(root)}
    if name in own or not name:
        return f"{importer}: {error.msg}; the import does not match the files under {_display(root)}"
    return (
        f"{importer} imports {name}, which is not installed here;"
        f" run it with `uv run --with {name} cs336 check {_display(file)}`"
        f" (or `pip install {name}`), or move the import into the function that needs it"
    )


def provenance(subject: Subject) -> str:
    """Where ``cs336_basics`` came from, if the subject imports it: nothing, or words to follow its name.

    A repository without one of its own would silently be judged on the one installed here; this says so.
    """
    file = getattr(sys.modules.get("cs336_basics"), "__file__", None)
    if file is None or subject.root is None:
        return ""
    folder = Path(file).resolve().parent
    own = "" if folder.is_relative_to(subject.root) else ", which is not in the subject's own folder"
    return f", with cs336_basics from {_display(folder)}{own}"
