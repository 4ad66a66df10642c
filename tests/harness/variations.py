"""Correct decoders that round differently: plain float32 PyTorch, a switch for each thing that may be done two ways.

They share nothing with the oracle but the checks of sizes. Every required check must pass on each of them, with an
error under a fifth of the tolerance.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cs336_harness.reference.oracle_adapters import NORM_EPS, refuse_longer_than_context, refuse_sizes_that_do_not_fit
from cs336_harness.shapes import DecoderShape


def at_least_float32(x: Tensor) -> torch.dtype:
    """The dtype for what must not be rounded to half precision."""
    return torch.promote_types(x.dtype, torch.float32)


@dataclasses.dataclass(frozen=True, slots=True)
class Variation:
    """One way to compute the decoder. ``shift`` is added to every position inside attention, queries and keys alike."""

    multiply: Literal["x @ W.T", "W @ x", "einsum", "F.linear"] = "x @ W.T"
    root: Literal["rsqrt", "sqrt"] = "rsqrt"
    norm_in_float64: bool = False
    rotary: Literal["interleaved", "complex", "matrix", "concatenated"] = "interleaved"
    frequencies: Literal["power", "exp of log", "reciprocal"] = "power"
    mask: Literal["-inf", "additive", "-1e4", "renormalise", "fused"] = "-inf"
    shift: int = 0

    # Components

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        if self.multiply == "W @ x":
            return (weight @ x[..., None])[..., 0]
        if self.multiply == "einsum":
            return torch.einsum("oi,...i->...o", weight, x)
        return F.linear(x, weight) if self.multiply == "F.linear" else x @ weight.T

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        wide = x.to(torch.float64 if self.norm_in_float64 else at_least_float32(x))
        mean_square = wide.pow(2).mean(-1, keepdim=True) + eps
        normed = wide / mean_square.sqrt() if self.root == "sqrt" else wide * mean_square.rsqrt()
        return normed.to(x.dtype) * gain

    def silu(self, x: Tensor) -> Tensor:
        return F.silu(x) if self.mask == "fused" else x * torch.sigmoid(x)

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        if self.mask == "fused":
            return torch.softmax(x, dim)
        powers = (x - x.max(dim, keepdim=True).values).exp()
        return powers / powers.sum(dim, keepdim=True)

    def swiglu(self, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return self.linear(self.silu(self.linear(x, w1)) * self.linear(x, w3), w2)

    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        """In the dtype of the positions."""
        exponents = torch.arange(0, d_head, 2, dtype=positions.dtype) / d_head
        if self.frequencies == "exp of log":
            frequencies = torch.exp(-math.log(theta) * exponents)
        elif self.frequencies == "reciprocal":
            frequencies = 1 / theta**exponents
        else:
            frequencies = theta**-exponents
        return positions[..., None] * frequencies

    def rotate(self, x: Tensor, positions: Tensor, theta: float, *, inside: bool = False) -> Tensor:
        """Pairs (2i, 2i + 1) turned. ``inside`` the model their order within the head is nobody's business."""
        wide = at_least_float32(x)
        angles = self.angles(positions.to(wide), x.shape[-1], theta)
        if self.rotary == "complex":
            pairs = x.to(wide).unflatten(-1, (-1, 2)).contiguous()
            turned = torch.view_as_complex(pairs) * torch.polar(torch.ones_like(angles), angles)
            return torch.view_as_real(turned).flatten(-2).to(x.dtype)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        if self.rotary == "matrix":
            matrix = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
            return (matrix @ x.unflatten(-1, (-1, 2))[..., None])[..., 0].flatten(-2)
        even, odd = x[..., 0::2], x[..., 1::2]
        halves = (even * cos - odd * sin, even * sin + odd * cos)
        if self.rotary == "concatenated" and inside:
            return torch.cat(halves, -1)
        return torch.stack(halves, -1).flatten(-2)

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        if self.mask == "fused":
            return F.scaled_dot_product_attention(Q, K, V, attn_mask=allowed)
        scores = Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1])
        if allowed is None:
            return self.softmax(scores, -1) @ V
        if self.mask == "additive":  # a constant on the kept entries changes nothing
            return self.softmax(scores + torch.where(allowed, 0.5, -torch.inf).to(scores.dtype), -1) @ V
        if self.mask == "renormalise":
            kept = self.softmax(scores, -1) * allowed
            return kept / kept.sum(-1, keepdim=True) @ V
        return self.softmax(scores.masked_fill(~allowed, -torch.inf if self.mask == "-inf" else -1e4), -1) @ V

    def self_attention(
        self,
        x: Tensor,
        projections: tuple[Tensor, Tensor, Tensor, Tensor],
        heads: tuple[int, int],
        positions: Tensor | None,
        theta: float,
    ) -> Tensor:
        w_q, w_k, w_v, w_o = projections
        num_heads, num_kv_heads = heads
        projected = (self.linear(x, w_q), self.linear(x, w_k), self.linear_of_values(x, w_v))
        q, k, v = (
            part.unflatten(-1, (count, -1)).transpose(-2, -3)
            for part, count in zip(projected, (num_heads, num_kv_heads, num_kv_heads), strict=True)
        )
        q, k, v = self.parts(q, k, v)
        if positions is not None:
            positions = (positions + self.shift)[..., None, :]
            q, k = self.rotate_queries(q, positions, theta), self.rotate(k, positions, theta, inside=True)
        k, v = (part.repeat_interleave(num_heads // num_kv_heads, -3) for part in (k, v))
        causal = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
        return self.linear(self.attend(q, k, v, causal).transpose(-2, -3).flatten(-2), w_o)

    def linear_of_values(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.linear(x, weight)

    def parts(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of every head, (..., H, T, d), as they are turned and meet."""
        return q, k, v

    def rotate_queries(self, q: Tensor, positions: Tensor, theta: float) -> Tensor:
        return self.rotate(q, positions, theta, inside=True)

    # The model

    def embedding(self, weights: Tensor, token_ids: Tensor) -> Tensor:
        return weights[token_ids]

    def block(self, x: Tensor, weights: Mapping[str, Tensor], heads: tuple[int, int], theta: float) -> Tensor:
        w_q, w_k, w_v, w_o = (weights[f"attn.{name}_proj.weight"] for name in ("q", "k", "v", "output"))
        positions = torch.arange(x.shape[-2])
        normed = self.rmsnorm(x, weights["ln1.weight"], NORM_EPS)
        x = x + self.self_attention(normed, (w_q, w_k, w_v, w_o), heads, positions, theta)
        normed = self.rmsnorm(x, weights["ln2.weight"], NORM_EPS)
        return x + self.swiglu(normed, *(weights[f"ffn.w{i}.weight"] for i in (1, 2, 3)))

    def final_norm(self, x: Tensor, gain: Tensor) -> Tensor:
        return self.rmsnorm(x, gain, NORM_EPS)

    def behind_the_layers(self, outputs: list[Tensor]) -> Tensor:
        return outputs[-1]

    def transformer_lm(self, shape: DecoderShape, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        if bool(((token_ids < 0) | (token_ids >= shape.vocab_size)).any()) or token_ids.numel() == 0:
            raise ValueError(f"token ids must be there, and be 0 to {shape.vocab_size - 1}")
        refuse_longer_than_context(token_ids.shape[-1], shape.context_length)
        x = self.embedding(weights["token_embeddings.weight"], token_ids)
        outputs = []
        for layer in range(shape.num_layers):
            own = {name: weights[f"layers.{layer}.{name}"] for name in shape.layer_weight_shapes()}
            x = self.block(x, own, (shape.num_heads, shape.num_kv_heads), shape.rope_theta)
            outputs.append(x)
        x = self.final_norm(self.behind_the_layers(outputs), weights["ln_final.weight"])
        return self.linear(x, weights["token_embeddings.weight" if shape.tie_embeddings else "lm_head.weight"])


VARIATIONS: dict[str, Variation] = {
    "x @ W.T, rsqrt, cos and sin, -inf": Variation(),
    "fused attention, F.linear": Variation(multiply="F.linear", mask="fused"),
    "W @ x": Variation(multiply="W @ x"),
    "einsum": Variation(multiply="einsum"),
    "sqrt and divide": Variation(root="sqrt"),
    "norm in float64": Variation(norm_in_float64=True),
    "complex rotation": Variation(rotary="complex"),
    "rotation matrices": Variation(rotary="matrix"),
    "pairs concatenated": Variation(rotary="concatenated"),
    "frequencies by exp of log": Variation(frequencies="exp of log"),
    "frequencies by reciprocal": Variation(frequencies="reciprocal"),
    "additive mask, constant kept": Variation(mask="additive"),
    "fill of -1e4": Variation(mask="-1e4"),
    "masked after softmax, renormalised": Variation(mask="renormalise"),
    "positions shifted by 3": Variation(shift=3),
}
"""One variation for each switch."""

COVERING: dict[str, Variation] = {
    "fused": Variation("F.linear", "sqrt", False, "complex", "exp of log", "fused"),
    "additive": Variation("W @ x", "rsqrt", True, "matrix", "reciprocal", "additive"),
    "renormalise": Variation("einsum", "sqrt", False, "concatenated", "power", "renormalise", 3),
    "fill": Variation("x @ W.T", "rsqrt", False, "interleaved", "power", "-1e4"),
}
"""Few that use every switch between them."""


class VariationModel(nn.Module):
    """A variation with Parameters of its own; a tied one has no head weight."""

    def __init__(self, variation: Variation, shape: DecoderShape) -> None:
        super().__init__()
        self.variation, self.shape = variation, shape
        self.weights = nn.ParameterDict(
            {
                name.replace(".", "/"): nn.Parameter(torch.ones(size) if len(size) == 1 else 0.02 * torch.randn(size))
                for name, size in shape.weight_shapes().items()
                if not (shape.tie_embeddings and name == "lm_head.weight")
            }
        )

    def named(self) -> dict[str, nn.Parameter]:
        named: dict[str, Any] = {name.replace("/", "."): weight for name, weight in self.weights.items()}
        return {"lm_head.weight": named["token_embeddings.weight"], **named}

    def forward(self, token_ids: Tensor) -> Tensor:
        return self.variation.transformer_lm(self.shape, self.named(), token_ids)


class VariationAdapters:
    """The contract's entry points, computed by one variation."""

    def __init__(self, variation: Variation) -> None:
        self.variation = variation

    def run_linear(self, d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
        return self.variation.linear(in_features, weights)

    def run_embedding(self, vocab_size: int, d_model: int, weights: Tensor, token_ids: Tensor) -> Tensor:
        return self.variation.embedding(weights, token_ids)

    def run_swiglu(
        self, d_model: int, d_ff: int, w1_weight: Tensor, w2_weight: Tensor, w3_weight: Tensor, in_features: Tensor
    ) -> Tensor:
        return self.variation.swiglu(in_features, w1_weight, w2_weight, w3_weight)

    def run_scaled_dot_product_attention(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.variation.attend(Q, K, V, mask)

    def run_multihead_self_attention(
        self,
        d_model: int,
        num_heads: int,
        q_proj_weight: Tensor,
        k_proj_weight: Tensor,
        v_proj_weight: Tensor,
        o_proj_weight: Tensor,
        in_features: Tensor,
    ) -> Tensor:
        projections = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
        return self.variation.self_attention(in_features, projections, (num_heads, num_heads), None, 0.0)

    def run_multihead_self_attention_with_rope(
        self,
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
        projections = (q_proj_weight, k_proj_weight, v_proj_weight, o_proj_weight)
        positions = torch.arange(in_features.shape[-2]) if token_positions is None else token_positions
        return self.variation.self_attention(in_features, projections, (num_heads, num_heads), positions, theta)

    def run_rope(
        self, d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor
    ) -> Tensor:
        return self.variation.rotate(in_query_or_key, token_positions, theta)

    def run_transformer_block(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        max_seq_len: int,
        theta: float,
        weights: Mapping[str, Tensor],
        in_features: Tensor,
    ) -> Tensor:
        return self.variation.block(in_features, weights, (num_heads, num_heads), theta)

    def run_transformer_lm(
        self, weights: Mapping[str, Tensor], in_indices: Tensor, num_kv_heads: int | None = None, **sizes: Any
    ) -> Tensor:
        shape = DecoderShape(num_kv_heads=num_kv_heads or sizes["num_heads"], norm_eps=NORM_EPS, **sizes)
        return self.variation.transformer_lm(shape, weights, in_indices)

    def run_rmsnorm(self, d_model: int, eps: float, weights: Tensor, in_features: Tensor) -> Tensor:
        return self.variation.rmsnorm(in_features, weights, eps)

    def run_silu(self, in_features: Tensor) -> Tensor:
        return self.variation.silu(in_features)

    def run_softmax(self, in_features: Tensor, dim: int) -> Tensor:
        return self.variation.softmax(in_features, dim)

    def get_transformer_lm(self, **sizes: Any) -> VariationModel:
        shape = DecoderShape(norm_eps=NORM_EPS, **sizes)
        refuse_sizes_that_do_not_fit(shape)
        return VariationModel(self.variation, shape)

    def get_transformer_lm_weights(self, model: VariationModel) -> dict[str, nn.Parameter]:
        return model.named()

    def run_transformer_lm_in_pieces(self, model: VariationModel, pieces: list[Tensor]) -> list[Tensor]:
        refuse_longer_than_context(sum(piece.shape[1] for piece in pieces), model.shape.context_length)
        texts = [torch.cat(pieces[: number + 1], dim=1) for number in range(len(pieces))]
        return [model(text)[:, -piece.shape[1] :] for text, piece in zip(texts, pieces, strict=True)]
