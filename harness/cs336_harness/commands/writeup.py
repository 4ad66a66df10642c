"""``cs336 writeup``: every number of a written accounting answer, checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cs336_harness.shapes import DecoderShape

_COLOURS = {
    "right": "green",
    "wrong": "red",
    "missing": "yellow",
    "remark": "yellow",
    "left out": "bright_black",
    "not recognised": "bright_black",
}
_WIDTH = 14


def writeup(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="The write-up: Markdown, LaTeX, Typst, text, a notebook, HTML or PDF; several files are read as one, "
            "and - is standard input. WRITEUP.md when left out.",
            metavar="[FILE]...",
        ),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            help="What to hold it against, in place of what it states: gpt2-xl, gpt2-small, … or a config.json."
        ),
    ] = None,
    handout: Annotated[
        int | None, typer.Option(help="Hold it against this handout's GPT-2 sizes: 2026 (d_ff 4288) or 2025 (6400).")
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the result to this file as JSON.")] = None,
    show_answers: Annotated[bool, typer.Option("--show-answers", help="Say what a wrong number should be.")] = False,
) -> None:
    """Check a written answer to transformer_accounting against the configuration that it states.

    Every number is right, wrong or not recognised, every question right, wrong or missing; a wrong number is told which
    usual mistake gives it. Exits with 0 when nothing is wrong or missing, 1 otherwise, 2 when nothing can be read.
    """
    from cs336_harness.commands.writable import require_writable_file
    from cs336_harness.writeup.questions import judge_files
    from cs336_harness.writeup.summary import judgement_json, report_lines

    paths = files or [Path("WRITEUP.md")]
    name = ", ".join("standard input" if str(path) == "-" else str(path) for path in paths)
    if json is not None:
        require_writable_file("--json", json)
    try:
        judgement = judge_files(paths, _shape(config, handout), handout)
    except ValueError as error:
        typer.echo(f"cs336 writeup: {error}", err=True)
        raise typer.Exit(2) from None
    for verdict, text in report_lines(judgement, name, show_answers=show_answers):
        _print(verdict, text)
    if json is not None:
        from json import dumps

        json.write_text(dumps(judgement_json(judgement, name), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    raise typer.Exit(0 if judgement.passed else 1)


def _shape(config: str | None, handout: int | None) -> DecoderShape | None:
    """The shape that ``--config`` names. Raises ValueError for what it does not know."""
    from cs336_harness.cost.presets import HANDOUTS, PRESET_NAMES, preset

    if handout is not None and handout not in HANDOUTS:
        raise ValueError(f"--handout {handout}: there is no such handout; choose {' or '.join(map(str, HANDOUTS))}")
    if config is None:
        return None
    if config in PRESET_NAMES:
        return preset(config, handout or HANDOUTS[0])
    if not Path(config).exists():
        raise ValueError(
            f"--config {config}: no such file; give {', '.join(PRESET_NAMES)} or the path of a config.json"
        )
    from cs336_harness.cost.huggingface import read_config

    return read_config(Path(config))[0]


def _print(verdict: str, text: str) -> None:
    from shutil import get_terminal_size
    from textwrap import wrap

    margin = _WIDTH + 2 if verdict else 0
    lines = wrap(text, width=max(40, get_terminal_size().columns - margin - 1), break_long_words=False) or [""]
    for number, line in enumerate(lines):
        head = f"{verdict if number == 0 else '':<{_WIDTH}}  " if verdict else ""
        typer.echo((typer.style(head, fg=_COLOURS[verdict]) if verdict else "") + line)
