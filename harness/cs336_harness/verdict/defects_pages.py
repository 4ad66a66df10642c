"""The dictionary of known mistakes as text: a listing, JSON, and two pages of the documentation.

``DEFECTS.md`` is the dictionary. ``AUDIT.md`` is the audit, a row for each mistake; it is also where the rows are kept,
so that a new mistake is judged alone.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cs336_harness.checks.registry import GROUPS
from cs336_harness.defects import Defect, Place
from cs336_harness.verdict.audit import Row

COMMAND = "uv run cs336 defects --pages docs"
DEFECTS, AUDIT = "DEFECTS.md", "AUDIT.md"

DEFECTS_PAGE = """\
# Known mistakes

{total} variations of the oracle, each a few lines in `harness/cs336_harness/defects/`; {equivalent} of them change no
output, are marked *equivalent*, and are never flagged. `cs336 defects NAME` shows one in full, with its hint. *Told as*
is the number of failures that a learner reads; whatever else fails is blocked by these. Of {counted} that were
counted, {once} are told as one; ? stands where they were not. Which checks fail, and by how much, is in
[AUDIT.md](AUDIT.md). Both pages are written by `{command}`.

{dictionary}
"""

AUDIT_PAGE = """\
# The suite judged by its own dictionary

Each of the [known mistakes](DEFECTS.md) is judged by every required check. *Margin*: the largest error of the failing
checks, in tolerances (1 would just fail), to one digit; – where what fails is a fact and not a number. *Told by*: the
checks whose failure a learner reads, with its diagnosis; whatever else fails is blocked by these. Then the number of
failing checks in each group. `{command}` judges what has no row here, and what is named before `--pages`; `--again`
judges all.

{audit}
"""


def matches(defect: type[Defect], words: Iterable[str]) -> bool:
    """Whether every word is a part of the name or of the place."""
    return all(word.lower() in f"{defect.name} {defect.place}" for word in words)


def listing(defects: Sequence[type[Defect]]) -> Iterator[str]:
    """The dictionary by place; one alone in full."""
    if len(defects) == 1:
        yield from _whole(defects[0])
        return
    width = max(len(defect.name) for defect in defects)
    for place in Place:
        own = [defect for defect in defects if defect.place is place]
        if own:
            yield f"{place} ({len(own)})"
            yield from (f"  {defect.name:{width}}  {in_short(defect)}" for defect in own)
    equivalent = sum(defect.equivalent is not None for defect in defects)
    yield f"{len(defects)} known mistakes, {equivalent} of them equivalent: they change no output and are never flagged"


def _whole(defect: type[Defect]) -> Iterator[str]:
    yield f"{defect.name}  ({defect.place})"
    yield defect.explanation()
    if defect.equivalent is not None:
        yield f"equivalent: {defect.equivalent}"
        return
    yield f"hint: {defect.hint}"
    yield from (f"  {number}. {step}" for number, step in enumerate(defect.steps, 1))


def in_short(defect: type[Defect]) -> str:
    """The first sentence of the explanation."""
    return defect.explanation().split(". ")[0].rstrip(".") + "."


@dataclasses.dataclass(frozen=True, slots=True)
class Written:
    """A row as it stands on the page: the margin to one digit, the failing checks as their number in each group.

    ``told_as`` is :data:`NOT_COUNTED` where only the first check of ``told`` is known.
    """

    name: str
    margin: str
    told_as: str
    told: tuple[str, ...]
    counts: tuple[str, ...]

    @classmethod
    def of(cls, row: Row) -> Written:
        """A row in the words of the page."""
        counts = Counter(check_id.partition(".")[0] for check_id in row.failing)
        return cls(
            row.name,
            rounded(row.margin),
            str(len(row.told)),
            row.told,
            tuple(str(counts[group] or "") for group in GROUPS),
        )

    def line(self) -> str:
        """The line of the page."""
        told = ", ".join(self.told) or NONE
        return f"| {self.name} | {self.margin} | {self.told_as} | {told} | {' | '.join(self.counts)} |"

    def by_margin(self) -> tuple[float, str]:
        """Sorts the smallest margin first, facts last."""
        return (float(self.margin.replace("∞", "inf")) if self.margin != "–" else math.inf, self.name)


NONE = "**none**"
NOT_COUNTED = "?"


def rounded(margin: float | None) -> str:
    """A margin to one digit, so that another processor's rounding does not change the page."""
    if margin is None:
        return "–"
    return "∞" if math.isinf(margin) else f"{margin:.0e}".replace("e+0", "e").replace("e+", "e")


