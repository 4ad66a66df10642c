"""What the numbers of a failure look like: maps, dials and bars, each cell with its text, as plain geometry.

A chart is laid out on a canvas that is :data:`WIDTH` wide, the width of a telephone; templates write it as SVG.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cs336_harness.picture.parts import Judged

WIDTH = 400.0
LEFT = 44.0
"""Room for the labels of rows."""


def _round(shape: Any, *names: str) -> None:
    """A tenth of a pixel is enough, and half as long to write."""
    for name in names:
        object.__setattr__(shape, name, round(getattr(shape, name), 1))


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a chart: where it stands, the class that it is coloured by, and what a reader is told of it."""

    x: float
    y: float
    width: float
    height: float
    look: str
    text: str

    def __post_init__(self) -> None:
        _round(self, "x", "y", "width", "height")


@dataclasses.dataclass(frozen=True, slots=True)
class Label:
    """A word beside the cells."""

    x: float
    y: float
    text: str
    anchor: str = "end"

    def __post_init__(self) -> None:
        _round(self, "x", "y")


@dataclasses.dataclass(frozen=True, slots=True)
class Line:
    """A line: the hand of a dial, or where a bar must end."""

    x1: float
    y1: float
    x2: float
    y2: float
    look: str

    def __post_init__(self) -> None:
        _round(self, "x1", "y1", "x2", "y2")


@dataclasses.dataclass(frozen=True, slots=True)
class Chart:
    """A picture: what it is, what is to be seen in it, and its cells, row by row; ``legend`` is class and word."""

    title: str
    summary: str
    height: float
    cells: tuple[Cell, ...]
    labels: tuple[Label, ...] = ()
    lines: tuple[Line, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()


def charts_of(judged: Judged) -> tuple[Chart, ...]:
    """The pictures of one failure: what the check saw, then what was measured for the diagnosis."""
    figures = dict(judged.get("figures") or {})
    figures |= (judged.get("diagnosis") or {}).get("figures") or {}
    return tuple(draw(figures[kind]) for kind, draw in KINDS.items() if figures.get(kind))


def number(value: float | str) -> str:
    """Four significant digits; a number that is none as its word."""
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)


def size_of(value: float | str) -> float:
    """A number to be drawn; what is not finite is as large as can be."""
    size = float(value)
    return math.inf if math.isnan(size) else size


ERROR_STEPS = ((1.0, "e0"), (10.0, "e1"), (1e3, "e2"), (1e5, "e3"), (math.inf, "e4"))
ERROR_LEGEND = (
    ("e0", "within rounding"),
    ("e1", "to 10 tolerances"),
    ("e2", "to 1,000"),
    ("e3", "to 100,000"),
    ("e4", "more"),
)


def _error_look(tolerances: float | str) -> str:
    size = size_of(tolerances)
    return next(look for most, look in ERROR_STEPS if size <= most)


def _range(start: int, step: int, size: int) -> str:
    last = min(start + step, size) - 1
    return str(start) if last == start else f"{start} to {last}"


def _plural(name: str) -> str:
    return "queries" if name == "query" else f"{name}s"


def errors(figure: Mapping[str, Any]) -> Chart:
    """Error over rows, positions and channels: a panel for each row, positions downwards, channels to the right."""
    (row_name, position_name, channel_name), sizes, steps = figure["axes"], figure["sizes"], figure["steps"]
    rows, positions, channels = (range(0, size, step) for size, step in zip(sizes, steps, strict=True))
    width = (WIDTH - LEFT) / len(channels)
    height = max(4.5, min(14.0, width, 200 / (len(rows) * len(positions))))
    cells: list[Cell] = []
    labels = [Label(LEFT, 10, f"{channel_name} 0", "start"), Label(WIDTH, 10, str(sizes[2] - 1), "end")]
    y, index = 16.0, 0
    for row in rows:
        if len(rows) > 1:
            labels.append(Label(LEFT - 5, y + height - 1.5, f"{row_name} {_range(row, steps[0], sizes[0])}"[:9]))
        for line, position in enumerate(positions):
            if position_name and len(rows) == 1 and (line == 0 or line == len(positions) - 1):
                labels.append(Label(LEFT - 5, y + height - 1.5, str(position)))
            for column, channel in enumerate(channels):
                tolerances, got, must = (figure[key][index] for key in ("tolerances", "got", "must"))
                named = zip(figure["axes"], (row, position, channel), steps, sizes, strict=True)
                where = ", ".join(f"{name} {_range(at, step, size)}" for name, at, step, size in named if name)
                verdict = "right" if size_of(tolerances) <= 1 else f"{number(tolerances)} tolerances off"
                text = f"{where}: got {number(got)}, must be {number(must)}, {verdict}"
                cells.append(Cell(LEFT + column * width, y, width, height, _error_look(tolerances), text))
                index += 1
            y += height
        y += 8
    binned = "; a cell shows the worst of those that share it" if max(steps) > 1 else ""
    summary = f"{figure['pattern'][:1].upper()}{figure['pattern'][1:]}{binned}."
    down = f"{_plural(position_name)} downwards" if position_name else "one line"
    return Chart(
        f"Error, {down}, {_plural(channel_name)} to the right",
        summary,
        y,
        tuple(cells),
        tuple(labels),
        (),
        ERROR_LEGEND,
    )


