"""Exceptions that have a usual cause: what the subject raised, in the terms of the contract."""

from __future__ import annotations

import re

from cs336_harness.defects import Place
from cs336_harness.diagnosis.wording import Diagnosis
from cs336_harness.subject.failures import CheckFailure

PRODUCT = re.compile(r"mat1 and mat2 shapes cannot be multiplied \((\d+)x(\d+) and (\d+)x(\d+)\)")


def slip_of(failure: CheckFailure) -> Diagnosis | None:
    """The usual cause of a failure's exception; None where there is none."""
    found = PRODUCT.search(failure.message)
    if found is None:
        return None
    _, inner, out, into = map(int, found.groups())
    if inner != into:
        return None
    return Diagnosis(
        where=str(Place.LINEAR),
        confidence="likely",
        reading=f"x @ W is computed with W of shape ({out}, {into}); weights are stored (out, in), so y = W x is"
        f" x @ W.T: ({inner}) times ({into}, {out}) gives ({out})",
    )
