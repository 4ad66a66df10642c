"""The claims of a table: numbers by their row's and their column's labels."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from fractions import Fraction

from cs336_harness.cost.ledger import BLOCK, BYTES, EVERYTHING, FLOPS, PARAMETERS, RATIO, SHARE
from cs336_harness.writeup.claims import PART_DIMENSIONS, Claim
from cs336_harness.writeup.configuration import size_named
from cs336_harness.writeup.document import Row, TableBlock
from cs336_harness.writeup.lexicon import (
    facts_of,
    find_mentions,
    first_dimension,
    is_aside,
    lengths_named,
    models_named,
    readings_of_label,
    scopes_of,
    unknown_words,
)
from cs336_harness.writeup.numbers import Unit, Written, find_numbers, unit_of_header
from cs336_harness.writeup.plain import Plain
from cs336_harness.writeup.words import any_of, says

_SMALLEST = 10_000
_SMALLEST_AMOUNT = 100
_NAMES_ITSELF = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class _Column:
    dimension: str | None
    unit: Unit | None
    scopes: set[str]
    readings: list[frozenset[str]]
    models: frozenset[str]
    lengths: frozenset[int]
    is_size: bool
    text: str
    known: bool


def claims_of_table(table: TableBlock) -> Iterator[Claim]:
    """Every number of a table's cells, by its row's and its column's labels; sizes are no claims."""
    if _is_configuration(table):
        return
    around = f"{table.intro} {table.heading}"
    default = _table_dimension(table)
    columns = [_column(cell.text, table) for cell in table.header]
    stated_before = facts_of(table.intro)
    aside = says("another_question", around)
    blocks_only = _holds_blocks_only(table)
    caption = table.intro.rpartition("\n")[2]
    models_of_all = models_named(caption) or models_named(around)
    of_all = {"models": models_of_all, "lengths": lengths_named(stated_before) or lengths_named(table.heading)}
    for row in table.rows:
        label, readings, known = _row_label(row.cells, [column.text for column in columns])
        readings = _values_or_their_projection(readings, table) if _is_values(row) else readings
        of_row = _scopes_of_row(row, label)
        models = models_named(row.cells[0].text)
        row_unit = unit_of_header(label)
        for index, cell in enumerate(row.cells[1 : len(columns)], start=1):
            column = columns[index]
            if column.is_size:
                continue
            what = _what(readings, column, models)
            # "total" over a column of components is their sum over the blocks, and no component of its own.
            total_column = {"model"} if readings and column.readings[:1] == [EVERYTHING] else set()
            scopes = _scopes(of_row, column.scopes or total_column, stated_before, table.heading)
            if row_unit and row_unit.scale != 1 and row_unit.dimension in (FLOPS, BYTES, PARAMETERS):
                column = dataclasses.replace(column, dimension=row_unit.dimension, unit=row_unit)
            context = f"{label} {column.text}"
            of_block = any(says("of_block", text) for text in (context, stated_before, table.heading))
            for number in find_numbers(cell.text):
                counted = _table_number(number, column, default, labelled=bool(readings or column.readings))
                if counted is None:
                    continue
                yield Claim(
                    counted[0],
                    row.line,
                    table.part,
                    counted[1],
                    tuple(_block_or_everything(what, scopes, of_row, blocks_only=blocks_only)),
                    frozenset(scopes),
                    label or column.text.strip(),
                    context,
                    certain=bool(what)
                    and known
                    and column.known
                    and not (aside or is_aside(context) or number.rate or number.bound),
                    aside=aside or is_aside(context),
                    sure=number.dimension is not None or column.dimension is not None,
                    models=column.models or models or of_all["models"],
                    lengths=column.lengths or lengths_named(label) or of_all["lengths"],
                    of_block=of_block,
                    before_and_after=says("before_and_after", f"{context} {caption}"),
                    table=table.line,
                    column=index,
                    each=says("each", f"{label} {stated_before} {table.heading}"),
                )
        if (product := _product(table, row)) and len(readings) == 1 and len(readings[0]) == 1:
            yield Claim(
                product,
                row.line,
                table.part,
                FLOPS,
                tuple(readings),
                frozenset(("layer", "model")),
                label,
                label,
                certain=known,
                models=of_all["models"],
                table=table.line,
            )


