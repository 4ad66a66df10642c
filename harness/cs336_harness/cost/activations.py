"""What a training step keeps of a forward pass, listed one by one. Imports no torch.

The list is the handout's (CS336 assignment 1, accounting for AdamW): in a block the outputs of both norms, of the
projections, the scores, their softmax, the weighted sum of values, the output projection, and of the feed-forward w1,
SiLU and w2, here with w3, which the handout's own list leaves out; behind the blocks the final norm, the logits, and
what cross-entropy makes of them. Masks, rotations, residual sums and the product of gate and value are left out, as
there. A fused attention keeps neither scores nor softmax, so what this list says is more than such a step takes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from cs336_harness.shapes import DecoderShape


@dataclasses.dataclass(frozen=True, slots=True)
class Activation:
    """One kind of tensor kept for the backward pass: its name, its size, and how many of it there are."""

    name: str
    shape: tuple[int, ...]
    count: int

    @property
    def values(self) -> int:
        """Numbers in all of them together."""
        return math.prod(self.shape) * self.count


def list_activations(shape: DecoderShape, batch_size: int, sequence_length: int) -> list[Activation]:
    """Every tensor that the backward pass of token ids (batch_size, sequence_length) needs, in order.

    Sizes are (B, T, channels), and (B, H, T, T) of scores and their softmax.
    """
    layers = shape.num_layers
    return [*_of_blocks(shape, batch_size, sequence_length, layers), *_behind(shape, batch_size, sequence_length)]


def list_activations_recomputed(shape: DecoderShape, batch_size: int, sequence_length: int) -> list[Activation]:
    """What is kept when every block is computed again in the backward pass: each block's input, and one block whole."""
    inputs = Activation("block inputs", (batch_size, sequence_length, shape.d_model), shape.num_layers)
    one = _of_blocks(shape, batch_size, sequence_length, 1)
    return [inputs, *one, *_behind(shape, batch_size, sequence_length)]


def count_values(activations: Iterable[Activation]) -> int:
    """Numbers in a list of activations."""
    return sum(activation.values for activation in activations)


def _of_blocks(shape: DecoderShape, batch_size: int, sequence_length: int, layers: int) -> list[Activation]:
    rows = (batch_size, sequence_length)
    pairs = (batch_size, shape.num_heads, sequence_length, sequence_length)
    return [
        Activation("ln1, ln2", (*rows, shape.d_model), 2 * layers),
        Activation("q_proj", (*rows, shape.d_q), layers),
        Activation("k_proj, v_proj", (*rows, shape.d_kv), 2 * layers),
        Activation("scores", pairs, layers),
        Activation("softmax", pairs, layers),
        Activation("values", (*rows, shape.d_q), layers),
        Activation("output_proj", (*rows, shape.d_model), layers),
        Activation("w1, SiLU, w3", (*rows, shape.d_ff), 3 * layers),
        Activation("w2", (*rows, shape.d_model), layers),
    ]


def _behind(shape: DecoderShape, batch_size: int, sequence_length: int) -> list[Activation]:
    rows = (batch_size, sequence_length)
    return [
        Activation("ln_final", (*rows, shape.d_model), 1),
        Activation("lm_head", (*rows, shape.vocab_size), 1),
        Activation("cross-entropy", (*rows, shape.vocab_size), 1),
    ]
