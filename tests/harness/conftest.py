"""What several tests of the checker need. What breaks in a diagnosis is raised here, where a learner is spared it."""

import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cs336_harness.subject.environment import prepare_torch

# Whoever names this folder on pytest's command line has this file read before the plugin sets torch up; and several
# tests fork, which threads of torch would not survive.
prepare_torch()

from cs336_harness.diagnosis.diagnosing import RAISES  # noqa: E402


@pytest.fixture(autouse=True)
def exceptions_of_the_diagnosis_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in the diagnosis fails the test; without this it would only lose a hint."""
    monkeypatch.setenv(RAISES, "1")


@pytest.fixture
def as_found() -> Iterator[None]:
    """Loading changes the path, the imported modules and the version look-up, as it must; each test puts them back."""
    path, modules, version = list(sys.path), dict(sys.modules), importlib.metadata.version
    yield
    sys.path[:] = path
    sys.modules.clear()
    sys.modules.update(modules)
    importlib.metadata.version = version


@pytest.fixture
def repository(tmp_path: Path, as_found: None) -> Callable[[dict[str, str]], Path]:
    """Writes files into a folder and gives the folder."""

    def write(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write
