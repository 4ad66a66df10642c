"""The configuration that a write-up states: the sizes that every number of it is held against."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator

from cs336_harness.cost.presets import HANDOUTS, preset
from cs336_harness.cost.tally import BYTES_PER_VALUE, refuse_impossible
from cs336_harness.shapes import DecoderShape
from cs336_harness.writeup.document import Document, Passage, TableBlock
from cs336_harness.writeup.lexicon import models_named
from cs336_harness.writeup.words import alternatives, table

_REQUIRED = ("vocab_size", "context_length", "num_layers", "d_model", "num_heads", "d_ff")
_ENOUGH = 3
"""How many sizes make a configuration: a batch size without them is another problem's."""
_IN_PROSE = ("vocab_size", "context_length", "d_model", "d_ff")
"""The sizes that a sentence states without a colon: a width of 1600. What is "of 64" behind the heads is their size."""

_INTEGER = (
    r"(?<![\d,.])(?P<value>\d{1,3}(?:,\d{3}){1,4}|\d{1,12})(?!\d)(?!,\d{3}|\.\d)(?!\s*[×*·/^+-]\s*[\d(A-Za-z])(?![\w])"
    r"(?!\s*(?:%|[kMGTP]?FLOP|[kKMGT]i?B\b|[KMBGT]\b|[MGT]F\b|[bmtr]+illion|bytes|params|parameters|times))"
)
_LETTER_STATED = re.compile(rf"(?<![\w/])(?P<letter>[VTSLDdHhFfB])\s*=\s*{_INTEGER}")
_COUNTED = re.compile(rf"{_INTEGER}[ -](?:(?:transformer )?(layers?|blocks)|(?:attention |query )?heads)\b", re.I)
_TUPLES = re.compile(r"\(([A-Za-z_,\s]+)\)\s*=\s*\(([\d,\s]+)\)")
_TIED = re.compile(
    r"(?:tie_embeddings|tied(?: embeddings)?|tie_word_embeddings|weight[ _]tying|embeddings?\s+tied)\W*?[:=|]\W*"
    r"(true|yes|tied|false|no|none|untied|off|on)\b",
    re.I,
)
_DTYPE = re.compile(
    r"(?:dtype|precision|parameter type|data type)\W*?[:=|]\W*"
    r"(float64|float32|fp32|single|float16|fp16|half|bfloat16|bf16)",
    re.I,
)
_DTYPES = {"fp32": "float32", "single": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}


@dataclasses.dataclass(frozen=True, slots=True)
class Configuration:
    """What the write-up is about: a shape, the batch, and the dtype of its parameters.

    ``given_by`` is the option that names it, empty where the text is to state it; ``stated`` are the sizes that
    the text states then. ``notices`` say what of it the text does not state, states twice, or states otherwise.
    """

    shape: DecoderShape
    batch_size: int = 1
    dtype: str = "float32"
    notices: tuple[str, ...] = ()
    given_by: str = ""
    stated: frozenset[str] = frozenset()

    @property
    def bytes_per_value(self) -> int:
        """Bytes of one parameter."""
        return BYTES_PER_VALUE[self.dtype]


def possible_configurations(
    document: Document, given: DecoderShape | None = None, handout: int | None = None
) -> list[Configuration]:
    """What a write-up may be about, the likeliest first: what it states, and the handout's GPT-2 XL for the rest.

    ``given``, or the GPT-2 XL of a ``handout``, is what somebody else holds it against; it leaves no choice.
    """
    found = _Found(document)
    dtype = found.dtype or "float32"
    if given is not None or handout is not None:
        given_by = "--config" if given is not None else f"--handout {handout}"
        shape = given or preset("gpt2-xl", handout or HANDOUTS[0])
        return [Configuration(shape, 1, dtype, found.otherwise(shape), given_by)]
    choices: dict[tuple[DecoderShape, int], Configuration] = {}
    for year in HANDOUTS:
        for sizes, twice in found.agreed():
            shape, notices = _filled(sizes, year, tied=found.tied or False)
            batch = sizes.get("batch_size", 1)
            stated = frozenset(sizes)
            choices.setdefault((shape, batch), Configuration(shape, batch, dtype, (*twice, *notices), stated=stated))
    return list(choices.values())


