"""The blank version: complete, honest about what is blank, green task by task, and without a line of the solution."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cs336_harness.checks import all_checks
from cs336_harness.checks.registry import OPTIONAL_TASKS, TASKS, Check
from cs336_harness.course.handout import HANDED_OUT, LEFT_OUT, blank_adapters, write_handout
from cs336_harness.places import HOME, TEMPLATES
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.loading import load
from cs336_harness.verdict.progress import entry_points_of, progress, progress_lines
from cs336_harness.verdict.report import blank_lines, counts_line
from cs336_harness.verdict.suite import Result, Suite

FILLED = (HOME / "adapters.py").read_text(encoding="utf-8")
HANDOUT_TASKS = [task for task in TASKS if task not in OPTIONAL_TASKS]
ORDER = [name for task in HANDOUT_TASKS for name in entry_points_of(task)]
QUICK = [check for check in all_checks().values() if check.snapshot or check.task == "transformer_accounting"]

DISTINCT = 50
"""A line of so many characters does not stand in two programs by chance."""


@pytest.fixture(scope="module")
def handout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    destination = tmp_path_factory.mktemp("course") / "handout"
    write_handout(HOME, destination)
    return destination


def blank_module() -> SimpleNamespace:
    names: dict[str, Any] = {}
    exec(blank_adapters(FILLED), names)
    return SimpleNamespace(**{name: names[name] for name in HANDED_OUT})


def judge(module: Any, checks: list[Check]) -> list[Result]:
    return list(Suite(Subject(module, "handout"), diagnose=False).run(checks))


def test_it_has_what_judges_and_nothing_else(handout: Path) -> None:
    assert {path.name for path in handout.iterdir()} == {
        *("cs336_basics", "harness", "drills", "fixtures", "tests"),
        *("adapters.py", "pyproject.toml", "uv.lock", "WRITEUP.md", "README.md", "LICENSE", ".gitignore"),
    }
    assert [path.name for path in (handout / "cs336_basics").iterdir()] == ["__init__.py"]
    assert all(path.suffix == ".py" for path in (handout / "tests").iterdir())
    kinds = {path.suffix for path in handout.rglob("*") if path.is_file()}
    assert kinds == {".py", ".md", ".safetensors", ".toml", ".lock", ".html", ".css", ".js", ".typed", ""}


def test_its_checker_is_whole(handout: Path) -> None:
    """But for the command that prints what is asked for."""
    files = {path.relative_to(HOME) for path in (HOME / "harness" / "cs336_harness").rglob("*") if path.is_file()}
    own = {path for path in files if path.suffix != ".pyc" and "fixtures" not in path.parts}
    assert {path for path in own if not (handout / path).exists()} == {Path(name) for name in LEFT_OUT}


def lines_of_the_solution() -> set[str]:
    """Distinct lines of the decoder, its glue and its written answer: code, comments, docstrings and prose."""
    texts = [HOME / "adapters.py", HOME / "WRITEUP.md", *(HOME / "cs336_basics").glob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in texts if "huggingface" not in path.name)
    lines = {line.strip() for line in text.splitlines()}
    common = re.compile(r"import |from |def |class |@|test_\w+ = judged_by|assert |\"\"\"")
    return {line for line in lines if len(line) >= DISTINCT and not common.match(line)}


def test_nothing_of_the_solution_is_in_it(handout: Path) -> None:
    solution = lines_of_the_solution()
    assert len(solution) > 200
    kept = blank_adapters(FILLED) + (TEMPLATES / "WRITEUP.md").read_text(encoding="utf-8")
    for path in handout.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            found = [line for line in solution if line.encode() in content and line not in kept]
            assert not found, f"{path.relative_to(handout)} holds {found[0]!r}"


def test_its_adapters_keep_signatures_and_docstrings_and_know_no_package(handout: Path) -> None:
    module = blank_module()
    for name in HANDED_OUT:
        blank, filled = getattr(module, name), getattr(load().module, name)
        assert blank.__doc__ == filled.__doc__
        assert blank.__annotations__.keys() == filled.__annotations__.keys()
    assert "cs336_basics" not in re.sub(r'""".*?"""', "", (handout / "adapters.py").read_text(), flags=re.DOTALL)


def test_a_function_without_a_docstring_loses_its_comments_too() -> None:
    source = "".join(f"@cached\ndef {name}(x: Tensor):\n    # the trick\n    return x\n\n" for name in HANDED_OUT)
    blank = blank_adapters(f"from torch import Tensor, nn\nimport secret\n{source}")
    assert "trick" not in blank
    assert "secret" not in blank
    assert "from torch import Tensor\n" in blank
    assert blank.count("    raise NotImplementedError\n") == len(HANDED_OUT)


def test_every_blank_entry_point_is_told_in_one_line() -> None:
    results = judge(blank_module(), list(all_checks().values()))
    assert {result.outcome for result in results} == {"blank", "skipped"}
    assert sorted(line.partition(" is blank")[0] for line in blank_lines(results)) == sorted(HANDED_OUT)
    assert progress_lines(results)[:2] == [
        "0 of 16 entry points filled, required checks passed in 0 of 12 tasks",
        "next: linear (§3.3.2): write run_linear in adapters.py",
    ]


def fill_one_by_one(checks: list[Check]) -> None:
    """Fills the entry points in the handout's order; each makes its checks pass, all others stay blank."""
    solution, module = load().module, blank_module()
    done: set[str] = set()
    for name in ORDER:
        setattr(module, name, getattr(solution, name))
        newly = [check for check in checks if name in check.needs and {*check.needs} <= {*done, name}]
        waiting = [check for check in checks if not {*check.needs} <= {*done, name}]
        results = judge(module, newly + waiting)
        assert [result.outcome for result in results] == ["passed"] * len(newly) + ["blank"] * len(waiting), name
        done.add(name)