def influence(figure: Mapping[str, Any]) -> Chart:
    """Which token moves which logits; what must not be, or must be and is not, stands out."""
    positions, tokens, judged = figure["positions"], figure["tokens"], figure["judged"]
    size = min((WIDTH - LEFT) / len(tokens), 24.0)
    cells, wrong = [], []
    for line, position in enumerate(positions):
        for column, token in enumerate(tokens):
            moved = size_of(figure["tolerances"][line][column])
            later, moves = token > position, moved > 1
            if later and moves and "above" in judged:
                look, said = "leak", "moves them, though it comes later: a leak"
                wrong.append((position, token))
            elif not later and not moves and "below" in judged:
                look, said = "missing", "does not move them, though it must"
                wrong.append((position, token))
            elif moves:
                look = f"b{min(4, 1 + int(math.log10(min(moved, 1e9)) / 2))}"
                said = "moves them, as it must" if not later else "moves them"
            else:
                look, said = "still", "does not move them, as it must not" if later else "does not move them"
            text = f"token at position {token}, logits at position {position}: the token {said}"
            cells.append(Cell(LEFT + column * size, 20 + line * size, size, size, look, text))
    labels = [Label(LEFT, 12, "token that is changed →", "start")]
    labels += [
        Label(LEFT - 6, 20 + (line + 0.5) * size + 4, str(position))
        for line, position in enumerate(positions)
        if size > 9 or line % 3 == 0
    ]
    leaks = sum(token > position for position, token in wrong)
    said = [f"{leaks} leaks from a later token to earlier logits"] if leaks else []
    said += [f"{len(wrong) - leaks} places where a token should reach the logits and does not"] * (leaks < len(wrong))
    return Chart(
        "Which token moves which logits",
        " and ".join(said).capitalize() + "." if said else "Every token reaches what it must.",
        20 + len(positions) * size + 6,
        tuple(cells),
        tuple(labels),
        (),
        (("b3", "moves, as it must"), ("still", "does not"), ("leak", "leak"), ("missing", "missing")),
    )


def rotation(figure: Mapping[str, Any]) -> Chart:
    """A dial for each pair and position: the hand that was read, and the thin one where it must be."""
    read, must, positions = figure["read"], figure["must"], figure["positions"]
    relative = figure.get("relative", False)  # absent in a result of an earlier version
    pairs = len(read[0])
    step = (WIDTH - LEFT) / len(positions)
    radius = min(step, 52 if pairs <= 4 else 40) / 2 - 4
    cells, lines, labels, wrong = [], [], [], 0
    for pair in range(pairs):
        y = 22 + pair * (2 * radius + 10) + radius
        labels.append(Label(LEFT - 6, y + 4, f"pair {pair}"))
        for column, position in enumerate(positions):
            x = LEFT + (column + 0.5) * step
            got, right = read[column][pair], must[column][pair]
            off = abs(math.remainder(got - right, 2 * math.pi)) > 6e-3
            wrong += off
            where = f"from position {position - 1} to {position}" if relative else f"position {position}"
            text = f"pair {pair}, {where}: turned by {number(got)} rad, must be {number(right)} rad"
            cells.append(Cell(x - radius, y - radius, 2 * radius, 2 * radius, "dial off" if off else "dial", text))
            for angle, look in ((right, "must"), (got, "got off" if off else "got")):
                lines.append(Line(x, y, x + radius * 0.86 * math.cos(angle), y - radius * 0.86 * math.sin(angle), look))
    for column, position in enumerate(positions):
        name = f"{position - 1} to {position}" if relative else str(position) if column else f"position {position}"
        labels.append(Label(LEFT + (column + 0.5) * step, 12, name, "middle"))
    of = f"{wrong} of {pairs * len(positions)} angles are wrong" if wrong else "every angle is right"
    mixed = "; channels turn together that are no pair, so the hands show the part within each pair alone"
    turns = "How far each pair of channels turns"
    turns += " inside attention, between neighbouring tokens" if relative else ""
    return Chart(
        f"{turns}, theta {number(figure['theta'])}",
        f"{of[0].upper()}{of[1:]}{mixed if figure['mixed'] else ''}.",
        22 + pairs * (2 * radius + 10),
        tuple(cells),
        tuple(labels),
        tuple(lines),
        (("got", "read"), ("got off", "read, and wrong"), ("must", "must be")),
    )


