"""What a picture costs: the size of a report, the time to write it, what ``--html`` adds to a run, the way to a tab.

    uv run --group browser python benchmarks/page.py [--repetitions N] [--no-browser]

Sizes are of six known mistakes, judged whole. A report is written N times; seconds are of the processor, which other
programs on the machine do not change, and by the clock. The last figure is how long it takes from a verdict to its
words in an open tab of the live page, by the clock, with both on this machine; it needs chromium and chromium-driver.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from cs336_harness.checks import all_checks
from cs336_harness.defects import all_defects, subject_of
from cs336_harness.picture import page
from cs336_harness.picture.live import Live
from cs336_harness.verdict.report import to_json
from cs336_harness.verdict.suite import Suite

HOME = Path(__file__).resolve().parent.parent
MISTAKES = (
    "causal-mask-off-by-one",
    "rope-half-split-pairs",
    "norm-eps-outside-root",
    "heads-interleaved",
    "tied-look-up-detached",
    "flops-two-matrix-feed-forward",
)

WATCHING = """
new MutationObserver(() => { window.arrived = performance.timeOrigin + performance.now(); })
  .observe(document.querySelector("main"), { childList: true });
"""


def verdict(mistake: str) -> dict[str, Any]:
    """The JSON result of a known mistake."""
    return to_json("adapters.py", list(Suite(subject_of(all_defects()[mistake])).run(all_checks().values())))


def written(data: dict[str, Any], repetitions: int) -> tuple[int, float, float]:
    """Bytes of a report, and the median seconds of the processor and by the clock that it takes to write."""
    computed, passed = [], []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        page.write(data, file)  # the templates are read once
        for _ in range(repetitions):
            began, clock = time.process_time(), time.perf_counter()
            page.write(data, file)
            computed.append(time.process_time() - began)
            passed.append(time.perf_counter() - clock)
        return file.stat().st_size, statistics.median(computed), statistics.median(passed)


def checked(*options: str) -> float:
    """Processor seconds of one ``cs336 check`` with all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "cs336_harness", "check", str(HOME), *options]
    subprocess.run(command, cwd=HOME, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def pushed(verdicts: list[dict[str, Any]], repetitions: int) -> list[float]:
    """Seconds from a verdict to its words in an open tab, each time."""
    from pictures import browser

    driver, live = browser(), Live(verdicts[0])
    seconds = []
    try:
        driver.get(live.address)
        driver.execute_script(WATCHING)
        while not live.streams:
            time.sleep(0.05)
        for number in range(repetitions):
            time.sleep(0.5)
            driver.execute_script("window.arrived = null")
            shown = time.time()
            live.show(verdicts[number % len(verdicts)] | {"subject": f"save {number}"})
            while (arrived := driver.execute_script("return window.arrived")) is None:
                time.sleep(0.02)
            seconds.append(arrived / 1000 - shown)
    finally:
        driver.quit()
        live.close()
    return seconds


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repetitions", type=int, default=9)
    options.add_argument("--no-browser", action="store_true")
    given = options.parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # what is measured is there at once
    torch.set_num_threads(1)  # the tensors are small, and waiting threads count as processor time
    verdicts = [verdict(mistake) for mistake in MISTAKES]
    print(f"{'report of':<32}{'kB':>6}{'processor s':>13}{'clock s':>9}")
    for mistake, data in zip(MISTAKES, verdicts, strict=True):
        size, computed, passed = written(json.loads(json.dumps(data)), given.repetitions)
        print(f"{mistake:<32}{size / 1000:>6.0f}{computed:>13.3f}{passed:>9.3f}")
    with tempfile.TemporaryDirectory() as folder:
        plain, drawn = [], []
        for number in range(max(1, given.repetitions // 3)):
            plain.append(checked())
            drawn.append(checked("--html", str(Path(folder) / f"{number}.html")))
    print(f"cs336 check of this repository: {min(plain):.2f} processor s, with --html {min(drawn):.2f}")
    if not given.no_browser:
        seconds = pushed(verdicts, given.repetitions)
        print(f"from a verdict to a tab: {statistics.median(seconds):.3f} s, at most {max(seconds):.3f}")


if __name__ == "__main__":
    main()
