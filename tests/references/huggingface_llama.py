"""transformers' Llama behind the contract.

    uv run --group reference cs336 check tests/references/huggingface_llama.py

Every entry point runs transformers' own modules. Its rotation pairs (i, i + d/2), so query and key projections are
read through :class:`HalfSplit`; the rotation alone is called in that order and put back. What it computes in float32
whatever the dtype (norms, angles) stays so.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import Cache, DynamicCache, LlamaConfig, LlamaForCausalLM
from transformers.activations import ACT2FN
from transformers.models.llama import modeling_llama

from cs336_harness.glue import (
    HalfSplit,
    call_with,
    llama_layer,
    positions_by_row,
    require_sizes_that_fit,
    see_as,
    seen,
    split_pairs,
    to_half_split,
    to_interleaved,
    to_llama,
)
from cs336_harness.shapes import DecoderShape

from .huggingface import llama_config

EPS = 1e-5


def config_of(**sizes: Any) -> Any:
    """A configuration of which only some sizes matter."""
    return llama_config(
        DecoderShape(**{**dict.fromkeys(UNUSED, 4), "num_kv_heads": sizes.get("num_heads", 4), **sizes})
    )


UNUSED = ("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "d_ff")


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    return call_with({"weight": weights}, nn.Linear(d_in, d_out, bias=False, device="meta"), in_features)


def run_embedding(vocab_size: int, d_model: int, weights: Tensor, token_ids: Tensor) -> Tensor:
    return call_with({"weight": weights}, nn.Embedding(vocab_size, d_model, device="meta"), token_ids)


def run_swiglu(
    d_model: int, d_ff: int, w1_weight: Tensor, w2_weight: Tensor, w3_weight: Tensor, in_features: Tensor
) -> Tensor:
    with torch.device("meta"):
        mlp = modeling_llama.LlamaMLP(config_of(d_model=d_model, d_ff=d_ff))
    weights = {"gate_proj.weight": w1_weight, "down_proj.weight": w2_weight, "up_proj.weight": w3_weight}
    return call_with(weights, mlp, in_features)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    """transformers' eager attention over one head: its mask is added to the scores, and it wants four axes."""
    added = None if mask is None else torch.zeros_like(mask, dtype=Q.dtype).masked_fill(~mask, torch.finfo(Q.dtype).min)
    four = [x.reshape(-1, 1, *x.shape[-2:]) for x in (Q, K, V)]
    if added is not None:
        added = added.expand(*Q.shape[:-2], *added.shape[-2:]).reshape(-1, 1, *added.shape[-2:])
    settings = SimpleNamespace(num_key_value_groups=1, training=False)
    heads, _ = modeling_llama.eager_attention_forward(settings, *four, added, scaling=Q.shape[-1] ** -0.5)  # type: ignore[arg-type]
    return heads.transpose(1, 2).reshape(*Q.shape[:-1], V.shape[-1])


def attend(config: Any, weights: Mapping[str, Tensor], x: Tensor, table: tuple[Tensor, Tensor]) -> Tensor:
    """transformers' attention layer."""
    with torch.device("meta"):
        layer = modeling_llama.LlamaAttention(config, 0)
    rows = x.reshape(-1, *x.shape[-2:])
    return call_with(weights, layer, rows, position_embeddings=table)[0].reshape(x.shape)


