"""What glue between a decoder and the contract needs: weights stored otherwise, calls with given weights.

A decoder that stores its weights otherwise (rows in another order, several matrices in one) gets them through PyTorch's
parametrisation: the Parameters are those of the contract, the decoder reads what they make of them, and its code is
untouched. docs/GLUE.md has whole files. Shapes: D d_model, H heads, T positions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from cs336_harness.shapes import DecoderShape


def call_with(weights: Mapping[str, Tensor], module: nn.Module, *inputs: Any, **options: Any) -> Any:
    """What ``module`` returns with ``weights`` in place of its own, in their dtype; buffers keep their own."""
    return torch.func.functional_call(module, dict(weights), inputs, options)


def run_transformer_lm_from(
    get_transformer_lm: Callable[..., nn.Module],
    get_transformer_lm_weights: Callable[[Any], Mapping[str, Tensor]],
) -> Callable[..., Tensor]:
    """The entry point ``run_transformer_lm`` made of the two that build a model; it takes ``num_kv_heads`` too."""

    def run_transformer_lm(
        weights: Mapping[str, Tensor], in_indices: Tensor, num_kv_heads: int | None = None, **sizes: Any
    ) -> Tensor:
        kv_heads = sizes["num_heads"] if num_kv_heads is None else num_kv_heads
        model = get_transformer_lm(num_kv_heads=kv_heads, tie_embeddings=False, **sizes)
        with torch.no_grad():
            for name, parameter in get_transformer_lm_weights(model).items():
                parameter.copy_(weights[name])
        return model(in_indices)

    return run_transformer_lm


def weight_names(num_layers: int) -> list[str]:
    """The canonical names of a decoder's weights, ``lm_head.weight`` included."""
    shape = DecoderShape(
        vocab_size=1, context_length=1, d_model=2, num_layers=num_layers, num_heads=1, num_kv_heads=1, d_ff=1
    )
    return list(shape.weight_shapes())


