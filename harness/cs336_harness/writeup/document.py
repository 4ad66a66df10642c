"""A write-up as passages and tables, each with its line, its part ((a) to (e)) and what introduces it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from cs336_harness.writeup.lexicon import models_named
from cs336_harness.writeup.markup import of_html
from cs336_harness.writeup.plain import Plain, code, full_width_as_ascii, plain
from cs336_harness.writeup.sources import Source
from cs336_harness.writeup.words import says

_PART = re.compile(
    r"^\W*(?:(?:problem|part|question|task|answer|appendix|问题)\W+)?(?:\(([a-e])\)|([a-e])\)|([a-e])\.(?=\s|$))", re.I
)
_PART_IN_HEADING = re.compile(
    r"\(([a-e])\)|\b(?:part|question|problem) ([a-e])\b|^\W*([a-e])[.:)](?=\s|$)|^\W*([a-e])\W*$", re.I
)
_LONGEST_SENTENCE = 4000
_LONGEST_INTRODUCTION = 2000
_SENTENCE_END = re.compile(
    r"(?<=[.!?;])\s+(?=[A-Z(`$*\d~≈])|(?<=[。！？；])"
    r"|(?<=;)(?=[^\x00-\x7f]|\s?(?:small|medium|large|xl)\b)|\u2028(?!\s*[=≈])|\n"
)
_SHORTEST_WRAPPED_LINE = 60
_LABEL = re.compile(r"\s*([^:=]{1,80})(?::|=(?=\s))")
_NUMBER_ALONE = re.compile(r"(?=.{0,39}$)\W*\d[\d,.\s]*\d\W*(?:\w+\W*){0,3}")
_TABLE_RULE = re.compile(r"\s*\|(?:\s*:?-+:?\s*\|)+\s*")


@dataclasses.dataclass(frozen=True, slots=True)
class Passage:
    """One sentence, list item or line of code. ``label`` is what stands before a list item's colon."""

    line: int
    content: Plain
    part: str | None
    heading: str
    intro: str
    label: str = ""
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
    nodes = _parsed(source.text)
    reader = _Reader(by_topic=not any(map(_names_a_letter, nodes)))
    blocks = tuple(reader.blocks(_accounting_only(nodes)))
    return Document(blocks, source, tuple(reader.seen))


def _parsed(text: str) -> Sequence[SyntaxTreeNode]:
    """The blocks of a text. A rule below a table's header is made as wide as the header: a table may lack a column."""
    lines = text.split("\n")
    for number, line in enumerate(lines[1:], 1):
        header = lines[number - 1].strip()
        if _TABLE_RULE.fullmatch(line) and header.startswith("|"):
            lines[number] = "|---" * (header.rstrip("|").count("|")) + "|"
    return SyntaxTreeNode(MarkdownIt("commonmark").enable("table").parse("\n".join(lines))).children


def _names_a_letter(node: SyntaxTreeNode) -> bool:
    """Whether a paragraph's beginning, a heading or an indented line names a part by its letter."""
    if node.type == "code_block":
        return any(map(_letter, node.content.splitlines()))
    if node.type != "inline":
        return any(map(_names_a_letter, node.children))
    return bool(_letter(node.content) or (len(node.content) < 80 and _letter(node.content, _PART_IN_HEADING)))


def _letter(text: str, pattern: re.Pattern[str] = _PART) -> str | None:
    """The part that a text names by its letter, at its beginning or, with the other pattern, in a heading."""
    match = pattern.search(full_width_as_ascii(text))
    return match.group(match.lastindex or 0).lower() if match else None


def _topic_of(title: str) -> str | None:
    """The part that a heading or a question is about, by its words."""
    return next((part for part in "edcba" if says(f"topic_{part}", title)), None)


def _accounting_only(nodes: Sequence[SyntaxTreeNode]) -> Sequence[SyntaxTreeNode]:
    """From the heading that names the problem to the next that names another; own headings do not end it."""
    start = level = None
    for index, node in enumerate(nodes):
        title = node.children[0].content if node.type == "heading" else ""
        is_accounting = says("accounting", title) and not says("other_accounting", title)
        if start is None and is_accounting:
            start, level = index, node.tag
        is_another = says("other_problem", title) and not is_accounting and not _letter(title, _PART_IN_HEADING)
        if level and is_another and node.tag <= level:
            return nodes[start:index]
    return nodes[start or 0 :]


