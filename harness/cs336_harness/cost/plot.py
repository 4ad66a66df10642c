"""Shares of the FLOPs drawn against sequence length and against model size. Needs the optional matplotlib."""

from __future__ import annotations

from pathlib import Path

from cs336_harness.contract import FLOP_TERMS
from cs336_harness.cost.account import TERM_NAMES
from cs336_harness.cost.matmuls import flops_by_term, list_matmuls
from cs336_harness.cost.presets import PRESET_NAMES, preset
from cs336_harness.cost.tally import Tally
from cs336_harness.shapes import DecoderShape

FORMATS = (".png", ".svg", ".pdf")


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
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    by_length, by_size = figure.subplots(1, 2, sharey=True)

    lengths = [2**exponent for exponent in range(7, 18)]
    shares = [_shares(account.shape, length) for length in lengths]
    by_length.stackplot(lengths, *zip(*shares, strict=True), labels=list(TERM_NAMES.values()), alpha=0.85)
    by_length.axvline(account.shape.context_length, color="black", linewidth=1, linestyle=":")
    by_length.set_xscale("log", base=2)
    by_length.set(xlabel="sequence length", ylabel="share of forward FLOPs, %", title=name, ylim=(0, 100))
    by_length.margins(x=0)

    bottoms = [0.0] * len(PRESET_NAMES)
    shares = [_shares(preset(size, handout), account.sequence_length) for size in PRESET_NAMES]
    for term, heights in zip(FLOP_TERMS, zip(*shares, strict=True), strict=True):
        by_size.bar(PRESET_NAMES, heights, bottom=bottoms, label=TERM_NAMES[term], alpha=0.85)
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights, strict=True)]
    by_size.set(title=f"GPT-2's sizes, {handout} handout, {account.sequence_length} positions")
    by_size.legend(loc="lower right", fontsize="small")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or error}") from error


def _shares(shape: DecoderShape, length: int) -> list[float]:
    terms = flops_by_term(list_matmuls(shape, 1, length))
    total = sum(terms.values())
    return [100 * terms[term] / total for term in FLOP_TERMS]
