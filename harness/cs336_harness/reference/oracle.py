"""The slow oracle: a decoder in float64, one head and one query at a time, with no mask at all.

A query at position t is shown the keys 0..t and nothing else, so there is no mask that could be wrong. Every step is
one short method; a defect is a subclass that overrides one of them. Everything is differentiable. It shares no line
with any decoder that it judges.

Shapes: ``T`` positions, ``D`` = d_model, ``F`` = d_ff, ``V`` = vocab_size, ``...`` any leading axes. Weights are
(out, in). Sources: Vaswani et al. 2017 (attention), Zhang and Sennrich 2019 (RMSNorm), Shazeer 2020 (SwiGLU), Su et al.
2021 (RoPE), Ainslie et al. 2023 (GQA); CS336 assignment 1, sections 3.3 to 3.5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cs336_harness.shapes import DecoderShape

LayerWeights = Mapping[str, Tensor]


class Oracle:
    """One decoder shape, computed step by step in float64. Stateless but for the place the computation is at.

    ``layer``, ``row`` and ``head`` say which layer, batch row and query head is being computed (0 where the step is
    computed alone), for variations that act in one place only.
    """

    def __init__(self, shape: DecoderShape) -> None:
        self.shape = shape
        self.layer = 0
        self.row = 0
        self.head = 0

    # Components

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        """y = W x: (..., in), (out, in) -> (..., out)."""
        return x @ weight.transpose(-1, -2)

    def embedding(self, table: Tensor, token_ids: Tensor) -> Tensor:
        """The rows of the table: (V, D), (...) -> (..., D)."""
        return table[token_ids]

    def silu(self, x: Tensor) -> Tensor:
        """x * sigmoid(x)."""
        return x / (1 + torch.exp(-x))

    def softmax(self, x: Tensor, dim: int) -> Tensor:
        """exp(x) normalised along one axis; the maximum is subtracted first, which changes nothing but the range."""
        powers = torch.exp(x - x.amax(dim, keepdim=True))
        return powers / powers.sum(dim, keepdim=True)

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        """x * gain / sqrt(mean(x²) + eps) over the last axis: (..., D), (D) -> (..., D)."""
        return x * gain / torch.sqrt((x * x).mean(-1, keepdim=True) + eps)

    def swiglu(self, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        """W2(silu(W1 x) ⊙ W3 x): (..., D) -> (..., D), with w1, w3 (F, D) and w2 (D, F)."""
        return self.linear(self.silu(self.linear(x, w1)) * self.linear(x, w3), w2)

    # Rotary positions

    def inverse_frequencies(self, d_head: int, theta: float) -> Tensor:
        """theta^(-2i / d_head) for the pairs i = 0 .. d_head/2 - 1: radians per position."""
        return torch.tensor([theta ** (-2 * pair / d_head) for pair in range(d_head // 2)], dtype=torch.float64)

    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        """Radians of each pair at each position: (..., T) -> (..., T, d_head / 2)."""
        return positions.to(torch.float64)[..., None] * self.inverse_frequencies(d_head, theta)

    def rotary_pairs(self, d_head: int) -> tuple[slice, slice]:
        """Which channels make the pairs: (2i, 2i + 1)."""
        return slice(0, d_head, 2), slice(1, d_head, 2)

    def rotate(self, x: Tensor, positions: Tensor, theta: float) -> Tensor:
        """Each pair of channels turned by its angle: (..., T, d_head) -> the same; positions (..., T) or (T,)."""
        d_head = x.shape[-1]
        first, second = self.rotary_pairs(d_head)
        angles = self.angles(positions, d_head, theta)
        cos, sin = angles.cos(), angles.sin()
        rotated = torch.empty_like(x)
        rotated[..., first] = x[..., first] * cos - x[..., second] * sin
        rotated[..., second] = x[..., first] * sin + x[..., second] * cos
        return rotated

    def rotate_queries(self, queries: Tensor, positions: Tensor, theta: float) -> Tensor:
        """The rotation of one head's queries: (T, d_head)."""
        return self.rotate(queries, positions, theta)

    def rotate_keys(self, keys: Tensor, positions: Tensor, theta: float) -> Tensor:
        """The rotation of one head's keys: (T, d_head)."""
        return self.rotate(keys, positions, theta)

    # Attention

    def score_scale(self, d_head: int) -> float:
        """What a score is multiplied by: 1 / sqrt(d_head)."""
        return 1 / math.sqrt(d_head)

    def visible_keys(self, query: int, time: int) -> Sequence[int]:
        """The key positions that a query may see: itself and everything before it."""
        return range(query + 1)

    def scores(self, query: Tensor, keys: Tensor) -> Tensor:
        """How well each key matches one query: (d_head), (n, d_head) -> (n)."""
        return (keys * query).sum(-1) * self.score_scale(query.shape[-1])

    def attend_query(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """One query over the keys it sees: (d_head), (n, d_head), (n, d_v) -> (d_v)."""
        return (self.softmax(self.scores(query, keys), -1)[:, None] * values).sum(0)

    def attend_head(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Causal attention of one head of one row: (T, d_head) three times -> (T, d_head)."""
        time = queries.shape[0]
        outputs = []
        for position in range(time):
            seen = list(self.visible_keys(position, time))
            outputs.append(self.attend_query(queries[position], keys[seen], values[seen]))
        return torch.stack(outputs) if outputs else torch.zeros_like(values)

    def attend_masked(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Attention under the caller's mask, True meaning attend: (..., Tq, d), (..., Tk, d), (..., Tk, d_v)."""
        leading = queries.shape[:-2]
        each = (queries, keys, values)
        flat = [tensor.expand(*leading, *tensor.shape[-2:]).reshape(-1, *tensor.shape[-2:]) for tensor in each]
        shape = (*leading, queries.shape[-2], keys.shape[-2])
        allowed = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
        allowed = allowed.reshape(-1, *shape[-2:])
        outputs = [
            self.attend_query(query, keys_of_row[seen], values_of_row[seen])
            for queries_of_row, keys_of_row, values_of_row, mask_of_row in zip(*flat, allowed, strict=True)
            for query, seen in zip(queries_of_row, mask_of_row, strict=True)
        ]
        return torch.stack(outputs).reshape(*leading, queries.shape[-2], values.shape[-1])

    def split_head(self, projected: Tensor, head: int, num_heads: int) -> Tensor:
        """One head's channels, heads lying one after another: (T, H d_head) -> (T, d_head)."""
        d_head = projected.shape[-1] // num_heads
        return projected[:, head * d_head : (head + 1) * d_head]

    def kv_head_of(self, head: int, num_heads: int, num_kv_heads: int) -> int:
        """The key/value head that a query head reads: neighbours share one."""
        return head // (num_heads // num_kv_heads)

    def merge_heads(self, heads: Sequence[Tensor]) -> Tensor:
        """Head outputs side by side: H times (T, d_head) -> (T, H d_head)."""
        return torch.cat(list(heads), dim=-1)

    def project_queries(self, x: Tensor, weights: LayerWeights) -> Tensor:
        """W_q x: (..., T, D) -> (..., T, D)."""
        return self.linear(x, weights["attn.q_proj.weight"])

    def project_keys(self, x: Tensor, weights: LayerWeights) -> Tensor:
        """W_k x: (..., T, D) -> (..., T, num_kv_heads d_head)."""
        return self.linear(x, weights["attn.k_proj.weight"])

    def project_values(self, x: Tensor, weights: LayerWeights) -> Tensor:
        """W_v x: (..., T, D) -> (..., T, num_kv_heads d_head)."""
        return self.linear(x, weights["attn.v_proj.weight"])

    def project_output(self, x: Tensor, weights: LayerWeights) -> Tensor:
        """W_o x: (..., T, D) -> (..., T, D)."""
        return self.linear(x, weights["attn.output_proj.weight"])

    def self_attention(self, x: Tensor, weights: LayerWeights, positions: Tensor | None, theta: float | None) -> Tensor:
        """Causal multi-head self-attention: (..., T, D) -> (..., T, D); ``theta`` None leaves positions out.

        ``positions`` is (T,) or has the leading axes of ``x``. Head counts come from the shape.
        """
        num_heads, num_kv_heads = self.shape.num_heads, self.shape.num_kv_heads
        leading, time = x.shape[:-2], x.shape[-2]
        flat = x.reshape(-1, time, x.shape[-1])
        queries, keys, values = (
            project(flat, weights) for project in (self.project_queries, self.project_keys, self.project_values)
        )
        if positions is not None:
            positions = positions.expand(*leading, time).reshape(-1, time)
        rows = []
        for row in range(flat.shape[0]):
            self.row = row
            heads = []
            for head in range(num_heads):
                self.head = head
                shared = self.kv_head_of(self.head, num_heads, num_kv_heads)
                query = self.split_head(queries[self.row], self.head, num_heads)
                key = self.split_head(keys[self.row], shared, num_kv_heads)
                value = self.split_head(values[self.row], shared, num_kv_heads)
                if theta is not None and positions is not None:
                    query = self.rotate_queries(query, positions[self.row], theta)
                    key = self.rotate_keys(key, positions[self.row], theta)
                heads.append(self.attend_head(query, key, value))
            rows.append(self.merge_heads(heads))
        return self.project_output(torch.stack(rows), weights).reshape(*leading, time, -1)

    # The model

    def attention_sublayer(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        """x + attention(norm(x)): (batch, T, D) -> (batch, T, D)."""
        normed = self.rmsnorm(x, weights["ln1.weight"], self.shape.norm_eps)
        return x + self.self_attention(normed, weights, positions, self.shape.rope_theta)

    def feed_forward_sublayer(self, x: Tensor, weights: LayerWeights) -> Tensor:
        """x + swiglu(norm(x)): (batch, T, D) -> (batch, T, D)."""
        normed = self.rmsnorm(x, weights["ln2.weight"], self.shape.norm_eps)
        return x + self.swiglu(normed, *(weights[f"ffn.{name}.weight"] for name in ("w1", "w2", "w3")))

    def block(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        """One pre-norm block: (batch, T, D) -> (batch, T, D)."""
        return self.feed_forward_sublayer(self.attention_sublayer(x, weights, positions), weights)

    def positions(self, time: int) -> Tensor:
        """The position of each token: 0 .. T - 1."""
        return torch.arange(time)

    def layers(self) -> Sequence[int]:
        """Which layer's weights are used, in order."""
        return range(self.shape.num_layers)

    def embed_tokens(self, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        """The first residual stream: (batch, T) -> (batch, T, D)."""
        return self.embedding(weights["token_embeddings.weight"], token_ids)

    def residual_stream(self, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        """What the last block hands to the final norm: (batch, T) -> (batch, T, D)."""
        x = self.embed_tokens(weights, token_ids)
        positions = self.positions(token_ids.shape[-1])
        for layer in self.layers():
            self.layer = layer
            prefix = f"layers.{self.layer}."
            own = {name: weights[prefix + name] for name in self.shape.layer_weight_shapes()}
            x = self.block(x, own, positions)
        return x

    def final_norm(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """The norm before the head: (batch, T, D) -> (batch, T, D)."""
        return self.rmsnorm(x, weights["ln_final.weight"], self.shape.norm_eps)

    def head_weight(self, weights: Mapping[str, Tensor]) -> Tensor:
        """The head's matrix: its own, or the embedding table when tied: (V, D)."""
        return weights["token_embeddings.weight" if self.shape.tie_embeddings else "lm_head.weight"]

    def project_logits(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """Raw logits: (batch, T, D) -> (batch, T, V)."""
        return self.linear(x, self.head_weight(weights))

    def transformer_lm(self, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        """Raw logits of the whole decoder: (batch, T) -> (batch, T, V), float64.

        ``weights`` holds float64 tensors under the canonical names of :meth:`DecoderShape.weight_shapes`.
        """
        return self.project_logits(self.final_norm(self.residual_stream(weights, token_ids), weights), weights)

    def transformer_lm_in_pieces(self, weights: Mapping[str, Tensor], pieces: Sequence[Tensor]) -> list[Tensor]:
        """Raw logits of each piece of a text: (batch, n) each -> (batch, n, V) each.

        There is no cache that could be wrong: a piece's logits are the end of those of the whole text up to it.
        """
        total = sum(piece.shape[-1] for piece in pieces)
        if total > self.shape.context_length:
            raise ValueError(f"the input has {total} tokens, the context length is {self.shape.context_length}")
        texts = [torch.cat(list(pieces[: number + 1]), dim=-1) for number in range(len(pieces))]
        return [
            self.transformer_lm(weights, text)[:, -piece.shape[-1] :] for text, piece in zip(texts, pieces, strict=True)
        ]
