"""The claims of a table: numbers by their row's and their column's labels."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from fractions import Fraction

from cs336_harness.cost.ledger import BLOCK, BYTES, EVERYTHING, FLOPS, LAYER, MODEL, PARAMETERS, RATIO, SHARE
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

_AMOUNTS = (PARAMETERS, BYTES, FLOPS)
_SMALLEST = 10_000
_SMALLEST_AMOUNT = 100
_NAMES_ITSELF = 1_000_000
_MARKS = " *`_$\\()"


@dataclasses.dataclass(frozen=True, slots=True)
class _Column:
    text: str
    dimension: str | None
    unit: Unit | None
    readings: list[frozenset[str]]

    @property
    def is_size(self) -> bool:
        return bool(any_of("size_column").fullmatch(self.text.strip(_MARKS)))


def claims_of_table(table: TableBlock) -> Iterator[Claim]:
    """Every number of a table's cells, by its row's and its column's labels; sizes are no claims."""
    if sum(size_named(row.cells[0].text) is not None for row in table.rows) >= 3:
        return  # a configuration
    around = f"{table.intro} {table.heading}"
    caption = table.intro.rpartition("\n")[2]
    stated_before = facts_of(table.intro)
    default = _table_dimension(table)
    columns = [_column(cell.text, around) for cell in table.header]
    another_question = says("another_question", around)
    blocks_only = _holds_blocks_only(table)
    models_of_all = models_named(caption) or models_named(around)
    lengths_of_all = lengths_named(stated_before) or lengths_named(table.heading)
    for row in table.rows:
        label, readings, known = _row_label(row.cells, [column.text for column in columns])
        readings = _values_or_their_projection(readings, table) if _is_values(row) else readings
        of_row = _scopes_of_row(row, label)
        row_unit = unit_of_header(label)
        for index, (cell, column) in enumerate(zip(row.cells, columns, strict=False)):
            if index == 0 or column.is_size:
                continue
            models = models_named(column.text) or models_named(row.cells[0].text)
            # The components that row and column name together: the row's, unless it names a model, or all of a part.
            of_column = column.readings[:1] == [EVERYTHING]
            by_row = readings and (readings[0] != EVERYTHING or not column.readings or of_column)
            what = readings if by_row else column.readings or ([EVERYTHING] if models_named(row.cells[0].text) else [])
            if readings and not by_row and column.readings[:1] == [BLOCK]:
                what = [*readings, BLOCK]  # a column of "all layers" may hold what stands outside of them as well
            # "total" over a column of components is their sum over the blocks, and no component of its own.
            scopes = of_row | (scopes_of(column.text) or ({MODEL} if readings and of_column else set()))
            scopes = scopes or scopes_of(stated_before) or scopes_of(table.heading)
            scopes = scopes if len(scopes) == 1 else {LAYER, MODEL}
            if row_unit and row_unit.scale != 1 and row_unit.dimension in (*_AMOUNTS, SHARE):
                column = dataclasses.replace(column, dimension=row_unit.dimension, unit=row_unit)
            context = f"{label} {column.text}"
            aside = another_question or is_aside(context)
            if column.dimension == SHARE:  # of what the other columns count
                context = " ".join((label, *(other.text for other in columns)))
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
                    and not (aside or number.rate or number.bound or unknown_words(column.text)),
                    aside=aside,
                    sure=number.dimension is not None or column.dimension is not None,
                    models=models or models_of_all,
                    lengths=lengths_named(column.text) or lengths_named(label) or lengths_of_all,
                    of_block=any(says("of_block", text) for text in (context, stated_before, table.heading)),
                    before_and_after=says("before_and_after", f"{context} {caption}"),
                    table=table.line,
                    column=index,
                    each=says("each", f"{label} {stated_before} {table.heading}"),
                )
        if (product := _product(columns, row)) and len(readings) == 1 and len(readings[0]) == 1:
            yield Claim(
                product,
                row.line,
                table.part,
                FLOPS,
                tuple(readings),
                frozenset((LAYER, MODEL)),
                label,
                label,
                certain=known,
                models=models_of_all,
                table=table.line,
            )


def _scopes_of_row(row: Row, label: str) -> set[str]:
    """What the label says, else the words in other cells. A multiply "of each block" may still be counted in all."""
    words = " ; ".join(cell.text for cell in row.cells[1:] if says("blocks", cell.text))
    return scopes_of(label) or scopes_of(any_of("of_every_block").sub("", words))


