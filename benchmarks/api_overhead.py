"""What ``judge`` costs beyond the checks themselves: loading afresh, typed results, leaving the process as found.

    uv run python benchmarks/api_overhead.py [--runs 5]

The same checks run on the decoder here through ``judge`` and straight through the suite, in turn, in one process; the
medians are compared. ``-k`` is the few checks of one task, where the overhead weighs most.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cs336_harness.subject.environment import prepare_torch

prepare_torch()

from cs336_harness import judge  # noqa: E402 (after prepare_torch)
from cs336_harness.subject.loading import load  # noqa: E402
from cs336_harness.verdict.suite import Suite, select  # noqa: E402

HOME = Path(__file__).resolve().parent.parent


def seconds(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def main() -> None:
    """Prints a row for all checks and one for a task's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each, after one that is not")
    runs = parser.parse_args().runs
    subject = load(HOME)
    table = Table("checks", "judge, s", "suite alone, s", "ratio")
    for selected in (None, "rmsnorm"):
        chosen = select(selected)

        def through_the_api(selected: str | None = selected) -> None:
            judge(HOME, checks=selected).raise_if_failed()

        def straight(chosen: list = chosen) -> None:
            list(Suite(subject).run(chosen))

        through_the_api(), straight()
        api, suite = zip(*((seconds(through_the_api), seconds(straight)) for _ in range(runs)), strict=True)
        own, other = statistics.median(api), statistics.median(suite)
        table.add_row(selected or "all", f"{own:.2f}", f"{other:.2f}", f"{own / other:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
