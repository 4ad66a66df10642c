"""How long the commands take, as multiples of what importing torch costs on the same machine in the same run.

    uv run python benchmarks/startup.py [--runs 5]

Each command and its yardstick run in turn, so that a machine that slows down slows both; the medians are compared.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

PYTHON = sys.executable
CS336 = [PYTHON, "-c", "from cs336_harness.cli import main; main()"]
TORCH = [PYTHON, "-c", "import torch"]
TORCH_AND_PYTEST = [PYTHON, "-c", "import torch, pytest"]

PAIRS: list[tuple[str, list[str], str, list[str], str]] = [
    ("pytest", [PYTHON, "-m", "pytest", "-q"], "import torch, pytest", TORCH_AND_PYTEST, "at most 3"),
    ("cs336 check", [*CS336, "check"], "import torch", TORCH, "under 3"),
    ("cs336 account gpt2-xl", [*CS336, "account", "gpt2-xl"], "import torch", TORCH, "at most 0.1"),
    ("cs336 writeup", [*CS336, "writeup"], "import torch", TORCH, "at most 0.1"),
]
"""Name, command, name of the yardstick, yardstick, and what the ratio is meant to be."""


def seconds(command: list[str]) -> float:
    """Wall time of one run from this repository's root; the run must succeed."""
    started = time.perf_counter()
    root = Path(__file__).resolve().parent.parent
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    """Prints one row for each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each command, after one that is not")
    runs = parser.parse_args().runs
    table = Table("command", "seconds", "yardstick", "seconds", "ratio", "meant")
    for name, command, yardstick_name, yardstick, meant in PAIRS:
        seconds(command)
        timed, yards = zip(*((seconds(command), seconds(yardstick)) for _ in range(runs)), strict=True)
        own, other = statistics.median(timed), statistics.median(yards)
        table.add_row(name, f"{own:.2f}", yardstick_name, f"{other:.2f}", f"{own / other:.2f}", meant)
    Console().print(table)


if __name__ == "__main__":
    main()
