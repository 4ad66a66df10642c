"""Parameters, memory and forward FLOPs of the decoder in closed form. Imports no torch.

Letters: V vocabulary, D width, F feed-forward width, L layers, H query heads, K key/value heads, d = D/H channels of
one head, E = K·d channels of all key heads together (E = D for MHA), B batch, T sequence length.

Parameters (no biases; every norm has a gain and nothing else; rotary positions have no parameters):

    token embedding                                VD
    one block    attention    q and output         2D²
                              k and v              2DE         so 4D² for MHA
                 feed-forward w1, w2, w3           3DF
                 norms        ln1, ln2             2D
    final norm                                     D
    head                                           VD          untied; tied, it is the embedding again: nothing

    MHA, untied:  2VD + L(4D² + 3DF + 2D) + D,  and VD less when tied.

FLOPs of one forward pass: (m, k) times (k, n) makes m·n dot products of k multiply-adds each, and a multiply-add is
two operations: 2mkn. Only matrix multiplies are counted. The embedding is a look-up, and norms, rotations, softmax,
SiLU and residuals cost a number of operations per element that does not grow with D. With B·T rows:

    one block    q and output      2 · 2BT·D·D     k and v    2 · 2BT·D·E        so 8BTD² for MHA
                 scores Q Kᵀ       BH multiplies of (T, d) by (d, T):  BH · 2T·d·T = 2BT²D
                 weights times V   BH multiplies of (T, T) by (T, d):  BH · 2T·T·d = 2BT²D
                 feed-forward      3 · 2BT·D·F = 6BTDF
    head                           2BT·D·V         tied or not: tying shares the numbers, not the work

    MHA:  L(8BTD² + 4BT²D + 6BTDF) + 2BTDV.

Grouped queries shrink the k and v projections only: every query head still meets every position, so the T² terms keep
H. The score matrix is counted whole; a causal mask hides half of it, and a dense multiply computes it all the same.
Source: section 3 of the CS336 handout, "resource accounting".
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

BYTES_PER_VALUE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


@runtime_checkable
class DecoderSizes(Protocol):
    """The sizes that decide the cost of a decoder: ``TransformerConfig`` has them, and so may anything else."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def d_model(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def num_heads(self) -> int: ...
    @property
    def num_kv_heads(self) -> int: ...
    @property
    def d_ff(self) -> int: ...


def parameters_by_component(
    vocab_size: int,
    d_model: int,
    num_layers: int,
    num_heads: int,
    num_kv_heads: int,
    d_ff: int,
    tie_embeddings: bool = False,
) -> dict[str, int]:
    """Trainable parameters of each component, over all layers; they sum to the total, exactly.

    Raises:
        ValueError: a size is not positive (``num_layers`` may be 0), or the heads do not divide.
    """
    d_kv = _kv_channels(vocab_size, d_model, num_layers, num_heads, num_kv_heads, d_ff)
    return {
        "token_embeddings": vocab_size * d_model,
        "attention": num_layers * (2 * d_model * d_model + 2 * d_model * d_kv),
        "feed_forward": num_layers * 3 * d_model * d_ff,
        "norms": num_layers * 2 * d_model + d_model,
        "lm_head": 0 if tie_embeddings else vocab_size * d_model,
    }


def parameter_count(
    vocab_size: int,
    d_model: int,
    num_layers: int,
    num_heads: int,
    num_kv_heads: int,
    d_ff: int,
    tie_embeddings: bool = False,
) -> int:
    """Trainable parameters in total, a tied vocabulary matrix counted once. Raises as ``parameters_by_component``."""
    return sum(
        parameters_by_component(vocab_size, d_model, num_layers, num_heads, num_kv_heads, d_ff, tie_embeddings).values()
    )


def parameter_bytes(num_parameters: int, dtype: str = "float32") -> int:
    """Bytes that hold this many parameters. Raises ValueError for a dtype that is not in ``BYTES_PER_VALUE``."""
    if dtype not in BYTES_PER_VALUE:
        raise ValueError(f"dtype {dtype!r} is not known; choose one of {', '.join(BYTES_PER_VALUE)}")
    return num_parameters * BYTES_PER_VALUE[dtype]


def forward_flops(
    batch_size: int,
    sequence_length: int,
    vocab_size: int,
    d_model: int,
    num_layers: int,
    num_heads: int,
    num_kv_heads: int,
    d_ff: int,
) -> dict[str, int]:
    """FLOPs of the matrix multiplies of one forward pass, by term, over all layers; they sum to the total, exactly.

    The keys are ``attention_projections``, ``attention_scores``, ``attention_values``, ``feed_forward``, ``lm_head``.
    Tying is no argument: it changes none of them.

    Raises:
        ValueError: a size is not positive (``num_layers`` may be 0), or the heads do not divide.
    """
    d_kv = _kv_channels(vocab_size, d_model, num_layers, num_heads, num_kv_heads, d_ff)
    for name, size in {"batch_size": batch_size, "sequence_length": sequence_length}.items():
        if size < 1:
            raise ValueError(f"{name} is {size}; it must be at least 1")
    tokens = batch_size * sequence_length
    every_pair_of_positions = 2 * tokens * sequence_length * d_model
    return {
        "attention_projections": num_layers * (4 * tokens * d_model * d_model + 4 * tokens * d_model * d_kv),
        "attention_scores": num_layers * every_pair_of_positions,
        "attention_values": num_layers * every_pair_of_positions,
        "feed_forward": num_layers * 6 * tokens * d_model * d_ff,
        "lm_head": 2 * tokens * d_model * vocab_size,
    }


def parameter_count_of(config: DecoderSizes, tie_embeddings: bool) -> int:
    """``parameter_count`` of anything that has the six sizes as attributes, a ``TransformerConfig`` for one."""
    return parameter_count(**_sizes_of(config), tie_embeddings=tie_embeddings)


def forward_flops_of(config: DecoderSizes, batch_size: int, sequence_length: int) -> dict[str, int]:
    """``forward_flops`` of anything that has the six sizes as attributes, a ``TransformerConfig`` for one."""
    return forward_flops(batch_size, sequence_length, **_sizes_of(config))


def _sizes_of(config: DecoderSizes) -> dict[str, int]:
    return {
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "num_layers": config.num_layers,
        "num_heads": config.num_heads,
        "num_kv_heads": config.num_kv_heads,
        "d_ff": config.d_ff,
    }


def _kv_channels(vocab_size: int, d_model: int, num_layers: int, num_heads: int, num_kv_heads: int, d_ff: int) -> int:
    sizes = {
        "vocab_size": vocab_size,
        "d_model": d_model,
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "d_ff": d_ff,
    }
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}; it must be at least 1")
    if num_layers < 0:
        raise ValueError(f"num_layers is {num_layers}; it must not be negative")
    if d_model % num_heads:
        raise ValueError(f"d_model {d_model} does not divide into num_heads {num_heads}; choose heads that divide it")
    if num_heads % num_kv_heads:
        raise ValueError(
            f"num_heads {num_heads} do not share num_kv_heads {num_kv_heads} evenly; choose a divisor of num_heads"
        )
    return num_kv_heads * (d_model // num_heads)
