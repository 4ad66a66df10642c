"""``cs336 defects``: the dictionary of known mistakes, and what the suite makes of each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cs336_harness.subject.environment import prepare_torch

Words = Annotated[list[str] | None, typer.Argument(help="Only mistakes whose name or place holds all these words.")]
Matrix = Annotated[bool, typer.Option(help="Judge each by the suite: which checks fail, and by how many tolerances.")]
Page = Annotated[Path | None, typer.Option(help="Write dictionary and matrix as a page, docs/DEFECTS.md.")]
Json = Annotated[Path | None, typer.Option(help="Write the dictionary as JSON; with --matrix every failing check.")]


def defects(words: Words = None, matrix: Matrix = False, page: Page = None, json: Json = None) -> None:
    """The dictionary of known mistakes, and what the suite makes of each."""
    prepare_torch()
    from cs336_harness.defects import all_defects
    from cs336_harness.verdict import defects_page
    from cs336_harness.verdict.audit import Audited, audit

    wanted = [item for item in all_defects().values() if defects_page.matches(item, words or [])]
    if not wanted:
        raise typer.BadParameter(f"no known mistake has {' and '.join(words or [])} in its name or place")
    audited: list[Audited] = []
    if matrix or page is not None:
        with typer.progressbar(wanted, label="judging", item_show_func=lambda d: d.name if d else "") as items:
            audited = [audit(item) for item in items]
    if json is not None:
        defects_page.write_json(json, wanted, audited)
    if page is not None:
        page.write_text(defects_page.page(audited))
    elif matrix:
        typer.echo("\n".join(defects_page.matrix(audited)))
    elif json is None:
        typer.echo("\n".join(defects_page.listing(wanted)))
