"""The contract, filled in with the decoder of ``cs336_basics``: one function per entry point.

The first twelve have the names and arguments of CS336's assignment 1; an adapters file written for that course works
here unchanged. The next four let the harness check what an assembled model is made of, the last one its cache.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from cs336_basics import accounting, attention, layers, rope
from cs336_basics.cache import KeyValueCache
from cs336_basics.config import TransformerConfig
from cs336_basics.transformer import TransformerBlock, TransformerLM


def call_with(weights: Mapping[str, Tensor], module: nn.Module, *inputs: Tensor) -> Tensor:
    """What ``module`` computes with ``weights`` in place of its own, in their dtype and on their device.

    The module may be on the meta device, where it costs neither memory nor random numbers. The weights are used as they
    are, neither copied nor changed, and gradients flow back to them.
    """
    for name, own in module.named_parameters():
        if name in weights and weights[name].shape != own.shape:
            raise ValueError(f"{name} has the shape {tuple(weights[name].shape)}, these sizes need {tuple(own.shape)}")
    return torch.func.functional_call(module, dict(weights), inputs, strict=True)


def by_name(**matrices: Tensor) -> dict[str, Tensor]:
    """The state dict of a module that holds these linear maps."""
    return {f"{name}.weight": matrix for name, matrix in matrices.items()}


def run_linear(
    d_in: int,
    d_out: int,
    weights: Float[Tensor, " d_out d_in"],
    in_features: Float[Tensor, " ... d_in"],
) -> Float[Tensor, " ... d_out"]:
    """(…, d_in) to (…, d_out)."""
    return call_with({"weight": weights}, layers.Linear(d_in, d_out, device="meta"), in_features)


def run_embedding(
    vocab_size: int,
    d_model: int,
    weights: Float[Tensor, " vocab_size d_model"],
    token_ids: Int[Tensor, " ..."],
) -> Float[Tensor, " ... d_model"]:
    """Token ids (…) to rows (…, d_model)."""
    return call_with({"weight": weights}, layers.Embedding(vocab_size, d_model, device="meta"), token_ids)


def run_swiglu(
    d_model: int,
    d_ff: int,
    w1_weight: Float[Tensor, " d_ff d_model"],
    w2_weight: Float[Tensor, " d_model d_ff"],
    w3_weight: Float[Tensor, " d_ff d_model"],
    in_features: Float[Tensor, " ... d_model"],
) -> Float[Tensor, " ... d_model"]:
    """(…, d_model) to (…, d_model)."""
    weights = by_name(w1=w1_weight, w2=w2_weight, w3=w3_weight)
    return call_with(weights, layers.SwiGLU(d_model, d_ff, device="meta"), in_features)


def run_scaled_dot_product_attention(
    Q: Float[Tensor, " ... queries d_k"],
    K: Float[Tensor, " ... keys d_k"],
    V: Float[Tensor, " ... keys d_v"],
    mask: Bool[Tensor, " ... queries keys"] | None = None,
) -> Float[Tensor, " ... queries d_v"]:
    """(…, queries, d_v); the mask is True where a query attends to a key. Without one, every query attends to all."""
    return attention.scaled_dot_product_attention(Q, K, V, mask)


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Float[Tensor, " d_model d_model"],
    k_proj_weight: Float[Tensor, " d_model d_model"],
    v_proj_weight: Float[Tensor, " d_model d_model"],
    o_proj_weight: Float[Tensor, " d_model d_model"],
    in_features: Float[Tensor, " ... time d_model"],
) -> Float[Tensor, " ... time d_model"]:
    """(…, time, d_model) to (…, time, d_model): causal, without positions."""
    weights = by_name(q_proj=q_proj_weight, k_proj=k_proj_weight, v_proj=v_proj_weight, output_proj=o_proj_weight)
    mha = attention.CausalSelfAttention(d_model, num_heads, num_heads, d_model // num_heads, device="meta")
    return call_with(weights, mha, in_features)


def run_multihead_self_attention_with_rope(
    d_model: int,
    num_heads: int,
    max_seq_len: int,
    theta: float,
    q_proj_weight: Float[Tensor, " d_model d_model"],
    k_proj_weight: Float[Tensor, " d_model d_model"],
    v_proj_weight: Float[Tensor, " d_model d_model"],
    o_proj_weight: Float[Tensor, " d_model d_model"],
    in_features: Float[Tensor, " ... time d_model"],
    token_positions: Int[Tensor, " ... time"] | None = None,
) -> Float[Tensor, " ... time d_model"]:
    """(…, time, d_model) to the same; positions (time,), (1, time) or (batch, time), by default 0, 1, 2, …"""
    weights = by_name(q_proj=q_proj_weight, k_proj=k_proj_weight, v_proj=v_proj_weight, output_proj=o_proj_weight)
    mha = attention.CausalSelfAttention(d_model, num_heads, num_heads, d_model // num_heads, device="meta")
    if token_positions is None:
        token_positions = torch.arange(in_features.shape[-2], device=in_features.device)
    table = rope.rotary_table(token_positions, mha.d_head, theta, in_features.dtype)
    return call_with(weights, mha, in_features, table)


def run_rope(
    d_k: int,
    theta: float,
    max_seq_len: int,
    in_query_or_key: Float[Tensor, " ... time d_k"],
    token_positions: Int[Tensor, " ... time"],
) -> Float[Tensor, " ... time d_k"]:
    """Queries or keys (…, time, d_k), turned; the table is made for the positions given, whatever ``max_seq_len``."""
    while token_positions.ndim < in_query_or_key.ndim - 1:  # the axes that positions lack are heads, before time
        token_positions = token_positions.unsqueeze(-2)
    table = rope.rotary_table(token_positions, d_k, theta, in_query_or_key.dtype)
    return rope.rotate(in_query_or_key, table)


def run_transformer_block(
    d_model: int,
    num_heads: int,
    d_ff: int,
    max_seq_len: int,
    theta: float,
    weights: dict[str, Tensor],
    in_features: Float[Tensor, " batch time d_model"],
) -> Float[Tensor, " batch time d_model"]:
    """(batch, time, d_model) to the same; ``weights`` are one layer's, without the prefix ``layers.{i}.``"""
    config = TransformerConfig(
        vocab_size=1, context_length=max_seq_len, d_model=d_model, num_layers=1, num_heads=num_heads, d_ff=d_ff
    )
    positions = torch.arange(in_features.shape[-2], device=in_features.device)
    table = rope.rotary_table(positions, config.d_head, theta, in_features.dtype)
    return call_with(weights, TransformerBlock(config, device="meta"), in_features, table)


