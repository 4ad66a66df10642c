"""What it costs that a decoder is judged in a process that can be killed, beside the same checks in one process.

    uv run python benchmarks/isolation.py [--runs 5]

Three ways to run all checks on the decoder here, in turn, each from the start of Python, the oracle's answers kept
from an earlier run: in the process itself, where an endless loop would be the end of it; in a child; and in a child
that a second process helps, which is what `cs336 check` does where there is a second core. The price is meant to be at
most 0.1 s.
"""

from __future__ import annotations

import argparse
import statistics

from startup import PYTHON, seconds

PREPARED = """
import sys
from pathlib import Path
from cs336_harness.subject.environment import loading_torch

with loading_torch():
    from cs336_harness.verdict.suite import Suite, select

path, checks = Path("adapters.py"), select(None)
"""

IN_ONE_PROCESS = """
import torch
from cs336_harness.reference.answers import answers_kept
from cs336_harness.subject.loading import load

torch.set_num_threads(1)
with answers_kept():
    results = list(Suite(load(path)).run(checks))
"""

IN_A_CHILD = """
from cs336_harness.isolation.trial import Trial

with Trial(path, checks, runners={runners}) as trial:
    list(trial.run())
    results = trial.results
"""

ALL_PASSED = """
sys.exit(len(results) < len(checks) or any(result.stops_exit_zero for result in results))
"""

WAYS = {
    "in one process": IN_ONE_PROCESS,
    "in a child": IN_A_CHILD.format(runners=0),
    "in a child, with a runner": IN_A_CHILD.format(runners=1),
}


def main() -> None:
    """Prints one line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each, after one that is not")
    runs = parser.parse_args().runs
    commands = {name: [PYTHON, "-c", PREPARED + way + ALL_PASSED] for name, way in WAYS.items()}
    rounds = [{name: seconds(command) for name, command in commands.items()} for _ in range(runs + 1)][1:]
    first = next(iter(commands))
    for name in commands:
        wall, computed = (statistics.median(taken[name][which] for taken in rounds) for which in (0, 1))
        more = [statistics.median(taken[name][w] - taken[first][w] for taken in rounds) for w in (0, 1)]
        print(
            f"{name:26s} {wall:6.2f} s ({more[0]:+.2f}), {computed:6.2f} s of processor time ({more[1]:+.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
