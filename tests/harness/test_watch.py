"""Watch: what a save runs first, what is printed when, and what a subject may do to the process that judges it."""

import contextlib
import io
import json
import os
import pty
import queue
import re
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from test_isolation import ACCIDENTS, ENDLESS_TEXT, IMPORTS
from test_isolation import adapters as write_adapters

from cs336_harness.checks import all_checks
from cs336_harness.defects import all_defects, subject_of
from cs336_harness.diagnosis.wording import Diagnosis
from cs336_harness.isolation.board import Board
from cs336_harness.isolation.job import Job, result_of, wire
from cs336_harness.isolation.judge import planned, tell_line
from cs336_harness.isolation.workers import CAN_FORK, ForkServer, FreshProcesses
from cs336_harness.places import HOME
from cs336_harness.verdict.explain import hints
from cs336_harness.verdict.suite import Suite
from cs336_harness.watch.keys import characters_of, read_keys
from cs336_harness.watch.saves import folders, report_saves, stamps
from cs336_harness.watch.session import Session

needs_fork = pytest.mark.skipif(not CAN_FORK, reason="this platform cannot fork a process that has torch loaded")

RIGHT = "import torch\n\ndef run_silu(in_features):\n    return in_features * torch.sigmoid(in_features)\n"
WRONG = RIGHT.replace("in_features * ", "")
SILU = "components.silu"

KNOWN = "silu-is-gelu"
MISTAKE = Diagnosis("feed-forward", "certain", (all_defects()[KNOWN],)).to_json()