def run_transformer_lm(
    vocab_size: int,
    context_length: int,
    d_model: int,
    num_layers: int,
    num_heads: int,
    d_ff: int,
    rope_theta: float,
    weights: dict[str, Tensor],
    in_indices: Int[Tensor, " batch time"],
    num_kv_heads: int | None = None,
) -> Float[Tensor, " batch time vocab_size"]:
    """Token ids (batch, time) to raw logits (batch, time, vocab_size); ``weights`` by canonical name, untied.

    ``num_kv_heads`` key/value heads, as many as query heads by default. An optional argument: without it in the
    signature, it is not asked for.
    """
    kv_heads = num_heads if num_kv_heads is None else num_kv_heads
    with torch.device("meta"):
        model = get_transformer_lm(
            vocab_size,
            context_length,
            d_model,
            num_layers,
            num_heads,
            kv_heads,
            d_ff,
            rope_theta,
            tie_embeddings=False,
        )
    return call_with(weights, model, in_indices)


def run_rmsnorm(
    d_model: int,
    eps: float,
    weights: Float[Tensor, " d_model"],
    in_features: Float[Tensor, " ... d_model"],
) -> Float[Tensor, " ... d_model"]:
    """(…, d_model) to the same, normed over the last axis."""
    return call_with({"weight": weights}, layers.RMSNorm(d_model, eps, device="meta"), in_features)


def run_silu(in_features: Float[Tensor, " ..."]) -> Float[Tensor, " ..."]:
    """Elementwise, any shape."""
    return layers.silu(in_features)


def run_softmax(in_features: Float[Tensor, " ..."], dim: int) -> Float[Tensor, " ..."]:
    """Any shape, normalised along ``dim``."""
    return layers.softmax(in_features, dim)


def get_transformer_lm(
    vocab_size: int,
    context_length: int,
    d_model: int,
    num_layers: int,
    num_heads: int,
    num_kv_heads: int,
    d_ff: int,
    rope_theta: float,
    tie_embeddings: bool,
) -> nn.Module:
    """A model from token ids (batch, time) to raw logits (batch, time, vocab_size).

    Raises:
        ValueError: the sizes do not fit, before any weight is made; in the forward pass, time > ``context_length``,
            and the message says both numbers.
    """
    return TransformerLM(
        TransformerConfig(
            vocab_size=vocab_size,
            context_length=context_length,
            d_model=d_model,
            num_layers=num_layers,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            d_ff=d_ff,
            rope_theta=rope_theta,
            tie_embeddings=tie_embeddings,
        )
    )


def get_transformer_lm_weights(model: nn.Module) -> dict[str, nn.Parameter]:
    """The model's live Parameters by canonical name; of a tied model, both vocabulary names give the one Parameter."""
    weights = dict(model.named_parameters())
    weights.setdefault("lm_head.weight", weights["token_embeddings.weight"])
    return weights


def run_parameter_count(
    vocab_size: int,
    d_model: int,
    num_layers: int,
    num_heads: int,
    num_kv_heads: int,
    d_ff: int,
    tie_embeddings: bool,
) -> int:
    """Unique trainable parameters of the decoder."""
    return accounting.parameter_count(vocab_size, d_model, num_layers, num_heads, num_kv_heads, d_ff, tie_embeddings)


def run_forward_flops(
    batch_size: int,
    sequence_length: int,
    vocab_size: int,
    d_model: int,
    num_layers: int,
    num_heads: int,
    num_kv_heads: int,
    d_ff: int,
) -> dict[str, int]:
    """FLOPs of the matrix multiplies of one forward pass, two per multiply-add, by kind.

    The keys: ``attention_projections`` (Q, K, V and output), ``attention_scores`` (QKᵀ), ``attention_values`` (the
    weights times V), ``feed_forward`` and ``lm_head``.
    """
    return accounting.forward_flops(
        batch_size, sequence_length, vocab_size, d_model, num_layers, num_heads, num_kv_heads, d_ff
    )


@torch.no_grad()
def run_transformer_lm_in_pieces(
    model: nn.Module, pieces: list[Int[Tensor, "batch piece"]]
) -> list[Float[Tensor, "batch piece vocab_size"]]:
    """Each piece's raw logits, when a model from ``get_transformer_lm`` is fed one text piece by piece.

    It begins with an empty cache and keeps the keys and values of the pieces before. ValueError when there are more
    tokens than ``context_length`` in all.
    """
    assert isinstance(model, TransformerLM)
    weight = model.token_embeddings.weight
    cache = KeyValueCache(model.config, len(pieces[0]), weight.device, weight.dtype)
    return [model(piece, cache=cache) for piece in pieces]
