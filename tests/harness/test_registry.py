"""There is one way to register a check, and what is registered is whole."""

import ast
from pathlib import Path

import pytest

from cs336_harness import checks
from cs336_harness.checks import all_checks
from cs336_harness.checks.registry import GROUPS, MODULES, TASKS, Check

FOLDER = Path(checks.__file__).parent
REGISTERING = [module for group in GROUPS for module in MODULES.get(group, (group,))]


@pytest.mark.parametrize("module", REGISTERING)
def test_a_module_of_checks_is_a_list_of_them(module: str) -> None:
    """A check is registered by one decorator on a function at the top level: no loop, no call, no second decorator."""
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check"]
    listed = [
        [item for item in function.decorator_list if item in called]
        for function in tree.body
        if isinstance(function, ast.FunctionDef)
    ]
    assert sum(map(len, listed)) == len(called)
    assert all(len(decorators) <= 1 for decorators in listed)
    assert called


def test_every_check_says_what_it_does_and_belongs_somewhere() -> None:
    for name, check in all_checks().items():
        assert check.task in TASKS
        assert check.group in GROUPS
        assert check.title.endswith(".")
        assert name not in check.after


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(ValueError, match=r"components.x belongs to no known task: 'lineal'"):
        Check("components.x", lambda subject: None, "lineal", ())
