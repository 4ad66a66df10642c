"""Defects of how a block is wired."""

from __future__ import annotations

import math

from torch import Tensor

from cs336_harness.defects.defect import OracleDefect, Place, defect
from cs336_harness.reference.oracle import LayerWeights

TWO_LINES = (
    "Say the block's two lines aloud: x plus attention of the norm of x, then x plus feed-forward of the norm of x.",
    "Set output_proj and w2 to zero: the block must hand its input through unchanged.",
)


class BlockInParts(OracleDefect):
    """A block taken apart: attention and feed-forward as functions of what they read."""

    def attention(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return self.self_attention(x, weights, positions, self.shape.rope_theta)

    def feed_forward(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return self.swiglu(x, *(weights[f"ffn.{name}.weight"] for name in ("w1", "w2", "w3")))

    def first_norm(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return self.rmsnorm(x, weights["ln1.weight"], self.shape.norm_eps)

    def second_norm(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return self.rmsnorm(x, weights["ln2.weight"], self.shape.norm_eps)


@defect(
    "block-post-norm",
    Place.RESIDUAL,
    hint="Is the norm taken of what goes into a sublayer, or of what comes out of the addition?",
    steps=TWO_LINES,
)
class BlockPostNorm(BlockInParts):
    """Each norm is taken after the addition (post-norm, as in Vaswani et al.); this decoder norms what a sublayer
    reads.
    """

    def block(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        x = self.first_norm(x + self.attention(x, weights, positions), weights)
        return self.second_norm(x + self.feed_forward(x, weights), weights)


@defect(
    "block-norm-after-sublayer",
    Place.RESIDUAL,
    hint="Does a norm stand before its sublayer or behind it?",
    steps=TWO_LINES,
)
class BlockNormAfterSublayer(BlockInParts):
    """The output of each sublayer is normed before it is added, and its input is not."""

    def block(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        x = x + self.first_norm(self.attention(x, weights, positions), weights)
        return x + self.second_norm(self.feed_forward(x, weights), weights)


@defect(
    "residual-from-normed-input",
    Place.RESIDUAL,
    hint="What is added to the sublayer's output: the stream as it came in, or the norm of it?",
    steps=TWO_LINES,
)
class ResidualFromNormedInput(BlockInParts):
    """The normed input is added to each sublayer's output (x = norm(x); x = x + f(x)); the stream itself must be
    added.
    """

    def block(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        x = self.first_norm(x, weights)
        x = x + self.attention(x, weights, positions)
        x = self.second_norm(x, weights)
        return x + self.feed_forward(x, weights)


@defect(
    "attention-residual-missing",
    Place.RESIDUAL,
    hint="Two additions make a block: what is added to attention's output?",
    steps=TWO_LINES,
)
class AttentionResidualMissing(BlockInParts):
    """Attention's output replaces the stream; x is not added to it."""

    def attention_sublayer(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return super().attention_sublayer(x, weights, positions) - x


@defect(
    "feed-forward-residual-missing",
    Place.RESIDUAL,
    hint="Two additions make a block: what is added to the feed-forward's output?",
    steps=TWO_LINES,
)
class FeedForwardResidualMissing(BlockInParts):
    """The feed-forward's output replaces the stream; x is not added to it."""

    def feed_forward_sublayer(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().feed_forward_sublayer(x, weights) - x


@defect(
    "residuals-missing",
    Place.RESIDUAL,
    hint="Two additions make a block: where are yours?",
    steps=TWO_LINES,
)
class ResidualsMissing(AttentionResidualMissing, FeedForwardResidualMissing):
    """Neither sublayer's input is added to its output: the block has no residual stream."""


@defect(
    "block-parallel",
    Place.RESIDUAL,
    hint="What does the feed-forward read: the stream before attention, or after it?",
    steps=TWO_LINES,
)
class BlockParallel(BlockInParts):
    """Attention and feed-forward both read the block's input (as in GPT-J); here the feed-forward reads what attention
    left.
    """

    def block(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        attended = self.attention(self.first_norm(x, weights), weights, positions)
        return x + attended + self.feed_forward(self.second_norm(x, weights), weights)


@defect(
    "block-feed-forward-first",
    Place.RESIDUAL,
    hint="Which of the two sublayers comes first?",
    steps=TWO_LINES,
)
class BlockFeedForwardFirst(OracleDefect):
    """The feed-forward comes before attention."""

    def block(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return self.attention_sublayer(self.feed_forward_sublayer(x, weights), weights, positions)


@defect(
    "second-residual-from-block-input",
    Place.RESIDUAL,
    hint="Which x is added to the feed-forward's output: the one before attention, or the one after it?",
    steps=TWO_LINES,
)
class SecondResidualFromBlockInput(BlockInParts):
    """The feed-forward's output is added to the block's input, so attention reaches the stream only through the
    feed-forward.
    """

    def block(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        attended = self.attention_sublayer(x, weights, positions)
        return x + self.feed_forward_sublayer(attended, weights) - attended


@defect(
    "residual-added-twice",
    Place.RESIDUAL,
    hint="How many times is x added on the way through a block: once for each sublayer?",
    steps=TWO_LINES,
)
class ResidualAddedTwice(BlockInParts):
    """The input is added twice around each sublayer: once in the sublayer and once in the block, so the stream
    doubles.
    """

    def attention_sublayer(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return x + super().attention_sublayer(x, weights, positions)

    def feed_forward_sublayer(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return x + super().feed_forward_sublayer(x, weights)


@defect(
    "residual-branches-scaled",
    Place.RESIDUAL,
    hint="A sublayer's output is added as it is: which factor is on yours?",
    steps=TWO_LINES,
)
class ResidualBranchesScaled(BlockInParts):
    """Each sublayer's output is divided by sqrt(2 num_layers) in the forward pass; that factor belongs to GPT-2's
    initialisation.
    """

    def attention_sublayer(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return x + (super().attention_sublayer(x, weights, positions) - x) / math.sqrt(2 * self.shape.num_layers)

    def feed_forward_sublayer(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return x + (super().feed_forward_sublayer(x, weights) - x) / math.sqrt(2 * self.shape.num_layers)


@defect(
    "feed-forward-missing",
    Place.RESIDUAL,
    hint="A block has two sublayers: is the second one called, and is its result kept?",
    steps=TWO_LINES,
)
class FeedForwardMissing(OracleDefect):
    """The block ends after attention: the feed-forward is built and never called, or its result is dropped."""

    def feed_forward_sublayer(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return x


@defect(
    "attention-missing",
    Place.RESIDUAL,
    hint="A block has two sublayers: is the first one called, and is its result kept?",
    steps=TWO_LINES,
)
class AttentionMissing(OracleDefect):
    """The block skips attention: it is built and never called, or its result is dropped."""

    def attention_sublayer(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return x
