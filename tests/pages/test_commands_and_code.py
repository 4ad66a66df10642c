"""What the pages show is what there is: each command line can be given, each message is printed, the code runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import typer
from broken import RIGHT

from cs336_harness import checks, judge
from cs336_harness.checks import components_beyond, registry
from cs336_harness.cli import COMMANDS, app_of
from cs336_harness.defects import adapters_of, all_defects, defect, norms
from cs336_harness.places import HOME, TEMPLATES
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure

MADE_BY_A_COMMAND = ("DEFECTS.md", "AUDIT.md")
PAGES = [
    HOME / "README.md",
    HOME / "harness" / "README.md",
    *(page for page in sorted((HOME / "docs").glob("*.md")) if page.name not in MADE_BY_A_COMMAND),
    *sorted((HOME / "docs" / "grading").iterdir()),
    *sorted(TEMPLATES.glob("*.md")),
]
README = (HOME / "README.md").read_text(encoding="utf-8")


def calls(page: Path) -> list[list[str]]:
    """The words after ``cs336`` of every command line on a page, without what a reader is to fill in."""
    text = re.sub(r"\s#\s.*|\$\{\w+:\+.*?\}", "", page.read_text(encoding="utf-8")).replace("\\\n", " ")
    lines = re.findall(rf"(?<![\w-])cs336 ((?:{'|'.join(COMMANDS)})\b[^`\n|&,]*)", text)
    words = (shlex.split(line) for line in lines)
    return [[word.strip("[]") for word in call if word.strip("[]…")] for call in words]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_of_a_page_can_be_given(page: Path) -> None:
    for name, *arguments in calls(page):
        group: Any = typer.main.get_command(app_of(name))
        command = group.commands[name]
        valued = {option for each in command.params if not getattr(each, "is_flag", False) for option in each.opts}
        if not arguments:  # the command is only spoken of
            continue
        value = ["1"] if arguments[-1] in valued and arguments[-1].startswith("-") else []
        command.make_context(name, [*arguments, *value])  # raises where an option is not there


def test_the_pages_have_command_lines() -> None:
    assert sum(len(calls(page)) for page in PAGES) > 60
    assert ["check", "glue_causal.py", "-k", "information_flow", "--no-diagnosis"] in calls(HOME / "docs" / "GLUE.md")


def test_the_failure_in_the_readme_is_what_is_printed(tmp_path: Path) -> None:
    shown = re.search(r"```\n(✗ components\.rmsnorm .*?)```", README, re.DOTALL)
    assert shown is not None
    names = "from cs336_harness.defects import adapters_of, all_defects\n"
    wrong = "run_rmsnorm = adapters_of(all_defects()['norm-eps-outside-root']).run_rmsnorm\n"
    (tmp_path / "adapters.py").write_text(names + wrong)
    printed = str(judge(tmp_path / "adapters.py", checks="rmsnorm"))
    assert " ".join(shown[1].split()) in " ".join(printed.split())


def block(decorator: str) -> str:
    """The code of the README that begins with a decorator."""
    found = re.search(rf"```python\n(@{decorator}\(.*?)```", README, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_check_in_the_readme_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", {})
    exec(block("check"), {**vars(checks), **vars(components_beyond)})
    (check,) = registry._REGISTRY.values()
    assert check(Subject(RIGHT, "right")) < 16
    with pytest.raises(CheckFailure):
        check(Subject(SimpleNamespace(run_silu=torch.relu), "wrong"))


def test_the_known_mistake_in_the_readme_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    all_defects()
    monkeypatch.setattr(defect, "_REGISTRY", {})
    exec(block("defect"), vars(norms).copy())
    (mistake,) = defect._REGISTRY.values()
    assert mistake.name not in all_defects()
    result = judge(adapters_of(mistake), checks="components.rmsnorm", diagnose=False)
    assert result.failures[0].id == "components.rmsnorm"
