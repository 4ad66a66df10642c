"""The files of a write-up, whatever their format, as lines of Markdown that each know where they stand."""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

_LONGEST_FILE = 1_000_000
_LONGEST_PDF = 20_000_000

STANDARD_INPUT = "-"

Lines = Iterator[tuple[str, str]]
"""Lines of Markdown, each with the place in the file that it came from: "line 12", "cell 3, line 2", "page 2"."""


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A whole write-up as Markdown. ``places[i]`` says where line i + 1 of the text stands in the file it came from."""

    text: str
    places: tuple[str, ...]

    def place(self, line: int) -> str:
        """Where a line of the text stands, for a person."""
        return self.places[line - 1] if 0 < line <= len(self.places) else f"line {line}"

    def number(self, line: int) -> int:
        """Where a line of the text stands, for a program: the line of the file, of the cell or the page."""
        return int(re.findall(r"\d+", f"{line} {self.place(line)}")[-1])


def source_of_text(text: str) -> Source:
    """A text that is Markdown already."""
    return Source(text, tuple(f"line {number}" for number in range(1, text.count("\n") + 2)))


def read_source(paths: Sequence[Path]) -> Source:
    """The text of one or several files; ``-`` is standard input.

    Raises:
        ValueError: a file cannot be read, is empty, or holds no text.
    """
    pieces: list[tuple[str, str]] = []
    for path in paths:
        name = f"{path.name} " if len(paths) > 1 else ""
        pieces += [(line, f"{name}{place}") for line, place in _lines_of(path)]
        pieces.append(("", f"{name}end"))
    return Source("\n".join(line for line, _ in pieces), tuple(place for _, place in pieces))


def _lines_of(path: Path) -> Lines:
    content = _content(path)
    kind = path.suffix.lower()
    if content.startswith(b"%PDF-"):
        return _pdf(path, content)
    text = _decoded(path, content)
    if kind == ".ipynb" or (str(path) == STANDARD_INPUT and _is_notebook(text)):
        return _notebook(path, text)
    opening = text.lstrip()[:200].lower()
    if kind in (".html", ".htm") or opening.startswith(("<!doctype html", "<html")):
        from cs336_harness.writeup.markup import of_html as as_markdown
    elif kind == ".tex" or "\\documentclass" in text or "\\begin{document}" in text:
        from cs336_harness.writeup.markup import of_latex as as_markdown
    elif kind == ".typ":
        from cs336_harness.writeup.markup import of_typst as as_markdown
    else:
        as_markdown = _numbered
    return as_markdown(text)


def _content(path: Path) -> bytes:
    try:
        content = sys.stdin.buffer.read() if str(path) == STANDARD_INPUT else path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from error
    if not content.strip():
        raise ValueError(f"{path} is empty")
    is_pdf = content.startswith(b"%PDF-")
    if len(content) > (_LONGEST_PDF if is_pdf else _LONGEST_FILE) and path.suffix.lower() != ".ipynb":
        raise ValueError(f"{path} is {len(content):,} bytes long; a write-up has a few pages")
    return content


def _decoded(path: Path, content: bytes) -> str:
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return content.decode("utf-16").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is no UTF-8 text (byte {error.start})") from error
    if b"\0" in content:
        raise ValueError(f"{path} is binary; a write-up is text, a notebook, HTML or a PDF")
    for encoding in ("utf-8-sig", "gb18030"):
        try:
            return content.decode(encoding).replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            failed = error
    raise ValueError(f"{path} is no UTF-8 text (byte {failed.start})") from failed


def _numbered(text: str, name: Callable[[int], str] = "line {}".format) -> Lines:
    for number, line in enumerate(text.split("\n"), 1):
        yield line, name(number)


def _is_notebook(text: str) -> bool:
    return text.lstrip().startswith("{") and '"cells"' in text and '"nbformat"' in text


def _notebook(path: Path, text: str) -> Lines:
    try:
        cells = json.loads(text)["cells"]
        yield from _cells(cells)
    except json.JSONDecodeError as error:
        what = f"{error.msg}, line {error.lineno}"
        raise ValueError(f"{path} is no notebook ({what}); save it again from Jupyter") from error
    except (RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no notebook: it has no list of cells; save it again from Jupyter") from error


def _cells(cells: list[dict]) -> Lines:
    for number, cell in enumerate(cells, 1):
        source = _joined(cell.get("source", ""))
        at = f"cell {number}"
        if cell.get("cell_type") == "markdown":
            yield from _numbered(source, (at + ", line {}").format)
        elif source.strip():
            yield from _fenced(source, at + ", line {}")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if html := _joined(data.get("text/html", "")):
                from cs336_harness.writeup.markup import of_html

                yield from ((line, f"{at}, output") for line, _ in of_html(html))
            elif markdown := _joined(data.get("text/markdown", "") or data.get("text/latex", "")):
                yield from ((line, f"{at}, output") for line in markdown.split("\n"))
            elif shown := _joined(data.get("text/plain", "") or output.get("text", "")):
                yield from _fenced(shown[:_LONGEST_FILE], at + ", output line {}")
        yield "", at


def _joined(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)


def _fenced(text: str, name: str) -> Lines:
    yield "", name.format(1)
    yield "```", name.format(1)
    yield from _numbered(text.replace("```", "'''"), name.format)
    yield "```", name.format(1)
    yield "", name.format(1)


def _pdf(path: Path, content: bytes) -> Lines:
    try:
        import pypdf
    except ImportError:
        raise ValueError(
            f"{path} is a PDF, which needs pypdf: run it with `uv run --extra pdf cs336 writeup …` "
            "(or `pip install pypdf`)"
        ) from None
    import io

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it tells of every fault of a file that it can read
    try:
        pages = [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(content)).pages]
    except Exception as error:
        # pypdf raises whatever a broken file makes it raise.
        raise ValueError(f"{path} is no PDF that can be read: {error}") from error
    if not any(page.strip() for page in pages):
        raise ValueError(f"{path} holds no text, only pictures of it; hand in the file that it was made from")
    for number, page in enumerate(pages, 1):
        # A page is running text: an indented line in it is no code.
        yield from ((line.strip(), f"page {number}") for line in page.split("\n"))
        yield "", f"page {number}"
