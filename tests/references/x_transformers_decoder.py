"""x-transformers' Decoder behind the contract.

    uv run --group reference cs336 check tests/references/x_transformers_decoder.py

Its options make it a Llama: rotary positions in pairs (2i, 2i + 1) as here, RMSNorm, gated SiLU, grouped heads. The
suite found where it differs all the same, and this file bridges it:

- its RMSNorm takes no eps: PyTorch's own stands in for it;
- its gate has a bias: it is taken off. Gate and value are one matrix there, and two Parameters here;
- query head h reads key/value head h mod num_kv_heads: query heads are put in another order (:class:`TiledHeads`);
- one head as wide as the model gets no output projection: it is given one;
- its own tying divides the logits by sqrt(d_model), and a deep copy's head still reads the original's embedding: the
  head is tied by assignment instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from x_transformers import Decoder, TransformerWrapper
from x_transformers.attend import Attend
from x_transformers.x_transformers import Attention, FeedForward, RotaryEmbedding, apply_rotary_pos_emb

from cs336_harness.glue import Stacked, call_with, positions_by_row, require_sizes_that_fit, see_as, seen

EPS = 1e-5
ATTENTION = {"q_proj": "to_q", "k_proj": "to_k", "v_proj": "to_v", "output_proj": "to_out"}


def table_of(positions: Tensor, d_head: int, theta: float) -> tuple[Tensor, float]:
    """x-transformers' angles at positions (rows, time), and the scale that it turns by beside them: 1."""
    return RotaryEmbedding(d_head, base=theta)(positions)  # type: ignore[arg-type]


