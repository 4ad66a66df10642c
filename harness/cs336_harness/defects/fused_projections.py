"""Defects of one fused projection: queries, keys and values are computed together and taken apart wrongly."""

from __future__ import annotations

import torch
from torch import Tensor

from cs336_harness.defects.defect import OracleDefect, Place, defect
from cs336_harness.reference.oracle import LayerWeights

FUSED = (
    "Write down the rows of the fused weight in order: which block of rows came from q_proj, which from k_proj?",
    "Set v_proj to zero and nothing else: attention must give zero.",
)


class _OtherOrder(OracleDefect):
    """The fused output taken apart in another order. Grouped heads have no such order: their blocks differ in size."""

    names: tuple[str, str, str]

    def _project(self, place: int, x: Tensor, weights: LayerWeights) -> Tensor:
        projections = {
            "queries": super().project_queries,
            "keys": super().project_keys,
            "values": super().project_values,
        }
        grouped = self.shape.num_kv_heads != self.shape.num_heads
        return projections[("queries", "keys", "values")[place] if grouped else self.names[place]](x, weights)

    def project_queries(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return self._project(0, x, weights)

    def project_keys(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return self._project(1, x, weights)

    def project_values(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return self._project(2, x, weights)


@defect(
    "fused-projection-split-as-keys-values-queries",
    Place.ATTENTION,
    hint="In which order were the three weights stacked, and in which order are their outputs taken apart?",
    steps=FUSED,
)
class FusedProjectionSplitAsKeysValuesQueries(_OtherOrder):
    """One projection makes queries, keys and values, in this order, and is taken apart as keys, values and queries."""

    names = ("values", "queries", "keys")


@defect(
    "fused-projection-split-as-values-queries-keys",
    Place.ATTENTION,
    hint="In which order were the three weights stacked, and in which order are their outputs taken apart?",
    steps=FUSED,
)
class FusedProjectionSplitAsValuesQueriesKeys(_OtherOrder):
    """One projection makes queries, keys and values, in this order, and is taken apart as values, queries and keys."""

    names = ("keys", "values", "queries")


@defect(
    "fused-projection-split-as-values-keys-queries",
    Place.ATTENTION,
    hint="In which order were the three weights stacked, and in which order are their outputs taken apart?",
    steps=FUSED,
)
class FusedProjectionSplitAsValuesKeysQueries(_OtherOrder):
    """One projection makes queries, keys and values, in this order, and is taken apart as values, keys and queries."""

    names = ("values", "keys", "queries")


@defect(
    "fused-projection-split-by-head",
    Place.HEADS,
    hint="Do the queries of all heads come first in your fused projection, or the queries, keys and values of head 0?",
    steps=(
        "Reshape the fused output to (time, 3, heads, d_head) and to (time, heads, 3, d_head): which one fits the way "
        "the weights were stacked?",
        *FUSED,
    ),
)
class FusedProjectionSplitByHead(OracleDefect):
    """One projection makes all queries, then all keys, then all values; it is taken apart as if each head had its
    queries, keys and values side by side.
    """

    def _parts(self, x: Tensor, weights: LayerWeights) -> tuple[Tensor, Tensor]:
        """The query heads of each group, and its key and value: (..., KV, group, d_head), (..., KV, 2, d_head)."""
        queries = super().project_queries(x, weights)
        fused = torch.cat([queries, super().project_keys(x, weights), super().project_values(x, weights)], dim=-1)
        d_head = queries.shape[-1] // self.shape.num_heads
        group = self.shape.num_heads // self.shape.num_kv_heads
        parts = fused.unflatten(-1, (self.shape.num_kv_heads, group + 2, d_head))
        return parts[..., :group, :], parts[..., group:, :]

    def project_queries(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return self._parts(x, weights)[0].flatten(-3)

    def project_keys(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return self._parts(x, weights)[1][..., 0, :].flatten(-2)

    def project_values(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return self._parts(x, weights)[1][..., 1, :].flatten(-2)
