"""Which known mistakes no check tells any more in another dtype: `python benchmarks/vanishing.py bfloat16 [WORD …]`.

Each mistake of the dictionary (or each whose name holds a word) is judged in the dtype by the check that tells it in
float32, as docs/AUDIT.md says; where that passes or is not asked, by every other required check within its reach. What
is left is smaller than the rounding of the dtype, and printed. A second or two for each.
"""

import argparse
from pathlib import Path

from cs336_harness.subject.environment import prepare_torch

prepare_torch()

import torch  # noqa: E402 (after prepare_torch)

from cs336_harness.checks import all_checks  # noqa: E402
from cs336_harness.defects import Defect, adapters_of, real_defects  # noqa: E402
from cs336_harness.subject.calling import Subject  # noqa: E402
from cs336_harness.subject.setting import DTYPES, Setting  # noqa: E402
from cs336_harness.verdict import defects_pages  # noqa: E402
from cs336_harness.verdict.audit import within_reach  # noqa: E402
from cs336_harness.verdict.suite import Suite  # noqa: E402

AUDIT = Path(__file__).resolve().parent.parent / "docs" / defects_pages.AUDIT


def told_in(dtype: str, defect: type[Defect], first: str) -> str | None:
    """A required check that fails in the dtype: ``first``, or any other; None when every one passes."""
    subject = Subject(adapters_of(defect, dtype=getattr(torch, dtype)), defect.name, setting=Setting(dtype=dtype))
    suite = Suite(subject, diagnose=False)
    others = [check for check in all_checks().values() if check.id != first and within_reach(check, defect)]
    for check in (all_checks()[first], *others):
        if suite.attempt(check).outcome == "failed":
            return check.id
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dtype", choices=DTYPES)
    parser.add_argument("words", nargs="*", help="only mistakes whose name holds one of these")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = defects_pages.read(AUDIT.read_text())
    chosen = [item for item in real_defects() if not given.words or any(word in item.name for word in given.words)]
    vanished = [item.name for item in chosen if told_in(given.dtype, item, rows[item.name].told[0]) is None]
    print(f"{len(chosen) - len(vanished)} of {len(chosen)} known mistakes fail a required check in {given.dtype} too")
    for name in vanished:
        print(f"{name} (margin in float32: {rows[name].margin})")


if __name__ == "__main__":
    main()
