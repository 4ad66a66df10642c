"""litgpt's GPT behind the contract: ``uv run --group reference cs336 check tests/references/litgpt_gpt.py``.

Its options make it a Llama: RMSNorm, LLaMAMLP, no biases, the whole head rotated, ``rope_interleave`` for the pairs
(2i, 2i + 1). One matrix holds query, key and value projections; :class:`Stacked` keeps them three Parameters.
"""

from __future__ import annotations

from typing import Any

import torch
from litgpt import model as litgpt_model
from litgpt.config import Config
from torch import Tensor, nn

from cs336_harness.glue import (
    Stacked,
    call_with,
    positions_by_row,
    require_sizes_that_fit,
    see_as,
    seen,
    to_interleaved,
)

EPS = 1e-5
IN_A_LAYER = {
    "attn.output_proj.weight": "attn.proj",
    "ln1.weight": "norm_1",
    "ffn.w1.weight": "mlp.fc_1",
    "ffn.w2.weight": "mlp.proj",
    "ffn.w3.weight": "mlp.fc_2",
    "ln2.weight": "norm_2",
}
PROJECTIONS = ("attn.q_proj.weight", "attn.k_proj.weight", "attn.v_proj.weight")


def config_of(
    d_model: int,
    num_heads: int = 1,
    num_kv_heads: int | None = None,
    d_ff: int = 1,
    vocab_size: int = 1,
    context_length: int = 1,
    num_layers: int = 1,
    rope_theta: float = 10000.0,
) -> Config:
    """A configuration of the Llama family."""
    return Config(
        block_size=context_length,
        n_layer=num_layers,
        n_embd=d_model,
        vocab_size=vocab_size,
        padded_vocab_size=vocab_size,
        n_head=num_heads,
        n_query_groups=num_kv_heads or num_heads,
        intermediate_size=d_ff,
        norm_class_name="RMSNorm",
        norm_eps=EPS,
        mlp_class_name="LLaMAMLP",
        rope_base=rope_theta,  # type: ignore[arg-type]
        rotary_percentage=1.0,
        rope_interleave=True,
        parallel_residual=False,
        bias=False,
    )


def table_of(positions: Tensor, d_head: int, theta: float) -> tuple[Tensor, Tensor]:
    """litgpt's cosines and sines at positions (rows, time), each (rows, time, d_head)."""
    length = int(positions.max()) + 1 if positions.numel() else 1
    cos, sin = litgpt_model.build_rope_cache(length, d_head, base=theta)  # type: ignore[arg-type]
    return cos[positions], sin[positions]


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    return call_with({"weight": weights}, nn.Linear(d_in, d_out, bias=False, device="meta"), in_features)


def run_embedding(vocab_size: int, d_model: int, weights: Tensor, token_ids: Tensor) -> Tensor:
    return call_with({"weight": weights}, nn.Embedding(vocab_size, d_model, device="meta"), token_ids)


def run_swiglu(
    d_model: int, d_ff: int, w1_weight: Tensor, w2_weight: Tensor, w3_weight: Tensor, in_features: Tensor
) -> Tensor:
    with torch.device("meta"):
        mlp = litgpt_model.LLaMAMLP(config_of(d_model, d_ff=d_ff))
    return call_with({"fc_1.weight": w1_weight, "proj.weight": w2_weight, "fc_2.weight": w3_weight}, mlp, in_features)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    """litgpt's attention over one head. It is causal when it is given no mask, so no mask is one that hides nothing."""
    layer = litgpt_model.CausalSelfAttention(config_of(Q.shape[-1]), 0)
    if mask is None:
        mask = torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool)
    mask = mask.expand(*Q.shape[:-2], *mask.shape[-2:]).reshape(-1, 1, *mask.shape[-2:])
    heads = layer.scaled_dot_product_attention(*(x.reshape(-1, 1, *x.shape[-2:]) for x in (Q, K, V)), mask)
    return heads.transpose(1, 2).reshape(*Q.shape[:-1], V.shape[-1])


def attend(
    config: Config, q: Tensor, k: Tensor, v: Tensor, o: Tensor, x: Tensor, table: tuple[Tensor, Tensor]
) -> Tensor:
    """litgpt's attention layer."""
    with torch.device("meta"):
        layer = litgpt_model.CausalSelfAttention(config, 0)
    rows = x.reshape(-1, *x.shape[-2:])
    return call_with({"qkv.weight": torch.cat((q, k, v)), "proj.weight": o}, layer, rows, *table).reshape(x.shape)


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    """Without positions: litgpt rotates no channel."""
    config = config_of(d_model, num_heads)
    config.rope_n_elem = 0
    none = torch.zeros(1, in_features.shape[-2], 0)
    return attend(config, q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight, in_features, (none, none))


