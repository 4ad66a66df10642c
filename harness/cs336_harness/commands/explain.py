"""``cs336 explain``: what a check does, why it exists, and what usually breaks it."""

from __future__ import annotations

from typing import Annotated

import typer


def explain(
    name: Annotated[
        str | None,
        typer.Argument(help="A check, task, group, entry point or known mistake; all checks are listed when left out."),
    ] = None,
) -> None:
    """Say what a check does, why it exists, what usually breaks it, and where it stands in the handout."""
    from cs336_harness.verdict.explain import catalogue, explanation

    typer.echo("\n".join(catalogue() if name is None else explanation(name)))
