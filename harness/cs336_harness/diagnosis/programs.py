"""Which experiments a failing check calls for, and which defects can show in them."""

from __future__ import annotations

import functools

from cs336_harness.checks import Check
from cs336_harness.contract import MODEL_ENTRY_POINTS
from cs336_harness.defects import Defect, Place, real_defects
from cs336_harness.defects.cached import CacheDefect
from cs336_harness.defects.defect import layer_of
from cs336_harness.diagnosis import facts, ladders, pieces
from cs336_harness.diagnosis.observing import Program
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.oracle_adapters import OracleAdapters, OracleModel
from cs336_harness.subject.built_models import IN_PIECES

EVERY = (*MODEL_ENTRY_POINTS, "built", "tying", "configuration", "run_parameter_count", "run_forward_flops", IN_PIECES)
"""The names of all programs."""
QUICK = (
    "run_silu",
    "run_softmax",
    "run_rmsnorm",
    "run_rope",
    "run_embedding",
    "run_linear",
    "run_swiglu",
    "run_scaled_dot_product_attention",
)
"""Programs of single components: a fraction of a millisecond each."""
ASSEMBLY = ("get_transformer_lm", "get_transformer_lm_weights")


@functools.cache
def program(name: str) -> Program:
    """The experiments of a program; its name is an entry point, or a word such as ``built`` or ``tying``."""
    match name:
        case "built":
            return ladders.built_ladder()
        case "gradients":
            return facts.gradients()
        case "tying":
            return facts.tying()
        case "configuration":
            return facts.configuration()
        case "run_parameter_count":
            return facts.parameter_count()
        case "run_forward_flops":
            return facts.forward_flops()
        case "run_transformer_lm_in_pieces":
            return pieces.program()
    return ladders.ladder(name)


def programs_for(check: Check) -> list[str]:
    """The programs that can explain why a check fails, the most likely first."""
    if not check.needs:
        return []
    if IN_PIECES in check.needs:
        return [IN_PIECES]
    if "get_transformer_lm" not in check.needs:
        return list(check.needs)
    if check.id.startswith("slow_oracle.gradients"):
        return ["tying", "built", "gradients"] if check.id.endswith("tied]") else ["built", "gradients"]
    own = {"tying": ["tying", "configuration", "built"], "configuration": ["configuration", "built", "tying"]}
    return own.get(check.group, ["built", "configuration", "tying"])


@functools.cache
def candidates(name: str) -> tuple[type[Defect], ...]:
    """The defects that can show in a program."""
    return tuple(defect for defect in real_defects() if can_show(defect, name))


def can_show(defect: type[Defect], name: str) -> bool:
    """Whether a defect is a candidate for what a program shows: only tying explains what tying alone shows."""
    if layer_of(defect) is Oracle and name == "tying" and defect.place is not Place.TYING:
        return False
    return reaches(defect, name)


def reaches(defect: type[Defect], name: str) -> bool:
    """Whether a defect can change what a program shows, by what it replaces."""
    layer = layer_of(defect)
    if issubclass(defect, CacheDefect) or name == IN_PIECES:
        return issubclass(defect, CacheDefect) and name == IN_PIECES
    if layer is Oracle:
        return name in MODEL_ENTRY_POINTS or name in ("built", "configuration", "tying")
    if layer is OracleModel:
        return name in ("built", "tying", "configuration")
    replaced = defect.overridden()
    entry_points = ASSEMBLY if name in ("built", "tying", "configuration") else (name,)
    return issubclass(defect, OracleAdapters) and any(point in replaced for point in (*entry_points, "_result"))
