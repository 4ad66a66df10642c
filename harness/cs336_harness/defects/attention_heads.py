"""Defects of the heads: how channels are split and merged, and which key/value head a query head reads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cs336_harness.defects.defect import OracleDefect, Place, defect
from cs336_harness.reference.oracle import LayerWeights

FOLLOW_A_CHANNEL = (
    "Give every channel its own number as value, d_model = 6, two heads, two positions, and print the "
    "tensor after each reshape.",
    "The first head of position 0 must hold the channels 0, 1, 2 of position 0.",
)
GROUPS = (
    "Draw six query heads over two key/value heads: heads 0, 1, 2 share the first, heads 3, 4, 5 the second.",
    "Print which key/value head each query head reads.",
)


@defect(
    "heads-merged-without-transpose",
    Place.HEADS,
    hint=(
        "After attention the axes are (batch, head, time, channel): which of them must move before heads can be joined?"
    ),
    steps=FOLLOW_A_CHANNEL,
)
class HeadsMergedWithoutTranspose(OracleDefect):
    """(head, time, channel) is reshaped to (time, width) without moving the head axis back, which mixes positions: the
    future leaks in.
    """

    def merge_heads(self, heads: Sequence[Tensor]) -> Tensor:
        stacked = torch.stack(list(heads))
        return stacked.reshape(stacked.shape[1], -1)


@defect(
    "heads-split-without-transpose",
    Place.HEADS,
    hint="One reshape cannot move an axis: what order are (time, head, channel) in, and which order do you ask for?",
    steps=FOLLOW_A_CHANNEL,
)
class HeadsSplitWithoutTranspose(OracleDefect):
    """(time, width) is reshaped straight to (head, time, channel), so a head holds pieces of several positions."""

    def split_head(self, projected: Tensor, head: int, num_heads: int) -> Tensor:
        return projected.reshape(num_heads, projected.shape[0], -1)[head]


@defect(
    "heads-split-and-merged-without-transpose",
    Place.HEADS,
    hint="A reshape there and a reshape back cancel in shape, not in meaning: which axis was never moved?",
    steps=FOLLOW_A_CHANNEL,
)
class HeadsSplitAndMergedWithoutTranspose(HeadsSplitWithoutTranspose, HeadsMergedWithoutTranspose):
    """Heads are split and merged by reshape alone, so each head attends over pieces of several positions."""


@defect(
    "heads-interleaved",
    Place.HEADS,
    hint=(
        "Heads lie one after another in the projection: is channel 1 the first head's second, or the "
        "second head's first?"
    ),
    steps=FOLLOW_A_CHANNEL,
)
class HeadsInterleaved(OracleDefect):
    """Channel c is given to head c mod num_heads, both in the split and in the merge; heads lie one after another."""

    def split_head(self, projected: Tensor, head: int, num_heads: int) -> Tensor:
        return projected[:, head::num_heads]

    def merge_heads(self, heads: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(heads), dim=-1).flatten(-2)


@defect(
    "heads-split-interleaved",
    Place.HEADS,
    hint="In the split, is the head the slower or the faster axis of the width?",
    steps=FOLLOW_A_CHANNEL,
)
class HeadsSplitInterleaved(OracleDefect):
    """The split gives channel c to head c mod num_heads: the width is viewed as (channel, head) where (head, channel)
    belongs.
    """

    def split_head(self, projected: Tensor, head: int, num_heads: int) -> Tensor:
        return projected[:, head::num_heads]


@defect(
    "heads-merged-interleaved",
    Place.HEADS,
    hint="In the merge, which axis varies faster: the channel within a head, or the head?",
    steps=FOLLOW_A_CHANNEL,
)
class HeadsMergedInterleaved(OracleDefect):
    """The merge writes the heads' first channels, then their second ones; each head's channels belong side by side."""

    def merge_heads(self, heads: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(heads), dim=-1).flatten(-2)


@defect(
    "heads-merged-in-reverse",
    Place.HEADS,
    hint="Which head's channels come first in the merged vector?",
    steps=FOLLOW_A_CHANNEL,
)
class HeadsMergedInReverse(OracleDefect):
    """The heads are joined last to first."""

    def merge_heads(self, heads: Sequence[Tensor]) -> Tensor:
        return super().merge_heads(list(heads)[::-1])


@defect(
    "num-heads-ignored",
    Place.HEADS,
    hint="How many separate softmaxes are taken for each query? There must be one for each head.",
    steps=("Call attention with num_heads 1 and num_heads 3: the results must differ.",),
)
class NumHeadsIgnored(OracleDefect):
    """Attention runs as one head over the whole width, whatever num_heads says."""

    def self_attention(self, x: Tensor, weights: LayerWeights, positions: Tensor | None, theta: float | None) -> Tensor:
        if weights["attn.k_proj.weight"].shape[0] != x.shape[-1]:
            raise RuntimeError("one head over the whole width needs keys of the whole width")
        shape = self.shape
        self.shape = shape.replace(num_heads=1, num_kv_heads=1)
        try:
            return super().self_attention(x, weights, positions, theta)
        finally:
            self.shape = shape


@defect(
    "first-kv-head-for-all",
    Place.HEADS,
    hint="Does every query head read its own key/value head, or do all of them read the first?",
    steps=GROUPS,
)
class FirstKvHeadForAll(OracleDefect):
    """Every query head reads the first key/value head; the others are never used. With one key/value head nobody
    notices.
    """

    def kv_head_of(self, head: int, num_heads: int, num_kv_heads: int) -> int:
        return 0


@defect(
    "kv-heads-tiled",
    Place.HEADS,
    hint=(
        "Repeating 0, 1 as 0, 1, 0, 1 and as 0, 0, 1, 1 are two different things: which one keeps neighbours together?"
    ),
    steps=GROUPS,
)
class KvHeadsTiled(OracleDefect):
    """Key/value heads are tiled (0, 1, 0, 1, …) where each must be repeated for its own group (0, 0, …, 1, 1, …)."""

    def kv_head_of(self, head: int, num_heads: int, num_kv_heads: int) -> int:
        return head % num_kv_heads


@defect(
    "kv-group-size-confused",
    Place.HEADS,
    hint="There are num_kv_heads groups of num_heads / num_kv_heads: which of the two numbers do you divide by?",
    steps=GROUPS,
)
class KvGroupSizeConfused(OracleDefect):
    """The number of groups and the size of a group are confused. At 4 over 2 they are equal; at 6 over 2 they are
    not.
    """

    def kv_head_of(self, head: int, num_heads: int, num_kv_heads: int) -> int:
        return head // num_kv_heads % num_kv_heads


@defect(
    "kv-heads-in-reverse",
    Place.HEADS,
    hint="Which key/value head does the first group of query heads read?",
    steps=GROUPS,
)
class KvHeadsInReverse(OracleDefect):
    """The first group of query heads reads the last key/value head, and so on backwards."""

    def kv_head_of(self, head: int, num_heads: int, num_kv_heads: int) -> int:
        return num_kv_heads - 1 - super().kv_head_of(head, num_heads, num_kv_heads)


@defect(
    "batch-against-heads",
    Place.HEADS,
    hint=(
        "Write the axes of both tensors under each other, aligned at the end: does batch stand above "
        "batch, or above heads?"
    ),
    steps=(
        "Call attention with 4 rows and 4 heads, then with 4 rows and 6 heads: the first works by accident.",
        "Give the angles an axis of size one where queries and keys have their heads.",
    ),
)
class BatchAgainstHeads(OracleDefect):
    """A tensor without a head axis (angles or mask, one for each row) meets queries that have one: batch is broadcast
    against heads.

    It works when there are as many rows as heads, or one row, and raises otherwise.
    """

    def self_attention(self, x: Tensor, weights: LayerWeights, positions: Tensor | None, theta: float | None) -> Tensor:
        rows, heads = x[..., 0, 0].numel(), self.shape.num_heads
        if positions is not None and heads > 1 and rows not in (1, heads):
            raise RuntimeError(f"The size of tensor a ({heads}) must match the size of tensor b ({rows})")
        self.all_positions = None if positions is None else positions.expand(rows, x.shape[-2])
        return super().self_attention(x, weights, positions, theta)

    def rotate_queries(self, queries: Tensor, positions: Tensor, theta: float) -> Tensor:
        rows = self.all_positions
        return super().rotate_queries(queries, positions if rows is None else rows[self.head % len(rows)], theta)

    def rotate_keys(self, keys: Tensor, positions: Tensor, theta: float) -> Tensor:
        rows = self.all_positions
        return super().rotate_keys(keys, positions if rows is None else rows[self.head % len(rows)], theta)


@defect(
    "keys-and-values-of-first-row",
    Place.INFORMATION_FLOW,
    hint="Rows of a batch are strangers: whose keys does the second row's query meet?",
    steps=("Run two rows together and each alone: the results must be the same.",),
)
class KeysAndValuesOfFirstRow(OracleDefect):
    """Every row of the batch attends to the first row's keys and values."""

    def project_keys(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().project_keys(x[:1].expand_as(x), weights)

    def project_values(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().project_values(x[:1].expand_as(x), weights)
