"""Defects of a block's wiring that only one of its two sublayers has, and norms in front of and behind a sublayer."""

from __future__ import annotations

from torch import Tensor

from cs336_harness.defects.blocks import TWO_LINES, BlockInParts
from cs336_harness.defects.defect import Place, defect
from cs336_harness.reference.oracle import LayerWeights

NORM_FIRST = "Where does this norm stand: in front of its sublayer, behind it, or behind the addition?"


@defect("attention-post-norm", Place.RESIDUAL, hint=NORM_FIRST, steps=TWO_LINES)
class AttentionPostNorm(BlockInParts):
    """ln1 is taken after attention's addition (post-norm), and attention reads the stream as it is; the feed-forward is
    right.
    """

    def attention_sublayer(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return self.first_norm(x + self.attention(x, weights, positions), weights)


@defect("feed-forward-post-norm", Place.RESIDUAL, hint=NORM_FIRST, steps=TWO_LINES)
class FeedForwardPostNorm(BlockInParts):
    """ln2 is taken after the feed-forward's addition (post-norm), and the feed-forward reads the stream as it is;
    attention is right.
    """

    def feed_forward_sublayer(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return self.second_norm(x + self.feed_forward(x, weights), weights)


@defect("attention-norm-after-sublayer", Place.RESIDUAL, hint=NORM_FIRST, steps=TWO_LINES)
class AttentionNormAfterSublayer(BlockInParts):
    """ln1 norms what attention gives, not what it reads; the feed-forward is right."""

    def attention_sublayer(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return x + self.first_norm(self.attention(x, weights, positions), weights)


@defect("feed-forward-norm-after-sublayer", Place.RESIDUAL, hint=NORM_FIRST, steps=TWO_LINES)
class FeedForwardNormAfterSublayer(BlockInParts):
    """ln2 norms what the feed-forward gives, not what it reads; attention is right."""

    def feed_forward_sublayer(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return x + self.second_norm(self.feed_forward(x, weights), weights)


@defect(
    "block-norm-before-and-after",
    Place.RESIDUAL,
    hint="How often is each norm called in one pass through a block? Once, in front of its sublayer.",
    steps=TWO_LINES,
)
class BlockNormBeforeAndAfter(BlockInParts):
    """Each norm stands in front of its sublayer and once more behind it, before the addition ("sandwich norm")."""

    def block(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        attended = self.attention(self.first_norm(x, weights), weights, positions)
        x = x + self.first_norm(attended, weights)
        return x + self.second_norm(self.feed_forward(self.second_norm(x, weights), weights), weights)


@defect(
    "attention-residual-from-normed-input",
    Place.RESIDUAL,
    hint="What is added to attention's output: the stream as it came in, or the norm of it?",
    steps=TWO_LINES,
)
class AttentionResidualFromNormedInput(BlockInParts):
    """The normed input, not the stream, is added to attention's output; the feed-forward is right."""

    def attention_sublayer(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        normed = self.first_norm(x, weights)
        return normed + self.attention(normed, weights, positions)


@defect(
    "feed-forward-residual-from-normed-input",
    Place.RESIDUAL,
    hint="What is added to the feed-forward's output: the stream as it came in, or the norm of it?",
    steps=TWO_LINES,
)
class FeedForwardResidualFromNormedInput(BlockInParts):
    """The normed input, not the stream, is added to the feed-forward's output; attention is right."""

    def feed_forward_sublayer(self, x: Tensor, weights: LayerWeights) -> Tensor:
        normed = self.second_norm(x, weights)
        return normed + self.feed_forward(normed, weights)


@defect(
    "attention-residual-added-twice",
    Place.RESIDUAL,
    hint="How many times is x added to attention's output: in the sublayer, in the block, or in both?",
    steps=TWO_LINES,
)
class AttentionResidualAddedTwice(BlockInParts):
    """The input is added twice around attention, once in the sublayer and once in the block; the feed-forward is
    right.
    """

    def attention_sublayer(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return x + super().attention_sublayer(x, weights, positions)


@defect(
    "feed-forward-residual-added-twice",
    Place.RESIDUAL,
    hint="How many times is x added to the feed-forward's output: in the sublayer, in the block, or in both?",
    steps=TWO_LINES,
)
class FeedForwardResidualAddedTwice(BlockInParts):
    """The input is added twice around the feed-forward, once in the sublayer and once in the block; attention is
    right.
    """

    def feed_forward_sublayer(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return x + super().feed_forward_sublayer(x, weights)


@defect(
    "block-parallel-with-one-norm",
    Place.RESIDUAL,
    hint="What does the feed-forward read: the stream before attention, or the norm of the stream after it?",
    steps=TWO_LINES,
)
class BlockParallelWithOneNorm(BlockInParts):
    """Attention and feed-forward both read ln1 of the block's input (as in GPT-J); ln2 is never used."""

    def block(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        normed = self.first_norm(x, weights)
        return x + self.attention(normed, weights, positions) + self.feed_forward(normed, weights)
