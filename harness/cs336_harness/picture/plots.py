"""Influence maps as PNG, for ``cs336 check --plots FOLDER``. Needs matplotlib, the extra ``plots``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from cs336_harness.reference.influence import InfluenceMap
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.verdict.suite import Result


def write_plots(results: Sequence[Result], folder: Path) -> list[Path]:
    """Writes the influence map of every failure that has one as a PNG; gives the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for result in results:
        if result.failure is not None and result.failure.evidence.influence is not None:
            path = folder / f"{result.check.id.replace('[', '-').rstrip(']')}.png"
            write_influence_plot(result.failure.evidence.influence, path)
            written.append(path)
    return written


def write_influence_plot(influence: InfluenceMap, path: Path | str) -> None:
    """Writes the map as a PNG: blue for how strongly each token moves each position's logits, red where that is wrong.

    Needs matplotlib, the optional extra ``plots``; :class:`CannotJudgeError` with one line when it is absent.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise CannotJudgeError("plots need matplotlib, which is not installed: uv sync --extra plots") from None
    strength = (influence.moved / influence.tolerance).clamp(min=1e-3).log10()
    wrong = torch.zeros_like(strength, dtype=torch.bool)
    for position, token in influence.wrong():
        wrong[position, influence.tokens.index(token)] = True
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(
        strength.masked_fill(wrong, torch.nan).numpy(), cmap="Blues", aspect="auto", vmin=-3, interpolation="nearest"
    )
    errors = torch.where(wrong, 0.7, torch.nan).numpy()
    axes.imshow(errors, cmap="Reds", aspect="auto", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks(range(len(influence.tokens)), [str(token) for token in influence.tokens], fontsize=7)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("position of the token that is changed")
    axes.set_ylabel("position of the logits")
    axes.set_title("Which token moves which logits (red: not in a correct decoder)")
    figure.colorbar(image, label="movement over tolerance, powers of ten")
    FigureCanvasAgg(figure).print_png(str(path))
