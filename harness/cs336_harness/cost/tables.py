"""One table, shown on a terminal or written as Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a program that asks for JSON need not wait for it
    from rich.console import Console

_NO_LIMIT = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class ReportTable:
    """One table: a title, column names (a leading ``<`` means text, set to the left), rows, and a line below."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    total: tuple[str, ...] | None
    below: str


def markdown_table(table: ReportTable) -> str:
    """The table alone, without its title and the line below."""
    ruler = ["---" if column.startswith("<") else "---:" for column in table.columns]
    lines = [[column.lstrip("<") for column in table.columns], ruler, *table.rows]
    if table.total:
        lines.append([f"**{cell}**" if cell else "" for cell in table.total])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def print_table(console: Console, table: ReportTable) -> None:
    """The table under its title; a narrow terminal goes without the column ``<what``, and nothing is cut."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console.print()
    console.print(Text(table.title, style="bold"))
    drawn = Table(box=SIMPLE_HEAD, header_style="", pad_edge=False, collapse_padding=True)
    shown = [index for index, column in enumerate(table.columns) if column != "<what" or console.width >= 115]
    for index in shown:
        column = table.columns[index]
        drawn.add_column(column.lstrip("<"), justify="left" if column.startswith("<") else "right", no_wrap=True)
    for row in table.rows:
        drawn.add_row(*(row[index] for index in shown))
    if table.total:
        drawn.add_section()
        drawn.add_row(*(table.total[index] for index in shown), style="bold")
    needed = console.measure(drawn, options=console.options.update(width=_NO_LIMIT)).maximum
    if needed > console.width:
        Console(file=console.file, width=needed, no_color=console.no_color, highlight=False).print(drawn)
    else:
        console.print(drawn)
    console.print(Text(table.below))
