"""Defects of the accounting entry points: one for each mistake of the table in ``cost`` that a closed form can make."""

from __future__ import annotations

from typing import Any

from cs336_harness.cost.ledger import EVERYTHING, FLOPS, PARAMETERS, Ledger, true_ledger
from cs336_harness.cost.mistake import Mistake
from cs336_harness.cost.mistakes import MISTAKES
from cs336_harness.defects.defect import AdaptersDefect, Place, defect
from cs336_harness.shapes import DecoderShape


class ParametersDefect(AdaptersDefect):
    """Reads ``run_parameter_count`` off a ledger, which each defect changes."""

    def ledger_of_parameters(self, shape: DecoderShape) -> Ledger:
        return true_ledger(shape, 1, 1)

    def run_parameter_count(self, **sizes: Any) -> int:
        return self.ledger_of_parameters(DecoderShape(context_length=1, **sizes)).amount(PARAMETERS, EVERYTHING)


class FlopsDefect(AdaptersDefect):
    """Reads ``run_forward_flops`` off a ledger, which each defect changes."""

    def ledger_of_flops(self, shape: DecoderShape, batch_size: int) -> Ledger:
        return true_ledger(shape, batch_size, shape.context_length)

    def run_forward_flops(self, *, batch_size: int, sequence_length: int, **sizes: Any) -> dict[str, int]:
        shape = DecoderShape(context_length=sequence_length, **sizes)
        return self.ledger_of_flops(shape, batch_size).flops_by_term()


def _of_parameters(mistake: Mistake) -> type[ParametersDefect]:
    class Derived(ParametersDefect):
        __doc__ = mistake.explanation

        def ledger_of_parameters(self, shape: DecoderShape) -> Ledger:
            return mistake.change(super().ledger_of_parameters(shape))

    return Derived


def _of_flops(mistake: Mistake) -> type[FlopsDefect]:
    class Derived(FlopsDefect):
        __doc__ = mistake.explanation

        def ledger_of_flops(self, shape: DecoderShape, batch_size: int) -> Ledger:
            return mistake.change(super().ledger_of_flops(shape, batch_size))

    return Derived


def _register(dimension: str) -> None:
    parameters = dimension == PARAMETERS
    for mistake in MISTAKES.values():
        if dimension not in mistake.code:
            continue
        derived = _of_parameters(mistake) if parameters else _of_flops(mistake)
        derived.__name__ = derived.__qualname__ = f"{dimension}-{mistake.name}".title().replace("-", "")
        name, steps = f"{dimension}-{mistake.name}".lower(), mistake.steps_in(dimension)
        defect(name, Place.ACCOUNTING, hint=mistake.hint, steps=steps)(derived)


_register(PARAMETERS)
_register(FLOPS)
