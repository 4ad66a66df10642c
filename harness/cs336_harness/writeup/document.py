"""A write-up as passages and tables, each with its line, its part ((a) to (e)) and what introduces it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

from cs336_harness.writeup.lexicon import models_named
from cs336_harness.writeup.plain import Plain, code, full_width_as_ascii, plain
from cs336_harness.writeup.sources import Source
from cs336_harness.writeup.words import says

_PART = re.compile(
    r"^\W*(?:(?:problem|part|question|task|answer|appendix|问题)\W+)?(?:\(([a-e])\)|([a-e])\)|([a-e])\.(?=\s|$))", re.I
)
_PART_IN_HEADING = re.compile(
    r"\(([a-e])\)|\b(?:part|question|problem) ([a-e])\b|^\W*([a-e])[.:)](?=\s|$)|^\W*([a-e])\W*$", re.I
)
_NUMBERED = re.compile(r"^\W*(?:(?:part|question|problem|task|问题)\s*)?([1-5])\b", re.I)
_LONGEST_SENTENCE = 4000
_LONGEST_INTRODUCTION = 2000
_SENTENCE_END = re.compile(
    r"(?<=[.!?;])\s+(?=[A-Z(`$*\d~≈])|(?<=[。！？；])"
    r"|(?<=;)(?=[^\x00-\x7f]|\s?(?:small|medium|large|xl)\b)|\u2028(?!\s*[=≈])|\n"
)
_SHORTEST_WRAPPED_LINE = 60
_LONGEST_LABEL = 80
_TABLE_RULE = re.compile(r"\s*\|(?:\s*:?-+:?\s*\|)+\s*")
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
    source: Source
    headings: tuple[str, ...] = ()

    @property
    def parts(self) -> set[str]:
        """The parts that the document marks."""
        return {block.part for block in self.blocks if block.part}


def read_document(source: Source) -> Document:
    """The blocks of the part of a text that is about accounting; of the whole text where no heading says so."""
    tokens = _parsed(source.text)
    has_letters = any(_letter_of(token) for token in tokens)
    reader = _Reader(by_topic=not has_letters)
    blocks = tuple(reader.blocks(_accounting_only(tokens)))
    return Document(blocks, source, tuple(reader.seen))


def _parsed(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(_with_whole_rules(text))


def _with_whole_rules(text: str) -> str:
    """The text with the rule below a table's header as wide as the header: a table that lacks a column is one too."""
    lines = text.split("\n")
    for number, line in enumerate(lines[1:], 1):
        header = lines[number - 1].strip()
        if _TABLE_RULE.fullmatch(line) and header.startswith("|"):
            lines[number] = "|---" * (header.rstrip("|").count("|")) + "|"
    return "\n".join(lines)


def _letter_of(token: Token) -> str | None:
    """The part that a paragraph's beginning, a heading or an indented line names by its letter."""
    if token.type == "code_block":
        return next((part for line in token.content.splitlines() if (part := _part_at_start(line))), None)
    if token.type != "inline":
        return None
    return _part_at_start(token.content) or (_part_in_heading(token.content) if len(token.content) < 80 else None)


def _part_at_start(text: str) -> str | None:
    match = _PART.match(full_width_as_ascii(text))
    return next(group for group in match.groups() if group).lower() if match else None


def _part_in_heading(title: str) -> str | None:
    match = _PART_IN_HEADING.search(full_width_as_ascii(title))
    return next(group for group in match.groups() if group).lower() if match else None


def topic_of(title: str) -> str | None:
    """The part that a heading or a question is about, by its words."""
    return next((part for part in "edcba" if says(f"topic_{part}", title)), None)


def _accounting_only(tokens: list[Token]) -> list[Token]:
    """From the heading that names the problem to the next that names another; own headings do not end it."""
    start = level = None
    for index, token in enumerate(tokens):
        if token.type != "heading_open":
            continue
        title = tokens[index + 1].content
        if start is not None and level is not None and int(token.tag[1]) <= level:
            if says("other_problem", title) and not _is_accounting(title) and not _part_in_heading(title):
                return tokens[start:index]
        elif start is None and _is_accounting(title):
            start, level = index, int(token.tag[1])
    return tokens if start is None else tokens[start:]


def _is_accounting(title: str) -> bool:
    return says("accounting", title) and not says("other_accounting", title)


