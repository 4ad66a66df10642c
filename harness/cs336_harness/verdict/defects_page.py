"""The dictionary of known mistakes as text: a listing, the matrix of mistakes by checks, a page of both, JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from cs336_harness.checks.registry import GROUPS
from cs336_harness.defects import Defect, Place
from cs336_harness.verdict.audit import Audited

COMMAND = "uv run cs336 defects --page docs/DEFECTS.md"


PAGE = """\
# Known mistakes

{total} variations of the oracle, each a few lines in `harness/cs336_harness/defects/`; {equivalent} of them change no
output, are marked *equivalent*, and are never flagged. `cs336 defects NAME` shows one in full, with its hint. This page
is written by `{command}` and held true by `tests/harness/test_defects.py`.

{dictionary}

## Which checks fail, and by how much

*Margin*: the largest error of the failing checks, in tolerances (1 would just fail), to one digit; – where what fails
is a fact and not a number. *First to fail*: the check whose failure is read, with the diagnosis; the others are blocked
by it or show the same mistake from another side. Then the number of failing checks in each group.

{matrix}
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


def rounded(margin: float | None) -> str:
    """A margin to one digit, so that another processor's rounding does not change the page."""
    if margin is None:
        return "–"
    return "∞" if math.isinf(margin) else f"{margin:.0e}".replace("e+0", "e").replace("e+", "e")


def matrix(audited: Iterable[Audited]) -> Iterator[str]:
    """One row for each mistake, the smallest margin first: what fails first, and how many checks of each group fail."""
    rows = sorted((row for row in audited if row.defects[0].equivalent is None), key=_by_margin)
    yield "| known mistake | margin | first to fail | " + " | ".join(group.replace("_", " ") for group in GROUPS) + " |"
    yield "|---|---:|---|" + "---:|" * len(GROUPS)
    for row in rows:
        first = row.first.check.id if row.first is not None else "**none**"
        counts = " | ".join(str(count or "") for count in row.by_group().values())
        yield f"| {row.defects[0].name} | {rounded(row.margin)} | {first} | {counts} |"


def _by_margin(row: Audited) -> tuple[float, str]:
    return (math.inf if row.margin is None else row.margin, row.defects[0].name)


def dictionary(defects: Iterable[type[Defect]]) -> Iterator[str]:
    """One row for each mistake: its place and what goes wrong."""
    yield "| known mistake | place | what goes wrong |"
    yield "|---|---|---|"
    for defect in defects:
        reason = f" *Equivalent: {defect.equivalent}.*" if defect.equivalent is not None else ""
        yield f"| {defect.name} | {defect.place} | {in_short(defect)}{reason} |"


def page(audited: Sequence[Audited]) -> str:
    """The page: dictionary, then matrix with margins."""
    defects = [row.defects[0] for row in audited]
    return PAGE.format(
        total=len(defects),
        equivalent=sum(defect.equivalent is not None for defect in defects),
        command=COMMAND,
        dictionary="\n".join(dictionary(defects)),
        matrix="\n".join(matrix(audited)),
    )


def write_json(path: Path, defects: Iterable[type[Defect]], audited: Iterable[Audited]) -> None:
    """The dictionary for a program; with the ids of the failing checks and the margin where they are known."""
    by_name = {row.defects[0].name: row for row in audited}
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
            entry |= {"failing": row.failing, "margin_in_tolerances": margin}
        entries.append(entry)
    path.write_text(json.dumps(entries, indent=2, allow_nan=False) + "\n")
