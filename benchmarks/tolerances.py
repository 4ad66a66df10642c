"""How much of the tolerance correct float32 decoders use up: `python benchmarks/tolerances.py [--every-check]`.

Every check that compares numbers runs on every variation of `tests/harness/variations.py`; the largest error of each is
printed in tolerances, one tolerance being TOLERANCE_IN_NOISE times the rounding noise of that very comparison. What is
correct must stay under a fifth. The other side, how far defects lie, is in `benchmarks/defect_margins.py`.
"""

import argparse
import sys
from pathlib import Path

from cs336_harness.environment import prepare_torch

prepare_torch()
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "harness")]

import torch  # noqa: E402 (after prepare_torch)
from variations import VARIATIONS, VariationAdapters  # noqa: E402 (the tests are no package)

from cs336_harness.checks import all_checks  # noqa: E402
from cs336_harness.compare import TOLERANCE_IN_NOISE  # noqa: E402
from cs336_harness.oracle_adapters import OracleAdapters  # noqa: E402
from cs336_harness.subject import Subject  # noqa: E402
from cs336_harness.suite import Suite  # noqa: E402

MOST = 0.2
"""What a correct decoder may use of a tolerance."""


def measure() -> dict[str, dict[str, float]]:
    """Variation -> check -> largest error in tolerances. Ends with a message when a required check does not pass."""
    subjects = {name: VariationAdapters(variation) for name, variation in VARIATIONS.items()}
    subjects["the oracle, rounded once"] = OracleAdapters(dtype=torch.float32)
    table: dict[str, dict[str, float]] = {}
    for name, module in subjects.items():
        suite = Suite(Subject(module, name), diagnose=False)
        errors = table.setdefault(name, {})
        for check in all_checks().values():
            result = suite.result(check)
            if result.outcome in ("failed", "blocked"):
                sys.exit(f"{name}: {check.id}: {result.message}")
            if result.outcome == "passed" and result.error_in_noise is not None:
                errors[check.id] = result.error_in_noise / TOLERANCE_IN_NOISE
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every-check", action="store_true", help="one line for each check as well")
    every_check = parser.parse_args().every_check
    torch.set_num_threads(1)
    table = measure()
    print("| correct decoder | largest error, in tolerances | in the check | checks |")
    print("|---|---|---|---|")
    for name, errors in table.items():
        worst = max(errors, key=errors.__getitem__)
        print(f"| {name} | {errors[worst]:.3f} | {worst} | {len(errors)} |")
    if every_check:
        print("\n| check | largest error, in tolerances | of the decoder |")
        print("|---|---|---|")
        for check_id in dict.fromkeys(check_id for errors in table.values() for check_id in errors):
            worst = max(table, key=lambda name: table[name].get(check_id, 0))
            print(f"| {check_id} | {table[worst][check_id]:.3f} | {worst} |")
    largest = max(max(errors.values()) for errors in table.values())
    print(f"\nlargest of all: {largest:.3f} of a tolerance; {MOST} is allowed")
    sys.exit(0 if largest < MOST else 1)


if __name__ == "__main__":
    main()