class _Reader:
    """Walks the blocks once and remembers where it is. ``line_of`` says where a line of the text at hand stands."""

    def __init__(self, *, by_topic: bool) -> None:
        self.by_topic = by_topic
        self.part: str | None = None
        self.part_level = 7
        self.level = 0
        self.headings: dict[int, str] = {}
        self.seen: list[str] = []
        self.intro = self.before = ""
        self.line_of: Callable[[int], int] = lambda line: line + 1

    def blocks(
        self, nodes: Sequence[SyntaxTreeNode], lists: int = 0, *, quoted: bool = False
    ) -> Iterator[Passage | TableBlock]:
        for node in nodes:
            first = node.map[0] if node.map else 0
            if node.type == "heading":
                self._enter_heading(int(node.tag[1]), node.children[0].content)
            elif node.type == "table":
                yield self._table(node)
            elif node.type == "code_block" and _is_prose(node.content):
                lines = node.content.splitlines()
                yield from self._inside(
                    "\n".join(line.strip() for line in lines), [first + at for at in range(len(lines))]
                )
            elif node.type in ("fence", "code_block"):
                yield from self._code(node.content, first + (node.type == "fence"))
            elif node.type == "html_block":
                if not node.content.lstrip().startswith("<!--"):
                    lines = list(of_html(node.content))
                    yield from self._inside(
                        "\n".join(text for text, _ in lines), [first + int(at[5:]) - 1 for _, at in lines]
                    )
            elif node.type == "inline":
                raw = re.sub(r"(?s)<!--.*?-->", lambda match: "\n" * match.group(0).count("\n"), node.content)
                for offset, piece in _split_at_parts(raw):
                    yield from self._paragraph(piece, first + offset, in_list=lists > 0, quoted=quoted)
            else:
                if node.type == "list_item" and self.by_topic and lists == 1 and node.children:
                    self._enter_item(node.info, node.children[0])
                lists_inside = lists + (node.type in ("bullet_list", "ordered_list"))
                yield from self.blocks(node.children, lists_inside, quoted=quoted or node.type == "blockquote")

    def _inside(self, text: str, lines: list[int]) -> Iterator[Passage | TableBlock]:
        """The blocks of a text that stands within the one at hand, on these lines of it."""
        outer = self.line_of
        self.line_of = lambda line: outer(lines[min(line, len(lines) - 1)]) if lines else outer(0)
        yield from self.blocks(_parsed(text))
        self.line_of = outer

    def _enter_heading(self, level: int, title: str) -> None:
        self.headings = {at: text for at, text in self.headings.items() if at < level}
        self.headings[level] = plain(title).text
        self.seen.append(self.headings[level])
        self.level = level
        self.intro = self.before = ""
        part = _letter(title, _PART_IN_HEADING) or (_topic_of(title) if self.by_topic and level > 1 else None)
        if part:
            self.part, self.part_level = part, level
        elif level <= self.part_level:
            self.part, self.part_level = None, 7

    def _enter_item(self, number: str, paragraph: SyntaxTreeNode) -> None:
        """An answer whose parts are numbered 1 to 5: an item is part (a) when it is the first and speaks of that."""
        if number in ("1", "2", "3", "4", "5") and paragraph.children:
            part = "abcde"[int(number) - 1]
            goes_on = self.part is not None and part > "c" and ord(part) == ord(self.part) + 1
            if goes_on or _topic_of(paragraph.children[0].content.split("\n")[0]) == part:
                self.part, self.part_level = part, self.level + 1

    def _paragraph(self, raw: str, line: int, *, in_list: bool, quoted: bool) -> Iterator[Passage]:
        if match := _PART.match(full_width_as_ascii(raw)):
            self.part, self.part_level = _letter(raw), self.level + 1
            raw = raw[match.end() :].lstrip("*_ ")
        content = plain(raw)
        if not in_list and self.before.endswith(":") and len(self.before) < 80 and _NUMBER_ALONE.match(content.text):
            label = f"{self.before} "  # "Trainable parameters:" and the number in a paragraph of its own
            content = Plain(label + content.text, label + content.words)
        self.before = content.text.rstrip()
        if not in_list and not quoted:  # what is quoted is the question, and introduces no answer
            self.intro = content.text[:_LONGEST_INTRODUCTION]
        start = 0
        for end in [*_sentence_ends(content.text), len(content.text)]:
            text = content.text[start:end]
            indent = len(text) - len(text.lstrip())
            newlines = content.text[: start + indent].count("\n")
            wraps = tuple(match.start() for match in re.finditer("\n", text) if match.start() >= indent)
            piece = Plain(text.replace("\n", " "), content.words[start:end].replace("\n", " "))
            yield from self._passage(piece, self.line_of(line) + newlines, wraps, in_list=in_list)
            start = end

    def _passage(
        self, content: Plain, line: int, wraps: tuple[int, ...], *, in_list: bool = False, is_code: bool = False
    ) -> Iterator[Passage]:
        if len(content.text) > _LONGEST_SENTENCE:
            kind = "line" if is_code else "sentence"
            raise ValueError(f"has a {kind} of {len(content.text):,} characters on line {line}; break it up")
        if content.text.strip():
            label = _label(content.text) if in_list or is_code or ":" in content.text else ""
            yield Passage(line, content, self.part, self._heading(), self.intro, label, in_list, wraps)

    def _code(self, text: str, line: int) -> Iterator[Passage]:
        pending: list[str] = []
        for number, written in enumerate([*text.splitlines(), ""], line):
            # A line that goes on with = or + belongs to what the line before it began.
            if pending and not re.match(r"\s*[=≈+*/]", written):
                pieces = [code(piece).text for piece in pending]
                wraps = tuple(len("\n".join(pieces[:index])) for index in range(1, len(pieces)))
                content = Plain(" ".join(pieces), " ".join(pieces))
                yield from self._passage(content, self.line_of(number - len(pending)), wraps, is_code=True)
                pending = []
            if written.strip():
                pending.append(written)
        if models := models_named(text):  # what code prints is about the model that it names
            self.intro = " ".join(f"GPT-2 {model}" for model in sorted(models))

    def _table(self, table: SyntaxTreeNode) -> TableBlock:
        rows = [
            Row(
                self.line_of(row.map[0] if row.map else 0),
                tuple(plain(cell.children[0].content if cell.children else "") for cell in row.children),
            )
            for row in table.walk()
            if row.type == "tr"
        ]
        line = self.line_of(table.map[0] if table.map else 0)
        return TableBlock(line, rows[0].cells, tuple(rows[1:]), self.part, self._heading(), self.intro)

    def _heading(self) -> str:
        return " / ".join(self.headings.values())


