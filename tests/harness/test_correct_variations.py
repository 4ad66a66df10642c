"""No false alarm: every correct way to write the decoder passes every required check, well within the tolerance."""

import pytest
import torch
from variations import VARIATIONS, VariationAdapters

from cs336_harness.checks import all_checks
from cs336_harness.reference.oracle_adapters import OracleAdapters
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE
from cs336_harness.subject.calling import Subject
from cs336_harness.verdict.suite import Suite

SUBJECTS = {name: VariationAdapters(variation) for name, variation in VARIATIONS.items()}
SUBJECTS["the oracle, rounded once"] = OracleAdapters(dtype=torch.float32)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_correct_variation_passes_within_a_fifth_of_the_tolerance(name: str) -> None:
    results = list(Suite(Subject(SUBJECTS[name], name), diagnose=False).run(all_checks().values()))
    assert [f"{r.check.id}: {r.message}" for r in results if r.outcome in ("failed", "blocked", "blank")] == []
    errors = {r.check.id: r.error_in_noise for r in results if r.error_in_noise is not None and r.outcome == "passed"}
    assert {check_id: e for check_id, e in errors.items() if e > TOLERANCE_IN_NOISE / 5} == {}
