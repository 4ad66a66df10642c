"""LaTeX, Typst and HTML as Markdown: headings, lists, tables and code keep their meaning, and every line its number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser

Lines = Iterator[tuple[str, str]]

_TEX_LEVELS = {"part": 1, "chapter": 1, "section": 2, "subsection": 3, "subsubsection": 4, "paragraph": 5}
_TEX_HEADING = re.compile(r"\s*\\(part|chapter|section|subsection|subsubsection|paragraph)\*?\s*\{(.*)\}\s*(.*)$")
_TEX_ITEM = re.compile(r"\s*\\item\s*(?:\[([^\]]*)\])?\s*(.*)$")
_TEX_COMMENT = re.compile(r"(?<!\\)%.*$")
_TEX_TABLE = re.compile(r"\\begin\{(?:tabular[xy*]?|longtable|array)\}")
_TEX_TABLE_END = re.compile(r"\\end\{(?:tabular[xy*]?|longtable|array)\}")
_TEX_RULES = re.compile(
    r"\\(?:hline|toprule|midrule|bottomrule|cline\{[^}]*\}|cmidrule(?:\([^)]*\))?\{[^}]*\}|addlinespace)"
)
_TEX_CODE = re.compile(r"\\(begin|end)\{(?:verbatim|lstlisting|minted|alltt)\}")
_TEX_MATH = re.compile(r"\\(?:begin|end)\{(?:equation|align|gather|multline|displaymath|math|aligned|split)\*?\}")
_TEX_NOISE = re.compile(
    r"\\(?:begin|end)\{[^}]*\}(?:\[[^\]]*\])?|\\(?:label|ref|cite|caption\*?|vspace|hspace|centering|small|noindent"
    r"|newpage"
    r"|maketitle|footnotesize|includegraphics)(?![A-Za-z])(?:\[[^\]]*\])?(?:\{[^}]*\})?"
)
_ARGUMENTS = re.compile(r"^\s*(?:\[[^\]]*\])?\s*(?:\{[^{}]*\}\s*){1,2}")


def of_latex(text: str) -> Lines:
    """LaTeX as Markdown."""
    lines = [(line, f"line {number}") for number, line in enumerate(text.split("\n"), 1)]
    starts = [index for index, (line, _) in enumerate(lines) if "\\begin{document}" in line]
    lists: list[str | int] = []
    table: list[tuple[str, str]] | None = None
    in_code = False
    for line, place in lines[starts[0] + 1 if starts else 0 :]:
        if match := _TEX_CODE.search(line):
            in_code = match.group(1) == "begin"
            yield "```", place
            continue
        if in_code:
            yield line, place
            continue
        line = _TEX_COMMENT.sub("", line)
        if table is not None:
            if match := _TEX_TABLE_END.search(line):
                table.append((line[: match.start()], place))
                yield from _table(_tex_rows(table))
                table, line = None, line[match.end() :]
            else:
                table.append((line, place))
                continue
        elif match := _TEX_TABLE.search(line):
            rest = _ARGUMENTS.sub("", line[match.end() :])
            if end := _TEX_TABLE_END.search(rest):
                yield from _table(_tex_rows([(rest[: end.start()], place)]))
            else:
                table = [(rest, place)]
            continue
        if match := _TEX_HEADING.match(line):
            yield "", place
            yield f"{'#' * _TEX_LEVELS[match.group(1)]} {match.group(2)}", place
            yield "", place
            line = match.group(3)
        if match := re.search(r"\\begin\{(enumerate|itemize|description)\}(.*)", line):
            # (a) and its like come from the option label=(\alph*)
            lists.append(("a" if "alph" in match.group(2) else 1) if match.group(1) == "enumerate" else "-")
            yield "", place
            continue
        if re.search(r"\\end\{(?:enumerate|itemize|description)\}", line):
            if lists:
                lists.pop()
            yield "", place
            continue
        if match := _TEX_ITEM.match(line):
            yield from _tex_item(match, lists, place)
            continue
        yield _TEX_NOISE.sub("", _TEX_MATH.sub("$$", line)).strip(), place


def _tex_item(match: re.Match[str], lists: list[str | int], place: str) -> Lines:
    given, rest = match.group(1), match.group(2)
    kind = lists[-1] if lists else "-"
    rest = _TEX_NOISE.sub("", rest)
    if given:
        yield "", place
        yield f"{given} {rest}", place
    elif isinstance(kind, int):
        lists[-1] = kind + 1
        yield f"{kind}. {rest}", place
    elif kind == "-":
        yield f"- {rest}", place
    else:
        lists[-1] = chr(ord(kind) + 1)
        yield "", place
        yield f"({kind}) {rest}", place


def _tex_rows(lines: list[tuple[str, str]]) -> list[tuple[list[str], str]]:
    rows: list[tuple[list[str], str]] = []
    pending = ""
    for line, place in lines:
        pieces = re.split(r"\\\\(?:\[[^\]]*\])?", _TEX_RULES.sub("", line))
        for piece in pieces[:-1]:
            rows.append((re.split(r"(?<!\\)&", pending + piece), place))
            pending = ""
        pending += pieces[-1] + " "
    if pending.strip():
        rows.append((re.split(r"(?<!\\)&", pending), lines[-1][1]))
    return [(cells, place) for cells, place in rows if any(cell.strip() for cell in cells)]


def _table(rows: list[tuple[list[str], str]]) -> Lines:
    if not rows:
        return
    width = max(len(cells) for cells, _ in rows)
    if len(rows) == 1:
        rows = [([""] * width, rows[0][1]), *rows]
    yield "", rows[0][1]
    for number, (cells, place) in enumerate(rows):
        padded = [cell.strip().replace("\n", " ").replace("|", "\\|") for cell in cells] + [""] * (width - len(cells))
        yield f"| {' | '.join(padded)} |", place
        if number == 0:
            yield f"|{' --- |' * width}", place
    yield "", rows[-1][1]


def of_typst(text: str) -> Lines:
    """Typst as Markdown."""
    lines = [re.sub(r"\$[^$]+\$", _typst_formula, line) for line in text.split("\n")]
    index = 0
    while index < len(lines):
        line, place = lines[index], f"line {index + 1}"
        index += 1
        if re.match(r"\s*//", line):
            yield "", place
        elif match := re.search(r"#?table\s*\(", line):
            start, opened, closed = index, line[match.end() :], 1 + _depth(line[match.end() :])
            body = [(opened, place)]
            while closed > 0 and index < len(lines):
                body.append((lines[index], f"line {index + 1}"))
                closed += _depth(lines[index])
                index += 1
            yield from _typst_table(body)
            if start == index and closed > 0:
                yield "", place
        elif match := re.match(r"(=+)\s+(.*)", line):
            yield "", place
            yield f"{'#' * min(6, len(match.group(1)))} {match.group(2)}", place
            yield "", place
        elif re.match(r"\s*#(?:set|show|import|let|include|pagebreak|v|h)\b", line):
            yield "", place
        elif match := re.match(r"(\s*)\+\s+(.*)", line):
            yield f"{match.group(1)}1. {match.group(2)}", place
        else:
            yield re.sub(r"#(?:strong|emph|text|align|figure|block|box)(?:\([^)]*\))?\[?", "", line), place


def _typst_formula(match: re.Match[str]) -> str:
    """A formula with its signs as signs: 1.6 times 10^9, d_"ff", 6.56 "GB"."""
    formula = re.sub(r'"([^"]*)"', r"\1", match.group(0))
    for word, sign in (("times", "×"), ("dot", "·"), ("approx", "≈")):
        formula = re.sub(rf"\b{word}\b", sign, formula)
    return formula


def _depth(text: str) -> int:
    bare = re.sub(r"\[[^\[\]]*\]", "", text)
    return bare.count("(") - bare.count(")")


def _typst_table(body: list[tuple[str, str]]) -> Lines:
    columns = 0
    cells: list[tuple[str, str]] = []
    for line, place in body:
        if match := re.search(r"columns:\s*(?:(\d+)|\(([^()]*)\))", line):
            columns = (
                int(match.group(1)) if match.group(1) else len([c for c in match.group(2).split(",") if c.strip()])
            )
        cells += [(cell, place) for cell in re.findall(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]", line)]
    if not columns:
        columns = max((sum(1 for _, at in cells if at == place) for _, place in body), default=1) or 1
    rows = [cells[start : start + columns] for start in range(0, len(cells), columns)]
    yield from _table([([cell for cell, _ in row], row[0][1]) for row in rows])


def of_html(text: str) -> Lines:
    """HTML as Markdown."""
    reader = _HtmlReader()
    reader.feed(text)
    reader.close()
    yield from reader.finished()


class _HtmlReader(HTMLParser):
    """Collects paragraphs, headings, list items, code and tables."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []
        self.text = ""
        self.start = 1
        self.rows: list[tuple[list[str], str]] = []
        self.spans: dict[int, tuple[int, str]] = {}  # column -> rows that a cell still reaches down to, and the cell
        self.rows_spanned = 1
        self.in_table = 0
        self.silent = 0
        self.lead = ""
        self.numbers: list[int] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "head", "math"):
            self.silent += 1
        elif tag == "table":
            self._flush()
            self.in_table += 1
            self.rows, self.spans = [], {}
        elif tag == "tr" and self.in_table:
            self.rows.append(([], self._place()))
        elif tag in ("td", "th") and self.in_table:
            self.text = ""
            self._span_down()
            rows = dict(attrs).get("rowspan") or "1"
            self.rows_spanned = int(rows) if rows.isdigit() else 1
        elif tag in ("ol", "ul"):
            self._flush()
            self.numbers.append(0 if tag == "ol" else -1)
        elif tag == "li":
            self._flush()
            if self.numbers and self.numbers[-1] >= 0:
                self.numbers[-1] += 1
                self.lead = f"{self.numbers[-1]}. "
            else:
                self.lead = "- "
        elif re.fullmatch("h[1-6]", tag):
            self._flush()
            self.lead = "#" * int(tag[1]) + " "
        elif tag in ("p", "div", "pre", "br", "section", "article", "blockquote") and not self.in_table:
            self._flush(keep_lead=True)
            if tag == "pre":
                self._line("```")
        elif tag == "br":
            self.text += " "
        elif tag == "sup":
            self.text += "^"

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style", "head", "math"):
            self.silent = max(0, self.silent - 1)
        elif tag in ("td", "th") and self.in_table and self.rows:
            cell = " ".join(self.text.split())
            if self.rows_spanned > 1:
                self.spans[len(self.rows[-1][0])] = (self.rows_spanned - 1, cell)
            self.rows[-1][0].append(cell)
            self.text = ""
        elif tag == "table":
            self.in_table = max(0, self.in_table - 1)
            self.lines += list(_table([row for row in self.rows if row[0]]))
        elif tag in ("ol", "ul"):
            self._flush()
            if self.numbers:
                self.numbers.pop()
        elif tag == "pre":
            for line in self.text.split("\n"):
                self._line(line)
            self.text = ""
            self._line("```")
        elif re.fullmatch(r"h[1-6]|p|div|li|section|article|blockquote", tag) and not self.in_table:
            self._flush()

    def _span_down(self) -> None:
        """Fills the places of a row that cells of earlier rows reach down to."""
        row = self.rows[-1][0] if self.rows else []
        while len(row) in self.spans:
            left, cell = self.spans.pop(len(row))
            if left > 1:
                self.spans[len(row)] = (left - 1, cell)
            row.append(cell)

    def handle_data(self, data: str) -> None:
        if not self.silent:
            if not self.text.strip():
                self.start = self.getpos()[0] + len(data) - len(data.lstrip("\n"))
            self.text += data

    def finished(self) -> Lines:
        if self.in_table:
            self.lines += list(_table([row for row in self.rows if row[0]]))
        self._flush()
        yield from self.lines

    def _flush(self, *, keep_lead: bool = False) -> None:
        words = " ".join(self.text.split())
        if words:
            self._line("") if self.lead.startswith("#") or not self.lead else None
            self.lines.append((self.lead + words, f"line {self.start}"))
            self._line("") if self.lead.startswith("#") or not self.lead else None
        if words or not keep_lead:
            self.lead = ""
        self.text = ""

    def _line(self, line: str) -> None:
        self.lines.append((line, self._place()))

    def _place(self) -> str:
        return f"line {self.getpos()[0]}"