class Recorder:
    """A supervisor that does nothing but remember."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def start(self, job: Job, runners: int) -> None:
        self.jobs.append(job)


class Watching:
    """A session on a made-up subject, its console as text."""

    def __init__(self, root: Path) -> None:
        self.supervisor = Recorder()
        self.screen = io.StringIO()
        console = Console(file=self.screen, width=100)
        self.session = Session(console, self.supervisor, root / "adapters.py", root / "log", timeout=10)

    def tell(self, kind: str, **event: Any) -> None:
        self.session.event({"event": kind, **event})

    def begin(self, *changed: str, plan: tuple[str, ...] = (SILU,)) -> None:
        self.session.run("saved")
        self.tell("loaded", fingerprints=dict.fromkeys(changed, "1"), changed=changed, plan=list(plan))

    def result(self, check: str = SILU, outcome: str = "passed", **fields: Any) -> None:
        told: dict[str, Any] = {"message": "", "details": [], "blocked_by": None, "seconds": 0.0}
        told |= {"error_in_noise": None, "diagnosis": None, "influence": None}
        told |= {"states": dict.fromkeys(all_checks()[check].needs, "filled")}
        self.tell("result", result={"id": check, "outcome": outcome, **told, **fields})

    def take_text(self) -> str:
        text = self.screen.getvalue()
        self.screen.seek(0)
        self.screen.truncate()
        return text


@pytest.fixture
def watching(tmp_path: Path) -> Watching:
    return Watching(tmp_path)


def test_what_failed_and_what_changed_is_judged_first() -> None:
    checks = [all_checks()[f"components.{name}"] for name in ("linear", "embedding", "rope", "rmsnorm", "softmax")]
    plan = planned(checks, first=["components.softmax"], changed={"run_rmsnorm", "run_rope"})
    assert [check.task for check in plan] == ["softmax", "rmsnorm", "rope", "linear", "embedding"]


def test_a_failure_is_printed_the_moment_it_is_known(watching: Watching) -> None:
    watching.begin("run_silu", plan=(SILU, "components.swiglu"))
    watching.result(outcome="failed", message="silu is off", details=["first at (0, 0)"], diagnosis=MISTAKE)
    text = watching.take_text()
    assert "✗ components.silu" in text
    assert all(words in text for words in ("silu is off", "first at (0, 0)", "[silu-is-gelu]"))


def test_a_touched_task_is_told_when_it_is_through_and_the_others_only_when_wrong(watching: Watching) -> None:
    watching.begin("run_silu", plan=(SILU, "components.linear"))
    watching.result()
    assert re.search(r"positionwise_feedforward\s+§3.4.2\s+✓ 1", watching.take_text())
    watching.result("components.linear")
    assert watching.take_text() == ""
    watching.tell("done")
    text = watching.take_text()
    assert "done: ✓ 2  2 checks in" in text
    assert "required checks passed in 0 of 11 tasks, the others were not run in full" in text


def test_the_next_job_begins_with_what_failed(watching: Watching) -> None:
    watching.begin("run_silu")
    watching.result(outcome="failed", message="off")
    watching.tell("done")
    watching.session.saved([watching.session._root / "layers.py"])
    job = watching.supervisor.jobs[-1]
    assert job.first == (SILU,)
    assert job.known == {"run_silu": "1"}


def test_what_cannot_be_read_is_one_line_and_the_watch_goes_on(watching: Watching) -> None:
    watching.session.run("saved")
    watching.tell("unreadable", message="layers.py:3: SyntaxError: '(' was never closed")
    assert "✗ layers.py:3: SyntaxError: '(' was never closed" in watching.take_text()
    watching.session.run("saved")
    assert len(watching.supervisor.jobs) == 2


def test_a_result_reads_the_same_on_the_other_side(watching: Watching) -> None:
    result = Suite(subject_of(all_defects()[KNOWN])).result(all_checks()[SILU])
    told = result_of(json.loads(json.dumps(wire(result))))
    assert told.diagnosis is not None
    for hint in (False, True):
        assert told.diagnosis.lines(hint=hint) == result.diagnosis.lines(hint=hint)
    assert told.to_json() == result.to_json()


def test_one_check_is_counted_as_one(watching: Watching) -> None:
    watching.begin("run_silu")
    watching.result()
    watching.tell("done")
    assert "1 check in" in watching.take_text()


def test_a_failure_is_told_once_however_long_its_diagnosis_takes(watching: Watching) -> None:
    watching.begin("run_silu")
    watching.take_text()
    failure = wire(Suite(subject_of(all_defects()[KNOWN]), diagnose=False).result(all_checks()[SILU]))
    watching.tell("failure", result=failure)
    watching.result(outcome="failed", message="silu is off", diagnosis=MISTAKE)
    watching.tell("done")
    assert watching.take_text().count("✗ components.silu") == 1


def test_no_word_is_broken_at_the_end_of_a_line(watching: Watching) -> None:
    watching.begin("run_silu")
    watching.result()
    watching.tell("done")
    lines = watching.take_text().splitlines()
    assert max(map(len, lines)) <= 100  # a longer one would be cut by the terminal, in the middle of a word
    assert "the others were not run in full" in " ".join(lines)


def test_the_marks_are_explained_at_the_beginning(watching: Watching) -> None:
    assert "✓ passed  ✗ failed  ○ blank  · waits for a failed one" in watching.take_text()


def test_commands(watching: Watching) -> None:
    watching.begin("run_silu", plan=(SILU, "components.swiglu"))
    watching.result(outcome="failed", message="off", diagnosis=MISTAKE)
    watching.result("components.swiglu")
    watching.tell("done")
    watching.take_text()
    assert watching.session.command("hints")
    assert f"  1. {all_defects()[KNOWN].steps[0]}" in watching.take_text()
    for command in ("again", "failed", "all"):
        assert watching.session.command(command)
    assert [job.checks for job in watching.supervisor.jobs] == [None, None, (SILU,), None]
    assert not watching.session.command("quit")


def test_a_name_focuses_until_all_are_asked_for(watching: Watching) -> None:
    watching.session.focus("rope")
    watching.session.saved([watching.session._root / "layers.py"])
    watching.session.focus("no_such_task")
    watching.session.command("all")
    assert [job.keyword for job in watching.supervisor.jobs] == ["rope", "rope", None]
    assert "-k 'no_such_task' selects no check" in watching.take_text()


def test_letters_act_at_once_and_names_end_with_enter() -> None:
    told: list[tuple[str, str]] = []
    read_keys(iter("h\rrof\x7f\n"), lambda kind, what: told.append((kind, what)))
    assert told == [
        *(("command", "hints"), ("command", "again")),
        *(("typing", "r"), ("typing", "ro"), ("typing", "rof"), ("typing", "ro"), ("focus", "ro")),
        ("command", "quit"),  # the input ended
    ]


def test_what_is_typed_after_the_last_key_is_left_for_the_shell() -> None:
    characters = iter("fqls\n")
    told: list[str] = []
    read_keys(characters, lambda kind, what: told.append(what))
    assert told == ["failed", "quit"]
    assert "".join(characters) == "ls\n"


@pytest.mark.timeout(20)
def test_the_end_of_input_and_a_terminal_that_is_gone_quit() -> None:
    keys, typed = os.pipe()
    os.write(typed, "hé".encode())
    os.close(typed)
    assert list(characters_of(keys)) == ["h", "\ufffd", "\ufffd", ""]
    os.close(keys)
    keyboard, inside = pty.openpty()
    os.close(inside)  # from now on reading raises EIO
    assert list(characters_of(keyboard)) == [""]
    os.close(keyboard)


def test_hints_for_a_failure_without_a_name_are_those_of_its_check(watching: Watching) -> None:
    watching.begin("run_silu")
    watching.result(outcome="failed", message="off")
    watching.take_text()
    watching.session.command("hints")
    assert f"  1. {hints(SILU)[0]}" in watching.take_text()


@needs_fork
@pytest.mark.timeout(20)
def test_long_lines_of_two_judges_stay_whole() -> None:
    events, telling = os.pipe()
    judges = []
    for part in range(2):
        judges.append(os.fork())
        if judges[-1] == 0:
            try:
                os.close(events)  # so that writing fails when nobody reads any more
                for _ in range(5):
                    tell_line(telling, {"part": part, "message": str(part) * 200_000})  # more than a pipe holds
            finally:  # whatever happens, this process is no test run
                os._exit(0)
    os.close(telling)
    with open(events, encoding="utf-8") as lines:
        told = [json.loads(line) for line in lines if line.strip()]
    for judge in judges:
        os.waitpid(judge, 0)
    assert sorted(event["part"] for event in told) == [0] * 5 + [1] * 5


class Server:
    """A fork server, its events gathered job by job."""

    def __init__(self) -> None:
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.workers = ForkServer(self.events.put)
        self.number = 0

    def begin(self, path: Path, runners: int = 0) -> None:
        self.number += 1
        log = str(path.parent / "log")
        Board.make(Path(f"{log}.board"))
        for part in reversed(range(runners + 1)):
            job = Job(self.number, str(path), log, 10.0, "components.silu", None, part, diagnose=False, known={})
            self.workers.start(job)

    def finish(self, parts: int = 1) -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = []
        while sum(event["event"] == "ended" for event in told) < parts:
            told.append(self.events.get(timeout=20))
        return [event for event in told if event["job"] == self.number]

    def judge(self, path: Path) -> list[dict[str, Any]]:
        self.begin(path)
        return self.finish()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.workers.close()


@pytest.fixture
def adapters(tmp_path: Path) -> Path:
    return tmp_path / "adapters.py"


def outcomes(events: list[dict[str, Any]]) -> dict[str, str]:
    results = [event["result"] for event in events if event["event"] == "result"]
    return {result["id"]: result["outcome"] for result in results}


@needs_fork
def test_each_save_is_judged_as_it_is_on_the_disk(server: Server, adapters: Path) -> None:
    adapters.write_text(RIGHT)
    first = server.judge(adapters)
    assert [event["event"] for event in first][-2:] == ["done", "ended"]
    assert outcomes(first)[SILU] == "passed"
    adapters.write_text(RIGHT.replace("in_features * t", "in_features + t"))  # the same length, within the same second
    assert outcomes(server.judge(adapters))[SILU] != "passed"


@needs_fork
def test_fingerprints_follow_the_code_that_is_reached_and_no_comment(server: Server, adapters: Path) -> None:
    def marks(layers: str) -> dict[str, str]:
        (adapters.parent / "layers.py").write_text(layers)
        loaded = [event for event in server.judge(adapters) if event["event"] == "loaded"]
        return loaded[0]["fingerprints"]

    softmax = "import layers\n\ndef run_softmax(in_features, dim):\n    return layers.Norm().scale(in_features)\n"
    adapters.write_text(RIGHT + softmax)
    layers = "class Norm:\n    def scale(self, x):\n        return inner(x)\n\ndef inner(x):\n    return x + 1\n"
    before = marks(layers)
    assert before.keys() == {"run_silu", "run_softmax"}
    assert marks("# a comment\n" + layers + "\ndef unused():\n    pass\n") == before
    after = marks(layers.replace("x + 1", "x + 2"))
    assert [name for name in before if before[name] != after[name]] == ["run_softmax"]


@needs_fork
@pytest.mark.parametrize(
    ("body", "status"),
    [("os._exit(3)", 3), ("os.abort()", -6)],
)
def test_a_subject_that_ends_its_process_ends_no_other(server: Server, adapters: Path, body: str, status: int) -> None:
    adapters.write_text(f"import os\n\ndef run_silu(in_features):\n    {body}\n")
    events = server.judge(adapters)
    assert (events[-1]["event"], events[-1]["status"]) == ("ended", status)
    adapters.write_text(RIGHT)
    assert outcomes(server.judge(adapters))[SILU] == "passed"


@needs_fork
def test_a_job_may_be_stopped_at_any_moment(server: Server, adapters: Path) -> None:
    adapters.write_text("def run_silu(in_features):\n    while True:\n        pass\n")
    for pause in (0.0, 0.03):
        server.begin(adapters)
        time.sleep(pause)
        server.workers.stop()
        assert server.finish()[-1]["status"] == -9
    adapters.write_text(RIGHT)
    assert outcomes(server.judge(adapters))[SILU] == "passed"


@needs_fork
def test_a_job_for_a_server_that_is_gone_is_no_error(adapters: Path) -> None:
    server = Server()
    os.kill(server.workers._server, signal.SIGKILL)
    os.waitpid(server.workers._server, 0)
    server.begin(adapters)
    assert server.events.get(timeout=20) == {"event": "gone"}
    server.workers.close()


@needs_fork
def test_a_runner_tells_passes_alone_and_the_judge_what_is_left(server: Server, adapters: Path) -> None:
    for text in (RIGHT, WRONG):
        adapters.write_text(text)
        alone = outcomes(server.judge(adapters))
        server.begin(adapters, runners=1)
        events = server.finish(parts=2)
        assert outcomes(events) == alone
        runner = [event for event in events if event["part"] == 1]
        assert set(outcomes(runner).values()) <= {"passed"}
        assert not any(event["event"] == "running" for event in runner)


@needs_fork
@pytest.mark.parametrize("text", ["def run_silu(", "", "import no_such_package\n", "1 / 0\n"])
def test_what_cannot_be_loaded_is_told_in_one_line(server: Server, adapters: Path, text: str) -> None:
    adapters.write_text(text)
    events = server.judge(adapters)
    assert [event["event"] for event in events] == ["forked", "unreadable", "ended"]
    assert "\n" not in events[1]["message"]


def test_folders_leave_out_environments_and_hidden_ones(tmp_path: Path) -> None:
    for name in ("cs336_basics/inner", ".git/objects", ".venv/lib", "env/lib", "node_modules/x", "__pycache__"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "env" / "pyvenv.cfg").touch()
    assert folders(tmp_path) == {tmp_path, tmp_path / "cs336_basics", tmp_path / "cs336_basics" / "inner"}


def test_a_folder_that_goes_away_while_it_is_read_does_not_end_the_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "layers").mkdir()
    for name in ("adapters.py", "layers/linear.py"):
        (tmp_path / name).touch()
    whole = Path.glob

    def glob(folder: Path, pattern: str) -> Iterator[Path]:
        if folder.name == "layers":
            raise FileNotFoundError(folder)
        yield from whole(folder, pattern)

    assert set(stamps(folders(tmp_path))) == {tmp_path / "adapters.py", tmp_path / "layers/linear.py"}
    monkeypatch.setattr(Path, "glob", glob)
    assert set(stamps(folders(tmp_path))) == {tmp_path / "adapters.py"}


def test_saves_are_reported_in_folders_old_and_new_and_after_the_root_was_away(tmp_path: Path) -> None:
    root, inbox, stopping = tmp_path / "root", queue.Queue[tuple[str, Any]](), threading.Event()
    (root / ".venv").mkdir(parents=True)
    watcher = threading.Thread(target=report_saves, args=(root, inbox, stopping))
    watcher.start()

    def saved(name: str) -> bool:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            (root / name).write_text(str(time.monotonic()))
            with contextlib.suppress(queue.Empty):
                while True:
                    if root / name in inbox.get(timeout=0.1)[1]:
                        return True
        return False

    assert saved("adapters.py")
    (root / "layers").mkdir()
    assert saved("layers/linear.py")
    shutil.move(root, tmp_path / "away")
    time.sleep(0.05)
    shutil.move(tmp_path / "away", root)
    assert saved("layers/linear.py")
    (root / ".venv" / "hidden.py").touch()
    (root / "notes.txt").touch()
    assert saved("adapters.py")
    stopping.set()
    watcher.join()
    assert all(file.suffix == ".py" and ".venv" not in file.parts for _, files in inbox.queue for file in files)


@pytest.mark.slow
def test_a_fresh_process_does_the_same_without_fork(adapters: Path) -> None:
    events: queue.Queue[dict[str, Any]] = queue.Queue()
    workers = FreshProcesses(events.put, spare=False)
    adapters.write_text(WRONG)
    workers.start(Job(1, str(adapters), str(adapters.parent / "log"), 60.0, keyword=SILU, diagnose=False))
    told = []
    while not told or told[-1]["event"] != "ended":
        told.append(events.get(timeout=60))
    workers.close()
    assert outcomes(told)[SILU] == "failed"
    assert told[-1]["status"] == 0


class Screen:
    """``cs336 watch`` in a terminal of its own, and what is on its screen."""

    def __init__(self, root: Path, *arguments: str) -> None:
        self.keyboard, inside = pty.openpty()
        command = [sys.executable, "-c", "from cs336_harness.cli import main; main()", "watch", str(root), *arguments]
        environment = {**os.environ, "PYTHONPATH": str(HOME), "COLUMNS": "200", "TERM": "dumb"}
        self.process = subprocess.Popen(command, stdin=inside, stdout=inside, stderr=inside, env=environment)
        os.close(inside)
        self.text = ""

    def wait_for(self, pattern: str) -> str:
        """What came on the screen since the last call, up to the pattern."""
        while not (found := re.search(pattern, self.text)):
            self.text += os.read(self.keyboard, 65536).decode(errors="replace")
        seen, self.text = self.text[: found.end()], self.text[found.end() :]
        return seen

    def press(self, key: str) -> None:
        os.write(self.keyboard, key.encode())


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", ["--fork", "--no-fork"])
def test_a_whole_session_in_a_terminal(adapters: Path, how: str) -> None:
    if how == "--fork" and not CAN_FORK:
        pytest.skip("no fork here")
    adapters.write_text(RIGHT)
    screen = Screen(adapters.parent, "-k", "components.silu", "--timeout", "5", "--no-diagnosis", how)
    screen.wait_for("q: quit")
    adapters.write_text(WRONG)
    assert "✗ components.silu" in screen.wait_for("q: quit")
    screen.press("h")
    assert "✗ components.silu" in screen.wait_for("q: quit")
    adapters.write_text("def run_silu(in_features):\n    while True:\n        pass\n")
    assert "did not end in 5 s" in screen.wait_for("q: quit")
    swap = adapters.with_suffix(".swp")
    swap.write_text("def run_silu(")
    swap.replace(adapters)
    assert "SyntaxError" in screen.wait_for("q: quit")
    adapters.unlink()
    assert "no such file" in screen.wait_for("q: quit")
    for number in range(20):
        adapters.write_text(f"{RIGHT}# {number}\n")
    screen.wait_for("done: ")
    screen.wait_for("q: quit")
    screen.press("\r")
    assert "again" in screen.wait_for("q: quit")
    screen.press("a")
    assert "all checks" in screen.wait_for("q: quit")
    screen.press("f")
    assert "nothing failed" in screen.wait_for("in the last run")
    screen.press("silu\r")
    assert "(only silu)" in screen.wait_for("q: quit")
    screen.press("q")
    assert screen.process.wait(timeout=20) == 0


@pytest.mark.slow
@pytest.mark.timeout(300)
@needs_fork
def test_a_watch_tells_every_accident_and_goes_on(tmp_path: Path) -> None:
    write_adapters(tmp_path, "return torch.softmax(in_features, dim)", ENDLESS_TEXT)
    screen = Screen(tmp_path, "-k", "softmax", "--timeout", "0.5", "--no-diagnosis")
    checks = re.search(r"(\d+) checks in", screen.wait_for("q: quit"))
    assert checks is not None
    outcome = re.compile(r"  (the text of what )?run_softmax (did not|ended|was killed|raised)")
    for body, _ in ACCIDENTS:
        write_adapters(tmp_path, body, ENDLESS_TEXT)
        told = screen.wait_for("q: quit")
        assert outcome.search(told), body
        assert re.search(rf"done: .*✗ 1 .*{checks[1]} checks", told), body
    for top, message in IMPORTS:
        write_adapters(tmp_path, "pass", top)
        words = message.partition("adapters.py")[2].partition(" (")[0]
        assert words in " ".join(screen.wait_for("q: quit").split())
    os.mkfifo(tmp_path / "layers.py")
    write_adapters(tmp_path, "return torch.softmax(in_features, dim)")
    assert "✗" not in screen.wait_for("done: .*") + screen.wait_for("q: quit")
    screen.press("q")
    assert screen.process.wait(timeout=20) == 0


def test_each_edit_of_the_benchmark_fits_the_decoder_and_names_a_check_of_its_task() -> None:
    edits = runpy.run_path(str(HOME / "benchmarks" / "watch.py"), run_name="benchmark")["EDITS"]
    for task, mistake, name, right, wrong, check in edits:
        text = (HOME / "cs336_basics" / name).read_text(encoding="utf-8")
        assert text.count(right) == 1, mistake
        assert right != wrong
        assert any(re.match(check, one.id) for one in all_checks().values() if one.task == task), check
