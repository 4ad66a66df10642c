"""The configuration that a write-up states: the sizes that every number of it is held against."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from cs336_harness.cost.presets import HANDOUTS, preset
from cs336_harness.cost.tally import BYTES_PER_VALUE, refuse_impossible
from cs336_harness.shapes import DecoderShape
from cs336_harness.writeup.document import Document, Passage, TableBlock
from cs336_harness.writeup.lexicon import models_named

SIZES = ("vocab_size", "context_length", "num_layers", "d_model", "num_heads", "num_kv_heads", "d_ff")
_OPTIONAL = ("num_kv_heads",)
_PLAUSIBLE = {
    "vocab_size": (200, 2_000_000),
    "context_length": (16, 10_000_000),
    "num_layers": (1, 500),
    "d_model": (16, 65_536),
    "num_heads": (1, 512),
    "num_kv_heads": (1, 512),
    "d_ff": (16, 500_000),
    "batch_size": (1, 1_000_000),
}
"""The sizes that a decoder may have; a number beyond them is no size, whatever stands before it."""

_ENOUGH = 3
"""How many sizes make a configuration: a batch size without them is another problem's."""

_NAMES = {
    "vocab_size": r"vocab(?:ulary)?(?:[ _]size)?|n_vocab|词表(?:大小)?|词汇(?:表)?(?:大小|量)?",
    "context_length": r"(?:max(?:imum)?[ _])?(?:context|ctx|sequence|seq)(?:[ _](?:length|len|size|window))?|n_ctx"
    r"|上下文(?:长度)?|序列长度",
    "num_layers": r"(?:num(?:ber)?(?:[ _]of)?[ _]|n_)?(?:transformer )?(?:layers?|blocks)|层数",
    "d_model": r"d_?model|model[ _](?:dim(?:ension)?|width)|(?:hidden|embedding)[ _](?:size|dim(?:ension)?)|width"
    r"|(?:模型|隐藏)(?:层)?(?:维度|宽度|大小)",
    "num_heads": r"(?:num(?:ber)?(?:[ _]of)?[ _]|n_)?(?:attention |query )?heads|(?:注意力)?头数",
    "num_kv_heads": r"(?:num(?:ber)?(?:[ _]of)?[ _]|n_)?(?:kv|key/value|key-value)[ _-]heads?",
    "d_ff": r"d_?ff|(?:ffn|feed[- ]?forward)[ _](?:width|dim(?:ension)?|size)|ffn_dim"
    r"|(?:前馈|中间)(?:网络|层)?(?:的)?(?:维度|宽度)",
    "batch_size": r"(?<!max )(?<!max_)(?<!maximum )(?<!largest )batch(?:[ _]size)?",
}
_LETTERS = {
    "V": "vocab_size",
    "T": "context_length",
    "S": "context_length",
    "L": "num_layers",
    "D": "d_model",
    "d": "d_model",
    "H": "num_heads",
    "h": "num_heads",
    "F": "d_ff",
    "f": "d_ff",
    "B": "batch_size",
}
_INTEGER = r"(?<![\d,.])(\d{1,3}(?:,\d{3}){1,4}|\d{1,12})(?!\d)(?!,\d{3}|\.\d)(?!\s*[×*·/^+-]\s*[\d(A-Za-z])(?![\w])"
_INTEGER += r"(?!\s*(?:%|[kMGTP]?FLOP|[kKMGT]i?B\b|[KMBGT]\b|[MGT]F\b|[bmtr]+illion|bytes|params|parameters|times))"
_ANY_NAME = "|".join(f"(?P<{key}>{pattern})" for key, pattern in _NAMES.items())
_STATED = re.compile(
    rf"(?<![\w/])(?<!per )(?<!each )(?<!all )(?:{_ANY_NAME})(?![\w])\s*(?:\(\s*`?\w+`?\s*\)"
    rf"|,\s*\w\b)?\s*(?:(?P<plainly>[:=])|\b(?:of|is)\b)?\s*{_INTEGER}",
    re.IGNORECASE,
)
_LETTER_STATED = re.compile(rf"(?<![\w/])([VTSLDdHhFfB])\s*=\s*{_INTEGER}")
_LABEL = re.compile(rf"\W*(?:{_ANY_NAME})\W*(?:\(?[VTSLDdHhFfBK]\)?)?\W*", re.IGNORECASE)
_LABEL_LETTER = re.compile(r"\W*([VTSLDdHhFfB])\W*")
_COUNTED = re.compile(rf"{_INTEGER}[ -](?:(?:transformer )?(layers?|blocks)|(?:attention |query )?heads)\b", re.I)
_IN_PROSE = ("vocab_size", "context_length", "d_model", "d_ff")
"""The sizes that a sentence states without a colon: a width of 1600. What is "of 64" behind the heads is their size."""
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
    found = _Found()
    for block in document.blocks:
        if block.part not in ("d", "e"):
            found.read(block)
    dtype = found.dtype or "float32"
    given_by = "--config" if given is not None else f"--handout {handout}"
    if given is None and handout is not None:
        given = preset("gpt2-xl", handout)
    if given is not None:
        return [Configuration(given, 1, dtype, found.otherwise(given, document), given_by)]
    choices: dict[tuple[DecoderShape, int], Configuration] = {}
    for year in HANDOUTS:
        for sizes, twice in found.agreed(document):
            shape, notices = _filled(sizes, year, tied=found.tied or False)
            batch = sizes.get("batch_size", 1)
            stated = frozenset(sizes)
            choices.setdefault((shape, batch), Configuration(shape, batch, dtype, (*twice, *notices), stated=stated))
    return list(choices.values())


