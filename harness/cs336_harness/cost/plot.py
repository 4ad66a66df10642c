"""Shares of the FLOPs drawn against sequence length and against model size. Needs the optional matplotlib."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from cs336_harness.contract import FLOP_TERMS
from cs336_harness.cost.account import TERM_NAMES
from cs336_harness.cost.cache import POSITION_TERMS
from cs336_harness.cost.matmuls import flops_by_term, list_matmuls
from cs336_harness.cost.presets import PRESET_NAMES, preset
from cs336_harness.cost.tally import Tally
from cs336_harness.shapes import DecoderShape

if TYPE_CHECKING:  # drawing is an extra
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
COLOURS = ("#7ba3cc", "#c6dbef", "#72b7b2", "#f2cf5b", "#e9967a")
CURVE_POINTS = 240
SMALLEST_WRITTEN = 2.5
"""The smallest share, in percent, whose value fits into its part of a bar."""
MOST_OF_A_NAME = 50


def plot_shares(account: Tally, name: str, handout: int, path: Path) -> None:
    """Write a figure with two panels; the file's ending chooses the format.

    Raises:
        ValueError: matplotlib is absent, the ending is no format it can write, or the file cannot be written.
    """
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path} has no ending that a figure can be written to; use one of {' '.join(FORMATS)}")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ValueError("--plot needs matplotlib, which is not installed: uv sync --extra plots") from error
    figure = Figure(figsize=(12, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    by_length, by_size = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
    _draw_lengths(by_length, account, name)
    _draw_sizes(by_size, account, handout)
    by_length.set_ylabel(f"share of forward FLOPs, % (written from {SMALLEST_WRITTEN:g} on)")
    figure.legend(*by_length.get_legend_handles_labels(), loc="outside lower center", ncols=len(FLOP_TERMS))
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or error}") from error


def _draw_lengths(axes: Axes, account: Tally, name: str) -> None:
    """Shares stacked over sequence lengths, with the account's own length marked and its shares written beside it."""
    own = account.sequence_length
    longest = max(2**17, 4 * own)
    steps = [128 * (longest / 128) ** (step / CURVE_POINTS) for step in range(CURVE_POINTS + 1)]
    shares = [_shares(account.shape, length) for length in steps]
    axes.stackplot(steps, *zip(*shares, strict=True), labels=list(TERM_NAMES.values()), colors=COLOURS)
    axes.set_xscale("log", base=2)
    first, last = 7, int(math.log2(longest))
    axes.set_xticks([2**power for power in range(first, last + 1, 2)])
    axes.xaxis.set_major_formatter(lambda length, _: f"{int(length):,}")
    axes.axvline(own, color="black", linewidth=1.2, linestyle=":")
    middle = 0.0
    for share in _shares(account.shape, own):
        if share >= SMALLEST_WRITTEN:
            axes.annotate(
                f"{share:.1f}", (own, middle + share / 2), (5, 0), textcoords="offset points", va="center", fontsize=8
            )
        middle += share
    axes.set(xlabel=f"sequence length (dotted: {own:,})", title=_title(name, account.shape), ylim=(0, 100))
    axes.margins(x=0)


def _draw_sizes(axes: Axes, account: Tally, handout: int) -> None:
    """Shares of GPT-2's sizes as bars, each part with its value."""
    sizes = [size.removeprefix("gpt2-") for size in PRESET_NAMES]
    shares = [_shares(preset(size, handout), account.sequence_length) for size in PRESET_NAMES]
    bottoms = [0.0] * len(sizes)
    for heights, colour in zip(zip(*shares, strict=True), COLOURS, strict=True):
        bars = axes.bar(sizes, heights, bottom=bottoms, color=colour, width=0.75)
        written = [f"{height:.1f}" if height >= SMALLEST_WRITTEN else "" for height in heights]
        axes.bar_label(bars, written, label_type="center", fontsize=8)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    axes.set(title=f"GPT-2's sizes ({handout} handout) at {account.sequence_length:,} positions")


def _title(name: str, shape: DecoderShape) -> str:
    """The model and its d_ff; a long name, such as a path, by its end."""
    short = name.partition(" (")[0]
    short = short if len(short) <= MOST_OF_A_NAME else f"…{short[-MOST_OF_A_NAME:]}"
    return f"{short}, d_ff {shape.d_ff:,}"


def _shares(shape: DecoderShape, length: float) -> list[float]:
    """Percent of the forward FLOPs by term; a length between whole numbers makes a curve smooth."""
    once = flops_by_term(list_matmuls(shape, 1, 1))
    terms = {term: once[term] * (length if term in POSITION_TERMS else 1) for term in FLOP_TERMS}
    total = sum(terms.values())
    return [100 * terms[term] / total for term in FLOP_TERMS]
