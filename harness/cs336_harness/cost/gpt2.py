"""GPT-2 (Radford et al. 2019) at a decoder's sizes: every weight and every matrix multiply, listed. Imports no torch.

What it has and this decoder has not: learned positions, LayerNorm (a gain and a bias), a bias on every projection, and
a feed-forward of two matrices, always 4D wide, with GELU between them. Its head is tied, and every query head has key
and value heads of its own. Names are those of the published checkpoints, which store a projection as (in, out).
"""

from __future__ import annotations

import dataclasses

from cs336_harness.cost.matmuls import MatMul, Weight, list_matmuls
from cs336_harness.shapes import DecoderShape

COMPONENTS = ("token_embeddings", "positions", "attention", "feed_forward", "norms", "lm_head")
"""What parameters are grouped by when two decoders are set side by side."""


def as_gpt2(shape: DecoderShape) -> DecoderShape:
    """A shape of these sizes where GPT-2 has no choice: as many key/value heads as query heads, 4D, tied."""
    return DecoderShape(
        vocab_size=shape.vocab_size,
        context_length=shape.context_length,
        d_model=shape.d_model,
        num_layers=shape.num_layers,
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_heads,
        d_ff=4 * shape.d_model,
        tie_embeddings=True,
    )


def list_gpt2_weights(shape: DecoderShape) -> list[Weight]:
    """Every weight of a GPT-2 with this vocabulary, context, width, depth and number of heads."""
    D, layers = shape.d_model, shape.num_layers
    per_layer = {
        "ln_1.weight": (D,),
        "ln_1.bias": (D,),
        "attn.c_attn.weight": (D, 3 * D),
        "attn.c_attn.bias": (3 * D,),
        "attn.c_proj.weight": (D, D),
        "attn.c_proj.bias": (D,),
        "ln_2.weight": (D,),
        "ln_2.bias": (D,),
        "mlp.c_fc.weight": (D, 4 * D),
        "mlp.c_fc.bias": (4 * D,),
        "mlp.c_proj.weight": (4 * D, D),
        "mlp.c_proj.bias": (D,),
    }
    return [
        Weight("wte.weight", (shape.vocab_size, D)),
        Weight("wpe.weight", (shape.context_length, D)),
        *(Weight(name, size, layers) for name, size in per_layer.items()),
        Weight("ln_f.weight", (D,)),
        Weight("ln_f.bias", (D,)),
    ]


def list_gpt2_matmuls(shape: DecoderShape, batch_size: int, sequence_length: int) -> list[MatMul]:
    """Every matrix multiply of a forward pass of that GPT-2, in order. A bias is an addition and no multiply."""
    D, rows, layers = shape.d_model, batch_size * sequence_length, shape.num_layers
    own = {multiply.name: multiply for multiply in list_matmuls(as_gpt2(shape), batch_size, sequence_length)}
    projections = "attention_projections"
    return [
        MatMul("attn.c_attn", "queries, keys and values at once", projections, rows, D, 3 * D, layers, True),
        own["scores"],
        own["values"],
        dataclasses.replace(own["output_proj"], name="attn.c_proj"),
        MatMul("mlp.c_fc", "up to 4D", "feed_forward", rows, D, 4 * D, layers, True),
        MatMul("mlp.c_proj", "back to the width", "feed_forward", rows, 4 * D, D, layers, True),
        dataclasses.replace(own["lm_head"], name="wte"),
    ]


def component(weight: Weight) -> str:
    """Which of :data:`COMPONENTS` a weight belongs to, whichever decoder's it is."""
    name = weight.name
    if name.startswith("ln") or "_norm." in name:
        return "norms"
    if name.startswith(("mlp.", "ffn.")):
        return "feed_forward"
    return {
        "wte.weight": "token_embeddings",
        "wpe.weight": "positions",
        "token_embeddings.weight": "token_embeddings",
        "lm_head.weight": "lm_head",
    }.get(name, "attention")
