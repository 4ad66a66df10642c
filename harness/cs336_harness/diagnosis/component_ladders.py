"""Experiments on the entry points of single components, from plain inputs to the ones that faults hide from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cs336_harness.defects import Place
from cs336_harness.diagnosis import facts, small_calls
from cs336_harness.diagnosis.observing import Program
from cs336_harness.diagnosis.rungs import Rung, ladder, repeating_ladder
from cs336_harness.diagnosis.small_calls import SMALL


def _linear(*leading: int) -> dict[str, Any]:
    return {
        "d_in": 10,
        "d_out": 6,
        "weights": small_calls.features(6, 10),
        "in_features": small_calls.features(*leading, 10, scale=0.5),
    }


def _embedding() -> dict[str, Any]:
    ids = small_calls.token_ids(SMALL, 2, 5)
    return {
        "vocab_size": 29,
        "d_model": 24,
        "weights": small_calls.weights_of(SMALL)["token_embeddings.weight"],
        "token_ids": ids,
    }


def _norm(*leading: int, eps: float = 1e-5, scale: float = 0.01) -> dict[str, Any]:
    gain = small_calls.weights_of(SMALL)["ln_final.weight"]
    return {"d_model": 24, "eps": eps, "weights": gain, "in_features": small_calls.features(*leading, 24, scale=scale)}


def _swiglu(*leading: int, d_ff: int = 64) -> dict[str, Any]:
    sizes = {"w1_weight": (d_ff, 24), "w2_weight": (24, d_ff), "w3_weight": (d_ff, 24)}
    weights = {name: small_calls.normal(*size, seed=index, std=0.2) for index, (name, size) in enumerate(sizes.items())}
    return {"d_model": 24, "d_ff": d_ff, **weights, "in_features": small_calls.features(*leading, 24)}


def _softmax(dim: int, scale: float = 2.0) -> dict[str, Any]:
    return {"in_features": small_calls.features(2, 3, 4, scale=scale), "dim": dim}


def _far_apart() -> dict[str, Any]:
    x = small_calls.features(2, 3, 4)
    x[0] -= 10000
    return {"in_features": x, "dim": -1}


def _positions(*rows: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor(rows if len(rows) > 1 else rows[0])


def _norm_ladder() -> Program:
    return ladder(
        "run_rmsnorm",
        Rung("large input", "on an input of order one", Place.NORM, lambda: _norm(2, 3, scale=1.0)),
        Rung("small input", "on a small input, where eps counts", Place.NORM, lambda: _norm(2, 3)),
        Rung("large eps", "with eps = 0.1", Place.NORM, lambda: _norm(2, 3, eps=0.1)),
        Rung("tiny input", "on an input of 1e-4", Place.NORM, lambda: _norm(2, 3, scale=1e-4)),
        Rung("two axes", "on an input (time, channel)", Place.NORM, lambda: _norm(3)),
        Rung("four axes", "on an input of four axes", Place.NORM, lambda: _norm(2, 3, 4)),
        Rung("one row", "with a single row", Place.POST_PROCESSING, lambda: _norm(1, 3)),
    )


def _rope_ladder() -> Program:
    here = Place.POSITIONS
    return ladder(
        "run_rope",
        Rung("position 0", "at position 0, where nothing turns", here, lambda: rope(2, time=1)),
        Rung("plain positions", "at the positions 1, 2, …", here, lambda: rope(2)),
        Rung("other theta", "with theta = 10000", here, lambda: rope(2, theta=10000.0)),
        Rung(
            "jumping positions", "at positions that jump", here, lambda: rope(2, positions=_positions((0, 3, 4, 9, 11)))
        ),
        Rung(
            "late start", "at positions that start late", here, lambda: rope(2, positions=_positions((5, 6, 7, 8, 9)))
        ),
        Rung(
            "positions by row",
            "at positions that differ by row",
            here,
            lambda: rope(2, positions=_positions((0, 1, 2, 3, 4), (7, 8, 9, 10, 11))),
        ),
        Rung(
            "far positions",
            "at positions past 256",
            here,
            lambda: rope(2, positions=_positions((255, 256, 257, 259, 301)), reach=400),
        ),
        Rung(
            "slow pairs",
            "with theta = 500000, where the last pairs turn slowly",
            here,
            lambda: rope(2, theta=500000.0, positions=_positions((0, 255, 411, 598, 599)), reach=600),
        ),
        Rung("last position", "at the last position, max_seq_len - 1", here, lambda: rope(2, time=5, reach=5)),
        Rung("batch and heads", "on (batch, heads, time, channel)", Place.HEADS, lambda: rope(2, 3)),
        Rung("one row", "with a single row", Place.POST_PROCESSING, lambda: rope(1)),
    )


def rope(*leading: int, **options: Any) -> dict[str, Any]:
    """Short for the arguments of ``run_rope``."""
    return small_calls.rope_call(*leading, **options)


def _product_ladder() -> Program:
    return repeating_ladder(
        "run_scaled_dot_product_attention",
        lambda: small_calls.product_call(2),
        Rung(
            "open mask", "when every key is visible", Place.ATTENTION, lambda: small_calls.product_call(2, mask="open")
        ),
        Rung("one key", "when one key is visible", Place.MASK, lambda: small_calls.product_call(2, mask="one")),
        Rung("mask", "under a mask", Place.MASK, lambda: small_calls.product_call(2)),
        Rung("heads", "with two leading axes", Place.ATTENTION, lambda: small_calls.product_call(2, 3)),
        Rung(
            "wide values",
            "when values are wider than keys",
            Place.ATTENTION,
            lambda: small_calls.product_call(2, width=12),
        ),
        Rung("no mask", "without a mask", Place.ATTENTION, lambda: small_calls.product_call(2, mask="none")),
        Rung("one row", "with a single row", Place.POST_PROCESSING, lambda: small_calls.product_call(1)),
    )


COMPONENT_LADDERS: dict[str, Callable[[], Program]] = {
    "run_linear": lambda: ladder(
        "run_linear",
        Rung("three axes", "on a (rows, time, channel) input", Place.LINEAR, lambda: _linear(2, 3)),
        Rung("one row", "with a single row", Place.POST_PROCESSING, lambda: _linear(1, 3)),
    ),
    "run_embedding": lambda: ladder("run_embedding", Rung("tokens", "on ten tokens", Place.EMBEDDING, _embedding)),
    "run_silu": lambda: ladder(
        "run_silu",
        Rung(
            "values",
            "between -6 and 6",
            Place.FEED_FORWARD,
            lambda: {"in_features": torch.linspace(-6, 6, 24).view(2, 3, 4)},
        ),
        Rung(
            "one row",
            "with a single row",
            Place.POST_PROCESSING,
            lambda: {"in_features": torch.linspace(-6, 6, 24).view(1, 6, 4)},
        ),
    ),
    "run_softmax": lambda: (
        *ladder(
            "run_softmax",
            Rung("last axis", "along the last axis", Place.ATTENTION, lambda: _softmax(-1)),
            Rung("first axis", "along the first axis", Place.ATTENTION, lambda: _softmax(0)),
            Rung("middle axis", "along the middle axis", Place.ATTENTION, lambda: _softmax(1)),
            Rung("huge values", "on values of ten thousand", Place.ATTENTION, lambda: _softmax(-1, 10000.0)),
            Rung("slices far apart", "on rows of very different size", Place.ATTENTION, _far_apart),
        ),
        facts.SOFTMAX_SIDE_EFFECTS,
    ),
    "run_rmsnorm": _norm_ladder,
    "run_swiglu": lambda: ladder(
        "run_swiglu",
        Rung("three axes", "on a (rows, time, channel) input", Place.FEED_FORWARD, lambda: _swiglu(2, 3)),
        Rung("odd width", "with a d_ff of 40", Place.FEED_FORWARD, lambda: _swiglu(2, 3, d_ff=40)),
        Rung("one row", "with a single row", Place.POST_PROCESSING, lambda: _swiglu(1, 3)),
    ),
    "run_rope": _rope_ladder,
    "run_scaled_dot_product_attention": _product_ladder,
}
"""By entry point."""