def test_filling_entry_points_in_order_turns_the_public_checks_green() -> None:
    assert sorted(ORDER) == sorted(HANDED_OUT)
    fill_one_by_one(QUICK)


@pytest.mark.slow
def test_filling_entry_points_in_order_turns_every_check_green() -> None:
    fill_one_by_one([check for check in all_checks().values() if check.needs and set(check.needs) <= set(HANDED_OUT)])


@pytest.mark.slow
def test_tasks_turn_green_one_by_one() -> None:
    solution, module = load().module, blank_module()
    for number, task in enumerate(HANDOUT_TASKS):
        for name in entry_points_of(task):
            setattr(module, name, getattr(solution, name))
        standing = progress(judge(module, list(all_checks().values())))
        own = [item for item in standing.tasks if item.name in HANDOUT_TASKS]
        assert [item.name for item in own if item.passed] == HANDOUT_TASKS[: number + 1]
        assert {item.state for item in own[number + 1 :]} <= {"blank"}


def test_the_table_of_its_readme_is_the_order_of_the_tasks(handout: Path) -> None:
    rows = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([^|]+) \|", (handout / "README.md").read_text(), re.MULTILINE)
    told = {task: (section, tuple(re.findall(r"`(\w+)`", names))) for task, section, names in rows}
    assert told == {task: (TASKS[task].removeprefix("§"), entry_points_of(task)) for task in HANDOUT_TASKS}
    assert list(told) == HANDOUT_TASKS


def test_its_readme_names_every_task_that_counts(handout: Path) -> None:
    told = re.findall(r"^\| (\w+) \| (?:[\d.]+|beyond) \|", (handout / "README.md").read_text(), re.MULTILINE)
    standing = progress(judge(blank_module(), list(all_checks().values())))
    assert told == [task.name for task in standing.tasks if task.counts.keys() - {"skipped"}]


def test_each_way_to_install_it_names_the_checker_which_no_index_has(handout: Path) -> None:
    ways = re.findall(r"pip install (?!torch)[^`\n]*-e \.", (handout / "README.md").read_text(encoding="utf-8"))
    assert len(ways) == 2
    assert all("-e harness -e ." in way for way in ways)


