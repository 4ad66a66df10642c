"""The blank version of this repository: everything that judges, nothing of the solution.

``adapters.py`` is made from the filled one, so it cannot drift: the same signatures and docstrings, every body blank.
What goes along is listed here by place and kind of file; whatever is not listed stays behind.
"""

from __future__ import annotations

import ast
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cs336_harness.contract import ASSEMBLY_ENTRY_POINTS, MODEL_ENTRY_POINTS
from cs336_harness.course import neutral_lock
from cs336_harness.places import TEMPLATES
from cs336_harness.subject.failures import CannotJudgeError

GIVEN = (
    "pyproject.toml",
    "uv.lock",
    "LICENSE",
    ".gitignore",
    "harness/pyproject.toml",
    "harness/README.md",
    "harness/**/*.py",
    "harness/cs336_harness/*/*.toml",
    "harness/cs336_harness/*/templates/*",
    "harness/cs336_harness/py.typed",
    "drills/*.py",
    "fixtures/*.safetensors",
    "tests/*.py",
)
"""What goes along as it is. The folders inside ``tests`` hold decoders of their own; they are about other subjects."""

LEFT_OUT = ("harness/cs336_harness/commands/account.py",)
"""The command that prints the answer to the accounting problem."""

HANDED_OUT = {**MODEL_ENTRY_POINTS, **ASSEMBLY_ENTRY_POINTS}
"""The entry points that a learner fills in. Incremental decoding goes beyond: whoever wants it, adds it."""

WRITTEN = {"README.md": "HANDOUT.md", "WRITEUP.md": "WRITEUP.md"}
"""Files of the handout that are written for it, and the templates that they are."""

FIRST_TASK = "linear"
FIRST_TASK_CHECKS = "{checks of the first task}"
"""Stands in the README's template where the watch prints how many checks of the first task passed."""

ADAPTERS_DOCSTRING = '''"""The contract, to be filled in with your own decoder: one function per entry point.

The first twelve have the names and arguments of CS336's assignment 1; the last four let the harness check what an
assembled model is made of. Write your modules in ``cs336_basics``, import them here, and let each function put the
weights it is given into your module and return what that computes.
"""
'''

PACKAGE_DOCSTRING = '''"""Your decoder goes here. Begin with a module ``Linear`` in ``cs336_basics/layers.py``.

Files and names in this package are yours to choose: the harness sees nothing but ``adapters.py``.
"""
'''


def write_handout(home: Path, destination: Path) -> None:
    """Writes the blank version of the repository ``home`` to ``destination``, whole or not at all.

    Raises:
        CannotJudgeError: something is at ``destination`` already, it cannot be written, or ``home`` is no filled-in
            clone.
    """
    try:
        _write(home, Path(os.path.abspath(destination)))
    except OSError as error:
        file = f" ({error.filename})" if error.filename else ""
        raise CannotJudgeError(
            f"the handout cannot be written to {destination}: {error.strerror or error}{file}"
        ) from error


def _write(home: Path, destination: Path) -> None:
    if destination.is_symlink() or destination.is_file() or (destination.is_dir() and any(destination.iterdir())):
        raise CannotJudgeError(f"{destination} is there already; name a folder that is empty or not there yet")
    missing = [pattern for pattern in ("adapters.py", *GIVEN) if not any(home.glob(pattern))]
    if missing:
        raise CannotJudgeError(f"{home} has no {missing[0]}; a handout is made from a clone of the full repository")
    adapters = blank_adapters((home / "adapters.py").read_text(encoding="utf-8"))
    stays = destination.is_dir()  # the same folder, in which a shell may stand and beside which one may not write
    beside = destination if stays else destination.parent
    beside.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{destination.name}-", dir=beside))
    moved: list[Path] = []
    try:
        _fill(unfinished, home, adapters)
        unfinished.chmod(0o755)
        if stays:
            for made in sorted(unfinished.iterdir()):
                moved.append(made.rename(destination / made.name))
            unfinished.rmdir()
        else:
            unfinished.rename(destination)
    except BaseException:
        for path in (unfinished, *moved):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        raise


def _fill(folder: Path, home: Path, adapters: str) -> None:
    left_out = {home / name for name in LEFT_OUT}
    for source in sorted({path for pattern in GIVEN for path in home.glob(pattern)} - left_out):
        target = folder / source.relative_to(home)
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.name == "uv.lock":  # uv has completed it in the clone by now, from the instructor's own index
            target.write_text(neutral_lock.strip(source.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(source, target)
    texts = {"adapters.py": adapters, "cs336_basics/__init__.py": PACKAGE_DOCSTRING}
    for name, template in WRITTEN.items():
        text = (TEMPLATES / template).read_text(encoding="utf-8")
        texts[name] = text.replace(FIRST_TASK_CHECKS, str(_checks_of(FIRST_TASK)))
    (folder / "cs336_basics").mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _checks_of(task: str) -> int:
    """How many checks the watch counts for a task."""
    from cs336_harness.checks import all_checks

    return sum(check.task == task for check in all_checks().values())


def blank_adapters(filled: str) -> str:
    """An adapters module with every entry point of ``filled``: its signature and docstring kept, its body blank.

    Helper functions are left out, and so is every import that no signature needs.

    Raises:
        CannotJudgeError: an entry point is not defined there, or all are blank already.
    """
    tree = ast.parse(filled)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in HANDED_OUT]
    undefined = HANDED_OUT.keys() - {function.name for function in functions}
    if undefined:
        raise CannotJudgeError(f"adapters.py does not define {min(undefined)}; a handout needs every entry point")
    if all(_is_blank(function) for function in functions):
        raise CannotJudgeError("adapters.py is blank: this is a handout already; make one from the full repository")
    header = f"{ADAPTERS_DOCSTRING}\n{_imports(tree, functions)}"
    return "\n\n\n".join([header, *(_blank(function, filled.splitlines()) for function in functions)]) + "\n"


def _blank(function: ast.FunctionDef, lines: list[str]) -> str:
    """The function's own lines up to the end of its docstring, then nothing but the error."""
    function.decorator_list = []
    if ast.get_docstring(function) is None:
        function.body = [ast.parse("raise NotImplementedError").body[0]]
        return ast.unparse(function)
    return "\n".join([*lines[function.lineno - 1 : function.body[0].end_lineno], "    raise NotImplementedError"])


def _is_blank(function: ast.FunctionDef) -> bool:
    return isinstance(function.body[-1], ast.Raise) and ast.unparse(function.body[-1]) == "raise NotImplementedError"


def _imports(tree: ast.Module, functions: list[ast.FunctionDef]) -> str:
    """The imports of the module that the signatures need, as they stand there; blank lines between groups are kept."""
    used = {name for function in functions for name in _names_of_signature(function)}
    groups: list[str] = []
    end = None
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        wanted = [alias for alias in node.names if (alias.asname or alias.name).partition(".")[0] in used]
        if wanted:
            node.names = wanted
            groups += [""] if end is not None and node.lineno > end + 1 else []
            groups.append(ast.unparse(node))
            end = node.end_lineno
    return "\n".join(groups)


def _names_of_signature(function: ast.FunctionDef) -> Iterator[str]:
    for part in (function.args, function.returns):
        if part is not None:
            yield from (node.id for node in ast.walk(part) if isinstance(node, ast.Name))
