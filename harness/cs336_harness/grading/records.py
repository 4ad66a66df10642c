"""The results of a batch on disk: a record for each submission, grades for a table, settings for proof. Plain files."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cs336_harness.grading.rubric import NOT_JUDGED, Rubric
from cs336_harness.subject.failures import CannotJudgeError

BATCH = "batch.json"
OURS = {BATCH, "records", "reports", "grades.csv", "index.html", "gradescope", "classroom"}
"""Everything that a batch writes into its folder."""


def write_whole(path: Path, text: str) -> None:
    """Writes a file through another one beside it, so that nobody ever sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Writes a value as JSON, whole."""
    write_whole(path, json.dumps(value, indent=2, allow_nan=False, default=str) + "\n")


def read_json(path: Path) -> Any:
    """A value from a JSON file; None when there is none, or it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


class Folder:
    """The folder of one batch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> None:
        """Makes the folder. :class:`CannotJudgeError` when it holds files of somebody else's."""
        if self.path.exists() and not self.path.is_dir():
            raise CannotJudgeError(f"--out {self.path} is a file; give a folder")
        if self.path.is_dir():
            foreign = sorted(entry for entry in os.listdir(self.path) if entry not in OURS)
            if foreign and not (self.path / BATCH).is_file():
                raise CannotJudgeError(f"--out {self.path} holds other files ({foreign[0]}); give a folder of its own")
        try:
            (self.path / "records").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotJudgeError(f"--out {self.path} cannot be written: {error.strerror}") from None

    def batch(self) -> dict[str, Any] | None:
        """What is kept of the batch that the folder holds; None when there is none."""
        value = read_json(self.path / BATCH)
        return value if isinstance(value, dict) else None

    def names(self) -> set[str]:
        """The names of the submissions that have a record."""
        return {path.stem for path in (self.path / "records").glob("*.json") if self.record(path.stem) is not None}

    def record_path(self, name: str) -> Path:
        """Where the record of a submission lies."""
        return self.path / "records" / f"{name}.json"

    def record(self, name: str) -> dict[str, Any] | None:
        """The record of a submission, if there is a whole one."""
        value = read_json(self.record_path(name))
        return value if isinstance(value, dict) and value.get("name") == name and "checks" in value else None


def scored(record: Mapping[str, Any], rubric: Rubric, days_late: float) -> dict[str, Any]:
    """A record with its score and tasks, the keys in the order that a reader wants."""
    checks = record["checks"]
    score = rubric.score(checks, record.get("writeup"), days_late)
    required = [each for each in checks if each["required"]]
    passed = record["state"] == "judged" and bool(required) and all(each["outcome"] == "passed" for each in required)
    first = {
        "name": record["name"],
        "state": record["state"],
        "reason": record.get("reason"),
        "passed": passed,
        "score": score,
        "max_score": rubric.max_score(checks),
        "days_late": days_late,
        "tasks": rubric.by_task(checks),
    }
    return {**first, **{key: value for key, value in record.items() if key not in first}}


@dataclasses.dataclass(frozen=True)
class Failure:
    """A check that failed, and the ids of those that only wait for it."""

    check: Mapping[str, Any]
    blocked: tuple[str, ...]


def failures(record: Mapping[str, Any]) -> list[Failure]:
    """The required checks that failed, in the order of the run."""
    required = [each for each in record["checks"] if each["required"]]
    return [
        Failure(check, tuple(each["id"] for each in required if each["blocked_by"] == check["id"]))
        for check in required
        if check["outcome"] == "failed"
    ]


def waiting(record: Mapping[str, Any], task: str | None = None) -> dict[str, int]:
    """Why required checks, of one task or of all, found nothing to ask: what is blank or absent, with how many wait."""
    return Counter(
        each["message"]
        for each in record["checks"]
        if each["required"] and each["outcome"] in ("blank", "skipped") and task in (None, each["task"])
    )


def grades(records: Sequence[Mapping[str, Any]], tasks: Sequence[str]) -> str:
    """The grades as CSV: a row for each submission, points by task."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["name", "state", "passed", "score", "max_score", "days_late", *tasks, "writeup", "mistakes"])
    for record in records:
        writeup = record.get("writeup")
        table.writerow(
            [
                _cell(record["name"]),
                record["state"],
                "yes" if record["passed"] else "no",
                record["score"],
                record["max_score"],
                record["days_late"],
                *(_points(record["tasks"][task]) for task in tasks),
                f"{writeup['right']}/{writeup['asked']}" if writeup else "",
                " ".join(mistake["name"] for mistake in record["diagnosis"]),
            ]
        )
    return text.getvalue()


def _points(task: Mapping[str, Any]) -> float | str:
    """What a cell says of a task: points where something of it was judged, nothing where nothing was asked."""
    if not task["required"]:
        return ""
    return task["points"] if task["judged"] else NOT_JUDGED


def _cell(text: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in "=+-@" else text
