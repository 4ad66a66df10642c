"""Accidents: whatever a subject does to the process that judges it is one failure, and the others are judged."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cs336_harness.checks import all_checks
from cs336_harness.isolation import supervisor
from cs336_harness.isolation.job import Job, result_of, wire
from cs336_harness.isolation.judge import Mark
from cs336_harness.isolation.supervisor import Supervisor
from cs336_harness.isolation.trial import Bench, Trial, judge_drills
from cs336_harness.isolation.workers import CAN_FORK
from cs336_harness.subject.environment_faults import environment_fault
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.verdict.suite import Result

SILU, SOFTMAX = "components.silu", "components.softmax"
CHECKS = [all_checks()[name] for name in (SOFTMAX, "components.softmax_dim", SILU)]

RIGHT_SILU = """
def run_silu(in_features):
    return in_features * torch.sigmoid(in_features)
"""


def adapters(folder: Path, body: str, top: str = "") -> Path:
    """A right ``run_silu`` and a ``run_softmax`` of this body."""
    path = folder / "adapters.py"
    softmax = f"def run_softmax(in_features, dim):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    path.write_text(f"import os, signal, sys, threading, time\nimport torch\n{top}\n{softmax}\n{RIGHT_SILU}")
    return path


def judged(path: Path, *, timeout: float = 0.5, fork: bool = CAN_FORK, **options: Any) -> dict[str, Result]:
    with Trial(path, CHECKS, diagnose=False, timeout=timeout, fork=fork, **options) as trial:
        list(trial.run())
        return {result.check.id: result for result in trial.results}


ACCIDENTS = [
    ("while True:\n    pass", "run_softmax did not end in 0.5 s: an endless loop?"),
    (
        "while True:\n    try:\n        while True:\n            pass\n    except Exception:\n        continue",
        "run_softmax did not end in 0.5 s: an endless loop?",
    ),
    (
        "while True:\n    try:\n        while True:\n            pass\n    except:\n        continue",
        "run_softmax did not end in 0.5 s: an endless loop?",
    ),
    ("x = torch.ones(3000, 3000)\nwhile True:\n    x = x @ x", "run_softmax did not end in 0.5 s"),
    ("torch.ones(1, 8000).expand(8000, 8000) @ torch.ones(8000, 20000)", "run_softmax did not end in 0.5 s"),
    ("time.sleep(1000)", "run_softmax did not come back in 2 s: does it wait for something?"),
    ("threading.Event().wait()", "run_softmax did not come back in 2 s"),
    ("os._exit(0)", "run_softmax ended the process with exit status 0"),
    ("os.kill(os.getpid(), signal.SIGSEGV)", "run_softmax ended the process with SIGSEGV"),
    ("os.kill(os.getpid(), signal.SIGKILL)", "run_softmax was killed from outside (SIGKILL)"),
    ("os.abort()", "run_softmax ended the process with SIGABRT"),
    ("raise Endless", "the text of what run_softmax raised did not end in 0.5 s"),
    ("sys.exit(0)", "run_softmax raised SystemExit"),
    ("input()", "run_softmax raised EOFError"),
]

ENDLESS_TEXT = "class Endless(Exception):\n    def __str__(self):\n        while True:\n            pass\n"


@pytest.mark.parametrize(("body", "message"), ACCIDENTS, ids=[body.replace("\n", " ") for body, _ in ACCIDENTS])
def test_an_accident_is_one_failure_and_the_others_are_judged(tmp_path: Path, body: str, message: str) -> None:
    results = judged(adapters(tmp_path, body, ENDLESS_TEXT))
    assert results[SOFTMAX].outcome == "failed"
    assert results[SOFTMAX].message.startswith(message)
    if "raised" not in message or "the text" in message:  # what raised may be called again
        assert results["components.softmax_dim"].outcome == "blocked"
        assert results["components.softmax_dim"].blocked_by == SOFTMAX
    assert results[SILU].outcome == "passed"


def test_an_accident_is_placed_in_the_subjects_own_file(tmp_path: Path) -> None:
    for body in ("while True:\n    pass", "time.sleep(1000)", "os.kill(os.getpid(), signal.SIGSEGV)"):
        result = judged(adapters(tmp_path, body))[SOFTMAX]
        assert result.failure is not None
        assert result.failure.evidence.details[0].startswith("adapters.py:"), body
        assert "in run_softmax" in result.failure.evidence.details[0]


IMPORTS = [
    ("while True:\n    pass", "importing adapters.py did not end in 0.5 s: an endless loop? (at adapters.py:3)"),
    ("time.sleep(1000)", "importing adapters.py did not come back in 2 s: does it wait for something?"),
    ("os._exit(0)", "importing adapters.py ended the process with exit status 0"),
    ("os.kill(os.getpid(), signal.SIGSEGV)", "importing adapters.py ended the process with SIGSEGV"),
]


@pytest.mark.parametrize(("top", "message"), IMPORTS, ids=[top.replace("\n", " ") for top, _ in IMPORTS])
def test_an_accident_at_import_is_one_line(
    tmp_path: Path, top: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CannotJudgeError) as caught:
        judged(adapters(tmp_path, "pass", top))
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_what_a_subject_leaves_behind_holds_nothing_up(tmp_path: Path) -> None:
    """A thread that never ends, a process that never ends, and one that comes back into our code."""
    body = """
        threading.Thread(target=time.sleep, args=(1000,)).start()
        if os.fork() == 0:
            time.sleep(1000)
        if os.fork() == 0:
            return None
        return torch.softmax(in_features, dim)
    """
    results = judged(adapters(tmp_path, body, "import atexit\natexit.register(time.sleep, 1000)"), timeout=20)
    assert {result.outcome for result in results.values()} == {"passed"}


def test_a_pipe_in_the_repository_is_never_opened(tmp_path: Path) -> None:
    path = adapters(tmp_path, "return torch.softmax(in_features, dim)")
    for name in ("pyproject.toml", "uv.lock", "WRITEUP.md", "layers.py", "drills"):
        os.mkfifo(tmp_path / name)
    assert {result.outcome for result in judged(path, timeout=20).values()} == {"passed"}
    with pytest.raises(CannotJudgeError, match="is neither a file nor a folder"):
        judged(tmp_path / "layers.py")
    assert environment_fault(RuntimeError("torch.gone has been removed since version 2.0"), tmp_path, "it") is not None


def test_the_time_of_the_whole_run_is_limited_and_what_has_no_result_is_known(tmp_path: Path) -> None:
    path = adapters(tmp_path, "time.sleep(1000)")
    with Trial(path, CHECKS, timeout=20, total=3) as trial:
        list(trial.run())
        assert trial.not_run == [check.id for check in CHECKS]
        assert trial.cut_short == "the 3 s for the whole run were over (--total-timeout)"


def test_a_failure_stands_when_its_diagnosis_ends_the_process(tmp_path: Path) -> None:
    """The fault shows in the calls of the checks; what the diagnosis then calls never comes back."""
    path = tmp_path / "adapters.py"
    path.write_text(
        "import os\ncalls = []\n\ndef run_silu(in_features):\n    calls.append(1) if len(calls) < 3 else os._exit(0)\n"
    )
    with Trial(path, [all_checks()[SILU]], timeout=20) as trial:
        result = trial.result(SILU)
    assert result is not None
    assert result.outcome == "failed"
    assert result.message.startswith("run_silu returned nothing")
    assert "ended the process" not in result.message
    assert result.failure is not None
    assert result.failure.evidence.details[-1].startswith("no diagnosis: ")


# What a runner does beside the judge must not show in the verdict, whichever of them comes first to a check.
SHARED = [*CHECKS, *(check for check in all_checks().values() if set(check.needs) <= {"run_softmax", "run_silu"})]


@pytest.mark.parametrize(
    "body", ["return torch.softmax(in_features, dim)", "pass", "while True:\n    pass", "os._exit(0)"]
)
@pytest.mark.parametrize("runners", [1, 2])
def test_runners_change_no_verdict(tmp_path: Path, body: str, runners: int) -> None:
    path = adapters(tmp_path, body)

    def told(runners: int) -> dict[str, tuple[Any, ...]]:
        with Trial(path, SHARED, diagnose=False, timeout=0.5, runners=runners) as trial:
            list(trial.run())
            return {r.check.id: (r.outcome, r.message, r.blocked_by) for r in trial.results}

    assert told(runners) == told(0)


def test_what_a_runner_tells_before_the_judge_has_loaded_is_not_lost(tmp_path: Path) -> None:
    class Nobody:
        def start(self, job: Job) -> None: ...

        def stop(self) -> None: ...

    supervisor = Supervisor(Nobody())  # ty: ignore[invalid-argument-type]
    supervisor.start(Job(0, "adapters.py", str(tmp_path / "log"), 1.0), runners=1)
    result = {"event": "result", "job": 1, "part": 1, "result": wire(Result(all_checks()[SILU], "passed"))}
    loaded = {"event": "loaded", "job": 1, "part": 0, "plan": [SILU]}
    assert list(supervisor.take(result)) == []
    assert list(supervisor.take(loaded)) == [loaded, result]


def test_a_job_is_loaded_once_however_many_judges_it_takes(tmp_path: Path) -> None:
    """A watch begins anew with what is loaded, and would forget the failure that ended the first judge."""
    job = Job(0, str(adapters(tmp_path, "os._exit(0)")), "", 20.0, checks=tuple(check.id for check in CHECKS))
    with Bench(timeout=20) as bench:
        bench.start(dataclasses.replace(job, log=bench.log, diagnose=False))
        told = [(event["event"], event.get("result", {}).get("id")) for event in bench.events()]
    assert [name for name, _ in told].count("loaded") == 1
    assert {check for name, check in told if name == "result"} == {check.id for check in CHECKS}


@pytest.mark.skipif(not CAN_FORK, reason="no fork here")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "hangs"])
def test_a_runner_that_is_lost_changes_nothing(tmp_path: Path, number: int) -> None:
    path = adapters(tmp_path, "time.sleep(0.05)\nreturn torch.softmax(in_features, dim)")
    with Trial(path, SHARED, diagnose=False, timeout=20, runners=1) as trial:
        workers: Any = trial._bench._supervisor._workers
        until = time.monotonic() + 10
        while not (started := workers._processes(1)):  # it may be forked after the judge has loaded
            assert time.monotonic() < until
            time.sleep(0.001)
        (runner,) = started
        os.kill(runner, number)
        list(trial.run())
        assert {result.outcome for result in trial.results} == {"passed"}
        assert trial.not_run == []
    state = Path(f"/proc/{runner}/stat")
    until = time.monotonic() + 10
    while state.exists() and state.read_text().rpartition(") ")[2][0] not in "ZX":  # nothing is left of it that runs
        assert time.monotonic() < until
        time.sleep(0.05)


def test_what_a_runner_saw_pass_is_not_run_by_the_judge(tmp_path: Path) -> None:
    """Each call notes the process that it runs in, and takes long enough for both to have some."""
    log = tmp_path / "log"
    note = (
        f"open({str(log)!r}, 'a').write(f'{{os.getpid()}}\\n')\ntime.sleep(0.2)\nreturn torch.softmax(in_features, dim)"
    )
    with Trial(adapters(tmp_path, note), SHARED, diagnose=False, timeout=20, runners=1) as trial:
        list(trial.run())
        assert {result.outcome for result in trial.results} == {"passed"}
    assert len(set(log.read_text().split())) == 2


@pytest.mark.slow
def test_a_second_python_process_judges_where_there_is_no_fork(tmp_path: Path) -> None:
    results = judged(adapters(tmp_path, "os._exit(0)"), timeout=20, fork=False)
    assert results[SOFTMAX].message == "run_softmax ended the process with exit status 0"
    assert results[SILU].outcome == "passed"


def test_drills_that_never_end_are_told(tmp_path: Path) -> None:
    (tmp_path / "drills").mkdir()
    path = tmp_path / "drills" / "attention.py"
    path.write_text("def self_attention(X, W_q, W_k, W_v):\n    while True:\n        pass\n")
    with Bench(timeout=0.5) as bench:
        messages = {result.name: result.message for result in judge_drills(path, bench)}
        assert messages["self_attention"] == "self_attention did not end in 0.5 s: an endless loop?"
        path.write_text("import os\nos._exit(0)\n")
        assert "exit status 0" in judge_drills(path, bench)[0].message


def test_a_job_reads_the_same_on_the_other_side() -> None:
    settled = (wire(Result(all_checks()[SILU], "passed", error_in_noise=1.5)),)
    job = Job(1, "a", "b", 1.0, checks=(SILU,), known={"x": "1"}, settled=settled, lost={"run_silu": (SILU, "ends")})
    assert Job.from_json(job.to_json()) == job
    assert result_of(settled[0]).error_in_noise == 1.5


ENDS = "ended the process"
LOOP = "while True:\n    pass"
TOLD = [
    ("os._exit(0)", "", 1, ENDS),
    ("os.kill(os.getpid(), signal.SIGSEGV)", "", 1, ENDS),
    (LOOP, "", 1, "did not end in 1 s"),
    ("pass", "os._exit(0)", 2, ENDS),
    ("pass", LOOP, 2, "importing"),
    ("time.sleep(1000)", "", 1, "the 8 s for the whole run were over"),
]
"""What ``run_softmax`` and the top of the file do, the exit status, and words of the line that tells it."""


@pytest.mark.parametrize(("body", "top", "status", "words"), TOLD)
def test_the_command_line_and_its_json_tell_an_accident(
    tmp_path: Path, body: str, top: str, status: int, words: str
) -> None:
    path, record = adapters(tmp_path, body, top), tmp_path / "record.json"
    limits = ["--total-timeout", "8", "--timeout", "100"] if "sleep" in body else ["--timeout", "1"]
    arguments = ["check", str(path), "-k", "softmax", "--no-diagnosis", "--json", str(record), *limits]
    done = subprocess.run(
        [sys.executable, "-m", "cs336_harness", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    assert words in " ".join((done.stdout + done.stderr).split())
    told = json.loads(record.read_text())
    assert ("error" in told) is (status == 2)
    assert words in json.dumps(told)


@pytest.mark.parametrize(("body", "top", "status", "words"), [TOLD[0], *TOLD[2:]])
def test_pytest_tells_an_accident(tmp_path: Path, body: str, top: str, status: int, words: str) -> None:
    path = adapters(tmp_path, body, top)
    limits = ["--total-timeout=8", "--check-timeout=100"] if "sleep" in body else ["--check-timeout=1"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--adapters={path}", "-m", "softmax"]
    done = subprocess.run(
        [*command, *limits], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == status
    assert words in done.stdout + done.stderr


@pytest.mark.parametrize(("queued", "waits"), [(0.0, True), (100.0, False)], ids=["deadlock", "busy machine"])
def test_a_busy_machine_is_no_deadlock(tmp_path: Path, queued: float, waits: bool) -> None:
    """A call that computes a little of the time is stopped where nothing but itself keeps it from computing."""
    workers: Any = SimpleNamespace(computed=lambda part: 2.0, queued=lambda part: kept)
    job = Job(number=1, path=str(tmp_path), log=str(tmp_path / "log"), timeout=30.0)
    judge, mark, kept = supervisor._Judge(job, since=0.0), Mark("run_softmax", since=0.0, computed=0.0), 50.0
    watching = supervisor.Supervisor(workers)
    assert not watching._waits(judge, mark, now=1.0)
    kept += queued
    assert watching._waits(judge, mark, now=150.0) is waits


def test_what_a_diagnosis_observed_is_written_by_a_process_that_nobody_waits_for(tmp_path: Path) -> None:
    path = adapters(tmp_path, "return torch.exp2(in_features) / torch.exp2(in_features).sum(dim, keepdim=True)")
    command = [sys.executable, "-m", "cs336_harness", "check", str(path), "-k", "components.softmax"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert done.stderr == ""
    until = time.monotonic() + 20
    while not list(tmp_path.glob("cache/*/expected-*")):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_subject_that_changes_pytorch_does_not_change_what_the_next_one_is_held_against(tmp_path: Path) -> None:
    """What is kept of the oracle's answers is made where no subject was."""
    text = "import torch\n\ntorch.exp = torch.exp2\n"
    spoils, right = tmp_path / "spoils.py", tmp_path / "right.py"
    softmax = "def run_softmax(in_features, dim):\n    return torch.softmax(in_features, dim)\n"
    spoils.write_text(text + softmax)
    right.write_text("import torch\n\n" + softmax)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def check(path: Path) -> int:
        command = [sys.executable, "-m", "cs336_harness", "check", str(path), "-k", "components.softmax"]
        return subprocess.run(command, capture_output=True, check=False, env=environment).returncode

    assert check(spoils) == 1
    until = time.monotonic() + 120
    while not list(tmp_path.glob("cache/*/oracle-*")):
        assert time.monotonic() < until
        time.sleep(0.2)
    assert check(right) == 0