def _what(readings: list[frozenset[str]], column: _Column, models: frozenset[str]) -> list[frozenset[str]]:
    """The components that row and column name together: the row's, unless it names a model, or the whole of a part."""
    if readings and (readings[0] != EVERYTHING or not column.readings or column.readings[0] == EVERYTHING):
        return readings
    return column.readings or ([EVERYTHING] if models else [])


def _scopes(of_row: set[str], of_column: set[str], stated_before: str, heading: str) -> set[str]:
    """The scope that label and header agree on; both where they do not, or where nothing says."""
    stated = of_row | of_column or scopes_of(stated_before) or scopes_of(heading)
    return stated if len(stated) == 1 else {"layer", "model"}


def _scopes_of_row(row: Row, label: str) -> set[str]:
    """What the label says, else the words in other cells. A multiply "of each block" may still be counted in all."""
    if stated := scopes_of(label):
        return stated
    words = " ; ".join(cell.text for cell in row.cells[1:] if says("blocks", cell.text))
    return scopes_of(any_of("of_every_block").sub("", words))


def _is_values(row: Row) -> bool:
    return bool(any_of("values_alone").fullmatch(row.cells[0].text.strip(" *`_")))


def _values_or_their_projection(readings: list[frozenset[str]], table: TableBlock) -> list[frozenset[str]]:
    """What the label ``values`` alone is: the T² multiply, unless rows "queries" and "keys" make it a projection."""
    projection, product = frozenset(("v_proj",)), frozenset(("values",))
    firsts = [row.cells[0].text for row in table.rows]
    if not any(re.fullmatch(r"\W*(?:quer(?:y|ies)|keys?)\W*", text, re.I) for text in firsts):
        return [product]
    others = [readings_of_label(row.cells[0].text)[:1] for row in table.rows if not _is_values(row)]
    if [projection] in others:
        return [product]
    return [projection] if [product] in others else readings


def _product(table: TableBlock, row: Row) -> Written | None:
    """What a row's m, k, n and count multiply to: a number that was written in four."""
    names = [cell.text.strip().lower() for cell in table.header]
    if not all(name in names for name in ("m", "k", "n", "count")):
        return None
    product = 2
    shown = []
    for name in ("m", "k", "n", "count"):
        index = names.index(name)
        text = row.cells[index].text.replace(",", "").strip() if index < len(row.cells) else ""
        if not re.fullmatch(r"\d{1,9}", text):
            return None
        product *= int(text)
        shown.append(text)
    text = f"m {shown[0]}, k {shown[1]}, n {shown[2]}, count {shown[3]}"
    return Written(text, Fraction(product), Fraction(0), FLOPS, "FLOPs", 0, 0, working=False)


def _is_configuration(table: TableBlock) -> bool:
    return sum(size_named(row.cells[0].text) is not None for row in table.rows) >= 3


def _column(header: str, table: TableBlock) -> _Column:
    unit = unit_of_header(header)
    dimension = unit.dimension if unit else None
    stated_in_words = first_dimension(header)
    if dimension is None or stated_in_words == SHARE:
        dimension = stated_in_words
    if dimension == SHARE and (unit is None or unit.dimension != SHARE):
        unit = None
    if unit is None and dimension != SHARE:
        unit = _unit_stated_before(f"{table.intro} {table.heading}", dimension)
    return _Column(
        dimension,
        unit,
        scopes_of(header),
        readings_of_label(re.sub(r"(?i)\bper (?:layer|block)\b", "", header)),
        models_named(header),
        lengths_named(header),
        bool(any_of("size_column").fullmatch(header.strip(" *`_$\\()"))),
        header,
        not unknown_words(header),
    )