def test_its_lock_names_no_package_index(tmp_path: Path) -> None:
    """Though uv has completed that of the clone, from the instructor's own index, before it ran the command."""
    home = tmp_path / "home"
    home.mkdir()
    for path in HOME.iterdir():
        (home / path.name).symlink_to(path)
    neutral = (HOME / "uv.lock").read_text(encoding="utf-8")
    (home / "uv.lock").unlink()
    (home / "uv.lock").write_text(neutral.replace('"index"', '"https://index.example/simple"'), encoding="utf-8")
    write_handout(home, tmp_path / "handout")
    lock = (tmp_path / "handout" / "uv.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    assert lock.count("[[package]]") > 20


def test_the_count_that_its_readme_promises_is_what_the_watch_prints(handout: Path) -> None:
    module = blank_module()
    module.run_linear = load().module.run_linear
    results = judge(module, [check for check in all_checks().values() if check.task == "linear"])
    line = f"`linear §3.3.2 {counts_line(results).plain.strip()}`"
    assert line in (handout / "README.md").read_text(encoding="utf-8")
    assert "{" not in line


def test_it_does_not_print_the_answer_that_is_asked_for(handout: Path) -> None:
    code = "import cs336_harness.cli as cli; print([c.callback.__name__ for c in cli.app_of().registered_commands])"
    environment = {**os.environ, "PYTHONPATH": str(handout / "harness")}
    names = subprocess.check_output([sys.executable, "-c", code], cwd=handout, env=environment, text=True)
    assert "'check'" in names
    assert "'account'" not in names


def test_it_writes_over_nothing(tmp_path: Path) -> None:
    kept = tmp_path / "notes.txt"
    kept.write_text("mine")
    for destination in (tmp_path, kept):
        with pytest.raises(CannotJudgeError, match="is there already"):
            write_handout(HOME, destination)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    (tmp_path / "empty").mkdir()
    write_handout(HOME, tmp_path / "empty")
    assert (tmp_path / "empty" / "adapters.py").is_file()


def test_the_empty_folder_that_one_stands_in_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_handout(HOME, Path("."))
    assert Path("adapters.py").is_file()
    assert sorted(os.listdir()) == sorted(path.name for path in tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        CannotJudgeError, match=r"^the handout cannot be written to .*/file/inside/handout: \w"
    ) as caught:
        write_handout(HOME, tmp_path / "file" / "inside" / "handout")
    assert "\n" not in str(caught.value)


def test_it_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(write_handout.__globals__["WRITTEN"], "README.md", "absent.md")
    with pytest.raises(CannotJudgeError, match=r"absent\.md"):
        write_handout(HOME, tmp_path / "handout")
    assert list(tmp_path.iterdir()) == []


def test_a_handout_makes_no_handout(handout: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotJudgeError, match="this is a handout already"):
        write_handout(handout, tmp_path / "second")
    with pytest.raises(CannotJudgeError, match="from a clone"):
        write_handout(tmp_path, tmp_path / "third")


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """pytest in a handout, with the handout's own checker, as its environment has it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    own = {**os.environ, "PYTHONPATH": str(folder / "harness")}
    return subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_its_own_pytest_says_what_is_blank_and_then_turns_green(tmp_path: Path) -> None:
    write_handout(HOME, tmp_path / "handout")
    ran = run_pytest(tmp_path / "handout")
    assert ran.returncode == 1
    assert "Traceback" not in ran.stdout + ran.stderr
    assert " failed" not in ran.stdout
    assert sum(" is blank: it raises NotImplementedError" in line for line in ran.stdout.splitlines()) == 16
    for file in (HOME / "cs336_basics").glob("*.py"):
        (tmp_path / "handout" / "cs336_basics" / file.name).write_bytes(file.read_bytes())
    (tmp_path / "handout" / "adapters.py").write_text(FILLED)
    (tmp_path / "handout" / "WRITEUP.md").write_bytes((HOME / "WRITEUP.md").read_bytes())
    ran = run_pytest(tmp_path / "handout")
    assert ran.returncode == 0, ran.stdout