def _filled(sizes: dict[str, int], year: int, *, tied: bool) -> tuple[DecoderShape, list[str]]:
    """A shape of stated sizes, the handout's GPT-2 XL where none is stated or where they make no decoder."""
    own = preset("gpt2-xl", year)
    named = {name: size for name, size in sizes.items() if name != "batch_size"}
    missing = [name for name in _REQUIRED if name not in named]
    notices = []
    if not named:
        notices.append(f"It states no configuration: held against the {year} handout's GPT-2 XL.")
    elif missing:
        taken = ", ".join(f"{name} {getattr(own, name):,}" for name in missing)
        notices.append(
            f"Its configuration lacks {', '.join(missing)}: taken from the {year} handout's GPT-2 XL ({taken})."
        )
    if "num_heads" in named:
        named.setdefault("num_kv_heads", named["num_heads"])
    shape = own.replace(**named, tie_embeddings=tied)
    try:
        refuse_impossible(shape)
    except ValueError as error:
        notices.append(f"Its configuration makes no decoder ({error}): held against the {year} handout's heads.")
        heads = own.num_heads if shape.d_model % own.num_heads == 0 else 1
        shape = shape.replace(num_heads=heads, num_kv_heads=heads)
    return shape, notices


def row_configurations(block: TableBlock) -> dict[str, dict[str, int]]:
    """Row name -> the sizes it states, of a table whose columns are sizes; empty for any other table."""
    columns = {index: key for index, cell in enumerate(block.header) if (key := size_named(cell.text))}
    if len(columns) < 2:
        return {}
    rows = {}
    for row in block.rows:
        cells = {key: _integer(row.cells[index].text) for index, key in columns.items() if index < len(row.cells)}
        if sizes := {key: value for key, value in cells.items() if value is not None}:
            rows[row.cells[0].text.strip().lower()] = sizes
    return rows


def sizes_in(text: str) -> dict[str, int]:
    """The sizes that a text states as name and value, by their letters or, believed before them, their long names."""
    return {key: value for rank, key, value in sorted(_statements(text), reverse=True) if rank < 2}


@functools.cache
def _names() -> str:
    named = {key: said["names"] for key, said in table()["sizes"].items() if "names" in said}
    return "|".join(f"(?P<{key}>{alternatives(names)})" for key, names in named.items())


@functools.cache
def _letters() -> dict[str, str]:
    return {letter: key for key, said in table()["sizes"].items() for letter in said.get("letters", "").split()}


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A size with its value in a text, and a label that names a size and nothing else."""
    stated = (
        rf"(?<![\w/])(?<!per )(?<!each )(?<!all )(?:{_names()})(?![\w])\s*(?:\(\s*`?\w+`?\s*\)"
        rf"|,\s*\w\b)?\s*(?:(?P<plainly>[:=])|\b(?:of|is)\b)?\s*{_INTEGER}"
    )
    label = rf"\W*(?:{_names()})\W*(?:\(?[VTSLDdHhFfBK]\)?)?\W*"
    return re.compile(stated, re.IGNORECASE), re.compile(label, re.IGNORECASE)


def size_named(label: str) -> str | None:
    """The size that a table's label names and nothing else: ``vocab_size``, "Layers", "`D`"."""
    label = label.replace("`", "").replace("\\", "").strip()
    if match := _patterns()[1].fullmatch(label):
        return match.lastgroup
    return _letters().get(re.sub(r"^\W+|\W+$", "", label))


def _statements(text: str) -> Iterator[tuple[int, str, int]]:
    """The sizes in a text: 0 for those named plainly, 1 by letters, 2 in prose; then the size and its value.

    A name that ends a product, as in 2 * d_model * vocab_size = ..., states no size.
    """
    for pattern in (_patterns()[0], _LETTER_STATED):
        for match in pattern.finditer(text):
            said = {name: value for name, value in match.groupdict().items() if value}
            if re.search(r"[*×·/+^-]\s*$", text[: match.start()]):
                continue
            if letter := said.get("letter"):
                yield 1, _letters()[letter], _number(said["value"])
            else:
                key = next(name for name in said if name in table()["sizes"])
                if "plainly" in said or key in _IN_PROSE:
                    yield 0 if "plainly" in said else 2, key, _number(said["value"])
    for match in _TUPLES.finditer(text):  # (V, T, L, D, F) = (50257, 1024, 48, 1600, 4288)
        keys = [size_named(name) for name in match.group(1).split(",")]
        values = re.findall(r"\d{1,3}(?:,\d{3})+(?!\d)|\d+", match.group(2))
        if len(keys) == len(values):
            yield from ((1, key, _number(value)) for key, value in zip(keys, values, strict=True) if key)
    for match in _COUNTED.finditer(text):
        yield 2, "num_layers" if match.group(2) else "num_heads", _number(match.group("value"))