def _unit_stated_before(text: str, dimension: str | None) -> Unit | None:
    """The unit that caption or heading state for a whole table: "(in GFLOPs)", "all in TFLOPs", "单位 TFLOPs"."""
    for stated in re.findall(r"\(([^()]*)\)|\b(?:in|unit(?:s)?:?)\s+(\w+)|单位\s*[:为是]?\s*(\w+)", text):
        unit = next(
            (found for piece in stated if piece and (found := unit_of_header(piece)) and found.scale != 1), None
        )
        if unit and not (dimension and unit.dimension not in (None, dimension)):
            return unit
    return None


def _table_dimension(table: TableBlock) -> str | None:
    """What a table counts where a column does not say it: by its corner, its other heads, what stands before it."""
    first, *others = (cell.text for cell in table.header)
    for text, taken in ((first, ()), (" ".join(others), (SHARE,)), (table.intro, ()), (table.heading, ())):
        if (dimension := first_dimension(text)) not in (None, RATIO, *taken):
            return dimension
    return PART_DIMENSIONS.get(table.part or "")


def _table_number(
    number: Written, column: _Column, default: str | None, *, labelled: bool
) -> tuple[Written, str | None] | None:
    if number.working:
        return None
    if number.dimension is not None:
        too_small = number.dimension in (PARAMETERS, BYTES, FLOPS) and number.value < _SMALLEST_AMOUNT
        return None if too_small else (number, number.dimension)
    dimension = column.dimension
    if dimension is None:
        if number.value < (_SMALLEST if labelled else _NAMES_ITSELF) and not (labelled and column.unit):
            return None
        dimension = default
    if column.unit is not None and number.unit == "" and column.unit.dimension in (None, dimension):
        number = number.in_unit(column.unit)
    if dimension in (PARAMETERS, BYTES, FLOPS) and number.value < _SMALLEST_AMOUNT:
        return None
    return number, dimension


def _row_label(cells: tuple[Plain, ...], headers: list[str]) -> tuple[str, list[frozenset[str]], bool]:
    """A row's label, what it stands for, and whether each of its words is known."""
    first = cells[0].text.strip()
    readings = readings_of_label(first)
    for cell, header in zip(cells[1:3], headers[1:3], strict=False):
        text = cell.text.strip()
        if re.search(r"\d{2}", text) or not re.search(r"[A-Za-z\u4e00-\u9fff]{2}", text) or unit_of_header(header):
            continue
        further = readings_of_label(text)
        if further and (not readings or (readings[0] >= BLOCK and further[0] < readings[0])):
            return f"{first} {text}".strip(), further, not unknown_words(first) and not unknown_words(text)
        if readings and readings[0] >= BLOCK and unknown_words(text):
            return f"{first} {text}".strip(), readings, False
    only_a_number = bool(re.fullmatch(r"[\W\d]*\d[\W\d]*", first))
    return first, readings, not (only_a_number or unknown_words(first)) and len(find_mentions(first)) <= 4


def _block_or_everything(
    readings: list[frozenset[str]], scopes: set[str], of_row: set[str], *, blocks_only: bool
) -> list[frozenset[str]]:
    """A total of rows of one block is the block's; the word alone does not say it, nor a table that holds the head."""
    if not readings or readings[0] != EVERYTHING:
        return readings
    if scopes == {"layer"}:
        return [BLOCK] if blocks_only or of_row == {"layer"} else [EVERYTHING, BLOCK]
    return [*readings, BLOCK] if blocks_only else readings


def _holds_blocks_only(table: TableBlock) -> bool:
    """Whether no row but a total names anything outside the blocks."""
    named = [reading for row in table.rows for reading in _row_label(row.cells, [])[1][:1] if reading != EVERYTHING]
    return bool(named) and all(reading <= BLOCK for reading in named)
