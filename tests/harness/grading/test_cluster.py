"""A class graded on a Dask cluster gets the records that it gets on one machine, and a lost worker loses nothing."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from attacks import RIGHT, WRONG

from cs336_harness.grading import batch, intake
from cs336_harness.grading.batch import Settings
from cs336_harness.subject.failures import CannotJudgeError

CHECKS = ("components.linear", "tying.one_parameter")


def told(records: list[dict[str, Any]]) -> str:
    keys = ("name", "state", "passed", "score", "tasks", "digest", "seed")
    return json.dumps([{key: record[key] for key in keys} for record in records])


@pytest.mark.slow
def test_a_cluster_gives_the_records_of_one_machine(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    for name, text in {"ann": RIGHT, "bob": WRONG, "eve": "import os; os._exit(0)"}.items():
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "adapters.py").write_text(text)
    found = intake.submissions(tmp_path / "class")
    settings = {"secret": "x", "checks": CHECKS}
    here = batch.grade(found, tmp_path / "here", Settings(**settings), lambda *_: None)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path / "dask")
    ) as cluster:
        elsewhere = Settings(**settings, cluster=cluster.scheduler_address)
        there = batch.grade(found, tmp_path / "there", elsewhere, lambda *_: None)
    assert told(there) == told(here)


@pytest.mark.slow
def test_a_worker_that_is_killed_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    for name in "abcdef":
        (tmp_path / "class" / name).mkdir(parents=True)
        (tmp_path / "class" / name / "adapters.py").write_text(RIGHT)
    found = intake.submissions(tmp_path / "class")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path / "dask")
    ) as cluster:
        killed: list[int] = []

        def done(*_: object) -> None:
            if not killed:
                killed.append(cluster.workers[0].pid)
                os.kill(killed[0], signal.SIGKILL)

        settings = Settings(secret="x", checks=CHECKS, cluster=cluster.scheduler_address)
        records = batch.grade(found, tmp_path / "out", settings, done)
    assert killed
    assert [(record["name"], record["state"], record["passed"]) for record in records] == [
        (name, "judged", True) for name in "abcdef"
    ]


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    from cs336_harness.grading import cluster

    monkeypatch.setattr(cluster, "CONNECT", "1s")
    with pytest.raises(CannotJudgeError, match="no scheduler answers"):
        cluster.dask_executor("tcp://127.0.0.1:1")
