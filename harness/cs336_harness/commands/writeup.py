"""``cs336 writeup``: every number of a written accounting answer, checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_COLOURS = {"right": "green", "wrong": "red", "missing": "yellow", "not recognised": "bright_black"}
_WIDTH = 14


def writeup(
    file: Annotated[Path, typer.Argument(help="The write-up, a Markdown file.", metavar="FILE")] = Path("WRITEUP.md"),
    json: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
    show_answers: Annotated[bool, typer.Option("--show-answers", help="Say what a wrong number should be.")] = False,
) -> None:
    """Check a written answer to transformer_accounting against the configuration that it states.

    Every number is right, wrong, missing or not recognised; a wrong one is told which usual mistake gives it. Exits
    with 0 when nothing is wrong or missing, 1 otherwise, 2 when the file cannot be judged.
    """
    from cs336_harness.writeup.questions import judge_file
    from cs336_harness.writeup.summary import judgement_json, report_lines

    try:
        judgement = judge_file(file)
    except ValueError as error:
        typer.echo(f"cs336 writeup: {error}", err=True)
        raise typer.Exit(2) from None
    if json:
        from json import dumps

        typer.echo(dumps(judgement_json(judgement, str(file)), indent=2, ensure_ascii=False))
    else:
        for verdict, text in report_lines(judgement, str(file), show_answers=show_answers):
            _print(verdict, text)
    raise typer.Exit(0 if judgement.passed else 1)


def _print(verdict: str, text: str) -> None:
    from shutil import get_terminal_size
    from textwrap import wrap

    margin = _WIDTH + 2 if verdict else 0
    lines = wrap(text, width=max(40, get_terminal_size().columns - margin - 1), break_long_words=False) or [""]
    for number, line in enumerate(lines):
        head = f"{verdict if number == 0 else '':<{_WIDTH}}  " if verdict else ""
        typer.echo((typer.style(head, fg=_COLOURS[verdict]) if verdict else "") + line)
