"""The oracle with a cache of keys and values: the stage for what goes wrong in one.

Shapes: ``B`` rows, ``n`` tokens of a piece, ``h`` tokens held before it, ``K`` = num_kv_heads, ``d`` = d_head, ``V`` =
vocab_size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cs336_harness.defects.defect import OracleDefect
from cs336_harness.reference.oracle import LayerWeights
from cs336_harness.reference.oracle_adapters import refuse_longer_than_context
from cs336_harness.shapes import DecoderShape


class CacheDefect(OracleDefect):
    """A defect of incremental decoding: the oracle with a cache of keys and values, right as it stands here.

    A text is fed in pieces. ``held`` maps each layer to its keys (rotated) and values, (B, K, tokens, d) each; ``seen``
    tokens in ``pieces`` pieces came before; ``continues`` is true while a piece is computed, and ``rows`` is B.
    """

    right = True

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__(shape)
        self.held: dict[int, tuple[Tensor, Tensor]] = {}
        self.seen = self.pieces = self.rows = 0
        self.continues = False

    def transformer_lm_in_pieces(self, weights: Mapping[str, Tensor], pieces: Sequence[Tensor]) -> list[Tensor]:
        """Raw logits of each piece: B × n token ids each -> (B, n, V) each."""
        self.rows = len(pieces[0])
        self.empty()
        return [self.piece(weights, piece) for piece in pieces]

    def empty(self) -> None:
        """What is done to the cache when a text begins."""
        self.held = {}
        self.seen = self.pieces = 0

    def piece(self, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        """Raw logits of the next piece: (B, n) -> (B, n, V)."""
        new = token_ids.shape[-1]
        self.require_room(new)
        self.continues = True
        try:
            logits = self.transformer_lm(weights, token_ids)
        finally:
            self.continues = False
        self.seen, self.pieces = self.seen + new, self.pieces + 1
        self.after_piece(new)
        return logits

    def require_room(self, new: int) -> None:
        """``ValueError`` when the context has no room for so many tokens more."""
        refuse_longer_than_context(self.seen + new, self.shape.context_length)

    def after_piece(self, new: int) -> None:
        """What is done to the cache when a piece of ``new`` tokens is through."""

    def first_position(self) -> int:
        """The position of the next piece's first token."""
        return self.seen

    def positions_of_piece(self, new: int) -> Tensor:
        """The position of each token of the next piece: (n,)."""
        return torch.arange(new) + self.first_position()

    def positions(self, time: int) -> Tensor:
        """Those of a piece, or of a whole text."""
        return self.positions_of_piece(time) if self.continues else super().positions(time)

    def keep(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Appends a layer's new keys and values, (B, K, n, d), and returns all that it holds then."""
        if self.layer in self.held:
            before = self.held[self.layer]
            keys, values = (torch.cat(pair, dim=-2) for pair in zip(before, (keys, values), strict=True))
        self.held[self.layer] = keys, values
        return keys, values

    def rotate_new_keys(self, keys: Tensor, positions: Tensor) -> Tensor:
        """What is kept of new keys: (B, K, n, d)."""
        return self.rotate_keys(keys, positions, self.shape.rope_theta)

    def held_keys(self, keys: Tensor, new: int) -> Tensor:
        """What attention reads of all kept keys, of which the last ``new`` are the piece's: (B, K, h + n, d)."""
        return keys

    def held_values(self, values: Tensor, new: int) -> Tensor:
        """The same of values."""
        return values

    def visible_in_piece(self, query: int, new: int, held: int) -> Sequence[int]:
        """The kept keys that query ``query`` of the piece sees: those held before it, and its own piece's up to it."""
        return range(held + query + 1)

    def kv_head_of_held(self, head: int) -> int:
        """The key/value head that a query head reads in the cache."""
        return self.kv_head_of(head, self.shape.num_heads, self.shape.num_kv_heads)

    def self_attention(self, x: Tensor, weights: LayerWeights, positions: Tensor | None, theta: float | None) -> Tensor:
        """Attention of a piece over the cache, or of a whole text without one."""
        if not self.continues or positions is None or theta is None:
            return super().self_attention(x, weights, positions, theta)
        new, num_heads, num_kv_heads = x.shape[-2], self.shape.num_heads, self.shape.num_kv_heads
        projections = (
            (self.project_queries, num_heads),
            (self.project_keys, num_kv_heads),
            (self.project_values, num_kv_heads),
        )
        queries, keys, values = (
            project(x, weights).unflatten(-1, (heads, -1)).transpose(1, 2) for project, heads in projections
        )
        queries = self.rotate_queries(queries, positions, theta)
        keys, values = self.keep(self.rotate_new_keys(keys, positions), values)
        keys, values = self.held_keys(keys, new), self.held_values(values, new)
        total = keys.shape[-2]
        allowed = torch.zeros(new, total, dtype=torch.bool)
        for query in range(new):
            allowed[query, list(self.visible_in_piece(query, new, total - new))] = True
        shared = [self.kv_head_of_held(head) for head in range(num_heads)]
        heads = self.attend_matrix(queries, keys[:, shared], values[:, shared], allowed)
        return self.project_output(heads.transpose(1, 2).flatten(2), weights)
