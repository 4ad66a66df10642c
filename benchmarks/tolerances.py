"""How much of the tolerance correct decoders use up: `python benchmarks/tolerances.py [--every-check]`,
in another dtype or compiled with `--dtype bfloat16`, `--dtype float64`, `--compile inductor`.

Every check that compares numbers runs on every variation of `tests/harness/variations.py`; the largest error of each is
printed in tolerances, one tolerance being TOLERANCE_IN_NOISE times the rounding noise of that very comparison. What is
correct must stay under a fifth. Two results of one subject have another yardstick, `comparing.same`: how much of it the
same ones use is printed, and how far apart those lie that must differ. The other side, how far defects lie, is in
docs/AUDIT.md.
"""

import argparse
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from cs336_harness.subject.environment import prepare_torch

prepare_torch()
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "harness")]

import torch  # noqa: E402 (after prepare_torch)
from variations import VARIATIONS, VariationAdapters  # noqa: E402 (the tests are no package)

from cs336_harness.checks import all_checks, comparing  # noqa: E402
from cs336_harness.reference.oracle_adapters import OracleAdapters  # noqa: E402
from cs336_harness.reference.precision import judged_in  # noqa: E402
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE  # noqa: E402
from cs336_harness.subject.calling import Subject  # noqa: E402
from cs336_harness.subject.setting import DTYPES, Setting  # noqa: E402
from cs336_harness.verdict.suite import Suite  # noqa: E402

MOST = 0.2
"""What a correct decoder may use of a tolerance."""


def measure(setting: Setting) -> dict[str, dict[str, float]]:
    """Variation -> check -> largest error in tolerances. Ends with a message when a required check does not pass."""
    subjects = {name: VariationAdapters(variation) for name, variation in VARIATIONS.items()}
    subjects["the oracle, rounded once"] = OracleAdapters(dtype=getattr(torch, setting.dtype))
    table: dict[str, dict[str, float]] = {}
    for name, module in subjects.items():
        suite = Suite(Subject(module, name, setting=setting), diagnose=False)
        errors = table.setdefault(name, {})
        for check in all_checks().values():
            result = suite.result(check)
            if result.outcome in ("failed", "blocked"):
                sys.exit(f"{name}: {check.id}: {result.message}")
            if result.outcome == "passed" and result.error_in_noise is not None:
                errors[check.id] = result.error_in_noise / TOLERANCE_IN_NOISE
    return table


@contextmanager
def comparisons_kept() -> Generator[list[float]]:
    """How far apart each pair is that `same_numbers` is asked about meanwhile, as a multiple of `comparing.same`."""
    kept: list[float] = []
    asked = comparing.same_numbers

    def same_numbers(first: torch.Tensor | None, second: torch.Tensor | None) -> bool:
        if first is not None and second is not None:
            kept.append(comparing.apart(first, second) / comparing.same())
        return asked(first, second)

    all_checks()
    with ExitStack() as patches:
        for module in list(sys.modules.values()):
            if getattr(module, "same_numbers", None) is asked:
                patches.enter_context(mock.patch.object(module, "same_numbers", same_numbers))
        yield kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every-check", action="store_true", help="one line for each check as well")
    parser.add_argument("--dtype", default="float32", choices=DTYPES)
    parser.add_argument("--compile", metavar="BACKEND", help="through torch.compile with this backend")
    given = parser.parse_args()
    every_check = given.every_check
    setting = Setting(dtype=given.dtype, compile=given.compile is not None, backend=given.compile or "inductor")
    setting.require()
    setting.enter()
    torch.set_num_threads(1)
    with comparisons_kept() as pairs:
        table = measure(setting)
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
    same, other = [pair for pair in pairs if pair <= 1], [pair for pair in pairs if pair > 1]
    with judged_in(setting.dtype):
        print(f"\nsame_numbers, on two results of one subject, allows {comparing.same():.1e} of the largest element:")
    if same and other:
        print(f"those that must agree use {max(same):.3f} of it at most ({len(same)} pairs),")
        print(f"those that must differ are {min(other):.1e} times as far apart at least ({len(other)} pairs)")
    largest = max(max(errors.values()) for errors in table.values())
    print(f"\nlargest of all: {largest:.3f} of a tolerance; {MOST} is allowed")
    sys.exit(0 if largest < MOST else 1)


if __name__ == "__main__":
    main()