def require_sizes_that_fit(d_model: int, num_heads: int, num_kv_heads: int, **sizes: float) -> None:
    """ValueError for sizes that make no decoder, which many libraries leave to an assertion or to a later failure."""
    for name, size in {"d_model": d_model, "num_heads": num_heads, "num_kv_heads": num_kv_heads, **sizes}.items():
        if size <= 0:
            raise ValueError(f"{name} must be positive, got {size}")
    if d_model % num_heads or (d_model // num_heads) % 2:
        raise ValueError(f"d_model {d_model} over num_heads {num_heads} gives no even head size")
    if num_heads % num_kv_heads:
        raise ValueError(f"num_heads {num_heads} is no multiple of num_kv_heads {num_kv_heads}")


def split_pairs(weight: Tensor, num_heads: int) -> Tensor:
    """Rows (H · d, …) of a query or key projection: a head's pairs (2i, 2i + 1) become (i, i + d/2), as in Llama."""
    return weight.unflatten(0, (num_heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def interleave_pairs(weight: Tensor, num_heads: int) -> Tensor:
    """The inverse of :func:`split_pairs`."""
    return weight.unflatten(0, (num_heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def to_half_split(x: Tensor) -> Tensor:
    """The last axis, one head's channels: pairs (2i, 2i + 1) become (i, i + d/2)."""
    return split_pairs(x.movedim(-1, 0), 1).movedim(0, -1)


def to_interleaved(x: Tensor) -> Tensor:
    """The last axis, one head's channels: pairs (i, i + d/2) become (2i, 2i + 1)."""
    return interleave_pairs(x.movedim(-1, 0), 1).movedim(0, -1)


def positions_by_row(positions: Tensor, x: Tensor) -> Tensor:
    """Positions (T,), (1, T) or (rows, T) for each leading index of x (…, T, channels): (rows, T)."""
    return positions.expand(*x.shape[:-2], x.shape[-2]).reshape(-1, x.shape[-2])


class HalfSplit(nn.Module):
    """A projection whose Parameter has pairs (2i, 2i + 1), for a decoder that rotates pairs (i, i + d/2)."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads

    def forward(self, weight: Tensor) -> Tensor:
        return split_pairs(weight, self.num_heads)

    def right_inverse(self, weight: Tensor) -> Tensor:
        return interleave_pairs(weight, self.num_heads)


class Stacked(nn.Module):
    """Several projections, each a Parameter with so many ``rows``, for a decoder that stores them as one matrix.

    ``half_split`` gives the heads of each that such a decoder rotates in pairs (i, i + d/2), None for one that it does
    not rotate.
    """

    def __init__(self, *rows: int, half_split: tuple[int | None, ...] = ()) -> None:
        super().__init__()
        self.rows = rows
        self.heads = half_split or (None,) * len(rows)

    def forward(self, *weights: Tensor) -> Tensor:
        parts = zip(weights, self.heads, strict=True)
        return torch.cat([weight if heads is None else split_pairs(weight, heads) for weight, heads in parts])

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, ...]:
        parts = zip(weight.split(self.rows), self.heads, strict=True)
        return tuple(part.clone() if heads is None else interleave_pairs(part, heads) for part, heads in parts)


class InterleavedGates(nn.Module):
    """W1 and W3 of a SwiGLU, each a Parameter, for a decoder that stores their rows in turn: w1[0], w3[0], w1[1], …"""

    def forward(self, w1: Tensor, w3: Tensor) -> Tensor:
        return torch.stack((w1, w3), dim=1).flatten(0, 1)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return weight[0::2].clone(), weight[1::2].clone()


def see_as(layer: nn.Module, parametrization: nn.Module) -> None:
    """Lets a layer read its ``weight`` through a parametrisation: one of the classes above, or your own."""
    parametrize.register_parametrization(layer, "weight", parametrization)


def seen(layer: Any, number: int | None = None) -> nn.Parameter:
    """The Parameter behind a layer's ``weight``, parametrised or not; of several the one with a number."""
    if not parametrize.is_parametrized(layer, "weight"):
        return layer.weight
    parameters = layer.parametrizations["weight"]
    return parameters.original if number is None else getattr(parameters, f"original{number}")


_OUTSIDE = {
    "token_embeddings": "model.embed_tokens",
    "ln_final": "model.norm",
    "lm_head": "lm_head",
}
_IN_A_LAYER = {
    "attn.q_proj": "self_attn.q_proj",
    "attn.k_proj": "self_attn.k_proj",
    "attn.v_proj": "self_attn.v_proj",
    "attn.output_proj": "self_attn.o_proj",
    "ln1": "input_layernorm",
    "ffn.w1": "mlp.gate_proj",
    "ffn.w2": "mlp.down_proj",
    "ffn.w3": "mlp.up_proj",
    "ln2": "post_attention_layernorm",
}


def llama_layer(name: str) -> str:
    """The submodule of transformers' Llama, or of a model made like it, that holds the weight of a canonical name:
    ``layers.0.ffn.w3.weight`` -> ``model.layers.0.mlp.up_proj``.

    Raises:
        ValueError: the name is none of a decoder's weights.
    """
    layer = re.fullmatch(r"layers\.(\d+)\.(.+)\.weight", name)
    theirs = _IN_A_LAYER.get(layer[2]) if layer else _OUTSIDE.get(name.removesuffix(".weight"))
    if theirs is None:
        raise ValueError(f"{name} is no weight of a decoder")
    return f"model.layers.{layer[1]}.{theirs}" if layer else theirs


def to_llama(weights: Mapping[str, Tensor], num_heads: int, num_kv_heads: int) -> dict[str, Tensor]:
    """Weights by canonical name as a state dict of transformers' Llama: its names, its order of rotated rows."""
    heads = {"q_proj": num_heads, "k_proj": num_kv_heads}
    found = {}
    for name, weight in weights.items():
        rotated = heads.get(name.split(".")[-2])
        found[f"{llama_layer(name)}.weight"] = weight if rotated is None else split_pairs(weight, rotated)
    return found
