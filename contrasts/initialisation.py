"""How wide the residual stream is at each depth, under CS336's initial weights and under nanoGPT's.

CS336 (handout, section 3.3): each matrix by its own sizes, variance 2 / (d_in + d_out); embeddings of standard
deviation 1. nanoGPT (``model.py``, after GPT-2): 0.02 everywhere, and 0.02 / sqrt(2 · num_layers) for the two matrices
of a block that write to the residual stream; the same without that last part stands between the two. Contrast only: the
decoder keeps CS336's.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch

from cs336_basics.config import TransformerConfig
from cs336_basics.transformer import TransformerLM
from cs336_harness.cost.tables import ReportTable

DEPTHS = (2, 6, 12, 24, 48)
PARTS = (0, 0.25, 0.5, 0.75, 1)
CS336, FLAT, NANOGPT = RULES = ("CS336", "0.02 everywhere", "nanoGPT")
STD = 0.02


def model_of(rule: str, num_layers: int, d_model: int = 64, seed: int = 3) -> TransformerLM:
    """A decoder of this depth with the initial weights of a rule."""
    config = TransformerConfig(vocab_size=97, context_length=16, d_model=d_model, num_layers=num_layers, num_heads=4)
    generator = torch.Generator().manual_seed(seed)
    model = TransformerLM(config, generator=generator)
    if rule != CS336:
        draw_as_gpt2(model, generator, scaled_by_depth=rule == NANOGPT)
    return model


@torch.no_grad()
def draw_as_gpt2(model: TransformerLM, generator: torch.Generator, scaled_by_depth: bool) -> None:
    """nanoGPT's rule on this decoder's weights, with its last part or without; gains stay one."""
    into_the_stream = STD / (math.sqrt(2 * model.config.num_layers) if scaled_by_depth else 1)
    for name, weight in model.named_parameters():
        if weight.ndim == 2:
            writes = name.endswith(("output_proj.weight", "w2.weight"))
            weight.normal_(std=into_the_stream if writes else STD, generator=generator)


@torch.no_grad()
def residual_stream_stds(model: TransformerLM, seed: int = 4) -> list[float]:
    """Standard deviation of the residual stream after the embedding and after each block: num_layers + 1 numbers."""
    config = model.config
    generator = torch.Generator().manual_seed(seed)
    token_ids = torch.randint(config.vocab_size, (4, config.context_length), generator=generator)
    found: list[float] = []
    watched = [model.token_embeddings, *model.layers]
    handles = [module.register_forward_hook(lambda _, __, h: found.append(float(h.std()))) for module in watched]
    model(token_ids)
    for handle in handles:
        handle.remove()
    return found


def initialisation_table(depths: tuple[int, ...] = DEPTHS) -> ReportTable:
    """Standard deviation of the residual stream at five depths of decoders of several depths."""
    columns = ("<rule", "layers", "embedding", "1/4", "1/2", "3/4", "end", "end / embedding")
    rows = []
    for rule in RULES:
        for depth in depths:
            stds = residual_stream_stds(model_of(rule, depth))
            at = [stds[round(part * depth)] for part in PARTS]
            rows.append((rule, str(depth), *(f"{std:.3g}" for std in at), f"{at[-1] / at[0]:.2f}"))
    return ReportTable("The residual stream at initialisation", columns, rows, None, "")


def write_plot(path: Path) -> None:
    """Writes the standard deviation by layer, every rule and depth, as a figure.

    Raises:
        ValueError: matplotlib is absent.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("--plot needs matplotlib, which is not installed: uv sync --extra plots") from None
    figure = Figure(figsize=(12, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, rule in zip(figure.subplots(1, len(RULES)), RULES, strict=True):
        for depth in DEPTHS:
            stds = residual_stream_stds(model_of(rule, depth))
            axes.plot([layer / depth for layer in range(depth + 1)], stds, label=f"{depth} layers")
        axes.set(title=rule, xlabel="part of the depth", ylabel="standard deviation")
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=150)