def attention(figure: Mapping[str, Any]) -> Chart:
    """Attention weights, queries downwards and keys to the right: as read, and as they must be."""
    keys = len(figure["read"][0])
    size = min((WIDTH - LEFT - 16) / 2 / keys, 22.0)
    cells, labels = [], []
    for panel, (key, title) in enumerate((("read", "as read"), ("must", "as it must be"))):
        left = LEFT - 14 + panel * (keys * size + 24)
        labels.append(Label(left, 12, title, "start"))
        for query, row in enumerate(figure[key]):
            if panel == 0 and (query % 2 == 0 or size > 14):
                labels.append(Label(left - 5, 18 + (query + 0.5) * size + 4, str(query)))
            for at, weight in enumerate(row):
                off = panel == 0 and abs(weight - figure["must"][query][at]) > 5e-3
                look = f"w{min(4, max(0, math.ceil(4 * weight)))}" if weight > 5e-4 else "w0"
                beside = f", must be {number(figure['must'][query][at])}" if off else ""
                text = f"query {query}, key {at}, {title}: {number(weight)}{beside}"
                cells.append(
                    Cell(left + at * size + 1, 19 + query * size, size - 2, size - 2, look + " off" * off, text)
                )
    wrong = sum(
        abs(got - must) > 5e-3
        for read, right in zip(figure["read"], figure["must"], strict=True)
        for got, must in zip(read, right, strict=True)
    )
    which = f", head {figure['head']} of {figure['heads']}" if figure["heads"] > 1 else ""
    return Chart(
        f"Attention weights read from the outside{which}",
        f"{wrong} of {len(figure['read']) * keys} weights shown are wrong (outlined). Queries run downwards, keys to"
        " the right.",
        18 + len(figure["read"]) * size + 6,
        tuple(cells),
        tuple(labels),
        (),
        (("w0", "0"), ("w1", "to ¼"), ("w2", "to ½"), ("w3", "to ¾"), ("w4", "to 1"), ("w0 off", "wrong")),
    )


BAR, GAP = 9.0, 27.0


def _bars(rows: Sequence[tuple[str, Sequence[tuple[str, float]], float, bool, str]], log: bool) -> Iterator[Any]:
    """Bars of (label, what must be in its parts, what was got, whether it is right, text)."""
    ends = [value for _, parts, got, _, _ in rows for value in (sum(size for _, size in parts), got) if value > 0]
    top, least = max(ends, default=1.0), min(ends, default=1.0) / 10

    def length(value: float) -> float:
        if value <= 0 or top <= 0:
            return 0.0
        share = math.log(value / least) / math.log(top / least) if log and top > least else value / top
        return max(1.5, share * (WIDTH - 12))

    for index, (label, parts, got, right, text) in enumerate(rows):
        y = 4 + index * (GAP + BAR)
        yield Label(4, y + 11, label, "start")
        yield Cell(4, y + 16, max(length(got), 1.5), BAR, "bar" if right else "bar off", text)
        x, whole = 4.0, sum(size for _, size in parts)
        for number_of, (_, size) in enumerate(parts):
            wide = length(whole) * (size / whole if whole else 0)
            under = y + 16 + BAR + 3
            yield Line(x, under, x + wide - (1.5 if number_of < len(parts) - 1 else 0), under, "part")
            x += wide


