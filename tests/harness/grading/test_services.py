"""The files for Gradescope and GitHub Classroom do what these services need, run in folders laid out as theirs are."""

import base64
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from attacks import RIGHT

from cs336_harness.grading import sandbox

FILES = Path(__file__).parents[3] / "docs" / "grading"
BROKEN = "import nothing_of_that_name\n"


@pytest.fixture(autouse=True)
def _shut_in(tmp_path: Path) -> None:
    if not sandbox.tried(sandbox.Reach(("/usr",), (), str(tmp_path))).enough:
        pytest.skip("submissions cannot be shut in here")


def run(script: str, folder: Path, **environment: str) -> None:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def command(folder: Path) -> None:
    """``cs336`` of this Python in a folder of programs."""
    folder.mkdir(parents=True)
    file = folder / "cs336"
    file.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from cs336_harness.cli import main; main()" "$@"\n')
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    ("text", "score"), [(BROKEN, 0.0), pytest.param(RIGHT, None, marks=pytest.mark.slow)], ids=["broken", "right"]
)
def test_gradescope_finds_results_of_its_format_however_often_it_runs(
    text: str, score: float | None, tmp_path: Path
) -> None:
    base = tmp_path / "autograder"
    command(base / "venv" / "bin")
    (base / "submission").mkdir()
    (base / "submission" / "adapters.py").write_text(text)
    for _ in range(2 if text == BROKEN else 1):
        run((FILES / "run_autograder").read_text().replace("/autograder/", f"{base}/"), tmp_path)
    results = json.loads((base / "results" / "results.json").read_text())
    assert set(results) == {"score", "output", "output_format", "visibility", "tests"}
    assert results["output_format"] in ("text", "html", "simple_format", "md", "ansi")
    shown = ("hidden", "after_due_date", "after_published", "visible")
    assert results["visibility"] in shown
    assert results["tests"]
    for each in results["tests"]:
        assert set(each) == {"name", "score", "max_score", "status", "output", "visibility"}
        assert 0 <= each["score"] <= each["max_score"]
        assert each["status"] in ("passed", "failed")
        assert each["visibility"] in shown
    total = sum(each["score"] for each in results["tests"])
    assert results["score"] == pytest.approx(total, abs=0.01)
    assert total == score if score is not None else total > 0
    if text == BROKEN:
        assert "nothing_of_that_name" in results["output"]


def test_the_workflow_of_classroom_hands_its_reporter_a_result(tmp_path: Path) -> None:
    """Its commands, as a runner has them: a checkout in ``class/submission``, a file for outputs."""
    workflow = (FILES / "classroom.yml").read_text()
    grade, output = (re.search(rf"run: ({begin}.*)", workflow) for begin in ("cs336 grade", "echo"))
    assert grade
    assert output
    command(tmp_path / "bin")
    (tmp_path / "class" / "submission").mkdir(parents=True)
    (tmp_path / "class" / "submission" / "adapters.py").write_text(BROKEN)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    run(grade[1], tmp_path, PATH=path)
    run(output[1], tmp_path, PATH=path, GITHUB_OUTPUT=str(tmp_path / "outputs"))
    name, _, encoded = (tmp_path / "outputs").read_text().partition("=")
    assert name == "result"
    assert "steps.judged.outputs.result" in workflow
    result = json.loads(base64.b64decode(encoded))
    assert (result["version"], result["status"]) == (1, "error")
    assert {"name", "status", "score", "message", "test_code", "execution_time"} <= set(result["tests"][0])
    assert all(each["status"] in ("pass", "fail", "error") for each in result["tests"])


def test_the_script_that_builds_the_image_is_one() -> None:
    subprocess.run(["bash", "-n", FILES / "setup.sh"], check=True)