def _filled(sizes: dict[str, int], year: int, *, tied: bool) -> tuple[DecoderShape, list[str]]:
    """A shape of stated sizes, the handout's GPT-2 XL where none is stated or where they make no decoder."""
    own = preset("gpt2-xl", year)
    named = {name: sizes[name] for name in SIZES if name in sizes}
    missing = [name for name in SIZES if name not in named and name not in _OPTIONAL]
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
    rows: dict[str, dict[str, int]] = {}
    for row in block.rows:
        sizes = {}
        for index, key in columns.items():
            if index < len(row.cells) and (value := _integer(row.cells[index].text)) is not None:
                sizes[key] = value
        if sizes:
            rows[row.cells[0].text.strip().lower()] = sizes
    return rows


def sizes_in(text: str) -> dict[str, int]:
    """The sizes that a text states as name and value, by their long names or their letters."""
    sizes = {_LETTERS[match.group(1)]: _number(match.group(2)) for match in _statements(_LETTER_STATED, text)}
    sizes |= dict(_tuples(text))
    plainly = (match for match in _statements(_STATED, text) if match.group("plainly"))
    sizes |= {_key(match): _number(match.group(match.re.groups)) for match in plainly}
    return sizes


def size_named(label: str) -> str | None:
    """The size that a table's label names and nothing else: ``vocab_size``, "Layers", "`D`"."""
    label = label.replace("`", "").replace("\\", "").strip()
    if match := _LABEL.fullmatch(label):
        return _key(match)
    if match := _LABEL_LETTER.fullmatch(label):
        return _LETTERS[match.group(1)]
    return None


