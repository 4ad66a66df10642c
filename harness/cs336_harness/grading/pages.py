"""What is read of a batch: the class at a glance, a report for each student, a few lines for the terminal.

Every text in them is somebody else's: templates escape all of it, and no page loads anything from anywhere.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2

from cs336_harness.grading.records import failures, grades, waiting, write_whole
from cs336_harness.grading.rubric import Rubric
from cs336_harness.picture.page import render
from cs336_harness.verdict.suite import OUTCOMES

COMMONEST = 10
STATES = ("judged", "crashed", "timed out", "not loadable", "refused")


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A known mistake of the class, and whose it is."""

    name: str
    explanation: str
    students: tuple[str, ...]


def _templates(*, escape: bool) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cs336_harness.grading"),
        autoescape=escape,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
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
    page = _templates(escape=True)
    plain = _templates(escape=False)
    shown = page.get_template("class.html").render(
        records=records, tasks=rubric.counted, mistakes=mistakes(records)[:COMMONEST], states=_states(records)
    )
    write_whole(out / "index.html", shown)
    for record in records:
        values = {
            "record": record,
            "visible": rubric.visible,
            "failures": failures(record),
            "waiting": waiting(record),
        }
        if "checks" in rubric.visible:
            report = render(_shown(record, rubric.visible), before=page.get_template("grades.html").render(values))
        else:
            report = page.get_template("student.html").render(values)
        write_whole(out / "reports" / f"{record['name']}.html", report)
        write_whole(out / "reports" / f"{record['name']}.md", plain.get_template("student.md").render(values))


def _shown(record: Mapping[str, Any], visible: Sequence[str]) -> dict[str, Any]:
    """A record as the JSON result that is drawn, without what a student may not see."""
    checks = []
    for each in record["checks"]:
        told = each["diagnosis"] if "diagnosis" in visible else None
        if told is not None and "hints" not in visible:
            told = {**told, "defects": [{**defect, "hint": "", "steps": []} for defect in told["defects"]]}
        if each["outcome"] in OUTCOMES:
            checks.append({**each, "diagnosis": told})
    return {"subject": record["name"], "checks": checks}


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
