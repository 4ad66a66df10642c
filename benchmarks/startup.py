"""How long the commands take, as multiples of what importing torch costs on the same machine in the same run.

    uv run python benchmarks/startup.py [--runs 5]

Each command and its yardstick run in turn, so that a machine that slows down slows both; the medians are compared. The
second ratio is that of processor time, all processes of a command together: it holds on a busy machine as well.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

PYTHON = sys.executable
CS336 = [PYTHON, "-c", "from cs336_harness.cli import run; run()"]
TORCH = [PYTHON, "-c", "import torch"]
TORCH_AND_PYTEST = [PYTHON, "-c", "import torch, pytest"]

PAIRS: list[tuple[str, list[str], str, list[str], str]] = [
    ("pytest", [PYTHON, "-m", "pytest", "-q"], "import torch, pytest", TORCH_AND_PYTEST, "at most 2.0"),
    ("cs336 check", [*CS336, "check"], "import torch", TORCH, "at most 1.8"),
    ("cs336 account gpt2-xl", [*CS336, "account", "gpt2-xl"], "import torch", TORCH, "at most 0.1"),
    ("cs336 writeup", [*CS336, "writeup"], "import torch", TORCH, "at most 0.1"),
]
"""Name, command, name of the yardstick, yardstick, and what the ratio is meant to be."""


def inherit_orphans() -> None:
    """On Linux: a process whose parent ended becomes this one's child, so that its processor time is seen."""
    if sys.platform == "linux":
        set_child_subreaper = 36
        ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def seconds(command: list[str]) -> tuple[float, float]:
    """Wall and processor time of one run from this repository's root; the run must succeed."""
    root = Path(__file__).resolve().parent.parent
    inherit_orphans()
    before, started = os.times(), time.perf_counter()
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall = time.perf_counter() - started
    with contextlib.suppress(ChildProcessError):  # what the command started and did not wait for
        while True:
            os.wait()
    after = os.times()
    computed = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, computed


def main() -> None:
    """Prints one row for each command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each command, after one that is not")
    runs = parser.parse_args().runs
    table = Table("command", "seconds", "yardstick", "seconds", "ratio", "of processor time", "meant")
    for name, command, yardstick_name, yardstick, meant in PAIRS:
        seconds(command)
        timed, yards = zip(*((seconds(command), seconds(yardstick)) for _ in range(runs)), strict=True)
        own, other = ([statistics.median(column) for column in zip(*each, strict=True)] for each in (timed, yards))
        ratios = (f"{mine / its:.2f}" for mine, its in zip(own, other, strict=True))
        table.add_row(name, f"{own[0]:.2f}", yardstick_name, f"{other[0]:.2f}", *ratios, meant)
    Console().print(table)


if __name__ == "__main__":
    main()
