"""Finds and imports an adapters module from anywhere, with its own package, its own directory and its own quirks.

A CS336 repository is imported as its author's tests import it: as ``tests.adapters``, from the repository's root, with
the root first on the path. Whatever of the same name is installed here stays out of its way.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import site
import sys
import sysconfig
import traceback
from pathlib import Path
from types import ModuleType

from cs336_harness.contract import ENTRY_POINTS
from cs336_harness.places import HOME, PACKAGE
from cs336_harness.subject.calling import Output, Subject, own_frames, torch_state_kept
from cs336_harness.subject.environment_faults import (
    OWN_PACKAGE,
    environment_fault,
    folder_of,
    is_own_name,
    missing_library,
    project_of,
)
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.locating import (
    children_of,
    folders_of,
    is_file,
    locate,
    repository_here,
    root_of,
    text_of_file,
)
from cs336_harness.subject.own_modules import is_module, missing_own_module
from cs336_harness.subject.time_limit import Clock, TimeUp, did_not_end

YEAR_2024 = ("run_gelu", "run_positionwise_feedforward")
"""Entry points of CS336's adapters in 2024 that went away with SwiGLU."""


def load(path: Path | None = None, *, show_output: bool = False, clock: Clock | None = None) -> Subject:
    """The subject behind an adapters file or a repository (default: the repository that one stands in).

    ``show_output`` lets through what it prints, which is counted and hidden otherwise. ``clock`` counts the time of its
    import, and then that of its calls. Raises
    :class:`CannotJudgeError` with one line that says what is wrong and what to do.
    """
    file = locate(path if path is not None else repository_here())
    root = root_of(file)
    module_name = file.stem if root == file.parent else f"{file.parent.name}.{file.stem}"
    _leave_home(root)
    _prepare_path(root)
    _forget_other_roots(root)
    _claim_packages_without_init(root)
    _answer_for_versions(root)
    output = Output(shown=show_output)
    clock = clock or Clock()
    module = _import(file, module_name, root, output, clock)
    _require_this_contract(module, file)
    return Subject(module, name=_display(file), root=root, path=file, output=output, clock=clock)


def is_from(name: str, root: Path) -> bool:
    """Whether an imported module lies under a folder, and is neither installed there nor the harness's own."""
    own = (place.is_relative_to(root) and not _is_library(place) for place in _places_of(name))
    return name.partition(".")[0] != PACKAGE.name and any(own)


def forget_modules_of(root: Path) -> None:
    """Drops what is imported from a subject's folder, so that it is read again."""
    bases = (root, root / "src", *folders_of(root))
    stems = {child.stem for base in bases for child in children_of(base)}
    for name in [name for name in list(sys.modules) if name.partition(".")[0] in stems and is_from(name, root)]:
        del sys.modules[name]


def _require_this_contract(module: ModuleType, file: Path) -> None:
    """Says so where the file has none of the entry points, or those of another year or assignment."""
    own = [name for name, value in vars(module).items() if callable(value) and name.startswith(("run_", "get_"))]
    if {*YEAR_2024} <= set(own) and not hasattr(module, "run_swiglu"):
        raise CannotJudgeError(
            f"{file} follows another contract, that of CS336's year 2024 ({', '.join(YEAR_2024)}: GELU, dropout and"
            " learned positions); this harness judges that of 2025 and 2026 (run_linear, run_swiglu, run_rope, …)"
        )
    if any(callable(getattr(module, name, None)) for name in ENTRY_POINTS):
        return
    if own:
        more = f" and {len(own) - 2} more" if len(own) > 2 else ""
        raise CannotJudgeError(
            f"{file} follows another contract: it has {', '.join(own[:2])}{more}, and none of the entry points that are"
            " judged here (run_linear, run_rmsnorm, …); it belongs to another assignment"
        )
    raise CannotJudgeError(
        f"{file} defines none of the entry points (run_linear, run_rmsnorm, …); is it an adapters file?"
    )


def _display(file: Path) -> str:
    """A path as a person would type it from here."""
    relative = os.path.relpath(file)
    return str(file) if relative.startswith(os.path.join("..", "..")) else relative


def _is_part_of_ours(root: Path) -> bool:
    """Whether the subject is this repository's own, or one of its tests' subjects."""
    return HOME is not None and (root == HOME or root.is_relative_to(HOME / "tests"))


def _leave_home(root: Path) -> None:
    """Takes this repository's decoder, glue and tests off the path for anybody else's subject: what that lacks is
    missing, and nothing of ours is judged in its place."""
    if HOME is None or _is_part_of_ours(root):
        return
    for entry in list(sys.path):
        folder = Path(entry).resolve()
        stays = folder.is_relative_to(root) or folder == PACKAGE.parent or _is_library(folder)
        if folder.is_relative_to(HOME) and not stays:
            sys.path.remove(entry)


@functools.cache
def _installed() -> tuple[Path, ...]:
    """The folders that packages are installed in, and Python's own."""
    return tuple({Path(folder).resolve() for folder in (*site.getsitepackages(), *sysconfig.get_paths().values())})


def _is_library(path: Path) -> bool:
    """Whether a file or folder is installed, in this environment or in one below it."""
    return "site-packages" in path.parts or any(path.is_relative_to(folder) for folder in _installed())


