"""A write-up as passages and tables, each with its line, its part ((a) to (e)) and what introduces it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from cs336_harness.writeup.plain import Plain, plain

_PART = re.compile(
    r"^\W*(?:(?:problem|part|question|task|answer|appendix)\W+)?(?:\(([a-e])\)|([a-e])\)|([a-e])\.(?=\s|$))", re.I
)
_PART_IN_HEADING = re.compile(r"\(([a-e])\)|\bpart ([a-e])\b|^\W*([a-e])[.:)](?=\s|$)|^\W*([a-e])\W*$", re.I)
_ACCOUNTING = re.compile(
    r"transformer[ _-]accounting|(?:transformer|lm)\b.*\baccounting|resource accounting|^accounting", re.I
)
_OTHER_ACCOUNTING = re.compile(r"adamw|training|optimi[sz]er", re.I)
_LONGEST_FILE = 1_000_000
_LONGEST_SENTENCE = 4000
_LONGEST_INTRODUCTION = 2000
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+(?=[A-Z(`$*\d~≈])|\u2028|\n")
_SHORTEST_WRAPPED_LINE = 60
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


@dataclasses.dataclass(frozen=True, slots=True)
class Passage:
    """One sentence, list item or line of code. ``label`` is what stands before a list item's colon."""

    line: int
    content: Plain
    part: str | None
    heading: str
    intro: str
    label: Plain | None = None
    in_list: bool = False
    wraps: tuple[int, ...] = ()

    def line_of(self, offset: int) -> int:
        """The line that a place in the passage stands on; ``wraps`` are the places where it goes on to the next."""
        return self.line + sum(wrap < offset for wrap in self.wraps)


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One row of a table."""

    line: int
    cells: tuple[Plain, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class TableBlock:
    """One table; ``intro`` is the paragraph before it."""

    line: int
    header: tuple[Plain, ...]
    rows: tuple[Row, ...]
    part: str | None
    heading: str
    intro: str


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """The passages and tables of a write-up, in order."""

    blocks: tuple[Passage | TableBlock, ...]

    @property
    def parts(self) -> set[str]:
        """The parts that the document marks."""
        return {block.part for block in self.blocks if block.part}


def read_text(path: Path) -> str:
    """The text of a write-up.

    Raises:
        ValueError: the file cannot be read, is empty, or is no text.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    if not content.strip():
        raise ValueError(f"{path} is empty")
    if b"\0" in content:
        raise ValueError(f"{path} is binary; the write-up is a Markdown file")
    if len(content) > _LONGEST_FILE:
        raise ValueError(f"{path} is {len(content):,} bytes long; a write-up has a few pages")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no UTF-8 text (byte {error.start}); the write-up is a Markdown file") from error


def read_document(text: str) -> Document:
    """The blocks of the part of the text that is about accounting; of the whole text where no heading says so."""
    reader = _Reader()
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    return Document(tuple(reader.blocks(_accounting_only(tokens))))


def _accounting_only(tokens: list[Token]) -> list[Token]:
    start = level = None
    for index, token in enumerate(tokens):
        if token.type != "heading_open":
            continue
        title = tokens[index + 1].content
        if (
            start is not None
            and level is not None
            and int(token.tag[1]) <= level
            and not _PART_IN_HEADING.search(title)
        ):
            return tokens[start:index] if not _is_accounting(title) else tokens[start:]
        if start is None and _is_accounting(title):
            start, level = index, int(token.tag[1])
    return tokens if start is None else tokens[start:]


def _is_accounting(title: str) -> bool:
    return bool(_ACCOUNTING.search(title)) and not _OTHER_ACCOUNTING.search(title)


