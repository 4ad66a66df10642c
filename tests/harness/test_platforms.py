"""What Windows and macOS lack, taken away here: no fork, no timers that interrupt, none of Unix's own modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import faulthandler, os, signal, sys, time

for module, names in (
    (os, ("fork", "forkpty", "openpty", "setsid", "geteuid", "getuid", "sched_getaffinity", "set_blocking")),
    (faulthandler, ("register", "unregister")),
    (signal, ("setitimer", "getitimer", "alarm", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGHUP", "SIGUSR1", "SIGCHLD")),
):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


def no_clock_of_another_process(clock):
    raise OSError(f"no clock {clock}")


time.clock_gettime = no_clock_of_another_process


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "termios", "tty", "resource", "grp", "pwd"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
"""

RIGHT = """
import torch
from cs336_harness.reference.oracle_adapters import OracleAdapters

run_silu = OracleAdapters(dtype=torch.float32).run_silu
"""


@pytest.fixture
def subject(tmp_path: Path) -> Path:
    (tmp_path / "less").mkdir()
    (tmp_path / "less" / "sitecustomize.py").write_text(WITHOUT)
    (tmp_path / "adapters.py").write_text(RIGHT)
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder / "less")}
    command = [sys.executable, *arguments]
    encoding = environment.get("PYTHONIOENCODING", "utf-8").partition(":")[0]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, encoding=encoding, timeout=300, check=False
    )


@pytest.mark.slow
def test_the_command_gives_the_same_verdicts(subject: Path) -> None:
    ran = run(subject, "-m", "cs336_harness", "check", "-k", "components.silu")
    assert (ran.returncode, "all required checks that were asked passed" in ran.stdout) == (0, True), (
        ran.stdout + ran.stderr
    )
    (subject / "adapters.py").write_text("def run_silu(x):\n    return x.relu()\n")
    ran = run(subject, "-m", "cs336_harness", "check", "-k", "components.silu")
    assert ran.returncode == 1, ran.stderr
    assert "✗ components.silu" in ran.stdout
    (subject / "adapters.py").write_text("def run_silu(x):\n    while True: pass\n")
    ran = run(subject, "-m", "cs336_harness", "check", "-k", "components.silu", "--timeout", "2")
    assert ran.returncode == 1, ran.stderr
    assert "run_silu did not come back in" in ran.stdout
    assert "an endless loop, or does it wait" in " ".join(ran.stdout.split())
    (subject / "adapters.py").write_text("import os\n\n\ndef run_silu(x):\n    os._exit(0)\n")
    ran = run(subject, "-m", "cs336_harness", "check", "-k", "components.silu")
    assert "run_silu ended the process with exit status 0" in " ".join(ran.stdout.split()), ran.stdout + ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["cp1252", "cp932"])
def test_a_console_without_our_signs_shows_others(
    encoding: str, subject: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows writes what is redirected in an old code page, which has no ✓ and no ✗."""
    monkeypatch.setenv("PYTHONIOENCODING", f"{encoding}:strict")
    (subject / "adapters.py").write_text("def run_silu(x):\n    return x.relu()\n")
    ran = run(subject, "-m", "cs336_harness", "check", "-k", "components.silu")
    assert ran.returncode == 1, ran.stderr
    assert "x components.silu" in ran.stdout
    assert run(subject, "-m", "cs336_harness", "account", "gpt2-xl").returncode == 0


@pytest.mark.slow
def test_python_code_gives_the_same_verdicts(subject: Path) -> None:
    code = "from cs336_harness import judge; print(judge(checks='components.silu', timeout=60).summary)"
    ran = run(subject, "-c", code)
    assert ran.stdout.splitlines()[-1:] == ["all required checks that were asked passed"], ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", [["check", "--isolated"], ["grade", ".", "--out", "grades"]], ids=lambda c: c[0])
def test_what_takes_linux_says_so_in_one_line(command: list[str], subject: Path) -> None:
    ran = run(subject, "-m", "cs336_harness", *command)
    assert (ran.returncode, len(ran.stderr.splitlines())) == (2, 1), ran.stderr
    assert "that takes Linux 5.13 or newer" in ran.stderr