def by_name(q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> dict[str, Tensor]:
    return {"q_proj.weight": q, "k_proj.weight": k, "v_proj.weight": v, "o_proj.weight": o}


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    """Without positions: every rotation is by no angle."""
    none = torch.zeros(1, in_features.shape[-2], d_model // num_heads, dtype=in_features.dtype)
    weights = by_name(q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return attend(config_of(d_model=d_model, num_heads=num_heads), weights, in_features, (none.cos(), none.sin()))


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
    config = config_of(d_model=d_model, num_heads=num_heads, context_length=max_seq_len, rope_theta=theta)
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2])
    table = modeling_llama.LlamaRotaryEmbedding(config)(in_features, positions_by_row(token_positions, in_features))
    q, k = (split_pairs(weight, num_heads) for weight in (q_proj_weight, k_proj_weight))
    weights = by_name(q, k, v_proj_weight, o_proj_weight)
    return attend(config, weights, in_features, table)


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    config = config_of(d_model=d_k, num_heads=1, context_length=max_seq_len, rope_theta=theta)
    rows = in_query_or_key.reshape(-1, 1, *in_query_or_key.shape[-2:])
    positions = positions_by_row(token_positions, in_query_or_key)
    cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(rows, positions)
    rotated, _ = modeling_llama.apply_rotary_pos_emb(to_half_split(rows), to_half_split(rows), cos, sin)
    return to_interleaved(rotated).reshape(in_query_or_key.shape)


def run_transformer_block(
    d_model: int,
    num_heads: int,
    d_ff: int,
    max_seq_len: int,
    theta: float,
    weights: dict[str, Tensor],
    in_features: Tensor,
) -> Tensor:
    config = config_of(
        d_model=d_model, num_heads=num_heads, d_ff=d_ff, context_length=max_seq_len, rope_theta=theta, norm_eps=EPS
    )
    theirs = to_llama({f"layers.0.{name}": weight for name, weight in weights.items()}, num_heads, num_heads)
    with torch.device("meta"):
        layer = modeling_llama.LlamaDecoderLayer(config, 0)
    positions = torch.arange(in_features.shape[-2])[None]
    table = modeling_llama.LlamaRotaryEmbedding(config)(in_features, positions)
    own = {name.removeprefix("model.layers.0."): weight for name, weight in theirs.items()}
    return call_with(own, layer, in_features, position_embeddings=table)


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
    shape = DecoderShape(
        vocab_size=vocab_size,
        context_length=context_length,
        d_model=d_model,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        d_ff=d_ff,
        rope_theta=rope_theta,
        norm_eps=EPS,
    )
    refuse_longer(in_indices.shape[-1], context_length)
    model = LlamaForCausalLM(llama_config(shape)).eval()
    return call_with(to_llama(weights, num_heads, num_heads), model, in_indices).logits


def run_rmsnorm(d_model: int, eps: float, weights: Tensor, in_features: Tensor) -> Tensor:
    return call_with({"weight": weights}, modeling_llama.LlamaRMSNorm(d_model, eps), in_features)


def run_silu(in_features: Tensor) -> Tensor:
    return ACT2FN["silu"](in_features)


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    """transformers normalises with PyTorch's."""
    return nn.functional.softmax(in_features, dim=dim)


def refuse_longer(time: int, context_length: int) -> None:
    """transformers computes past max_position_embeddings without a word; the contract asks for a refusal."""
    if time > context_length:
        raise ValueError(f"the input has {time} tokens, max_position_embeddings is {context_length}")


class Llama(nn.Module):
    """``LlamaForCausalLM`` that returns logits alone."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__()
        self.llama = LlamaForCausalLM(llama_config(shape))
        for layer in self.llama.model.layers:
            see_as(layer.self_attn.q_proj, HalfSplit(shape.num_heads))
            see_as(layer.self_attn.k_proj, HalfSplit(shape.num_kv_heads))

    def forward(self, token_ids: Tensor) -> Tensor:
        refuse_longer(token_ids.shape[-1], self.llama.config.max_position_embeddings)
        return self.llama(token_ids).logits


def get_transformer_lm(tie_embeddings: bool, rope_theta: float, **sizes: int) -> nn.Module:
    require_sizes_that_fit(**sizes)
    return Llama(DecoderShape(**sizes, rope_theta=rope_theta, norm_eps=EPS, tie_embeddings=tie_embeddings))


def get_transformer_lm_weights(model: Llama) -> dict[str, nn.Parameter]:
    config = model.llama.config
    shape = DecoderShape(
        vocab_size=config.vocab_size,
        context_length=config.max_position_embeddings,
        d_model=config.hidden_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads,
        d_ff=config.intermediate_size,
    )
    weights = {}
    for name in shape.weight_shapes():
        layer = model.llama.get_submodule(llama_layer(name))
        weights[name] = seen(layer)
    return weights


def new_cache(config: LlamaConfig) -> Cache:
    """The cache that grows; the tests put the one of fixed size in its place."""
    return DynamicCache(config=config)


@torch.no_grad()
def run_transformer_lm_in_pieces(model: Llama, pieces: list[Tensor]) -> list[Tensor]:
    refuse_longer(sum(piece.shape[1] for piece in pieces), model.llama.config.max_position_embeddings)
    cache = new_cache(model.llama.config)
    return [model.llama(piece, past_key_values=cache, use_cache=True).logits for piece in pieces]


def run_parameter_count(tie_embeddings: bool, **sizes: int) -> int:
    """What transformers counts of a model on the meta device."""
    with torch.device("meta"):
        return LlamaForCausalLM(config_of(tie_embeddings=tie_embeddings, **sizes)).num_parameters()


def run_forward_flops(batch_size: int, sequence_length: int, **sizes: int) -> dict[str, int]:
    """What PyTorch counts in a forward pass of transformers, module by module, on tensors that hold no numbers."""
    with FakeTensorMode(), FlopCounterMode(display=False) as counter:
        model = LlamaForCausalLM(config_of(context_length=sequence_length, **sizes))
        model.set_attn_implementation("eager")
        mask = torch.zeros(1, 1, sequence_length, sequence_length)  # given, it is not derived from numbers
        model(torch.zeros(batch_size, sequence_length, dtype=torch.int64), attention_mask=mask)
    return by_term(counter.get_flop_counts())


def by_term(counts: dict[str, dict[Any, int]]) -> dict[str, int]:
    """The counts of a layer's modules and of the head under the contract's names; the attention's halves are equal."""
    terms = dict.fromkeys(
        ("attention_projections", "attention_scores", "attention_values", "feed_forward", "lm_head"), 0
    )
    for module, operations in counts.items():
        name = module.rpartition(".")[2]
        for operation, flops in operations.items():
            if name == "self_attn" and "bmm" in str(operation):
                terms["attention_scores"] += flops // 2
                terms["attention_values"] += flops // 2
            elif name == "self_attn":
                terms["attention_projections"] += flops
            elif name == "mlp":
                terms["feed_forward"] += flops
            elif name == "lm_head":
                terms["lm_head"] += flops
    return terms
