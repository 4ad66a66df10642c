"""A class graded, against the loop over `cs336 check` in one run; then by workers; then what the pipe costs.

    uv run python benchmarks/grading.py [--submissions 40] [--loop-seconds 100] [--plot throughput.png]

The submissions are mixed: six of ten right, three with one mistake each, one that does not load. The loop takes as many
tens of them as it can begin in its seconds (0 leaves it out), and is told per submission. Each line is printed when it
is measured. `--plot` grades with more workers as well, half the class each, and draws the throughput.

Seconds by the clock need a quiet machine; seconds of processor time, of all processes together, need it less.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler of PyTorch writes lines of its own

from cs336_harness.checks import all_checks
from cs336_harness.grading.processes import ForkServer, open_remote
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.loading import load
from cs336_harness.verdict.suite import Suite

ROOT = Path(__file__).resolve().parent.parent
CS336 = [sys.executable, "-c", "from cs336_harness.cli import run; run()"]
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


@dataclasses.dataclass(frozen=True)
class Took:
    """Seconds of something by the clock, and of processor time of it and of all that it started."""

    clock: float
    processor: float


def took(function: Callable[[], object]) -> Took:
    """What one call takes."""
    clock, processor = time.perf_counter(), _processor()
    function()
    return Took(time.perf_counter() - clock, _processor() - processor)


def _processor() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def loop(submissions: list[Path], out: Path) -> None:
    """What a shell's loop does."""
    for repository in submissions:
        command = [*CS336, "check", str(repository), "--json", str(out / f"{repository.name}.json")]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def grade(submissions: Path, out: Path, jobs: int) -> None:
    """The same by one command."""
    command = [*CS336, "grade", str(submissions), "--out", str(out), "--jobs", str(jobs)]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


def judged(subject: Subject) -> None:
    """Every check, once."""
    results = list(Suite(subject).run(all_checks().values()))
    assert not any(result.stops_exit_zero for result in results)


def main() -> None:
    """Prints a line for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--submissions", type=int, default=40, help="how many")
    parser.add_argument("--loop-seconds", type=float, default=100, help="how long the loop may begin another ten")
    parser.add_argument("--plot", type=Path, help="draw submissions a minute by workers into this file")
    given = parser.parse_args()
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory(prefix="cs336-benchmark-") as scratch:
        base = Path(scratch)
        for number in range(given.submissions):
            write(base / "class" / f"student{number:03}", number)
            if number < given.submissions // 2:
                write(base / "half" / f"student{number:03}", number)
        print(
            f"{'way':28}{'submissions':>13}{'seconds':>9}{'processor s':>13}{'a minute':>10}{'x the loop':>12}",
            flush=True,
        )
        looped = timed_loop(base, given.loop_seconds)
        whole = took(lambda: grade(base / "class", base / "whole", cores))
        line(f"cs336 grade --jobs {cores}", given.submissions, whole, looped)
        pipe(base / "class" / "student000")
        if given.plot is not None:
            rates = {cores: 60 * given.submissions / whole.clock}
            for jobs in range(1, 2 * cores + 1):
                if jobs != cores:
                    part = took(lambda jobs=jobs: grade(base / "half", base / f"half{jobs}", jobs))
                    line(f"cs336 grade --jobs {jobs}", given.submissions // 2, part, looped)
                    rates[jobs] = 60 * (given.submissions // 2) / part.clock
            plot(given.plot, rates, cores)


def line(way: str, submissions: int, taken: Took, looped: float | None) -> None:
    """One measurement of so many submissions."""
    times = f"{looped * submissions / taken.clock:.1f}" if looped is not None else ""
    rate = 60 * submissions / taken.clock
    print(f"{way:28}{submissions:13}{taken.clock:13.1f}{taken.processor:13.1f}{rate:13.1f}{times:>13}", flush=True)


def timed_loop(base: Path, seconds: float) -> float | None:
    """Seconds by the clock that the loop takes for a submission, over as many whole tens as it begins in time."""
    (base / "loop").mkdir()
    every = sorted((base / "class").iterdir())
    total, number = Took(0.0, 0.0), 0
    while number < len(every) and total.clock < seconds:
        ten = every[number : number + 10]
        part = took(lambda ten=ten: loop(ten, base / "loop"))
        total, number = Took(total.clock + part.clock, total.processor + part.processor), number + len(ten)
    if not number:
        return None
    line("the loop over cs336 check", number, total, total.clock / number)
    return total.clock / number


def pipe(path: Path) -> None:
    """A right submission judged in this process and through the pipe, in turns; the import of it is counted in both."""
    judged(load(path))  # what is made once is made
    alone, piped = [], []
    for _ in range(3):
        alone.append(took(lambda: judged(load(path))))
        server = ForkServer()
        unused = took(server.close).processor  # what starting one takes, which a class pays once
        server = ForkServer()

        def remotely(server: ForkServer = server) -> None:
            subject = open_remote(server, path, seconds=60)
            judged(subject)
            subject.close()
            server.close()  # only then are its workers' seconds known

        there = took(remotely)
        piped.append(Took(there.clock, there.processor - unused))
    for unit in ("clock", "processor"):
        here, there = (sorted(getattr(each, unit) for each in every)[1] for every in (alone, piped))
        told = f"alone {here:.2f} s, in a process of its own {there:.2f} s, x {there / here:.2f}"
        print(f"a right submission, by the {unit}: {told}", flush=True)


def plot(file: Path, rates: dict[int, float], cores: int) -> None:
    """Throughput by workers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    workers = sorted(rates)
    figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    axes.plot(workers, [rates[each] for each in workers], "o-", label="measured")
    axes.plot([1, cores], [rates[1], rates[1] * cores], "--", color="gray", label="one worker, times cores")
    axes.set(xlabel=f"workers (--jobs) on {cores} cores", ylabel="submissions a minute", ylim=(0, None), xticks=workers)
    axes.legend()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=150)
    print(f"wrote {file}")


if __name__ == "__main__":
    main()
