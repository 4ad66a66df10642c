"""The ``cs336`` command. Each subcommand lives in ``commands/`` and imports what is heavy only when it runs."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated

import typer

from cs336_harness.commands.check import check
from cs336_harness.commands.defects import defects
from cs336_harness.commands.explain import explain
from cs336_harness.commands.handout import handout
from cs336_harness.commands.hint import hint
from cs336_harness.commands.watch import watch
from cs336_harness.commands.writeup import writeup
from cs336_harness.subject.failures import CannotJudgeError

app = typer.Typer(
    help="Proves a decoder-only Transformer right before training can hide its defects.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (check, watch, explain, hint, defects, writeup, handout):
    app.command()(command)
with contextlib.suppress(ModuleNotFoundError):  # a handout leaves it out: it prints the answer that is asked for
    from cs336_harness.commands.account import account

    app.command()(account)


def _tell_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"cs336-harness {version('cs336-harness')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """What stands before a command."""


def main() -> None:
    """Runs the command line. Exit status 2 and one line on standard error when nothing can be judged."""
    try:
        app()
    except CannotJudgeError as error:
        print(f"cs336: {error}", file=sys.stderr)
        sys.exit(2)
