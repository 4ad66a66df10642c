"""The commands in somebody else's repository, with this one installed in the same environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RIGHT = """
import torch
from cs336_harness.reference.oracle_adapters import OracleAdapters

run_silu = OracleAdapters(dtype=torch.float32).run_silu
"""

NO_NETWORK = """
import sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "urllib.Request"):
        raise OSError(f"{event} {arguments}: nothing here needs the network")

sys.addaudithook(refuse)
"""


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A CS336 repository with one right entry point and settings of its own."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "adapters.py").write_text(RIGHT)
    (tmp_path / "tests" / "test_own.py").write_text("def test_own():\n    assert True\n")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\naddopts = '--strict-markers'\n")
    return tmp_path


def run(folder: Path, *arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    environment = dict(os.environ) if path is None else {**os.environ, "PYTHONPATH": str(path)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(folder, "pytest", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *arguments)


def test_the_module_is_the_command(foreign: Path) -> None:
    assert run(foreign, "cs336_harness", "--version").stdout.startswith("cs336-harness 0.")


@pytest.mark.slow
def test_the_command_judges_the_repository_that_one_stands_in_and_needs_no_network(
    foreign: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    closed = tmp_path_factory.mktemp("closed")
    (closed / "sitecustomize.py").write_text(NO_NETWORK)
    ran = run(foreign / "tests", "cs336_harness", "check", "-k", "components.silu", path=closed)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("judging adapters.py\n")


@pytest.mark.slow
def test_another_repository_is_not_judged_on_the_one_that_one_stands_in(foreign: Path, tmp_path: Path) -> None:
    (foreign / "cs336_basics").mkdir()
    (foreign / "cs336_basics" / "__init__.py").touch()
    (foreign / "other").mkdir()
    (foreign / "other" / "adapters.py").write_text("import cs336_basics\ndef run_silu(x): return x\n")
    ran = run(foreign, "cs336_harness", "check", "other", "-k", "components.silu")
    assert ran.returncode == 2
    assert ran.stderr.startswith("cs336: other/adapters.py:1 imports cs336_basics, and ".replace("/", os.sep))


@pytest.mark.slow
def test_pytest_judges_the_repository_that_one_stands_in(foreign: Path) -> None:
    ran = pytest_in(foreign, "--pyargs", "cs336_harness.judging", "-k", "silu")
    assert ran.returncode == 0, ran.stdout
    assert "cs336: judging this repository" in ran.stdout
    (foreign / "tests" / "adapters.py").write_text("def run_silu(x):\n    return x.relu()\n")
    ran = pytest_in(foreign, "--pyargs", "cs336_harness.judging", "-m", "positionwise_feedforward")
    assert ran.returncode == 1, ran.stdout
    assert "run_silu differs from the reference" in ran.stdout


@pytest.mark.slow
def test_pytest_judges_another_one(foreign: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    stands_in = tmp_path_factory.mktemp("nothing")
    ran = pytest_in(
        stands_in, "--pyargs", "cs336_harness.judging", "--adapters", str(foreign), "-k", "components and silu"
    )
    assert ran.returncode == 0, ran.stdout
    ran = pytest_in(stands_in, "--pyargs", "cs336_harness.judging")
    assert ran.returncode == 2
    assert "holds no adapters file" in ran.stdout + ran.stderr


@pytest.mark.slow
def test_the_plugin_is_idle_in_other_tests(foreign: Path) -> None:
    ran = pytest_in(foreign, "-v")
    assert ran.returncode == 0, ran.stdout
    assert "cs336" not in ran.stdout.replace(str(foreign), "").partition("collected")[0].replace("cs336-harness-", "")
    assert "1 passed" in ran.stdout
