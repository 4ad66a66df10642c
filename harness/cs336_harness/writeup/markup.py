"""LaTeX, Typst and HTML as Markdown: headings, lists, tables and code keep their meaning, and every line its number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser

Lines = Iterator[tuple[str, str]]
Cells = list[tuple[list[str], str]]
"""The rows of a table, each with its place."""

_TEX_LEVELS = {"part": 1, "chapter": 1, "section": 2, "subsection": 3, "subsubsection": 4, "paragraph": 5}
_TEX_HEADING = re.compile(rf"\s*\\({'|'.join(_TEX_LEVELS)})\*?\s*\{{(.*)\}}\s*(.*)$")
_TEX_LIST = re.compile(r"\\(begin|end)\{(enumerate|itemize|description)\}(.*)")
_TEX_ITEM = re.compile(r"\s*\\item\s*(?:\[([^\]]*)\])?\s*(.*)$")
_TEX_TABLE = re.compile(r"\\(begin|end)\{(?:tabular[xy*]?|longtable|array)\}")
_TEX_COLUMNS = re.compile(r"^\s*(?:\[[^\]]*\])?\s*(?:\{[^{}]*\}\s*){1,2}")
_TEX_RULES = re.compile(
    r"\\(?:hline|toprule|midrule|bottomrule|cline\{[^}]*\}|cmidrule(?:\([^)]*\))?\{[^}]*\}|addlinespace)"
)
_TEX_CODE = re.compile(r"\\(begin|end)\{(?:verbatim|lstlisting|minted|alltt)\}")
_TEX_MATH = re.compile(r"\\(?:begin|end)\{(?:equation|align|gather|multline|displaymath|math|aligned|split)\*?\}")
_TEX_NOISE = re.compile(
    r"\\(?:begin|end)\{[^}]*\}(?:\[[^\]]*\])?|\\(?:label|ref|cite|caption\*?|vspace|hspace|centering|small|noindent"
    r"|newpage|maketitle|footnotesize|includegraphics)(?![A-Za-z])(?:\[[^\]]*\])?(?:\{[^}]*\})?"
)


def of_latex(text: str) -> Lines:
    """LaTeX as Markdown."""
    lines = _placed(text)
    start = next((index + 1 for index, (line, _) in enumerate(lines) if "\\begin{document}" in line), 0)
    lists: list[str | int] = []
    table: list[tuple[str, str]] | None = None
    in_code = False
    for line, place in lines[start:]:
        if match := _TEX_CODE.search(line):
            in_code = match.group(1) == "begin"
            line = "```"
        if in_code or line == "```":
            yield line, place
            continue
        line = re.sub(r"(?<!\\)%.*$", "", line)
        match = _TEX_TABLE.search(line)
        if table is None and match and match.group(1) == "begin":
            table, line = [], _TEX_COLUMNS.sub("", line[match.end() :])
            match = _TEX_TABLE.search(line)
        if table is not None:
            table.append((line[: match.start()] if match else line, place))
            if match is None:
                continue
            yield from _table(_tex_rows(table))
            table, line = None, line[match.end() :]
        if match := _TEX_HEADING.match(line):
            yield from _apart(f"{'#' * _TEX_LEVELS[match.group(1)]} {match.group(2)}", place)
            line = match.group(3)
        if match := _TEX_LIST.search(line):
            if match.group(1) == "begin":  # (a) and its like come from the option label=(\alph*)
                numbered = "a" if "alph" in match.group(3) else 1
                lists.append(numbered if match.group(2) == "enumerate" else "-")
            elif lists:
                lists.pop()
            yield "", place
        elif match := _TEX_ITEM.match(line):
            yield from _tex_item(match.group(1), _TEX_NOISE.sub("", match.group(2)), lists, place)
        else:
            yield _TEX_NOISE.sub("", _TEX_MATH.sub("$$", line)).strip(), place


def _placed(text: str) -> list[tuple[str, str]]:
    return [(line, f"line {number}") for number, line in enumerate(text.split("\n"), 1)]


def _apart(line: str, place: str) -> Lines:
    """A line that stands by itself."""
    yield from (("", place), (line, place), ("", place))


def _tex_item(given: str | None, words: str, lists: list[str | int], place: str) -> Lines:
    kind = lists[-1] if lists else "-"
    if given or (isinstance(kind, str) and kind != "-"):
        yield "", place
    if given:
        yield f"{given} {words}", place
    elif isinstance(kind, int):
        lists[-1] = kind + 1
        yield f"{kind}. {words}", place
    elif kind == "-":
        yield f"- {words}", place
    else:
        lists[-1] = chr(ord(kind) + 1)
        yield f"({kind}) {words}", place


def _tex_rows(lines: list[tuple[str, str]]) -> Cells:
    rows: Cells = []
    pending = ""
    for line, place in [*lines, ("\\\\", lines[-1][1])]:
        *ended, rest = re.split(r"\\\\(?:\[[^\]]*\])?", _TEX_RULES.sub("", line))
        for piece in ended:
            rows.append((re.split(r"(?<!\\)&", pending + piece), place))
            pending = ""
        pending += rest + " "
    return [(cells, place) for cells, place in rows if any(cell.strip() for cell in cells)]


def _table(rows: Cells) -> Lines:
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
    lines = iter(_placed(re.sub(r"\$[^$\n]+\$", _typst_formula, text)))
    for line, place in lines:
        if re.match(r"\s*(?://|#(?:set|show|import|let|include|pagebreak|v|h)\b)", line):
            yield "", place
        elif match := re.search(r"#?table\s*\(", line):
            body, opened = [(line[match.end() :], place)], 1 + _depth(line[match.end() :])
            while opened > 0 and (further := next(lines, None)):
                body.append(further)
                opened += _depth(further[0])
            yield from _typst_table(body)
        elif match := re.match(r"(=+)\s+(.*)", line):
            yield from _apart(f"{'#' * min(6, len(match.group(1)))} {match.group(2)}", place)
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
            widths = [width for width in (match.group(2) or "").split(",") if width.strip()]
            columns = int(match.group(1) or len(widths))
        cells += [(cell, place) for cell in re.findall(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]", line)]
    columns = columns or max((sum(at == place for _, at in cells) for _, place in body), default=1) or 1
    rows = [cells[start : start + columns] for start in range(0, len(cells), columns)]
    yield from _table([([cell for cell, _ in row], row[0][1]) for row in rows])


def of_html(text: str) -> Lines:
    """HTML as Markdown."""
    reader = _HtmlReader()
    reader.feed(text)
    reader.close()
    reader.end_table()
    reader.end_words()
    yield from reader.lines


_SILENT = ("script", "style", "head", "math")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_BLOCKS = ("p", "div", "section", "article", "blockquote")


def _words(text: str) -> str:
    """Collected text in one line; a thin or narrow space in it groups digits and stays."""
    return re.sub(r"[ \t\r\n\f]+", " ", text).strip()


class _HtmlReader(HTMLParser):
    """Collects paragraphs, headings, list items, code and tables."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str]] = []
        self.text = self.lead = ""
        self.start = 1
        self.rows: Cells = []
        self.spans: dict[int, tuple[int, str]] = {}  # column -> rows that a cell still reaches down to, and the cell
        self.rows_spanned = 1
        self.in_table = self.silent = 0
        self.numbers: list[int] = []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        if tag in ("table", "ol", "ul", "li", *_HEADINGS):
            self.end_words()
        if tag in _SILENT:
            self.silent += 1
        elif tag == "table":
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
            self.numbers.append(0 if tag == "ol" else -1)
        elif tag == "li":
            numbered = bool(self.numbers) and self.numbers[-1] >= 0
            if numbered:
                self.numbers[-1] += 1
            self.lead = f"{self.numbers[-1]}. " if numbered else "- "
        elif tag in _HEADINGS:
            self.lead = "#" * int(tag[1]) + " "
        elif tag in ("pre", "br", *_BLOCKS) and not self.in_table:
            self.end_words(keep_lead=True)
            self.lines += [("```", self._place())] if tag == "pre" else []
        elif tag in ("br", "sup"):
            self.text += "^" if tag == "sup" else " "

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT:
            self.silent = max(0, self.silent - 1)
        elif tag in ("td", "th") and self.in_table and self.rows:
            cell = _words(self.text)
            if self.rows_spanned > 1:
                self.spans[len(self.rows[-1][0])] = (self.rows_spanned - 1, cell)
            self.rows[-1][0].append(cell)
            self.text = ""
        elif tag == "table":
            self.end_table()
        elif tag == "pre":
            self.lines += [(line, self._place()) for line in (*self.text.split("\n"), "```")]
            self.text = ""
        elif tag in ("ol", "ul") or (tag in ("li", *_BLOCKS, *_HEADINGS) and not self.in_table):
            self.end_words()
            if tag in ("ol", "ul") and self.numbers:
                self.numbers.pop()

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

    def end_table(self) -> None:
        """Writes down the table that is open, if one is."""
        if self.in_table:
            self.in_table -= 1
            self.lines += _table([row for row in self.rows if row[0]])

    def end_words(self, *, keep_lead: bool = False) -> None:
        """Writes down the words that were collected."""
        words = _words(self.text)
        line = (self.lead + words, f"line {self.start}")
        if words and self.lead and not self.lead.startswith("#"):
            self.lines.append(line)
        elif words:
            self.lines += [("", self._place()), line, ("", self._place())]
        if words or not keep_lead:
            self.lead = ""
        self.text = ""

    def _place(self) -> str:
        return f"line {self.getpos()[0]}"
