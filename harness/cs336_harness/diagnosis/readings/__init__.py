"""Readings: a black box is measured, not only matched. Each says one number of the subject beside what it must be.

:func:`reading_of` gives the first that is wrong in what a program calls, or None. It is what a failure states where no
known mistake fits, and what a name has to agree with before it is called certain.
"""

from __future__ import annotations

import functools

from cs336_harness.diagnosis.readings.attention import read_attention
from cs336_harness.diagnosis.readings.components import read_embedding, read_linear, read_norm, read_softmax
from cs336_harness.diagnosis.readings.curves import read_silu, read_swiglu
from cs336_harness.diagnosis.readings.gradients import read_gradients
from cs336_harness.diagnosis.readings.layers import (
    UNREADABLE,
    read_branches,
    read_ends,
    read_layer_order,
    read_layer_shares,
)
from cs336_harness.diagnosis.readings.projections import read_added_input, read_output_projection, read_projections
from cs336_harness.diagnosis.readings.reading import Reader, Reading
from cs336_harness.diagnosis.readings.rotary import read_rotary
from cs336_harness.diagnosis.readings.self_attention import (
    read_grouped_scale,
    read_heads,
    read_kv_heads,
    read_relative_angles,
    read_score_degrees,
)
from cs336_harness.diagnosis.readings.wiring import read_wiring
from cs336_harness.subject.calling import Subject

__all__ = ["Reading", "reading_of"]

PROJECTED = (read_added_input, read_output_projection)
ATTENTION = (read_heads, read_projections, read_score_degrees, read_relative_angles)
MODEL = (read_ends, read_layer_order, read_wiring, read_branches, *ATTENTION, read_layer_shares)
READERS: dict[str, tuple[Reader, ...]] = {
    "gradients": (read_gradients,),
    "run_linear": (read_linear,),
    "run_embedding": (read_embedding,),
    "run_silu": (read_silu,),
    "run_softmax": (read_softmax,),
    "run_rmsnorm": (read_norm,),
    "run_swiglu": (read_swiglu,),
    "run_rope": (read_rotary,),
    "run_scaled_dot_product_attention": (read_attention,),
    **{
        name: tuple(functools.partial(reader, name=name) for reader in readers)
        for name, readers in {
            "run_multihead_self_attention": (
                read_added_input,
                read_output_projection,
                read_heads,
                read_projections,
                read_score_degrees,
            ),
            "run_multihead_self_attention_with_rope": (*PROJECTED, *ATTENTION),
            "run_transformer_block": (read_wiring, read_branches, *ATTENTION),
            "run_transformer_lm": MODEL,
            "built": (*MODEL[:2], read_kv_heads, read_grouped_scale, *MODEL[2:]),
        }.items()
    },
}
"""What can be read in each program, in the order in which it is read."""


def reading_of(subject: Subject, name: str) -> Reading | None:
    """The first number of a program that is not what it must be; None where there is none, or none can be read."""
    first: Reading | None = None
    for read in READERS.get(name, ()):
        found = read(subject)
        if found is UNREADABLE:
            return None
        if found is not None and not found.vague:
            return found
        first = first or found
    return first