class _Reader:
    """Walks the tokens once and remembers where it is."""

    def __init__(self) -> None:
        self.part: str | None = None
        self.part_level = 7
        self.level = 0
        self.headings: dict[int, str] = {}
        self.intro = ""

    def blocks(self, tokens: list[Token]) -> Iterator[Passage | TableBlock]:
        index = 0
        lists = 0
        quoted = 0
        while index < len(tokens):
            token = tokens[index]
            if token.type == "heading_open":
                self._enter_heading(int(token.tag[1]), tokens[index + 1].content)
                index += 2
            elif token.type == "table_open":
                end = next(i for i in range(index, len(tokens)) if tokens[i].type == "table_close")
                yield self._table(tokens[index:end])
                index = end
            elif token.type in ("fence", "code_block"):
                yield from self._code(token)
            elif token.type.endswith("list_open"):
                lists += 1
            elif token.type.endswith("list_close"):
                lists -= 1
            elif token.type == "blockquote_open":
                quoted += 1
            elif token.type == "blockquote_close":
                quoted -= 1
            elif token.type == "inline":
                yield from self._inline(token, in_list=lists > 0, quoted=quoted > 0)
            index += 1

    def _enter_heading(self, level: int, title: str) -> None:
        self.headings = {at: text for at, text in self.headings.items() if at < level}
        self.headings[level] = plain(title).text
        self.level = level
        self.intro = ""
        match = _PART_IN_HEADING.search(title)
        if match:
            self.part = next(group for group in match.groups() if group).lower()
            self.part_level = level
        elif level <= self.part_level:
            self.part, self.part_level = None, 7

    def _inline(self, token: Token, *, in_list: bool, quoted: bool) -> Iterator[Passage]:
        raw = _COMMENT.sub(lambda match: "\n" * match.group(0).count("\n"), token.content)
        line = (token.map or [0])[0] + 1
        match = _PART.match(raw)
        if match:
            self.part = next(group for group in match.groups() if group).lower()
            self.part_level = self.level + 1
            raw = raw[match.end() :].lstrip("*_ ")
        content = plain(raw)
        if not in_list and not quoted:  # what is quoted is the question, and introduces no answer
            self.intro = content.text[:_LONGEST_INTRODUCTION]
        yield from self._passages(content, line, in_list=in_list)

    def _passages(self, content: Plain, line: int, *, in_list: bool) -> Iterator[Passage]:
        start = 0
        for end in [*_sentence_ends(content.text), len(content.text)]:
            text = content.text[start:end]
            indent = len(text) - len(text.lstrip())
            newlines = content.text[: start + indent].count("\n")
            wraps = tuple(match.start() for match in re.finditer("\n", text) if match.start() >= indent)
            piece = Plain(text.replace("\n", " "), content.words[start:end].replace("\n", " "))
            if len(piece.text) > _LONGEST_SENTENCE:
                raise ValueError(f"has a sentence of {len(piece.text):,} characters on line {line}; break it up")
            if piece.text.strip():
                label = _label(piece) if in_list or ":" in piece.text else None
                yield Passage(line + newlines, piece, self.part, self._heading(), self.intro, label, in_list, wraps)
            start = end

    def _code(self, token: Token) -> Iterator[Passage]:
        line = (token.map or [0])[0] + (2 if token.type == "fence" else 1)
        for offset, text in enumerate(token.content.splitlines()):
            if len(text) > _LONGEST_SENTENCE:
                raise ValueError(f"has a line of {len(text):,} characters, line {line + offset}; break it up")
            if text.strip():
                piece = plain(text.replace("`", ""))
                content = Plain(piece.text, piece.text)
                yield Passage(line + offset, content, self.part, self._heading(), self.intro, _label(content))

    def _table(self, tokens: list[Token]) -> TableBlock:
        line = (tokens[0].map or [0])[0] + 1
        rows: list[Row] = []
        cells: list[Plain] = []
        for token in tokens:
            if token.type == "tr_open":
                cells, row_line = [], (token.map or [line - 1])[0] + 1
            elif token.type == "inline":
                cells.append(plain(token.content))
            elif token.type == "tr_close":
                rows.append(Row(row_line, tuple(cells)))
        block = TableBlock(line, rows[0].cells, tuple(rows[1:]), self.part, self._heading(), self.intro)
        return block

    def _heading(self) -> str:
        return " / ".join(self.headings.values())


def _sentence_ends(text: str) -> Iterator[int]:
    """Where sentences end. The end of a line ends one too, unless the line is so long that it was only wrapped."""
    for match in _SENTENCE_END.finditer(text):
        line_start = text.rfind("\n", 0, match.start()) + 1
        if match.group(0) != "\n" or match.start() - line_start < _SHORTEST_WRAPPED_LINE:
            yield match.start()


def _label(piece: Plain) -> Plain | None:
    indent = len(piece.text) - len(piece.text.lstrip())
    match = re.compile(r"([^:=]{1,80})(?::|=(?=\s))").match(piece.text, indent)
    if not match or re.search(r"\d[.,]\d", match.group(1)):
        return None
    label = piece.text[: match.end(1)].rstrip()
    return Plain(label, label)