def read(page: str) -> dict[str, Written]:
    """The rows of the audit's page, by the name of the mistake. A group that the page does not know counts nothing."""
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    if not table:
        return {}
    head, *rows = table
    groups = [group.replace("_", " ") for group in GROUPS]
    return {name: _read_row(name, dict(zip(head, [name, *cells], strict=True)), groups) for name, *cells in rows}


def _read_row(name: str, cells: Mapping[str, str], groups: Sequence[str]) -> Written:
    told = tuple(cells["told by"].split(", ")) if cells["told by"] != NONE else ()
    return Written(name, cells["margin"], cells["told as"], told, tuple(cells.get(group, "") for group in groups))


def table(rows: Iterable[Written]) -> str:
    """One row for each mistake, the smallest margin first."""
    groups = " | ".join(group.replace("_", " ") for group in GROUPS)
    head = [f"| known mistake | margin | told as | told by | {groups} |", "|---|---:|---:|---|" + "---:|" * len(GROUPS)]
    return "\n".join([*head, *(row.line() for row in sorted(rows, key=Written.by_margin))])


def dictionary(defects: Iterable[type[Defect]], rows: Mapping[str, Written]) -> Iterator[str]:
    """One row for each mistake: its place, how many failures tell it, and what goes wrong."""
    yield "| known mistake | place | told as | what goes wrong |"
    yield "|---|---|---:|---|"
    for defect in defects:
        reason = f" *Equivalent: {defect.equivalent}.*" if defect.equivalent is not None else ""
        told = rows[defect.name].told_as if defect.name in rows else "–"
        yield f"| {defect.name} | {defect.place} | {told} | {in_short(defect)}{reason} |"


def pages(defects: Sequence[type[Defect]], rows: Mapping[str, Written]) -> dict[str, str]:
    """Both pages by file name. ``rows`` are those of all mistakes that are not equivalent."""
    equivalent = sum(defect.equivalent is not None for defect in defects)
    return {
        DEFECTS: DEFECTS_PAGE.format(
            total=len(defects),
            equivalent=equivalent,
            counted=sum(row.told_as != NOT_COUNTED for row in rows.values()),
            once=sum(row.told_as == "1" for row in rows.values()),
            command=COMMAND,
            dictionary="\n".join(dictionary(defects, rows)),
        ),
        AUDIT: AUDIT_PAGE.format(command=COMMAND, audit=table(rows.values())),
    }


def write_json(path: Path, defects: Iterable[type[Defect]], rows: Iterable[Row]) -> None:
    """The dictionary for a program; with the ids of the failing checks and the margin where they are known."""
    by_name = {row.name: row for row in rows}
    entries = []
    for defect in defects:
        entry: dict[str, Any] = {
            "name": defect.name,
            "place": str(defect.place),
            "explanation": defect.explanation(),
            "hint": defect.hint,
            "steps": list(defect.steps),
            "equivalent": defect.equivalent,
        }
        if defect.name in by_name:
            row = by_name[defect.name]
            margin = row.margin if row.margin is None or math.isfinite(row.margin) else None
            entry |= {"told": list(row.told), "failing": list(row.failing), "margin_in_tolerances": margin}
        entries.append(entry)
    path.write_text(json.dumps(entries, indent=2, allow_nan=False) + "\n")
