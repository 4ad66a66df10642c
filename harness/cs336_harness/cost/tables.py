"""One table, as lines of text or as Markdown."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence


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


def text_table(table: ReportTable, width: int) -> Iterator[str]:
    """The lines of the table alone, without the column ``<what`` where ``width`` has no room for it.

    A table that needs more room than there is takes it: no number is cut.
    """
    head = [column.lstrip("<") for column in table.columns]
    lines = [head, *table.rows, *([table.total] if table.total else [])]
    widths = {index: max(len(line[index]) for line in lines) for index in range(len(head))}
    fits = sum(widths.values()) + 2 * (len(widths) - 1) <= width
    shown = [index for index, column in enumerate(table.columns) if fits or column != "<what"]

    def row(cells: Sequence[str]) -> str:
        placed = (
            cells[index].ljust(widths[index])
            if table.columns[index].startswith("<")
            else cells[index].rjust(widths[index])
            for index in shown
        )
        return "  ".join(placed).rstrip()

    yield row(head)
    yield "─" * (sum(widths[index] for index in shown) + 2 * (len(shown) - 1))
    yield from map(row, table.rows)
    if table.total:
        yield ""
        yield row(table.total)
