"""``cs336 hint``: one step at a time towards a fix."""

from __future__ import annotations

from typing import Annotated

import typer


def hint(
    name: Annotated[str, typer.Argument(help="A known mistake, a check or a task.")],
    steps: Annotated[int, typer.Option(help="How many steps to show.", min=1)] = 1,
) -> None:
    """Help as a teaching assistant would: a question first, the plain word last."""
    from cs336_harness.verdict.explain import hints

    found = hints(name)
    for number, step in enumerate(found[:steps], 1):
        typer.echo(f"{number}. {step}")
    if steps < len(found):
        typer.echo(f"({len(found) - steps} more: uv run cs336 hint {name} --steps {steps + 1})")
