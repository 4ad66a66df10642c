"""``cs336 defects``: the dictionary of known mistakes, and what the suite makes of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cs336_harness.subject.environment import prepare_torch

if TYPE_CHECKING:
    from cs336_harness.verdict.audit import Row

Words = Annotated[list[str] | None, typer.Argument(help="Only mistakes whose name or place holds all these words.")]
Audit = Annotated[bool, typer.Option(help="Judge each by the suite: which checks tell it, by how many tolerances.")]
Pages = Annotated[
    Path | None,
    typer.Option(
        help="Write DEFECTS.md and AUDIT.md in this folder. Judges what has no row in AUDIT.md, and what WORDS name.",
        exists=True,
        file_okay=False,
    ),
]
Again = Annotated[
    bool,
    typer.Option(help="With --pages: judge all of them again, seconds each; what is done when it is stopped stays."),
]
Json = Annotated[Path | None, typer.Option(help="Write the dictionary as JSON; with --audit every failing check.")]


def defects(
    words: Words = None, audit: Audit = False, pages: Pages = None, again: Again = False, json: Json = None
) -> None:
    """The dictionary of known mistakes, and what the suite makes of each."""
    prepare_torch()
    from cs336_harness.defects import all_defects
    from cs336_harness.verdict import defects_pages

    wanted = [item for item in all_defects().values() if defects_pages.matches(item, words or [])]
    if not wanted:
        raise typer.BadParameter(f"no known mistake has {' and '.join(words or [])} in its name or place")
    real = [item.name for item in wanted if item.equivalent is None]
    if pages is not None:
        _write_pages(pages, real if words or again else [])
        return
    rows = list(_judged(real)) if audit else []
    if json is not None:
        defects_pages.write_json(json, wanted, rows)
    elif audit:
        typer.echo(defects_pages.table(defects_pages.Written.of(row) for row in rows))
    else:
        typer.echo("\n".join(defects_pages.listing(wanted)))


def _judged(names: Sequence[str]) -> Iterator[Row]:
    from cs336_harness.verdict.audit import rows_of

    if names:
        with typer.progressbar(rows_of(names), length=len(names), label=f"judging {len(names)}") as rows:
            yield from rows


WRITTEN_EVERY = 10
"""How many rows are judged before the pages are written again: half an hour's work is not to be lost by a stop."""


def _write_pages(folder: Path, again: Sequence[str]) -> None:
    from cs336_harness.defects import all_defects, real_defects
    from cs336_harness.verdict import defects_pages

    audit = folder / defects_pages.AUDIT
    known = defects_pages.read(audit.read_text()) if audit.exists() else {}
    names = [defect.name for defect in real_defects()]
    rows = {name: known[name] for name in names if name in known}

    def write() -> None:
        in_order = {name: rows[name] for name in names if name in rows}
        for name, text in defects_pages.pages(list(all_defects().values()), in_order).items():
            (folder / name).write_text(text)

    judged = 0
    asked = [name for name in names if name not in known] + [name for name in names if name in known and name in again]
    for judged, row in enumerate(_judged(asked), 1):
        rows[row.name] = defects_pages.Written.of(row)
        if judged % WRITTEN_EVERY == 0 and len(rows) == len(names):
            write()
    write()
    typer.echo(f"judged {judged} of {len(names)}; the other rows are those that {audit} had")
