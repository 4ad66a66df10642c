"""The contract: the entry points of an adapters module, with the argument names a subject is called by."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class EntryPoint:
    """One function of ``adapters.py``: its name, its arguments in order, how many of them are passed by position.

    ``optional`` are those that the function may give a default; ``extra`` those that it may take beside them, and is
    asked about only if it names them.
    """

    name: str
    arguments: tuple[str, ...]
    positional: int = 0
    optional: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.arguments)})"


_PROJECTIONS = ("q_proj_weight", "k_proj_weight", "v_proj_weight", "o_proj_weight")

MODEL_ENTRY_POINTS: dict[str, EntryPoint] = {
    point.name: point
    for point in (
        EntryPoint("run_linear", ("d_in", "d_out", "weights", "in_features")),
        EntryPoint("run_embedding", ("vocab_size", "d_model", "weights", "token_ids")),
        EntryPoint("run_swiglu", ("d_model", "d_ff", "w1_weight", "w2_weight", "w3_weight", "in_features")),
        EntryPoint("run_scaled_dot_product_attention", ("Q", "K", "V", "mask"), optional=("mask",)),
        EntryPoint("run_multihead_self_attention", ("d_model", "num_heads", *_PROJECTIONS, "in_features")),
        EntryPoint(
            "run_multihead_self_attention_with_rope",
            ("d_model", "num_heads", "max_seq_len", "theta", *_PROJECTIONS, "in_features", "token_positions"),
            optional=("token_positions",),
        ),
        EntryPoint("run_rope", ("d_k", "theta", "max_seq_len", "in_query_or_key", "token_positions")),
        EntryPoint(
            "run_transformer_block",
            ("d_model", "num_heads", "d_ff", "max_seq_len", "theta", "weights", "in_features"),
        ),
        EntryPoint(
            "run_transformer_lm",
            (
                "vocab_size",
                "context_length",
                "d_model",
                "num_layers",
                "num_heads",
                "d_ff",
                "rope_theta",
                "weights",
                "in_indices",
            ),
            extra=("num_kv_heads",),
        ),
        EntryPoint("run_rmsnorm", ("d_model", "eps", "weights", "in_features")),
        EntryPoint("run_silu", ("in_features",), positional=1),
        EntryPoint("run_softmax", ("in_features", "dim"), positional=1),
    )
}
"""The twelve entry points of CS336 assignment 1, section 3 (2026). The course calls silu and softmax by position."""

_SIZES = ("d_model", "num_layers", "num_heads", "num_kv_heads", "d_ff")

ASSEMBLY_ENTRY_POINTS: dict[str, EntryPoint] = {
    point.name: point
    for point in (
        EntryPoint("get_transformer_lm", ("vocab_size", "context_length", *_SIZES, "rope_theta", "tie_embeddings")),
        EntryPoint("get_transformer_lm_weights", ("model",), positional=1),
        EntryPoint("run_parameter_count", ("vocab_size", *_SIZES, "tie_embeddings")),
        EntryPoint("run_forward_flops", ("batch_size", "sequence_length", "vocab_size", *_SIZES)),
    )
}
"""Four more that make assembly checkable; a file without them still runs, and their checks are skipped."""

INCREMENTAL_ENTRY_POINTS: dict[str, EntryPoint] = {
    point.name: point for point in (EntryPoint("run_transformer_lm_in_pieces", ("model", "pieces"), positional=2),)
}
"""One more, for a model that keeps keys and values: it feeds a text in pieces, from an empty cache. Without it, its
checks are skipped and nothing else changes."""

ENTRY_POINTS = {**MODEL_ENTRY_POINTS, **ASSEMBLY_ENTRY_POINTS, **INCREMENTAL_ENTRY_POINTS}

WHOLE_ENTRY_POINTS = ("run_transformer_lm", "get_transformer_lm", "get_transformer_lm_weights")
"""What a whole decoder is called by: it may have these and no component."""

COMPONENTS = tuple(name for name in MODEL_ENTRY_POINTS if name not in WHOLE_ENTRY_POINTS)
"""The entry points of single components."""

EXTRAS = tuple((point.name, argument) for point in ENTRY_POINTS.values() for argument in point.extra)
"""Each argument that a function may take beside those of the contract."""

COURSE_AXES: dict[str, dict[str, tuple[int, ...]]] = {
    "run_linear": {"weights": (2,), "in_features": (3,)},
    "run_embedding": {"weights": (2,), "token_ids": (2,)},
    "run_swiglu": {"w1_weight": (2,), "w2_weight": (2,), "w3_weight": (2,), "in_features": (3,)},
    "run_scaled_dot_product_attention": {"Q": (3, 4), "K": (3, 4), "V": (3, 4), "mask": (3, 4)},
    "run_multihead_self_attention": {"in_features": (3,)},
    "run_multihead_self_attention_with_rope": {"in_features": (3,), "token_positions": (2,)},
    "run_rope": {"in_query_or_key": (3,), "token_positions": (1,)},
    "run_transformer_block": {"in_features": (3,)},
    "run_transformer_lm": {"in_indices": (2,)},
    "run_rmsnorm": {"weights": (1,), "in_features": (3,)},
    "run_silu": {"in_features": (2, 3)},
    "run_softmax": {"in_features": (2, 3, 4)},
}
"""How many axes each tensor has in CS336's own tests (``tests/test_model.py`` and ``test_nn_utils.py``, 2026). For silu
and softmax, which are tested on two, also what the feed-forward and the attention of the same tests hand them."""


def beyond_the_course(entry_point: str, arguments: Mapping[str, Any]) -> str | None:
    """What is in a call that none of CS336's own tests gives this entry point, in words; None for a call like theirs.

    Kinds of calls are meant, not sizes: the number of axes, the dtype, an argument left out. Of the sizes only d_ff
    counts, which the handout wants to be a multiple of 64.
    """
    axes = COURSE_AXES.get(entry_point)
    if axes is None:
        return None
    for name, value in arguments.items():
        if name in axes and value is None:
            return f"{name} None"
        for tensor in value.values() if isinstance(value, Mapping) else (value,):
            dtype = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
            if dtype.startswith(("float", "bfloat")) and dtype != "float32":
                return f"{dtype} numbers"
            if name in axes and not tensor.is_contiguous():
                return f"{name} as a transposed view"
        if name in axes and value.ndim not in axes[name]:
            return f"{name} of {value.ndim} {'axis' if value.ndim == 1 else 'axes'}"
    if entry_point == "run_multihead_self_attention_with_rope" and arguments["token_positions"].shape[0] > 1:
        return "token_positions with a row for each row of the batch"
    if entry_point == "run_softmax" and arguments["dim"] not in (-1, arguments["in_features"].ndim - 1):
        return f"dim {arguments['dim']}"
    if arguments.get("d_ff", 0) % 64:
        return f"d_ff {arguments['d_ff']}, which is no multiple of 64"
    return None


FLOP_TERMS = ("attention_projections", "attention_scores", "attention_values", "feed_forward", "lm_head")
"""The keys of ``run_forward_flops``."""
