"""The results in the formats of Gradescope and of GitHub Classroom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cs336_harness.grading.records import failures, waiting, write_json
from cs336_harness.grading.rubric import Rubric

HIDDEN_INPUTS = "Every check draws its inputs anew for each batch."


def gradescope(record: Mapping[str, Any], rubric: Rubric) -> dict[str, Any]:
    """``results.json`` of Gradescope's autograder: one test for each task, in points."""
    shown = "visible" if "tasks" in rubric.visible else "hidden"
    tests = []
    for task, each in record["tasks"].items():
        passed = each["required"] > 0 and each["passed"] == each["required"]
        tests.append(
            {
                "name": task.replace("_", " "),
                "score": each["points"],
                "max_score": each["max_points"],
                "status": "passed" if passed else "failed",
                "output": _told(record, task) if "checks" in rubric.visible else "",
                "visibility": shown,
            }
        )
    said = "" if record["state"] == "judged" else f"{record['state']}: {record['reason']}\n"
    return {
        "score": record["score"],
        "output": f"{said}{HIDDEN_INPUTS}",
        "output_format": "text",
        "visibility": "visible" if "score" in rubric.visible else "hidden",
        "tests": tests,
    }


def classroom(record: Mapping[str, Any]) -> dict[str, Any]:
    """The result that GitHub Classroom's grading reporter reads: version 1, one test for each task."""
    tests = [
        {
            "name": task.replace("_", " "),
            "status": "pass" if each["required"] > 0 and each["passed"] == each["required"] else "fail",
            "score": each["points"],
            "message": _told(record, task),
            "test_code": f"cs336 check -k {task}",
            "filename": "",
            "line_no": 0,
            "execution_time": f"{record['seconds']} s for all",
        }
        for task, each in record["tasks"].items()
    ]
    status = "pass" if record["passed"] else "fail" if record["state"] == "judged" else "error"
    return {"version": 1, "status": status, "max_score": record["max_score"], "tests": tests}


def _told(record: Mapping[str, Any], task: str) -> str:
    """What is wrong in one task, a line for each failure and for each entry point that is not written."""
    lines = [
        f"{each.check['id']}: {each.check['message']}"
        + (f" ({len(each.blocked)} more wait for it)" if each.blocked else "")
        for each in failures(record)
        if each.check["task"] == task
    ]
    lines += [f"{reason} (checks that wait: {number})" for reason, number in waiting(record, task).items()]
    held_up = Counter(
        each["blocked_by"]
        for each in record["checks"]
        if each["task"] == task and each["required"] and each["blocked_by"]
    )
    own = {each["id"] for each in record["checks"] if each["task"] == task}
    lines += [f"waits for {first} (checks: {number})" for first, number in held_up.items() if first not in own]
    return "\n".join(lines)


def write_gradescope(out: Path, records: Sequence[Mapping[str, Any]], rubric: Rubric) -> None:
    """One file for each submission."""
    for record in records:
        write_json(out / "gradescope" / f"{record['name']}.json", gradescope(record, rubric))


def write_classroom(out: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """One file for each submission."""
    for record in records:
        write_json(out / "classroom" / f"{record['name']}.json", classroom(record))
