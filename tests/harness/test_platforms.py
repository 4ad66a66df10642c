"""What Windows and macOS lack, taken away here: no fork, no timers that interrupt, none of Unix's own modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import faulthandler, os, signal, sys

for module, names in (
    (os, ("fork", "forkpty", "setsid", "geteuid", "getuid")),
    (faulthandler, ("register", "unregister")),
    (signal, ("setitimer", "getitimer", "alarm", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGHUP")),
):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


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
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.slow
def test_the_command_gives_the_same_verdicts(subject: Path) -> None:
    ran = run(subject, "-m", "cs336_harness", "check", "-k", "components.silu")
    assert (ran.returncode, "all required checks passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr
    (subject / "adapters.py").write_text("def run_silu(x):\n    return x.relu()\n")
    ran = run(subject, "-m", "cs336_harness", "check", "-k", "components.silu")
    assert ran.returncode == 1, ran.stderr
    assert "✗ components.silu" in ran.stdout
    (subject / "adapters.py").write_text("def run_silu(x):\n    while True: pass\n")
    ran = run(subject, "-m", "cs336_harness", "check", "-k", "components.silu", "--timeout", "2")
    assert ran.returncode == 1, ran.stderr
    assert "did not end" in ran.stdout


@pytest.mark.slow
def test_python_code_gives_the_same_verdicts(subject: Path) -> None:
    code = "from cs336_harness import judge; print(judge(checks='components.silu', timeout=60).summary)"
    ran = run(subject, "-c", code)
    assert ran.stdout.splitlines()[-1:] == ["all required checks passed"], ran.stderr