def _sentence_ends(text: str) -> Iterator[int]:
    """Where sentences end. The end of a line ends one too, unless the line is so long that it was only wrapped."""
    for match in _SENTENCE_END.finditer(text):
        line_start = text.rfind("\n", 0, match.start()) + 1
        ended = match.group(0) != "\n" or text[match.start() - 1] in ".!?;"
        if ended or match.start() - line_start < _SHORTEST_WRAPPED_LINE:
            yield match.start()


def _label(text: str) -> str:
    match = _LABEL.match(text)
    return text[: match.end(1)].rstrip() if match and not re.search(r"\d[.,]\d", match.group(1)) else ""


def _split_at_parts(raw: str) -> Iterator[tuple[int, str]]:
    """A paragraph as the answers in it, where one line after another begins with (a), (b), …, and their first lines."""
    pieces: list[tuple[int, list[str]]] = []
    for number, line in enumerate(raw.split("\n")):
        if not pieces or _letter(line):
            pieces.append((number, []))
        pieces[-1][1].append(line)
    yield from ((number, "\n".join(lines)) for number, lines in pieces)


def _is_prose(indented: str) -> bool:
    """Whether an indented block is an answer that was only indented, and no code."""
    return any(_letter(line) or line.rstrip().endswith(".") for line in indented.splitlines())