class _Found:
    """What a document states where. Long names are believed before letters, and letters before prose."""

    def __init__(self, document: Document) -> None:
        self.place = document.source.place
        self.statements: tuple[dict[str, list[tuple[int, int]]], ...] = ({}, {}, {})
        self.tied: bool | None = None
        self.dtype: str | None = None
        for block in document.blocks:
            if block.part not in ("d", "e"):
                self._read_table(block) if isinstance(block, TableBlock) else self._read(block)

    def _read(self, passage: Passage) -> None:
        text = passage.content.text
        if (models_named(text, by_size=True) | models_named(text)) - {"xl"}:
            return  # the sizes of another model
        for rank, key, value in _statements(text):
            self._state(rank, key, value, passage.line)
        self._read_words(text)

    def _read_table(self, block: TableBlock) -> None:
        rows = [(block.line, block.header), *((row.line, row.cells) for row in block.rows)]
        named = {size_named(cells[0].text) for _, cells in rows} - {None}
        for line, cells in rows if len(named) >= _ENOUGH else ():
            self._read_words(" | ".join(cell.text for cell in cells))
            values = (value for cell in cells[1:] if (value := _integer(cell.text)) is not None)
            if (key := size_named(cells[0].text)) and (first := next(values, None)) is not None:
                self._state(0, key, first, line)
        if len(block.rows) == 1:
            for sizes in row_configurations(block).values():
                for key, value in sizes.items():
                    self._state(0, key, value, block.rows[0].line)

    def _read_words(self, text: str) -> None:
        if match := _TIED.search(text):
            self.tied = match.group(1).lower() in ("true", "yes", "tied", "on")
        if match := _DTYPE.search(text):
            name = match.group(1).lower()
            self.dtype = _DTYPES.get(name, name)

    def _state(self, rank: int, key: str, value: int, line: int) -> None:
        least, most = table()["sizes"][key]["range"]
        if least <= value <= most:
            self.statements[rank].setdefault(key, []).append((value, line))

    def agreed(self) -> Iterator[tuple[dict[str, int], list[str]]]:
        """The sizes as stated first, as stated last, and none where they leave a doubt; with what to say of each."""
        sizes_named = {key for statements in self.statements for key in statements} - {"batch_size"}
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        twice: list[tuple[str, tuple[int, int], tuple[int, int]]] = []
        for rank, statements in enumerate(self.statements):
            for key, stated in statements.items():
                if key in first or (key == "batch_size" and len(sizes_named) < _ENOUGH):
                    continue
                other = next((item for item in stated if item[0] != stated[0][0]), None) if rank < 2 else None
                first[key], last[key] = stated[0][0], (other or stated[0])[0]
                if other:
                    twice.append((key, stated[0], other))
        for sizes in (first, last) if twice else (first,):
            yield (
                sizes,
                [
                    f"It states {key} twice, {one[0]:,} ({self.place(one[1])}) and {two[0]:,} "
                    f"({self.place(two[1])}): held against {sizes[key]:,}."
                    for key, one, two in twice
                ],
            )
        if first.get("batch_size", 1) != 1:  # it may be that of training
            yield {key: size for key, size in first.items() if key != "batch_size"}, []
        if twice or any(name not in first for name in _REQUIRED):
            yield {}, []

    def otherwise(self, given: DecoderShape) -> tuple[str, ...]:
        """A notice of the sizes that the text states otherwise than what it is held against; none where it agrees."""
        sizes, _ = next(iter(self.agreed()))
        lines = {key: stated[0][1] for statements in self.statements[::-1] for key, stated in statements.items()}
        other = [
            f"{name} {sizes[name]:,} ({self.place(lines[name])})"
            for name in _REQUIRED
            if name in sizes and sizes[name] != getattr(given, name)
        ]
        if self.tied is not None and self.tied != given.tie_embeddings:
            other.append("tied embeddings" if self.tied else "untied embeddings")
        return (f"The write-up itself states {', '.join(other)}: not used.",) if other else ()


def _integer(cell: str) -> int | None:
    match = re.match(rf"\W*{_INTEGER}", cell.strip())
    return _number(match.group("value")) if match else None


def _number(text: str) -> int:
    return int(text.replace(",", ""))
