"""``cs336 check`` as a program: exit codes, streams and files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cs336_harness import cli

RIGHT = """
import torch
from cs336_harness.reference.oracle_adapters import OracleAdapters

reference = OracleAdapters(dtype=torch.float32)
run_silu, run_softmax = reference.run_silu, reference.run_softmax
"""


def cs336(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Runs the command line in this process; the exit status."""
    monkeypatch.setattr("sys.argv", ["cs336", *arguments])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


@pytest.fixture
def subject(tmp_path: Path) -> Path:
    path = tmp_path / "subject.py"
    path.write_text(RIGHT)
    return path


def test_a_right_subject_exits_0_and_says_no_more_than_was_run(
    subject: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cs336(monkeypatch, "check", str(subject), "-k", "components.silu or components.rope") == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("judging ")
    assert "subject.py" in out.split("task")[0].replace("\n", "")
    assert "every required check that could run passed" in out
    assert "run_rope is not defined in subject.py" in out


def test_a_wrong_subject_exits_1_and_writes_json(
    subject: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    subject.write_text(RIGHT + "run_silu = torch.relu\n")
    result = tmp_path / "result.json"
    assert cs336(monkeypatch, "check", str(subject), "-k", "components.silu", "--json", str(result)) == 1
    data = json.loads(result.read_text())
    assert data["summary"]["failed"] == 1
    assert data["checks"][0]["id"] == "components.silu"
    assert data["checks"][0]["error_in_noise"] > 1e3
    assert "✗ components.silu" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir() if "unfinished" in path.name] == []


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["check", "nowhere"], "cs336: no such file or directory: nowhere\n"),
        (
            ["check", "-k", "no_such_check"],
            "cs336: -k 'no_such_check' selects no check; `cs336 explain` lists their ids\n",
        ),
        (
            ["watch", "-k", "no_such_check"],
            "cs336: -k 'no_such_check' selects no check; `cs336 explain` lists their ids\n",
        ),
        (["check", "--json", "no/such/folder/x.json"], "cs336: --json no/such/folder/x.json: there is no folder"),
        (
            ["check", "--hint", "--no-diagnosis"],
            "cs336: --hint says more on each named mistake, and --no-diagnosis names",
        ),
        (["check", "--json", "."], "cs336: --json .: that is a folder; give the name of a file"),
        (["check", "--plots", __file__], f"cs336: --plots {__file__}: that is a file; give the name of a folder"),
    ],
)
def test_a_wrong_call_exits_2_with_one_line_on_standard_error(
    arguments: list[str], line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cs336(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(line.removesuffix("\n"))
    assert len(captured.err.strip().splitlines()) == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "nowhere"],
        ["check", "-k", "rope or"],
        ["check", "--json", "no/such/folder/x.json"],
        ["check", "--html", __file__],
        ["check", "--dtype", "int8"],
        ["watch", "nowhere"],
        ["watch", "-k", "rope or"],
        ["grade", "nowhere", "--out", "grades"],
    ],
    ids=" ".join,
)
def test_nobody_waits_for_torch_to_be_told_of_a_wrong_call(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom cs336_harness.cli import main\n"
        f"sys.argv = ['cs336', *{arguments}]\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == "False\n"


@pytest.mark.parametrize("thread", ["", "threading.Timer(2, lambda: print('and a thread')).start()"])
def test_the_script_ends_without_taking_torch_apart_and_leaves_nothing_undone(thread: str) -> None:
    code = (
        "import atexit, sys, threading\nsys.modules['torch'] = object()\n"
        "class Kept:\n    def __del__(self, write=__import__('os').write):\n        write(1, b'taken apart\\n')\n"
        f"kept = Kept()\natexit.register(print, 'at exit')\n{thread}\n"
        "sys.argv = ['cs336', 'check', 'nowhere']\nfrom cs336_harness.cli import run\nrun()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert done.stdout.split("\n")[:-1] == (["and a thread", "at exit", "taken apart"] if thread else ["at exit"])


def test_the_help_says_of_each_command_all_that_it_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cs336(monkeypatch, "--help") == 0
    out = capsys.readouterr().out
    assert "..." not in out.partition("Commands:")[2]
    assert "which known mistake it is." in " ".join(out.split())


@pytest.mark.parametrize(
    ("text", "line"), [("import no_such_library\n", "which is not installed here"), ("x = 1\n", "defines none of the")]
)
def test_the_json_of_a_subject_that_cannot_be_judged_says_why(
    text: str,
    line: str,
    subject: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    subject.write_text(text)
    assert cs336(monkeypatch, "check", str(subject), "--json", str(tmp_path / "result.json")) == 2
    data = json.loads((tmp_path / "result.json").read_text())
    assert data == {"subject": str(subject), "error": capsys.readouterr().err.strip().removeprefix("cs336: ")}
    assert line in data["error"]


TALKS = (
    RIGHT
    + """
print("at import")

def run_silu(in_features):
    print("two\\nlines")
    return reference.run_silu(in_features=in_features)
"""
)


def test_what_a_subject_prints_is_hidden_and_counted_or_shown(
    subject: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cs336(monkeypatch, "check", str(subject), "-k", "components.silu") == 0
    assert "hidden" not in capfd.readouterr().out
    subject.write_text(TALKS)
    arguments = ("check", str(subject), "-k", "components.silu")
    assert cs336(monkeypatch, *arguments) == 0
    hidden = capfd.readouterr().out
    assert "at import" not in hidden
    (last,) = hidden.splitlines()[-1:]
    assert last.endswith("lines that the subject printed were hidden; -s shows them")
    assert cs336(monkeypatch, *arguments, "-s") == 0
    shown = capfd.readouterr().out
    assert "at import\n" in shown
    assert int(last.split()[0]) == 1 + 2 * shown.count("two\nlines\n") > 1
    assert "hidden" not in shown


def test_an_unknown_option_exits_2(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cs336(monkeypatch, "check", "--no-such-option") == 2


def test_the_shell_is_told_what_completes_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_CS336_COMPLETE", "complete_bash")
    for words, number, expected in (("cs336 check --de", "2", "--device"), ("cs336 expl", "1", "explain")):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", number)
        command = [sys.executable, "-c", "import sys; sys.argv = ['cs336']; from cs336_harness.cli import main; main()"]
        assert subprocess.run(command, capture_output=True, text=True, check=False).stdout.split() == [expected]
