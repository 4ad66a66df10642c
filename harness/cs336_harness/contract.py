"""The contract: the sixteen entry points of an adapters module, with the argument names a subject is called by."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True)
class EntryPoint:
    """One function of ``adapters.py``: its name, its arguments in order, how many of them are passed by position."""

    name: str
    arguments: tuple[str, ...]
    positional: int = 0
    optional: tuple[str, ...] = ()

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

ENTRY_POINTS = {**MODEL_ENTRY_POINTS, **ASSEMBLY_ENTRY_POINTS}

FLOP_TERMS = ("attention_projections", "attention_scores", "attention_values", "feed_forward", "lm_head")
"""The keys of ``run_forward_flops``."""