class TiledHeads(nn.Module):
    """A matrix whose Parameter has neighbouring query heads share a key/value head, along axis 0 or 1."""

    def __init__(self, num_heads: int, num_kv_heads: int, axis: int) -> None:
        super().__init__()
        self.groups, self.axis = (num_kv_heads, num_heads // num_kv_heads), axis

    def forward(self, weight: Tensor) -> Tensor:
        return self._exchange(weight, *self.groups)

    def right_inverse(self, weight: Tensor) -> Tensor:
        return self._exchange(weight, *reversed(self.groups))

    def _exchange(self, weight: Tensor, outer: int, inner: int) -> Tensor:
        axis = self.axis
        return weight.unflatten(axis, (outer, inner, -1)).transpose(axis, axis + 1).flatten(axis, axis + 2)


def attention_layer(d_model: int, num_heads: int) -> Attention:
    with torch.device("meta"):
        layer = Attention(d_model, dim_head=d_model // num_heads, heads=num_heads, causal=True)
        return with_output_projection(layer, d_model)


def with_output_projection(layer: Attention, d_model: int) -> Attention:
    if not isinstance(layer.to_out, nn.Linear):
        layer.to_out = nn.Linear(d_model, d_model, bias=False)
    return layer


def feed_forward(d_model: int, d_ff: int) -> FeedForward:
    """The factor of the width is cut to an integer there, hence the half."""
    layer = FeedForward(d_model, mult=(d_ff + 0.5) / d_model, glu=True, swish=True, no_bias=True)  # type: ignore[arg-type]
    layer.ff[0].proj.bias = None
    return layer


def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
    return call_with({"weight": weights}, nn.Linear(d_in, d_out, bias=False, device="meta"), in_features)


def run_embedding(vocab_size: int, d_model: int, weights: Tensor, token_ids: Tensor) -> Tensor:
    return call_with({"weight": weights}, nn.Embedding(vocab_size, d_model, device="meta"), token_ids)


def run_swiglu(
    d_model: int, d_ff: int, w1_weight: Tensor, w2_weight: Tensor, w3_weight: Tensor, in_features: Tensor
) -> Tensor:
    with torch.device("meta"):
        layer = feed_forward(d_model, d_ff)
    weights = {"ff.0.proj.weight": torch.cat((w3_weight, w1_weight)), "ff.2.weight": w2_weight}
    return call_with(weights, layer, in_features)


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    """x-transformers' attention over one head."""
    if mask is not None:
        mask = mask.expand(*Q.shape[:-2], *mask.shape[-2:]).reshape(-1, 1, *mask.shape[-2:])
    heads, _ = Attend(causal=False)(*(x.reshape(-1, 1, *x.shape[-2:]) for x in (Q, K, V)), mask=mask)
    return heads.reshape(*Q.shape[:-1], V.shape[-1])


def attend(layer: Attention, weights: tuple[Tensor, ...], x: Tensor, table: tuple[Tensor, float] | None) -> Tensor:
    """x-transformers' attention layer over queries, keys, values and output projections in this order."""
    own = {f"{name}.weight": weight for name, weight in zip(ATTENTION.values(), weights, strict=True)}
    return call_with(own, layer, x.reshape(-1, *x.shape[-2:]), rotary_pos_emb=table).reshape(x.shape)


def run_multihead_self_attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
    in_features: Tensor,
) -> Tensor:
    weights = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
    return attend(attention_layer(d_model, num_heads), weights, in_features, None)


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
    return attend(attention_layer(d_model, num_heads), weights, in_features, table)


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    angles, scale = table_of(positions_by_row(token_positions, in_query_or_key), d_k, theta)
    rows = in_query_or_key.reshape(-1, 1, *in_query_or_key.shape[-2:])
    return apply_rotary_pos_emb(rows, angles, scale).reshape(in_query_or_key.shape)


def decoder(d_model: int, num_layers: int, num_heads: int, num_kv_heads: int, d_ff: int, rope_theta: float) -> Decoder:
    """The blocks and the final norm."""
    d_head = d_model // num_heads
    layers = Decoder(
        dim=d_model,
        depth=num_layers,
        heads=num_heads,
        attn_dim_head=d_head,
        attn_kv_heads=num_kv_heads,
        rotary_pos_emb=True,
        rotary_emb_dim=d_head,
        ff_mult=1,
        verbose=False,
    )
    layers.rotary_pos_emb = RotaryEmbedding(d_head, base=rope_theta)  # type: ignore[arg-type]
    layers.final_norm = nn.RMSNorm(d_model, eps=EPS)
    for number, (norms, _, _) in enumerate(layers.layers):
        norms[0] = nn.RMSNorm(d_model, eps=EPS)
        if number % 2:
            layers.layers[number][1] = feed_forward(d_model, d_ff)
        else:
            with_output_projection(layers.layers[number][1], d_model)
    return layers


def block_in_x_transformers_names(weights: dict[str, Tensor], number: int) -> dict[str, Tensor]:
    """One layer's weights as x-transformers stores them: attention and feed-forward are layers of their own."""
    attention, feed = f"layers.{2 * number}", f"layers.{2 * number + 1}"
    gate_and_value = torch.cat((weights["ffn.w3.weight"], weights["ffn.w1.weight"]))
    return {
        f"{attention}.0.0.weight": weights["ln1.weight"],
        **{f"{attention}.1.{theirs}.weight": weights[f"attn.{ours}.weight"] for ours, theirs in ATTENTION.items()},
        f"{feed}.0.0.weight": weights["ln2.weight"],
        f"{feed}.1.ff.0.proj.weight": gate_and_value,
        f"{feed}.1.ff.2.weight": weights["ffn.w2.weight"],
    }


def run_transformer_block(
    d_model: int,
    num_heads: int,
    d_ff: int,
    max_seq_len: int,
    theta: float,
    weights: dict[str, Tensor],
    in_features: Tensor,
) -> Tensor:
    layers = decoder(d_model, 1, num_heads, num_heads, d_ff, theta)
    layers.final_norm = nn.Identity()
    return call_with(block_in_x_transformers_names(weights, 0), layers, in_features)


def language_model(vocab_size: int, context_length: int, tie_embeddings: bool, **sizes: Any) -> TransformerWrapper:
    """The model, with random weights."""
    model = TransformerWrapper(
        num_tokens=vocab_size,
        max_seq_len=context_length,
        use_abs_pos_emb=False,
        attn_layers=decoder(**sizes),
    )
    if tie_embeddings:
        model.to_logits.weight = model.token_emb.emb.weight
    return model.eval()


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
    model = language_model(
        vocab_size,
        context_length,
        False,
        d_model=d_model,
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        d_ff=d_ff,
        rope_theta=rope_theta,
    )
    refuse_longer(in_indices.shape[-1], context_length)
    theirs = {
        "token_emb.emb.weight": weights["token_embeddings.weight"],
        "attn_layers.final_norm.weight": weights["ln_final.weight"],
        "to_logits.weight": weights["lm_head.weight"],
    }
    for layer in range(num_layers):
        prefix = f"layers.{layer}."
        own = {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)}
        named = block_in_x_transformers_names(own, layer)
        theirs |= {f"attn_layers.{name}": weight for name, weight in named.items()}
    return call_with(theirs, model, in_indices)


