"""Everything that the account of one decoder says, as numbers: weights, memory, multiplies, and another length."""

from __future__ import annotations

import dataclasses
from typing import Any

from cs336_harness.cost.architecture import Architecture
from cs336_harness.cost.matmuls import (
    CONVENTION,
    MatMul,
    Weight,
    count_flops,
    count_parameters,
    flops_by_term,
    list_matmuls,
    list_weights,
)
from cs336_harness.shapes import DecoderShape

BYTES_PER_VALUE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8": 1}

LARGEST_SIZE = 10**12


@dataclasses.dataclass(frozen=True, slots=True)
class Tally:
    """One decoder's account at a batch size, a sequence length and a dtype."""

    shape: DecoderShape
    batch_size: int
    sequence_length: int
    dtype: str
    other_length: int
    weights: list[Weight]
    matmuls: list[MatMul]
    other_matmuls: list[MatMul]

    @property
    def parameters(self) -> int:
        """Trainable parameters, a tied matrix counted once."""
        return count_parameters(self.weights)

    @property
    def memory(self) -> int:
        """Bytes of the parameters at the stated dtype."""
        return self.parameters * BYTES_PER_VALUE[self.dtype]

    @property
    def flops(self) -> int:
        """FLOPs of one forward pass."""
        return count_flops(self.matmuls)

    @property
    def terms(self) -> dict[str, int]:
        """FLOPs by term."""
        return flops_by_term(self.matmuls)

    @property
    def other_terms(self) -> dict[str, int]:
        """FLOPs by term at the other length."""
        return flops_by_term(self.other_matmuls)


def tally(
    shape: DecoderShape,
    batch_size: int = 1,
    sequence_length: int | None = None,
    dtype: str = "float32",
) -> Tally:
    """The account of a shape; the length is the context length unless another is given.

    It is set beside the context length, or beside twice the context length when the length is the context length.

    Raises:
        ValueError: sizes that make no decoder, a batch or length below 1, or a dtype that is not known.
    """
    length = shape.context_length if sequence_length is None else sequence_length
    refuse_impossible(shape)
    for name, size in {"batch size": batch_size, "sequence length": length}.items():
        _require_size(f"the {name}", size)
    if dtype not in BYTES_PER_VALUE:
        raise ValueError(f"dtype {dtype} is not known; choose one of {', '.join(BYTES_PER_VALUE)}")
    other = shape.context_length if length != shape.context_length else 2 * shape.context_length
    return Tally(
        shape,
        batch_size,
        length,
        dtype,
        other,
        list_weights(shape),
        list_matmuls(shape, batch_size, length),
        list_matmuls(shape, batch_size, other),
    )


def refuse_impossible(shape: DecoderShape) -> None:
    """Raise ValueError, with the numbers, for sizes that make no decoder."""
    for field in ("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "num_kv_heads", "d_ff"):
        _require_size(field, getattr(shape, field))
    if isinstance(shape, Architecture) and shape.head_dim is not None:
        _require_size("head_dim", shape.head_dim)
    if shape.num_heads * shape.d_head != shape.d_q:
        raise ValueError(f"d_model {shape.d_model} does not divide into num_heads {shape.num_heads}")
    if shape.num_heads % shape.num_kv_heads:
        raise ValueError(f"num_heads {shape.num_heads} do not share num_kv_heads {shape.num_kv_heads} evenly")


def _require_size(what: str, size: int) -> None:
    if size < 1:
        raise ValueError(f"{what} is {size}; it must be at least 1")
    if size > LARGEST_SIZE:
        raise ValueError(f"{what} is larger than {LARGEST_SIZE:,}; no decoder is")


def as_json(account: Tally) -> dict[str, Any]:
    """The account for a program: every number an exact integer, units in the names."""
    total = account.flops
    return {
        "shape": dataclasses.asdict(account.shape),
        "batch_size": account.batch_size,
        "sequence_length": account.sequence_length,
        "dtype": account.dtype,
        "convention": CONVENTION,
        "parameters": {
            "total": account.parameters,
            "weights": [
                {
                    "name": weight.name,
                    "shape": list(weight.shape),
                    "count": weight.count,
                    "parameters": weight.parameters,
                }
                for weight in account.weights
            ],
        },
        "memory": {"bytes": account.memory, "bytes_per_value": BYTES_PER_VALUE[account.dtype]},
        "flops": {
            "total": total,
            "terms": account.terms,
            "matmuls": [
                {
                    **{name: getattr(multiply, name) for name in ("name", "what", "term", "m", "k", "n", "count")},
                    "flops": multiply.flops,
                    "share": multiply.flops / total,
                }
                for multiply in account.matmuls
            ],
        },
        "other_length": {
            "sequence_length": account.other_length,
            "total": count_flops(account.other_matmuls),
            "terms": account.other_terms,
        },
    }
