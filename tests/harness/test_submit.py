"""`cs336 submit` packs what is to be handed in, and nothing else, and says what is missing."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cs336_harness.course.packing import pack
from cs336_harness.places import TEMPLATES
from cs336_harness.subject.failures import CannotJudgeError


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    home = tmp_path / "work"
    for name in ("tests", "cs336_basics", "cs336_basics/__pycache__", ".venv/lib", ".git", "data", "notes"):
        (home / name).mkdir(parents=True)
    (home / "tests" / "adapters.py").write_text("from cs336_basics import model\n")
    (home / "tests" / "test_model.py").write_text("")
    (home / "cs336_basics" / "__init__.py").write_text("")
    (home / "cs336_basics" / "model.py").write_text("x = 1\n")
    (home / "cs336_basics" / "__pycache__" / "model.cpython-311.pyc").write_bytes(b"x")
    (home / "cs336_basics" / "weights.json").write_bytes(bytes(6 << 20))
    (home / ".venv" / "lib" / "six.py").write_text("")
    (home / "data" / "text.txt").write_text("x" * 1000)
    (home / "notes" / "draft.py").write_text("")
    (home / "WRITEUP.md").write_text("12 parameters")
    return home


def packed(out: Path) -> list[str]:
    with zipfile.ZipFile(out) as archive:
        assert archive.testzip() is None
        return archive.namelist()


def test_adapters_package_and_written_answer_are_packed(repository: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine.zip"
    told = pack(repository, out)
    assert packed(out) == ["WRITEUP.md", "cs336_basics/__init__.py", "cs336_basics/model.py", "tests/adapters.py"]
    assert told.missing == ()
    assert told.left_out == ("cs336_basics/weights.json",)
    assert "cs336_basics/ (2)" in "\n".join(told.lines())


def test_the_same_work_packs_into_the_same_bytes(repository: Path, tmp_path: Path) -> None:
    pack(repository, tmp_path / "one.zip")
    pack(repository, tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_what_is_missing_is_said(repository: Path, tmp_path: Path) -> None:
    (repository / "WRITEUP.md").unlink()
    for file in (repository / "cs336_basics").rglob("*.*"):
        file.unlink()
    (repository / "cs336_basics" / "__pycache__").rmdir()
    (repository / "cs336_basics").rmdir()
    told = pack(repository, tmp_path / "mine.zip")
    assert [each.partition(",")[0] for each in told.missing] == ["WRITEUP.md", "cs336_basics"]


def test_a_template_is_no_written_answer(repository: Path, tmp_path: Path) -> None:
    (repository / "WRITEUP.md").write_bytes((TEMPLATES / "WRITEUP.md").read_bytes())
    assert "still the template" in pack(repository, tmp_path / "mine.zip").missing[0]


def test_a_file_that_is_no_zip_is_not_written_over(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("years")
    with pytest.raises(CannotJudgeError, match="is there and no zip"):
        pack(repository, tmp_path / "thesis")
    assert (tmp_path / "thesis").read_text() == "years"


@pytest.mark.slow
def test_failures_come_first_and_each_blank_entry_point_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "adapters.py").write_text(
        "def run_silu(in_features):\n    raise NotImplementedError\n\n\n"
        "def run_linear(d_in, d_out, weights, in_features):\n    return in_features @ weights.T * 2\n"
    )
    command = [sys.executable, "-c", "from cs336_harness.cli import main; main()", "submit"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["packed 1 file into submission.zip: adapters.py", "missing: WRITEUP.md, the written answer"]
    assert any(line.startswith("  ✗ components.linear: run_linear differs") for line in lines)
    (blank,) = (line for line in lines if "run_silu" in line)
    assert blank.startswith("  ○ run_silu is blank")
