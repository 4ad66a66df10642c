"""What is read of a batch: the class at a glance, a report for each student, a few lines for the terminal.

Every text in them is somebody else's: templates escape all of it, and no page loads anything from anywhere.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from cs336_harness.grading.records import failures, grades, waiting, write_whole
from cs336_harness.grading.rubric import Rubric
from cs336_harness.picture import page
from cs336_harness.picture.tally import SHARES, tallies
from cs336_harness.verdict.suite import OUTCOMES

COMMONEST = 10
STATES = ("judged", "crashed", "timed out", "not loadable", "refused")


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A known mistake of the class, and whose it is."""

    name: str
    explanation: str
    students: tuple[str, ...]


@functools.cache
def _templates(*, escape: bool) -> jinja2.Environment:
    environment = page.environment("cs336_harness.grading", escape=escape)
    environment.filters["points"] = lambda value: f"{value:.4g}"
    environment.filters["words"] = lambda text: text.replace("_", " ")
    environment.filters["inline"] = _inline
    environment.filters["code"] = lambda text: "\n".join(f"    {line}" for line in text.splitlines())
    return environment


def _inline(text: str) -> str:
    """A text that Markdown shows as it is, in one line. An underscore inside of a word means nothing to it."""
    return re.sub(r"[\\`*{}\[\]<>#|!~]|(?<!\w)_|_(?!\w)", r"\\\g<0>", " ".join(text.split()))


def mistakes(records: Sequence[Mapping[str, Any]]) -> list[Mistake]:
    """The known mistakes, the commonest first."""
    whose: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    for record in records:
        for mistake in record["diagnosis"]:
            whose.setdefault(mistake["name"], []).append(record["name"])
            texts[mistake["name"]] = str(mistake.get("explanation") or mistake.get("hint") or "")
    return [
        Mistake(name, texts[name], tuple(students))
        for name, students in sorted(whose.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def write(out: Path, records: Sequence[Mapping[str, Any]], rubric: Rubric) -> None:
    """Writes grades.csv, index.html and each student's report."""
    write_whole(out / "grades.csv", grades(records, rubric.counted))
    write_whole(out / "index.html", _class(records, rubric))
    for record in records:
        values = {
            "record": record,
            "visible": rubric.visible,
            "failures": failures(record),
            "waiting": waiting(record),
        }
        text = _templates(escape=False).get_template("student.md").render(values)
        write_whole(out / "reports" / f"{record['name']}.md", text)
        grade = _templates(escape=True).get_template("grades.html").render(values)
        if "checks" in rubric.visible:
            report = page.render(_shown(record, rubric.visible), before=grade)
        else:
            report = page.document("", title=record["name"], icon=page.icon("•"), before=grade, heading=record["name"])
        write_whole(out / "reports" / f"{record['name']}.html", report)


def _class(records: Sequence[Mapping[str, Any]], rubric: Rubric) -> str:
    """The class at a glance: how many have each part wrong, the commonest mistakes, students by tasks."""
    judged = [(record["name"], _judged(record)) for record in records if record["state"] == "judged"]
    counted = tallies(judged)
    full = {record["max_score"] for record in records}
    content = (
        _templates(escape=True)
        .get_template("class.html")
        .render(
            records=records,
            tasks=[task for task in rubric.counted if any(record["tasks"][task]["required"] for record in records)],
            mistakes=mistakes(records)[:COMMONEST],
            states=_states(records),
            tallies=counted,
            parts=sorted((each for each in counted.values() if each.told_at), key=lambda each: -len(each.wrong)),
            shares=SHARES,
            most=full.pop() if len(full) == 1 else None,
            median=statistics.median(record["score"] for record in records),
        )
    )
    return page.document(content, title=f"{len(records)} submissions", icon=page.icon("▦"))


def _judged(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The checks of a record that have an outcome."""
    return [each for each in record["checks"] if each["outcome"] in OUTCOMES]


def _shown(record: Mapping[str, Any], visible: Sequence[str]) -> dict[str, Any]:
    """A record as the JSON result that is drawn, without what a student may not see."""
    checks = []
    for each in _judged(record):
        told = each["diagnosis"] if "diagnosis" in visible else None
        if told is not None and "hints" not in visible:
            told = {**told, "defects": [{**defect, "hint": "", "steps": []} for defect in told["defects"]]}
        checks.append({**each, "diagnosis": told})
    if record["state"] == "judged":
        return {"subject": record["name"], "checks": checks}
    why = f"{record['state']}: {record['reason']}"
    if not checks:
        return {"subject": record["name"], "error": why}
    missing = [each["id"] for each in record["checks"] if each["outcome"] not in OUTCOMES]
    return {"subject": record["name"], "checks": checks, "cut_short": why, "not_run": missing}


def _states(records: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    counts = Counter(record["state"] for record in records)
    return {state: counts[state] for state in STATES if counts[state]}


def summary_lines(records: Sequence[Mapping[str, Any]], out: Path) -> Iterator[str]:
    """What became of the class, for a terminal."""
    states = ", ".join(f"{number} {state}" for state, number in _states(records).items())
    passed = sum(record["passed"] for record in records)
    submissions = "1 submission" if len(records) == 1 else f"{len(records)} submissions"
    yield f"{submissions}: {states}; {passed} passed everything that is required"
    width = max(len(record["name"]) for record in records)
    for record in sorted(records, key=lambda each: (each["state"] == "judged", each["name"])):
        if record["state"] != "judged":
            yield f"  {record['name']:<{width}}  {record['state']}: {' '.join(str(record['reason']).split())}"
    for mistake in mistakes(records)[:3]:
        count = len(mistake.students)
        yield f"  {count} {'has' if count == 1 else 'have'} {mistake.name}"
    yield f"wrote {out / 'grades.csv'}, {out / 'index.html'} and a record and a report for each"