def _bar_chart(title: str, summary: str, rows: Sequence[Any], *, log: bool = False) -> Chart:
    drawn = list(_bars(rows, log))
    return Chart(
        title,
        summary,
        4 + len(rows) * (GAP + BAR),
        tuple(each for each in drawn if isinstance(each, Cell)),
        tuple(each for each in drawn if isinstance(each, Label)),
        tuple(each for each in drawn if isinstance(each, Line)),
        (("bar", "right"), ("bar off", "wrong"), ("part", "must be")),
    )


MOST_BARS = 24


def gradients(figure: Sequence[Mapping[str, Any]]) -> Chart:
    """The size of each weight's gradient beside the right one: the wrong ones, and right ones while there is room."""
    wrong = [each for each in figure if not each["right"]]
    shown = [each for each in figure if not each["right"] or len(figure) <= MOST_BARS][:MOST_BARS]
    rows = [
        (
            each["name"].removesuffix(".weight"),
            (("", size_of(each["must"])),),
            size_of(each["got"]),
            each["right"],
            f"{each['name']}: gradient of size {number(each['got'])}, must be {number(each['must'])}"
            + ("" if each["right"] else ", wrong"),
        )
        for each in shown
    ]
    more = f" {len(figure) - len(shown)} more are not shown." if len(shown) < len(figure) else ""
    summary = f"{len(wrong)} of {len(figure)} gradients are wrong; root mean square, powers of ten.{more}"
    return _bar_chart("Size of each weight's gradient", summary, rows, log=True)


def tied(figure: Sequence[Mapping[str, Any]]) -> Chart:
    """The gradient that arrives at the shared weight beside the sum of what its two uses send."""
    rows = []
    for each in figure:
        uses = ", ".join(f"{use} {number(size)}" for use, size in each["parts"].items())
        got, must = size_of(each["got"]), size_of(each["must"])
        text = f"{each['name']}: gradient of size {number(got)}, must be {number(must)} (alone: {uses})"
        rows.append((each["name"], (("", must),), got, math.isclose(got, must, rel_tol=2e-3), text))
    rows += [
        (f"{use} alone", (("", size_of(size)),), size_of(size), True, f"{use} alone sends {number(size)}")
        for use, size in (figure[0]["parts"] if figure else {}).items()
    ]
    return _bar_chart(
        "Both uses of the tied weight",
        "What arrives under each name, and what look-up and head each send; root mean square.",
        rows,
    )


def flops(figure: Sequence[Mapping[str, Any]]) -> Chart:
    """FLOPs by term as given, above the multiplies that the term must hold."""
    rows = []
    for each in figure:
        parts = tuple((one["name"], float(one["flops"])) for one in each["multiplies"])
        must = sum(size for _, size in parts)
        held = " + ".join(f"{name} {size:,.0f}" for name, size in parts)
        text = f"{each['term']}: given {each['got']:,}, must be {must:,.0f} ({held})"
        label = f"{each['term'].replace('_', ' ')}: {', '.join(name for name, _ in parts)}"
        rows.append((label, parts, float(each["got"]), each["got"] == must, text))
    wrong = sum(not right for _, _, _, right, _ in rows)
    return _bar_chart(
        "FLOPs by term", f"{wrong} of {len(rows)} terms are wrong; the thin line is cut by multiply.", rows
    )


def parameters(figure: Mapping[str, Any]) -> Chart:
    """The parameters as given, above the weights that the count must hold."""
    parts = tuple((each["name"], float(each["parameters"])) for each in figure["weights"])
    got, must = float(figure["got"]), sum(size for _, size in parts)
    held = ", ".join(f"{name} {size:,.0f}" for name, size in parts)
    rows = [("given", parts, got, got == must, f"given {got:,.0f}, must be {must:,.0f} ({held})")]
    rows += [(name, ((name, size),), size, True, f"{name}: {size:,.0f} parameters") for name, size in parts]
    off = got - must
    much = f"{abs(off):,.0f} too {'many' if off > 0 else 'few'}" if off else "right"
    return _bar_chart(
        "Parameters by part", f"The count that was given is {much}; below it, what each part holds.", rows
    )


KINDS = {
    "influence": influence,
    "rotation": rotation,
    "attention": attention,
    "gradients": gradients,
    "tied": tied,
    "flops": flops,
    "parameters": parameters,
    "errors": errors,
}
"""How each kind of figure is drawn, in the order in which a page shows them."""
