"""``cs336 handout``: the blank version of this repository."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def handout(
    destination: Annotated[Path, typer.Argument(help="A folder that is empty or not there yet.", metavar="DEST")],
) -> None:
    """Write the blank version of this repository, for learners: all that judges, nothing of the solution."""
    from cs336_harness.course.handout import write_handout
    from cs336_harness.places import HOME
    from cs336_harness.subject.failures import CannotJudgeError

    if HOME is None:
        raise CannotJudgeError(
            "a handout is made from a clone of the full repository; here the checker alone is installed"
        )
    write_handout(HOME, destination)
    typer.echo(f"wrote the blank version to {destination}; its README.md says how to start")
