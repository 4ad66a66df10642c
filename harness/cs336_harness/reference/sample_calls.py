"""Sample calls: the arguments of one call of each entry point, for given sizes, leading axes and seeds.

One function per entry point, called what the entry point is called without its ``run_``; each returns the arguments
under the contract's names. Checks and recipes take their calls from here and change only what they are about. Seeds are
arguments, so that no tensor depends on who else asks: tensors that come of one ``seed`` count up from it, and ``seeds``
has one for each, weights first and inputs last. A function whose name ends in ``_of`` draws nothing: it takes the
weights of a whole decoder, and the input.

Where inputs are hidden, widths are drawn as well: those named here are the public ones, and a given width may grow.

Shapes: ... are any leading axes, T is the sequence length, Q queries meet K keys; d_k and d_v are the widths of queries
and of values, V is the size of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cs336_harness.reference.hidden_inputs import more, size
from cs336_harness.reference.weights import gains, generator, make_token_ids, make_weights, normal
from cs336_harness.shapes import DecoderShape

Arguments = dict[str, Any]
"""Arguments of one call by name."""


def _grown(width: int, *, even: bool = False) -> int:
    """A width that may grow where inputs are hidden, and then past the sizes of the axes that stand before it."""
    return width + (size("width", 0, 6, 10) if even else size("width", 0, 7, 9))


def one_layer(
    *, d_model: int = 24, num_heads: int = 3, context_length: int = 20, rope_theta: float = 10000.0
) -> DecoderShape:
    """A decoder of one layer, d_ff 64 and eleven tokens: as small as a sample of a block or a model can be."""
    return DecoderShape(
        vocab_size=11 + more("vocab_size", 6),
        context_length=context_length,
        d_model=d_model,
        num_layers=1,
        num_heads=num_heads,
        num_kv_heads=num_heads,
        d_ff=64,
        rope_theta=rope_theta,
    )


def linear(*leading: int, seed: int) -> Arguments:
    """Features (..., 11) and a weight (4, 11)."""
    d_in, d_out = _grown(11), size("d_out", 4, 8, 10)
    return {
        "d_in": d_in,
        "d_out": d_out,
        "weights": normal(d_out, d_in, seed=seed, std=0.3),
        "in_features": normal(*leading, d_in, seed=seed + 1),
    }


def embedding(*leading: int, seed: int) -> Arguments:
    """Ids (...) that jump through a table (13, 8), no two neighbours alike."""
    count, vocab_size, d_model = torch.Size(leading).numel(), size("vocab_size", 13, 17, 19), _grown(8)
    return {
        "vocab_size": vocab_size,
        "d_model": d_model,
        "weights": normal(vocab_size, d_model, seed=seed),
        "token_ids": (torch.arange(count) * 5 % vocab_size).reshape(leading),
    }


def silu(*axes: int, seed: int, std: float = 1.0) -> Arguments:
    """Features of these axes."""
    return {"in_features": normal(*axes[:-1], _grown(axes[-1]), seed=seed, std=std)}


def softmax(*axes: int, dim: int = -1, seed: int, std: float = 1.0) -> Arguments:
    """Features of these axes."""
    return {"in_features": normal(*axes[:-1], _grown(axes[-1]), seed=seed, std=std), "dim": dim}


def rmsnorm(*axes: int, eps: float = 1e-5, seeds: tuple[int, int], std: float = 0.1) -> Arguments:
    """Features (..., d_model), small enough that eps matters, and gains (d_model,)."""
    (of_gains, of_features), d_model = seeds, _grown(axes[-1])
    return {
        "d_model": d_model,
        "eps": eps,
        "weights": gains(d_model, seed=of_gains),
        "in_features": normal(*axes[:-1], d_model, seed=of_features, std=std),
    }


def swiglu(
    *leading: int,
    d_model: int = 24,
    d_ff: int = 64,
    seeds: tuple[int, int, int, int],
    stds: tuple[float, float, float] = (0.2, 0.1, 0.2),
) -> Arguments:
    """Features (..., d_model) and the weights w1 and w3 (d_ff, d_model) and w2 (d_model, d_ff), scaled by ``stds``."""
    d_model, d_ff = _grown(d_model), d_ff + 16 * more("d_ff", 2)
    sizes = {"w1_weight": (d_ff, d_model), "w2_weight": (d_model, d_ff), "w3_weight": (d_ff, d_model)}
    return {
        "d_model": d_model,
        "d_ff": d_ff,
        **{
            name: normal(*size, seed=seed, std=std)
            for (name, size), seed, std in zip(sizes.items(), seeds[:3], stds, strict=True)
        },
        "in_features": normal(*leading, d_model, seed=seeds[3]),
    }


def rope(
    *axes: int, positions: Tensor | None = None, theta: float = 10000.0, max_seq_len: int = 20, seed: int
) -> Arguments:
    """Vectors (..., T, d_k) at these positions, without any at 0, 1, …, T - 1."""
    d_k = _grown(axes[-1], even=True)
    return {
        "d_k": d_k,
        "theta": theta,
        "max_seq_len": max_seq_len,
        "in_query_or_key": normal(*axes[:-1], d_k, seed=seed),
        "token_positions": torch.arange(axes[-2]) if positions is None else positions,
    }


def scaled_dot_product_attention(
    *leading: int,
    queries: int = 5,
    keys: int = 7,
    d_k: int | None = None,
    d_v: int = 4,
    mask: Tensor | None = None,
    seed: int,
    std: float = 1.5,
) -> Arguments:
    """Q (..., Q, d_k), K (..., K, d_k) and V (..., K, d_v); ``std`` is that of queries and keys.

    d_k is 6 where it is not given.
    """
    d_k = _grown(6) if d_k is None else d_k
    return {
        "Q": normal(*leading, queries, d_k, seed=seed, std=std),
        "K": normal(*leading, keys, d_k, seed=seed + 1, std=std),
        "V": normal(*leading, keys, d_v, seed=seed + 2),
        "mask": mask,
    }


def random_mask(*axes: int, seed: int) -> Tensor:
    """A boolean mask, True meaning attend, about two thirds open, in which every query sees at least one key."""
    mask = torch.rand(*axes, generator=generator(seed)) < 2 / 3
    keys = torch.arange(axes[-2]) % axes[-1]
    mask[..., torch.arange(axes[-2]), keys] = True
    return mask


def multihead_self_attention(
    batch: int, time: int, *, d_model: int = 12, num_heads: int = 3, seed: int = 90
) -> Arguments:
    """Features (batch, T, d_model) and four projections (d_model, d_model), attention clearly not uniform.

    The projections count up from ``seed``; the features have ``seed`` + 5.
    """
    d_model = num_heads * _grown(d_model // num_heads, even=True)
    return {
        "d_model": d_model,
        "num_heads": num_heads,
        **{
            f"{name}_proj_weight": normal(
                d_model, d_model, seed=seed + i, std=(2 if name in "qk" else 1) * d_model**-0.5
            )
            for i, name in enumerate("qkvo")
        },
        "in_features": normal(batch, time, d_model, seed=seed + 5),
    }


def multihead_self_attention_with_rope(
    batch: int,
    time: int,
    positions: Tensor | None,
    *,
    d_model: int = 12,
    num_heads: int = 3,
    theta: float = 10000.0,
    max_seq_len: int = 20,
    seed: int = 90,
) -> Arguments:
    """The same call as ``multihead_self_attention``, with queries and keys turned at these positions."""
    return {
        **multihead_self_attention(batch, time, d_model=d_model, num_heads=num_heads, seed=seed),
        "max_seq_len": max_seq_len,
        "theta": theta,
        "token_positions": positions,
    }


def multihead_self_attention_of(
    shape: DecoderShape, weights: Mapping[str, Tensor], in_features: Tensor, layer: int = 0
) -> Arguments:
    """These features (batch, T, d_model), and the projections of one layer of a decoder."""
    names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "output_proj"}
    return {
        "d_model": shape.d_model,
        "num_heads": shape.num_heads,
        **{f"{short}_proj_weight": weights[f"layers.{layer}.attn.{name}.weight"] for short, name in names.items()},
        "in_features": in_features,
    }


def transformer_block(
    shape: DecoderShape, batch: int, time: int, *, seeds: tuple[int, int], std: float = 1.0
) -> Arguments:
    """Features (batch, T, d_model) with this ``std``, and the weights of layer 0 of a decoder of this shape."""
    of_weights, of_features = seeds
    in_features = normal(batch, time, shape.d_model, seed=of_features, std=std)
    return transformer_block_of(shape, make_weights(shape, of_weights), in_features)


def transformer_block_of(shape: DecoderShape, weights: Mapping[str, Tensor], in_features: Tensor) -> Arguments:
    """These features (batch, T, d_model), and the weights of layer 0 of a decoder."""
    prefix = "layers.0."
    return {
        "d_model": shape.d_model,
        "num_heads": shape.num_heads,
        "d_ff": shape.d_ff,
        "max_seq_len": shape.context_length,
        "theta": shape.rope_theta,
        "weights": {name.removeprefix(prefix): weight for name, weight in weights.items() if name.startswith(prefix)},
        "in_features": in_features,
    }


def transformer_lm(shape: DecoderShape, batch: int, time: int, *, seeds: tuple[int, int]) -> Arguments:
    """Ids (batch, T) from 0 to V - 1, and every weight of a decoder of this shape."""
    of_weights, of_ids = seeds
    in_indices = make_token_ids(shape, batch, time, seed=of_ids)
    return transformer_lm_of(shape, make_weights(shape, of_weights), in_indices)


def transformer_lm_of(shape: DecoderShape, weights: Mapping[str, Tensor], in_indices: Tensor) -> Arguments:
    """These ids (batch, T), and these weights of a decoder of this shape."""
    return {**shape.call_arguments(), "weights": weights, "in_indices": in_indices}