class _Reader:
    """Walks the tokens once and remembers where it is."""

    def __init__(self, *, by_topic: bool) -> None:
        self.by_topic = by_topic
        self.part: str | None = None
        self.part_level = 7
        self.level = 0
        self.headings: dict[int, str] = {}
        self.seen: list[str] = []
        self.intro = ""
        self.before = ""

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
            elif token.type == "code_block" and _is_prose(token.content):
                yield from self.blocks(_moved(_parsed(_dedented(token.content)), (token.map or [0])[0]))
            elif token.type in ("fence", "code_block"):
                yield from self._code(token)
            elif token.type == "html_block" and not token.content.lstrip().startswith("<!--"):
                yield from self.blocks(_html(token.content, (token.map or [0])[0]))
            elif token.type == "list_item_open" and self.by_topic and lists == 1:
                self._enter_item(token, tokens[index + 2].content if index + 2 < len(tokens) else "")
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
        self.seen.append(self.headings[level])
        self.level = level
        self.intro = self.before = ""
        part = _part_in_heading(title) or (topic_of(title) if self.by_topic and level > 1 else None)
        if part:
            self.part, self.part_level = part, level
        elif level <= self.part_level:
            self.part, self.part_level = None, 7

    def _enter_item(self, token: Token, text: str) -> None:
        """An answer whose parts are numbered 1 to 5: an item is part (a) when it is the first and speaks of that."""
        if token.info.isdigit() and 1 <= int(token.info) <= 5:
            part = "abcde"[int(token.info) - 1]
            goes_on = self.part is not None and part > "c" and ord(part) == ord(self.part) + 1
            if topic_of(text.split("\n")[0]) == part or goes_on:
                self.part, self.part_level = part, self.level + 1

    def _inline(self, token: Token, *, in_list: bool, quoted: bool) -> Iterator[Passage]:
        raw = _COMMENT.sub(lambda match: "\n" * match.group(0).count("\n"), token.content)
        line = (token.map or [0])[0] + 1
        for offset, piece in _split_at_parts(raw):
            yield from self._part_of_paragraph(piece, line + offset, in_list=in_list, quoted=quoted)

    def _part_of_paragraph(self, raw: str, line: int, *, in_list: bool, quoted: bool) -> Iterator[Passage]:
        match = _PART.match(full_width_as_ascii(raw))
        if match:
            self.part = next(group for group in match.groups() if group).lower()
            self.part_level = self.level + 1
            raw = raw[match.end() :].lstrip("*_ ")
        content = plain(raw)
        if (
            not in_list
            and _is_number_alone(content.text)
            and self.before.endswith(":")
            and len(self.before) < _LONGEST_LABEL
        ):
            label = f"{self.before} "  # "Trainable parameters:" and the number in a paragraph of its own
            content = Plain(label + content.text, label + content.words)
        self.before = content.text.rstrip()
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
        pending: list[str] = []
        for offset, text in enumerate([*token.content.splitlines(), ""]):
            if len(text) > _LONGEST_SENTENCE:
                raise ValueError(f"has a line of {len(text):,} characters, line {line + offset}; break it up")
            # A line that goes on with = or + belongs to what the line before it began.
            if pending and not re.match(r"\s*[=≈+*/]", text):
                yield from self._code_line(pending, line + offset - len(pending))
                pending = []
            if text.strip():
                pending.append(text)
        if models := models_named(token.content):  # what code prints is about the model that it names
            self.intro = " ".join(f"GPT-2 {model}" for model in sorted(models))

    def _code_line(self, lines: list[str], line: int) -> Iterator[Passage]:
        pieces = [code(text).text for text in lines]
        wraps = tuple(len("\n".join(pieces[:index])) for index in range(1, len(pieces)))
        content = Plain(" ".join(pieces), " ".join(pieces))
        yield Passage(line, content, self.part, self._heading(), self.intro, _label(content), wraps=wraps)

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


def _is_number_alone(text: str) -> bool:
    return len(text) < 40 and bool(re.match(r"\W*\d[\d,.\s]*\d", text)) and text.count(" ") < 6


def _label(piece: Plain) -> Plain | None:
    indent = len(piece.text) - len(piece.text.lstrip())
    match = re.compile(r"([^:=]{1,80})(?::|=(?=\s))").match(piece.text, indent)
    if not match or re.search(r"\d[.,]\d", match.group(1)):
        return None
    label = piece.text[: match.end(1)].rstrip()
    return Plain(label, label)


def _split_at_parts(raw: str) -> Iterator[tuple[int, str]]:
    """A paragraph as the answers in it, where one line after another begins with (a), (b), …, and their first lines."""
    pieces: list[tuple[int, list[str]]] = []
    for number, line in enumerate(raw.split("\n")):
        if not pieces or _PART.match(full_width_as_ascii(line)):
            pieces.append((number, []))
        pieces[-1][1].append(line)
    for number, lines in pieces:
        yield number, "\n".join(lines)


def _is_prose(indented: str) -> bool:
    """Whether an indented block is an answer that was only indented, and no code."""
    return any(_part_at_start(line) or line.rstrip().endswith(".") for line in indented.splitlines())


def _dedented(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())


def _html(content: str, line: int) -> list[Token]:
    """The tokens of a block of HTML. A row of a table in one line stands on that line."""
    from cs336_harness.writeup.markup import of_html

    lines = list(of_html(content))
    places = [int(place.split()[1]) - 1 for _, place in lines]
    return _moved(_parsed("\n".join(text for text, _ in lines)), line, places)


def _moved(tokens: list[Token], by: int, places: list[int] | None = None) -> list[Token]:
    for token in tokens:
        if token.map:
            first, last = token.map
            if places:
                first = places[min(first, len(places) - 1)]
                last = max(first + 1, places[min(last, len(places)) - 1] + 1)
            token.map = [first + by, last + by]
    return tokens
