"""What a whole report costs in processor time, as multiples of `import torch`: every known mistake, and pairs of them.

    uv run python benchmarks/reports.py [--every 8] [--pairs 20] [NAME …]

A report is all checks, the diagnosis of each failure included. One process has torch and the checker loaded and forks a
child for each mistake, so that none profits from the one before it; what the imports cost is told beside it. What the
oracle answers and what known mistakes show is kept in the user's cache directory, as it is for a learner: the first
report that is ever made costs more, and `--cold` measures without these files.

The subject is the reference with the mistake in it, which is slow: a loop in Python over heads and positions, up to
five times what a learner's decoder takes. Its own computing is therefore told apart, and the ratio is of the rest:
checks, the reference's side of them, and diagnosis. `right` is the report on the reference itself.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "harness"))


def cpu_of(work: Callable[[], float]) -> tuple[float, float]:
    """Seconds of processor time of a child that does this work, and the number that the work gives."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    reading, writing = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, repr(work()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="ascii") as told:
        text = told.read()
    os.waitpid(child, 0)
    if not text:
        raise SystemExit("a report broke")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, float(text)


def cpu_of_import(modules: str) -> float:
    """Seconds of processor time of importing modules in a fresh process; the median of three."""
    command = [sys.executable, "-c", f"import {modules}"]
    return median(cpu_of(lambda: subprocess.run(command, check=True).returncode)[0] for _ in range(3))


def main() -> None:
    """Prints one line for each report as it is made, then the dearest and a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth mistake")
    parser.add_argument("--offset", type=int, default=0, help="where that begins")
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help="so many pairs as well, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of that draw")
    parser.add_argument("--cold", action="store_true", help="without what earlier runs kept")
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these mistakes")
    given = parser.parse_args()
    if given.cold:
        os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp()

    yardstick, ours = cpu_of_import("torch"), cpu_of_import("torch, cs336_harness.checks, cs336_harness.diagnosis")
    from cs336_harness.subject.environment import loading_torch

    with loading_torch():
        import torch
        from unlisted import UNLISTED
        from unlisted import subject_of as unlisted_subject

        from cs336_harness.checks import all_checks
        from cs336_harness.defects import contradiction, real_defects, subject_of
        from cs336_harness.isolation.answering import make_answers
        from cs336_harness.reference.answers import answers_kept
        from cs336_harness.reference.kept import ANSWERS, OBSERVATIONS, WORTH_WRITING, kept
        from cs336_harness.subject.calling import Subject
        from cs336_harness.subject.time_limit import Clock
        from cs336_harness.verdict.suite import Suite

    torch.set_num_threads(1)
    if not given.cold and not kept(ANSWERS).path.exists():
        make_answers()
    checks = list(all_checks().values())

    class OwnTime(Clock):
        """Sums up the processor time of the subject's own code."""

        own, depth = 0.0, 0

        @contextlib.contextmanager
        def running(self, what: str = "") -> Generator[None]:
            started, self.depth = time.process_time(), self.depth + bool(what)
            try:
                yield
            finally:
                self.depth -= bool(what)
                if what and self.depth == 0:
                    self.own += time.process_time() - started

    def report(make: Callable[[], Subject]) -> Callable[[], float]:
        def work() -> float:
            subject = make()
            subject.clock = clock = OwnTime()
            with answers_kept():
                for _ in Suite(subject).run(checks):
                    pass
            kept(OBSERVATIONS).save(WORTH_WRITING)
            return clock.own

        return work

    single = {"right": report(subject_of)}
    single |= {defect.name: report(lambda defect=defect: subject_of(defect)) for defect in real_defects()}
    single |= {f"unlisted {name}": report(lambda name=name: unlisted_subject(name)) for name in UNLISTED}
    draw, pairs = random.Random(given.seed), {}
    while len(pairs) < given.pairs:
        pair = draw.sample(real_defects(), 2)
        if contradiction(*pair) is None:
            pairs[" + ".join(defect.name for defect in pair)] = report(lambda pair=pair: subject_of(*pair))
    if unknown := set(given.names) - single.keys():
        parser.error(f"no such mistake: {', '.join(sorted(unknown))}")
    chosen = given.names or list(single)[given.offset :: given.every]

    print(
        f"import torch: {yardstick:.2f} s of processor time; with the checker: {ours / yardstick:.2f} times that;"
        " each line: the report, and of it the subject's own computing"
    )

    def line(name: str, whole: float, own: float) -> str:
        return f"{(whole - own) / yardstick:6.2f} × import torch  {whole:6.2f} s, {own:6.2f} s  {name}"

    for title, reports in (("single mistakes", {name: single[name] for name in chosen}), ("pairs", pairs)):
        if reports:
            seconds = {}
            for name, work in reports.items():
                seconds[name] = cpu_of(work)
                print(line(name, *seconds[name]), flush=True)
            rest = {name: (whole - own) / yardstick for name, (whole, own) in seconds.items()}
            print("the dearest:")
            for name in sorted(rest, key=lambda name: -rest[name])[:10]:
                print(line(name, *seconds[name]))
            print(
                f"{title}: {len(rest)}; without the subject's own computing median {median(rest.values()):.2f} × import"
                f" torch, longest {max(rest.values()):.2f}, {sum(one > 3 for one in rest.values())} over 3; with it"
                f" longest {max(whole for whole, _ in seconds.values()):.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