def _prepare_path(root: Path) -> None:
    """The root first; ``src`` next; last the packages themselves, for code that imports its neighbours by bare name."""
    inner = sorted(child for child in folders_of(root) if any(file.suffix == ".py" for file in children_of(child)))
    ours = [str(root), str(root / "src")]
    sys.path[:] = ours + [entry for entry in sys.path if entry not in ours]
    sys.path.extend(str(child) for child in inner if child.name not in {"tests", "src"} and str(child) not in sys.path)


def _forget_other_roots(root: Path) -> None:
    """Drops already imported modules that the subject brings under the same name: its own are the ones to import.

    So are this repository's, where the subject is somebody else's. Installed libraries stay: a folder that happens to
    be called like one must not take it away from everybody else.
    """
    bases = [root, root / "src"] + ([] if HOME is None or _is_part_of_ours(root) else [HOME])
    own = {child.stem for base in bases for child in children_of(base)} - {PACKAGE.name}
    candidates = own - sys.stdlib_module_names
    places = {name: _places_of(name) for name in list(sys.modules) if name.partition(".")[0] in candidates}
    for name, folders in places.items():
        if not any(folder.is_relative_to(root) or _is_library(folder) for folder in folders):
            del sys.modules[name]


def _places_of(name: str) -> list[Path]:
    """The file and the folders that an imported module consists of; none where its parent package is gone."""
    attributes = getattr(sys.modules[name], "__dict__", {})  # getattr would make up a __path__ for some of PyTorch's
    try:
        places = [attributes.get("__file__"), *attributes.get("__path__", ())]
    except KeyError:
        return []
    return [Path(place).resolve() for place in places if isinstance(place, str)]


def _claim_packages_without_init(root: Path) -> None:
    """Makes the subject's ``cs336_basics`` a package where without ``__init__.py`` it would lose to an installed one.

    Python prefers a regular package anywhere on the path to a folder without ``__init__.py`` at its beginning.
    """
    for folder in (root / OWN_PACKAGE, root / "src" / OWN_PACKAGE):
        if folder.is_dir() and not is_file(folder / "__init__.py"):
            _make_package(OWN_PACKAGE, folder)
            return


def _answer_for_versions(root: Path) -> None:
    """Lets ``importlib.metadata.version`` of the subject's own, uninstalled package answer.

    Course repositories read their version in ``__init__``; judging them must not need an install.
    """
    versions = {child.name: "0" for child in folders_of(root) if (child / "__init__.py").is_file()}
    project = project_of(root)
    if project:
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


def _import(file: Path, module_name: str, root: Path, output: Output, clock: Clock) -> ModuleType:
    what = f"importing {_display(file)}"
    try:
        with clock.running(what):
            return _run_import(file, module_name, root, output, what)
    except TimeUp as up:
        raise CannotJudgeError(f"{did_not_end(what, up.seconds)} (at {_innermost(up, root) or _display(file)})") from up


def _run_import(file: Path, module_name: str, root: Path, output: Output, what: str) -> ModuleType:
    try:
        with torch_state_kept(), contextlib.chdir(root), output.caught():
            return _execute(file, module_name)
    except (CannotJudgeError, KeyboardInterrupt, TimeUp):
        raise
    except ModuleNotFoundError as error:
        raise CannotJudgeError(_missing_module(error, file, root)) from error
    except SyntaxError as error:
        told = environment_fault(error, root, _display(file))
        if told is not None:
            raise CannotJudgeError(told) from error
        where = _display(Path(error.filename)) if error.filename else _display(file)
        where += f":{error.lineno}" if error.lineno else ""
        parts = (where, type(error).__name__, error.msg, (error.text or "").strip())
        raise CannotJudgeError(": ".join(filter(None, parts))) from error
    except BaseException as error:  # sys.exit() and pytest.skip() at import are no Exception
        told = environment_fault(error, root, _display(file))
        if told is not None:
            raise CannotJudgeError(told) from error
        text = " ".join(str(error).split()) or "no message"
        place = _innermost(error, root) or _display(file)
        raise CannotJudgeError(f"{what} raised {type(error).__name__}: {text} (at {place})") from error


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
    return any(line.lstrip().startswith("from .") for line in text_of_file(file).splitlines())


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
    meant = missing_own_module(error, root)
    if meant is not None:
        return f"{importer} {meant}"
    own = {child.stem for child in children_of(root) if is_module(child)}
    if name in own or not name or name in sys.stdlib_module_names:
        return f"{importer}: {error.msg}; the import does not match the files under {_display(root)}"
    if is_own_name(name, root):
        folder = folder_of(name, root)
        if folder is not None:
            return (
                f"{importer} imports {name}, which lies in {folder} of {_display(root)}, where Python does not look;"
                " put it beside the adapters, or give the adapters file that lies beside it"
            )
        return (
            f"{importer} imports {name}, and {root} holds no such package; it is the subject's own, which no registry"
            " has: put it there, beside the adapters, or build it first if it is compiled"
        )
    return f"{importer} {missing_library(name, _display(file))}"


def provenance(subject: Subject) -> str:
    """Where ``cs336_basics`` came from, if the subject imports it: nothing, or words to follow its name.

    A repository without one of its own may be judged on one that is installed; this says so.
    """
    file = getattr(sys.modules.get(OWN_PACKAGE), "__file__", None)
    if file is None or subject.root is None:
        return ""
    folder = Path(file).resolve().parent
    own = "" if folder.is_relative_to(subject.root) else ", which is not in the subject's own folder"
    return f", with {OWN_PACKAGE} from {_display(folder)}{own}"
