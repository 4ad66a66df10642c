"""A class graded, against the loop over `cs336 check` in one run; then by workers; then what the pipe costs.

    uv run python benchmarks/grading.py [--submissions 40] [--no-loop]

The submissions are mixed: six of ten right, three with one mistake each, one that does not load. `--no-loop` leaves the
loop out, which takes minutes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from rich.console import Console
from rich.table import Table

from cs336_harness.checks import all_checks
from cs336_harness.grading.processes import ForkServer, open_remote
from cs336_harness.subject.loading import load
from cs336_harness.verdict.suite import Suite

ROOT = Path(__file__).resolve().parent.parent
CS336 = [sys.executable, "-c", "from cs336_harness.cli import main; main()"]
MISTAKES = (
    ("run_rmsnorm", "return result * 1.01"),
    ("run_silu", "return result + 1e-3"),
    ("run_softmax", "return result.roll(1, -1)"),
    ("run_rope", "return -result"),
)
"""Entry point, and what a wrong one makes of the right result."""


def write(folder: Path, number: int) -> None:
    """One submission of the mix."""
    folder.mkdir(parents=True)
    shutil.copytree(ROOT / "cs336_basics", folder / "cs336_basics", ignore=shutil.ignore_patterns("__pycache__"))
    text = (ROOT / "adapters.py").read_text()
    if number % 10 == 9:
        text = f"import a_package_of_somebody_else\n{text}"
    elif number % 10 in (6, 7, 8):
        name, wrong = MISTAKES[number % len(MISTAKES)]
        text += (
            f"\n\nright = {name}\n\n\ndef {name}(*args, **kwargs):\n    result = right(*args, **kwargs)\n    {wrong}\n"
        )
    (folder / "adapters.py").write_text(text)


def seconds(function: Callable[[], object]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def loop(submissions: Path, out: Path) -> None:
    """What the README's loop does."""
    for repository in sorted(submissions.iterdir()):
        command = [*CS336, "check", str(repository), "--json", str(out / f"{repository.name}.json")]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def grade(submissions: Path, out: Path, jobs: int) -> None:
    """The same by one command."""
    command = [*CS336, "grade", str(submissions), "--out", str(out), "--jobs", str(jobs), "--no-resume"]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


def judged(subject: object) -> None:
    """Every check, once."""
    results = list(Suite(subject).run(all_checks().values()))  # ty: ignore[invalid-argument-type]
    assert not any(result.stops_exit_zero for result in results)


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--submissions", type=int, default=40, help="how many")
    parser.add_argument("--loop", action=argparse.BooleanOptionalAction, default=True, help="time the loop as well")
    given = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="cs336-benchmark-") as scratch:
        base = Path(scratch)
        for number in range(given.submissions):
            write(base / "class" / f"student{number:03}", number)
        (base / "loop").mkdir()
        table = Table("way", "seconds", "submissions a minute", "times the loop")
        looped = seconds(lambda: loop(base / "class", base / "loop")) if given.loop else None
        rows = [("the loop over cs336 check", looped)] if looped is not None else []
        for jobs in range(1, (os.cpu_count() or 1) + 1):
            took = seconds(lambda jobs=jobs: grade(base / "class", base / f"out{jobs}", jobs))
            rows.append((f"cs336 grade --jobs {jobs}", took))
        for name, took in rows:
            times = f"{looped / took:.1f}" if looped is not None else ""
            table.add_row(name, f"{took:.1f}", f"{60 * given.submissions / took:.1f}", times)
        console.print(table)
        pipe(base / "class" / "student000", console)


def pipe(path: Path, console: Console) -> None:
    """A right submission judged in this process and through the pipe, in turns; the import of it is counted in both."""
    judged(load(path))  # what is made once is made
    alone, piped = [], []
    with ForkServer() as server:
        for _ in range(5):
            alone.append(seconds(lambda: judged(load(path))))

            def remotely() -> None:
                subject = open_remote(server, path, seconds=60)
                judged(subject)
                subject.close()

            piped.append(seconds(remotely))
    ratio = sorted(there / here for here, there in zip(alone, piped, strict=True))[2]
    table = Table("a right submission", "seconds", "ratio")
    table.add_row("judged in this process", f"{sorted(alone)[2]:.2f}", "1")
    table.add_row("imported and judged in a process of its own", f"{sorted(piped)[2]:.2f}", f"{ratio:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