def _statements(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Names with a value. A name that ends a product, as in 2 * d_model * vocab_size = ..., states no size."""
    for match in pattern.finditer(text):
        if not re.search(r"[*×·/+^-]\s*$", text[: match.start()]):
            yield match


def _tuples(text: str) -> Iterator[tuple[str, int]]:
    """Sizes that are stated together: (V, T, L, D, F) = (50257, 1024, 48, 1600, 4288)."""
    for names, values in re.findall(r"\(([A-Za-z_,\s]+)\)\s*=\s*\(([\d,\s]+)\)", text):
        letters = [name.strip() for name in names.split(",")]
        numbers = re.findall(r"\d{1,3}(?:,\d{3})+(?!\d)|\d+", values)
        if len(letters) == len(numbers):
            for letter, number in zip(letters, numbers, strict=True):
                if key := size_named(letter):
                    yield key, _number(number)


class _Found:
    """What was stated where. Long names are believed before letters, and letters before prose."""

    def __init__(self) -> None:
        self.statements: tuple[dict[str, list[tuple[int, int]]], ...] = ({}, {}, {})
        self.tied: bool | None = None
        self.dtype: str | None = None

    def read(self, block: Passage | TableBlock) -> None:
        if isinstance(block, TableBlock):
            self._read_table(block)
            return
        text = block.content.text
        if (models_named(text, by_size=True) | models_named(text)) - {"xl"}:
            return  # the sizes of another model
        for match in _statements(_STATED, text):
            key, value = _key(match), _number(match.group(match.re.groups))
            if match.group("plainly"):
                self._state(0, key, value, block.line)
            elif key in _IN_PROSE:
                self._state(2, key, value, block.line)
        for key, value in _tuples(text):
            self._state(1, key, value, block.line)
        for match in _statements(_LETTER_STATED, text):
            self._state(1, _LETTERS[match.group(1)], _number(match.group(2)), block.line)
        for match in _COUNTED.finditer(text):
            self._state(2, "num_layers" if match.group(2) else "num_heads", _number(match.group(1)), block.line)
        self._read_words(text)

    def _read_table(self, block: TableBlock) -> None:
        rows = [(block.line, block.header), *((row.line, row.cells) for row in block.rows)]
        named = {size_named(cells[0].text) for _, cells in rows} - {None}
        for line, cells in rows if len(named) >= 3 else ():
            key = size_named(cells[0].text) if len(cells) > 1 else None
            self._read_words(" | ".join(cell.text for cell in cells))
            if key is None:
                continue
            for cell in cells[1:]:
                if (value := _integer(cell.text)) is not None:
                    self._state(0, key, value, line)
                    break
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

    def _state(self, kind: int, key: str, value: int, line: int) -> None:
        least, most = _PLAUSIBLE[key]
        if least <= value <= most:
            self.statements[kind].setdefault(key, []).append((value, line))

    def agreed(self, document: Document) -> Iterator[tuple[dict[str, int], list[str]]]:
        """The sizes as stated first, as stated last, and none where they leave a doubt; with what to say of each."""
        first: dict[str, int] = {}
        last: dict[str, int] = {}
        twice: list[tuple[str, tuple[int, int], tuple[int, int]]] = []
        for kind, statements in enumerate(self.statements):
            for key, stated in statements.items():
                if key in first or (key == "batch_size" and len(self._named()) < _ENOUGH):
                    continue
                other = next((item for item in stated if item[0] != stated[0][0]), None) if kind < 2 else None
                first[key] = stated[0][0]
                last[key] = other[0] if other else stated[0][0]
                if other:
                    twice.append((key, stated[0], other))
        for sizes in (first, last) if twice else (first,):
            yield (
                sizes,
                [
                    f"It states {key} twice, {one[0]:,} ({document.source.place(one[1])}) and {two[0]:,} "
                    f"({document.source.place(two[1])}): held against {sizes[key]:,}."
                    for key, one, two in twice
                ],
            )
        if first.get("batch_size", 1) != 1:  # it may be that of training
            yield {key: size for key, size in first.items() if key != "batch_size"}, []
        if twice or any(name not in first for name in SIZES if name not in _OPTIONAL):
            yield {}, []

    def otherwise(self, given: DecoderShape, document: Document) -> tuple[str, ...]:
        """A notice of the sizes that the text states otherwise than what it is held against; none where it agrees."""
        sizes, _ = next(iter(self.agreed(document)))
        lines = {key: stated[0][1] for statements in self.statements[::-1] for key, stated in statements.items()}
        other = [
            f"{name} {sizes[name]:,} ({document.source.place(lines[name])})"
            for name in SIZES
            if name in sizes and name not in _OPTIONAL and sizes[name] != getattr(given, name)
        ]
        if self.tied is not None and self.tied != given.tie_embeddings:
            other.append("tied embeddings" if self.tied else "untied embeddings")
        return (f"The write-up itself states {', '.join(other)}: not used.",) if other else ()

    def _named(self) -> set[str]:
        return {key for statements in self.statements for key in statements} - {"batch_size"}


def _key(match: re.Match[str]) -> str:
    return next(name for name in _NAMES if match.group(name))


def _integer(cell: str) -> int | None:
    match = re.match(rf"\W*{_INTEGER}", cell.strip())
    return _number(match.group(1)) if match else None


def _number(text: str) -> int:
    return int(text.replace(",", ""))