def run_rmsnorm(d_model: int, eps: float, weights: Tensor, in_features: Tensor) -> Tensor:
    """PyTorch's."""
    return call_with({"weight": weights}, nn.RMSNorm(d_model, eps=eps, device="meta"), in_features)


def run_silu(in_features: Tensor) -> Tensor:
    """x-transformers' gate is PyTorch's."""
    return nn.SiLU()(in_features)


def run_softmax(in_features: Tensor, dim: int) -> Tensor:
    """x-transformers normalises with PyTorch's."""
    return nn.functional.softmax(in_features, dim=dim)


def refuse_longer(time: int, context_length: int) -> None:
    """x-transformers computes past max_seq_len without a word; the contract asks for a refusal."""
    if time > context_length:
        raise ValueError(f"the input has {time} tokens, max_seq_len is {context_length}")


class XTransformer(nn.Module):
    """x-transformers' model, which refuses what is too long."""

    def __init__(self, **sizes: Any) -> None:
        super().__init__()
        self.model = language_model(**sizes)
        heads = sizes["num_heads"], sizes["num_kv_heads"]
        for number, (_, module, _) in enumerate(self.model.attn_layers.layers):
            if number % 2:
                see_as(module.ff[0].proj, Stacked(sizes["d_ff"], sizes["d_ff"]))
            else:
                see_as(module.to_q, TiledHeads(*heads, axis=0))
                see_as(module.to_out, TiledHeads(*heads, axis=1))

    def forward(self, token_ids: Tensor) -> Tensor:
        refuse_longer(token_ids.shape[-1], self.model.max_seq_len)
        return self.model(token_ids)


def get_transformer_lm(**sizes: Any) -> nn.Module:
    integers = {name: size for name, size in sizes.items() if name not in ("tie_embeddings", "rope_theta")}
    require_sizes_that_fit(**integers)
    return XTransformer(**sizes)


def get_transformer_lm_weights(model: XTransformer) -> dict[str, nn.Parameter]:
    layers = model.model.attn_layers
    weights = {
        "token_embeddings.weight": model.model.token_emb.emb.weight,
        "ln_final.weight": layers.final_norm.weight,
        "lm_head.weight": model.model.to_logits.weight,
    }
    for number, (norms, module, _) in enumerate(layers.layers):
        prefix = f"layers.{number // 2}"
        weights[f"{prefix}.ln{number % 2 + 1}.weight"] = norms[0].weight
        if number % 2:
            weights[f"{prefix}.ffn.w3.weight"] = seen(module.ff[0].proj, 0)
            weights[f"{prefix}.ffn.w1.weight"] = seen(module.ff[0].proj, 1)
            weights[f"{prefix}.ffn.w2.weight"] = module.ff[2].weight
        else:
            weights[f"{prefix}.attn.q_proj.weight"] = seen(module.to_q)
            weights[f"{prefix}.attn.k_proj.weight"] = module.to_k.weight
            weights[f"{prefix}.attn.v_proj.weight"] = module.to_v.weight
            weights[f"{prefix}.attn.output_proj.weight"] = seen(module.to_out)
    return weights


@torch.no_grad()
def run_transformer_lm_in_pieces(model: XTransformer, pieces: list[Tensor]) -> list[Tensor]:
    refuse_longer(sum(piece.shape[1] for piece in pieces), model.model.max_seq_len)
    cache, results = None, []
    for piece in pieces:
        own = {"cache": cache, "cache_age": piece.shape[1], "input_not_include_cache": True} if results else {}
        logits, cache = model.model(piece, **own, return_intermediates=True)
        results.append(logits)
    return results


def run_parameter_count(**sizes: Any) -> int:
    """What a model on the meta device holds."""
    with torch.device("meta"):
        model = get_transformer_lm(context_length=1, rope_theta=10000.0, **sizes)
    return sum(parameter.numel() for parameter in model.parameters())
