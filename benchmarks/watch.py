"""From a save to the verdict in `cs336 watch`, and how many times faster that is than pytest on the same checks.

    uv run python benchmarks/watch.py [--runs 5] [--no-pytest] [TASK …]

A copy of the decoder here is broken, saved, mended, and saved again, in turn; the clock stops when the verdict of the
task is on the screen, its diagnosis included, and once more when all checks are through, before which nothing is saved.
pytest then judges the very same file with the tests of that task alone. Each row is printed when it is measured.
"""

from __future__ import annotations

import argparse
import queue
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HOME = Path(__file__).resolve().parent.parent
CS336 = [sys.executable, "-c", "from cs336_harness.cli import run; run()"]
END = r"q: quit"
PATIENCE = 180
"""Seconds without any line after which the watch is broken."""

ATTENTION, LAYERS, TRANSFORMER = "attention.py", "layers.py", "transformer.py"
LINEAR = '"*batch d_out"]:\n        return x @ self.weight.T'

EDITS: list[tuple[str, str, str, str, str, str]] = [
    ("linear", "doubled", LAYERS, LINEAR, f"{LINEAR} * 2", "components.linear"),
    (
        "embedding",
        "the ids doubled",
        LAYERS,
        "token_ids.flatten())  #",
        "token_ids.flatten() // 2)  #",
        "components.embedding",
    ),
    ("rmsnorm", "the gain forgotten", LAYERS, " * self.weight).to(", ").to(", "components.rmsnorm"),
    (
        "positionwise_feedforward",
        "no gate",
        LAYERS,
        "silu(self.w1(x)) * self.w3(x)",
        "silu(self.w1(x))",
        "components.swiglu",
    ),
    ("rope", "the exponent's sign", "rope.py", "theta**-exponents", "theta**exponents", "components.rope"),
    ("softmax", "base 2", LAYERS, ".exp()  #", ".exp2()  #", "components.softmax"),
    (
        "scaled_dot_product_attention",
        "not scaled",
        ATTENTION,
        " / math.sqrt(Q.shape[-1])",
        "",
        "components.scaled_dot_product_attention",
    ),
    (
        "multihead_self_attention",
        "no causal mask",
        ATTENTION,
        "device=Q.device).tril()",
        "device=Q.device)",
        "components.multihead_self_attention",
    ),
    ("transformer_block", "no second norm", TRANSFORMER, "self.ln2(x)", "x", "components.transformer_block"),
    ("transformer_lm", "no final norm", TRANSFORMER, "self.ln_final(h)", "h", "assembly.transformer_lm"),
    (
        "transformer_accounting",
        "two matrices",
        "accounting.py",
        "num_layers * 3 * d_model",
        "num_layers * 2 * d_model",
        r"accounting\.\w+",
    ),
    ("incremental_decoding", "the mask's corner", ATTENTION, "tril(keys - queries)", "tril()", r"incremental\.\w+"),
]
"""Task, mistake, file, right text, wrong text, and the check that must fail (a pattern)."""


class Watch:
    """A running ``cs336 watch`` and the lines it prints, with the time of each."""

    def __init__(self, root: Path, *options: str) -> None:
        command = [*CS336, "watch", str(root), *options]
        self.process = subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.lines: queue.Queue[tuple[float, str]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put((time.perf_counter(), line))

    def wait_for(self, pattern: str) -> float:
        """When a line with the pattern came."""
        printed = []
        while True:
            try:
                moment, line = self.lines.get(timeout=PATIENCE)
            except queue.Empty:
                last = "".join(printed[-20:])
                raise SystemExit(
                    f"no line with {pattern!r} came, and none at all for {PATIENCE} s; the last:\n{last}"
                ) from None
            printed.append(line)
            if re.search(pattern, line):
                return moment


def seconds_of_save(watch: Watch, file: Path, text: str, verdict: str) -> tuple[float, float]:
    """Seconds from a save to the verdict, with its diagnosis, and to the end of all checks."""
    started = time.perf_counter()
    file.write_text(text)
    moments = [watch.wait_for(pattern) for pattern in (verdict, END)]
    time.sleep(0.3)
    return moments[0] - started, moments[1] - started


def seconds_of_pytest(root: Path, task: str, options: list[str]) -> float:
    """Seconds of pytest on the tests of one task."""
    command = [sys.executable, "-m", "pytest", "-q", f"--adapters={root}", "-m", task, *options]
    started = time.perf_counter()
    status = subprocess.run(command, cwd=HOME, stdout=subprocess.DEVNULL, check=False).returncode
    if status not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return time.perf_counter() - started


def main() -> None:
    """Prints one line for each edit, broken and mended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="counted runs of each")
    parser.add_argument("--no-diagnosis", action="store_true", help="verdicts without a diagnosis")
    parser.add_argument("--no-pytest", action="store_true", help="leave pytest out, which takes most of the time")
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="only these tasks")
    given = parser.parse_args()
    if unknown := set(given.tasks) - {task for task, *_ in EDITS}:
        parser.error(f"no such task: {', '.join(sorted(unknown))}; give any of {', '.join(task for task, *_ in EDITS)}")
    runs, options = given.runs, ["--no-diagnosis"] * given.no_diagnosis
    print("seconds; meant: verdict in under 0.3 s, and at least 5 times faster than pytest")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copy(HOME / "adapters.py", root)
        shutil.copytree(HOME / "cs336_basics", root / "cs336_basics", ignore=shutil.ignore_patterns("__pycache__"))
        watch = Watch(root, *options)
        try:
            watch.wait_for(END)
            time.sleep(20)  # while it is idle, the watch works for fifteen seconds at what results are compared with
            for task, mistake, name, right, wrong, check in EDITS:
                if given.tasks and task not in given.tasks:
                    continue
                file = root / "cs336_basics" / name
                mended = file.read_text()
                broken = mended.replace(right, wrong)
                if broken == mended:
                    raise SystemExit(f"{name} does not hold {right!r} any more")
                saves = ((mistake, broken, f"✗ {check}"), ("mended", mended, rf"^{task}\b"))
                seconds: dict[str, list[tuple[float, float]]] = {saved: [] for saved, _, _ in saves}
                for _ in range(runs):
                    for saved, text, verdict in saves:
                        seconds[saved].append(seconds_of_save(watch, file, text, verdict))
                for saved, text, _ in saves:
                    verdict_after, all_after = (
                        statistics.median(column) for column in zip(*seconds[saved], strict=True)
                    )
                    line = f"{task}, {saved}: verdict {verdict_after:.2f}, all checks {all_after:.1f}"
                    if not given.no_pytest:
                        if file.read_text() != text:
                            file.write_text(text)
                            watch.wait_for(END)
                        pytest = statistics.median(
                            seconds_of_pytest(root, task, options) for _ in range(max(1, runs // 2))
                        )
                        line += f", pytest {pytest:.2f}, {pytest / verdict_after:.1f} times"
                    print(line, flush=True)
        finally:
            watch.process.terminate()
            watch.process.wait()


if __name__ == "__main__":
    main()
