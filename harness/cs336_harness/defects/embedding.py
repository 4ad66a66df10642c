"""Defects of the embedding: which row a token gets, and what is done to it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from cs336_harness.defects.defect import OracleDefect, Place, defect

BARE_ROW = ("Look up one token and compare with its row of the table: they must be equal, bit by bit.",)


class _Scaled(OracleDefect):
    def scale(self, d_model: int) -> float:
        raise NotImplementedError

    def embedding(self, table: Tensor, token_ids: Tensor) -> Tensor:
        return super().embedding(table, token_ids) * self.scale(table.shape[-1])


@defect(
    "embedding-scaled-up",
    Place.EMBEDDING,
    hint="A token's first vector is its row of the table and nothing else: what is multiplied in?",
    steps=BARE_ROW,
)
class EmbeddingScaledUp(_Scaled):
    """The row is multiplied by sqrt(d_model), as in Vaswani et al. and Gemma. This decoder uses the bare row."""

    def scale(self, d_model: int) -> float:
        return math.sqrt(d_model)


@defect(
    "embedding-scaled-down",
    Place.EMBEDDING,
    hint="A token's first vector is its row of the table and nothing else: what is it divided by?",
    steps=BARE_ROW,
)
class EmbeddingScaledDown(_Scaled):
    """The row is divided by sqrt(d_model). This decoder uses the bare row."""

    def scale(self, d_model: int) -> float:
        return 1 / math.sqrt(d_model)


@defect(
    "embedding-scaled-up-in-model",
    Place.EMBEDDING,
    hint="Between the look-up and the first layer, nothing happens to the vectors: what does your model do there?",
    steps=("Print the first layer's input for one token and compare it with the token's row of the table.",),
)
class EmbeddingScaledUpInModel(OracleDefect):
    """The embedding itself is right, but the model multiplies what it gives by sqrt(d_model) before the first layer."""

    def embed_tokens(self, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        return super().embed_tokens(weights, token_ids) * math.sqrt(self.shape.d_model)


@defect(
    "embedding-padding-row",
    Place.EMBEDDING,
    hint="Token 0 is a token like any other: is one of your rows set aside for padding?",
    steps=("Look up token 0: its row of the table is not zero.",),
)
class EmbeddingPaddingRow(OracleDefect):
    """Token 0 is treated as padding and gets a row of zeros."""

    def embedding(self, table: Tensor, token_ids: Tensor) -> Tensor:
        return super().embedding(table, token_ids) * (token_ids != 0)[..., None]


@defect(
    "embedding-ids-counted-from-one",
    Place.EMBEDDING,
    hint="The first row of the table belongs to token 0: which row does your token 0 get?",
    steps=BARE_ROW,
)
class EmbeddingIdsCountedFromOne(OracleDefect):
    """Every token gets the row before its own, and token 0 gets the last one."""

    def embedding(self, table: Tensor, token_ids: Tensor) -> Tensor:
        return super().embedding(table, token_ids - 1)


@defect(
    "embedding-last-id-clamped",
    Place.EMBEDDING,
    hint="Ids run from 0 to vocab_size - 1: which is the largest that you let through?",
    steps=("Look up token vocab_size - 1.",),
)
class EmbeddingLastIdClamped(OracleDefect):
    """The last token of the vocabulary is clamped to the one before it."""

    def embedding(self, table: Tensor, token_ids: Tensor) -> Tensor:
        return super().embedding(table, token_ids.clamp_max(table.shape[0] - 2))


@defect(
    "embedding-rows-normalised",
    Place.EMBEDDING,
    hint="Rows have the length that training gave them: what brings yours to length one?",
    steps=BARE_ROW,
)
class EmbeddingRowsNormalised(OracleDefect):
    """Every row is brought to length one when it is looked up."""

    def embedding(self, table: Tensor, token_ids: Tensor) -> Tensor:
        return torch.nn.functional.normalize(super().embedding(table, token_ids), dim=-1)


@defect(
    "embedding-sinusoidal-positions",
    Place.POSITIONS,
    hint="This decoder knows positions through the rotation alone: what else adds them?",
    steps=("Silence every sublayer and feed the same token twice: both positions must give the same logits.",),
)
class EmbeddingSinusoidalPositions(OracleDefect):
    """Sinusoidal position vectors are added to the embedding, as in Vaswani et al.; here only the rotation tells
    positions.
    """

    def embed_tokens(self, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        x = super().embed_tokens(weights, token_ids)
        angles = self.angles(torch.arange(x.shape[-2]), x.shape[-1], 10000.0)
        return x + torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)


@defect(
    "embedding-in-bfloat16",
    Place.EMBEDDING,
    rounds=True,
    hint="In which dtype does the row leave the table?",
    steps=BARE_ROW,
)
class EmbeddingInBfloat16(OracleDefect):
    """The rows pass through bfloat16: three digits of each value are kept."""

    def embedding(self, table: Tensor, token_ids: Tensor) -> Tensor:
        return super().embedding(table, token_ids).to(torch.bfloat16).to(torch.float64)