def _is_values(row: Row) -> bool:
    return bool(any_of("values_alone").fullmatch(row.cells[0].text.strip(_MARKS)))


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


def _product(columns: list[_Column], row: Row) -> Written | None:
    """What a row's m, k, n and count multiply to: a number that was written in four."""
    cells = {column.text.strip().lower(): cell.text for column, cell in zip(columns, row.cells, strict=False)}
    sizes = {name: cells.get(name, "").replace(",", "").strip() for name in ("m", "k", "n", "count")}
    product = 2
    for size in sizes.values():
        if not re.fullmatch(r"\d{1,9}", size):
            return None
        product *= int(size)
    text = ", ".join(f"{name} {size}" for name, size in sizes.items())
    return Written(text, Fraction(product), Fraction(0), FLOPS, "FLOPs", 0, 0, working=False)


def _column(header: str, around: str) -> _Column:
    unit, stated_in_words = unit_of_header(header), first_dimension(header)
    dimension = unit.dimension if unit else None
    if dimension is None or stated_in_words == SHARE:
        dimension = stated_in_words
    if dimension == SHARE:
        unit = unit if unit and unit.dimension == SHARE else None
    elif unit is None:
        unit = _unit_stated_before(around, dimension)
    return _Column(header, dimension, unit, readings_of_label(re.sub(r"(?i)\bper (?:layer|block)\b", "", header)))


def _unit_stated_before(text: str, dimension: str | None) -> Unit | None:
    """The unit that caption or heading state for a whole table: "(in GFLOPs)", "all in TFLOPs", "单位 TFLOPs"."""
    for stated in re.findall(r"\(([^()]*)\)|\b(?:in|unit(?:s)?:?)\s+(\w+)|单位\s*[:为是]?\s*(\w+)", text):
        unit = unit_of_header("".join(stated))
        if unit and unit.scale != 1 and not (dimension and unit.dimension not in (None, dimension)):
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
    """A number in the unit of its column, and what it counts; None for one that is too small to be an answer."""
    dimension = number.dimension or column.dimension
    if dimension is None:
        if number.value < (_SMALLEST if labelled else _NAMES_ITSELF) and not (labelled and column.unit):
            return None
        dimension = default
    fits = column.unit is not None and column.unit.dimension in (None, dimension)
    if column.unit is not None and fits and number.dimension is None and number.unit == "":
        number = number.in_unit(column.unit)
    too_small = dimension in _AMOUNTS and number.value < _SMALLEST_AMOUNT
    return None if number.working or too_small else (number, dimension)


def _row_label(cells: tuple[Plain, ...], headers: list[str]) -> tuple[str, list[frozenset[str]], bool]:
    """A row's label, what it stands for, and whether each of its words is known."""
    first = cells[0].text.strip()
    readings = readings_of_label(first)
    for cell, header in zip(cells[1:3], headers[1:3], strict=False):
        text = cell.text.strip()
        if re.search(r"\d{2}", text) or not re.search(r"[A-Za-z\u4e00-\u9fff]{2}", text) or unit_of_header(header):
            continue
        further = readings_of_label(text)
        of_blocks = bool(readings) and readings[0] >= BLOCK
        if further and (not readings or (of_blocks and further[0] < readings[0])):
            return f"{first} {text}".strip(), further, not unknown_words(first) and not unknown_words(text)
        if of_blocks and unknown_words(text):
            return f"{first} {text}".strip(), readings, False
    only_a_number = bool(re.fullmatch(r"[\W\d]*\d[\W\d]*", first))
    return first, readings, not (only_a_number or unknown_words(first)) and len(find_mentions(first)) <= 4


def _block_or_everything(
    readings: list[frozenset[str]], scopes: set[str], of_row: set[str], *, blocks_only: bool
) -> list[frozenset[str]]:
    """A total of rows of one block is the block's; the word alone does not say it, nor a table that holds the head."""
    if readings[:1] != [EVERYTHING]:
        return readings
    if scopes == {LAYER}:
        return [BLOCK] if blocks_only or of_row == {LAYER} else [EVERYTHING, BLOCK]
    return [*readings, BLOCK] if blocks_only else readings


def _holds_blocks_only(table: TableBlock) -> bool:
    """Whether no row but a total names anything outside the blocks."""
    named = [reading for row in table.rows for reading in _row_label(row.cells, [])[1][:1] if reading != EVERYTHING]
    return bool(named) and all(reading <= BLOCK for reading in named)