def run_multihead_self_attention_with_rope(
    d_model: int,
    num_heads: int,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
    token_positions: Tensor | None = None,
) -> Tensor:
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2])
    table = table_of(positions_by_row(token_positions, in_features), d_model // num_heads, theta)
    weights = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return attend(config_of(d_model, num_heads), *weights, in_features, table)


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    """litgpt pairs (2i, 2i + 1) and hands them back as (i, i + d/2), which scores cannot tell; here they go back."""
    cos, sin = table_of(positions_by_row(token_positions, in_query_or_key), d_k, theta)
    rows = in_query_or_key.reshape(-1, 1, *in_query_or_key.shape[-2:])
    return to_interleaved(litgpt_model.apply_rope_interleave(rows, cos, sin)).reshape(in_query_or_key.shape)


def run_transformer_block(
    d_model: int,
    num_heads: int,
    d_ff: int,
    max_seq_len: int,
    theta: float,
    weights: dict[str, Tensor],
    in_features: Tensor,
) -> Tensor:
    with torch.device("meta"):
        block = litgpt_model.Block(config_of(d_model, num_heads, d_ff=d_ff), 0)
    table = table_of(torch.arange(in_features.shape[-2])[None], d_model // num_heads, theta)
    return call_with(in_litgpt_names(weights, ""), block, in_features, *table)


def in_litgpt_names(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """One layer's weights as litgpt stores them."""
    own = {f"{prefix}{theirs}.weight": weights[ours] for ours, theirs in IN_A_LAYER.items()}
    return {**own, f"{prefix}attn.qkv.weight": torch.cat([weights[name] for name in PROJECTIONS])}


def run_transformer_lm(
    vocab_size: int,
    context_length: int,
    d_model: int,
    num_layers: int,
    num_heads: int,
    d_ff: int,
    rope_theta: float,
    weights: dict[str, Tensor],
    in_indices: Tensor,
) -> Tensor:
    model = litgpt_model.GPT(
        config_of(d_model, num_heads, None, d_ff, vocab_size, context_length, num_layers, rope_theta)
    )
    theirs = {
        "transformer.wte.weight": weights["token_embeddings.weight"],
        "transformer.ln_f.weight": weights["ln_final.weight"],
        "lm_head.weight": weights["lm_head.weight"],
    }
    for layer in range(num_layers):
        prefix = f"layers.{layer}."
        own = {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
        theirs |= in_litgpt_names(own, f"transformer.h.{layer}.")
    return call_with(theirs, model, in_indices)


def run_rmsnorm(d_model: int, eps: float, weights: Tensor, in_features: Tensor) -> Tensor:
    return call_with({"weight": weights}, litgpt_model.RMSNorm(d_model, eps=eps), in_features)


def run_silu(in_features: Tensor) -> Tensor:
    """litgpt's feed-forward calls PyTorch's."""
    return nn.functional.silu(in_features)


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    """litgpt's attention calls PyTorch's."""
    return nn.functional.softmax(in_features, dim=dim)


def get_transformer_lm(tie_embeddings: bool, **sizes: Any) -> nn.Module:
    require_sizes_that_fit(**{name: size for name, size in sizes.items() if name != "rope_theta"})
    config = config_of(**sizes)
    model = litgpt_model.GPT(config)
    model.apply(model._init_weights)
    if tie_embeddings:  # as litgpt's own training does
        model.transformer.wte.weight = model.lm_head.weight
    d_kv = config.n_query_groups * config.head_size
    for block in model.transformer.h:
        see_as(block.attn.qkv, Stacked(config.n_embd, d_kv, d_kv))
    return model


def get_transformer_lm_weights(model: Any) -> dict[str, nn.Parameter]:
    weights = {
        "token_embeddings.weight": model.transformer.wte.weight,
        "ln_final.weight": model.transformer.ln_f.weight,
        "lm_head.weight": model.lm_head.weight,
    }
    for layer, block in enumerate(model.transformer.h):
        for ours, theirs in IN_A_LAYER.items():
            weights[f"layers.{layer}.{ours}"] = block.get_submodule(theirs).weight
        for number, name in enumerate(PROJECTIONS):
            weights[f"layers.{layer}.{name}"] = seen(block.attn.qkv, number)
    return weights


@torch.no_grad()
def run_transformer_lm_in_pieces(model: Any, pieces: list[Tensor]) -> list[Tensor]:
    """litgpt keeps the cache in the model, so it is taken out again."""
    ends = torch.tensor([piece.shape[1] for piece in pieces]).cumsum(0).tolist()
    if ends[-1] > model.max_seq_length:
        raise ValueError(f"the input has {ends[-1]} tokens, max_seq_length is {model.max_seq_length}")
    model.set_kv_cache(len(pieces[0]), dtype=model.lm_head.weight.dtype)
    try:
        return [
            model(piece, torch.arange(end - piece.shape[1], end), input_pos_maxp1=end)
            for piece, end in zip(pieces, ends, strict=True)
        ]
    finally:
        model.clear_kv_cache()


def run_parameter_count(tie_embeddings: bool, **sizes: Any) -> int:
    """What a model on the meta device holds."""
    with torch.device("meta"):
        model = get_transformer_lm(tie_embeddings, context_length=1, rope_theta=10000.0, **sizes)
    return sum(parameter.numel() for parameter in model.parameters())
