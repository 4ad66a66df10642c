"""The results of a batch on disk: a record for each submission, grades for a table, settings for proof. Plain files."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cs336_harness.grading.rubric import Rubric
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
                *(record["tasks"][task]["points"] for task in tasks),
                f"{writeup['right']}/{writeup['asked']}" if writeup else "",
                " ".join(mistake["name"] for mistake in record["diagnosis"]),
            ]
        )
    return text.getvalue()


def _cell(text: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in "=+-@" else text
