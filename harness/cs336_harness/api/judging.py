"""``judge`` and ``check_decoder``: the whole verdict on a decoder, from Python."""

from __future__ import annotations

import time
from typing import Any

from cs336_harness.api.verdicts import Verdict
from cs336_harness.subject.guest import Guest
from cs336_harness.subject.setting import Setting
from cs336_harness.verdict.suite import Suite, blockers, require_any_ran, select


def judge(
    subject: Any = None,
    *,
    checks: str | None = None,
    diagnose: bool = True,
    timeout: float | None = None,
    show_output: bool = False,
    device: str = "cpu",
    dtype: str = "float32",
    compile: bool = False,
    backend: str = "inductor",
) -> Verdict:
    """The verdict on a decoder.

    Args:
        subject: the path of an adapters file or of a repository that holds one; or an imported module, an object or a
            mapping with the contract's functions (some are enough); None for the repository that one stands in.
        checks: only checks whose id or task contains a word, joined by ``and``, ``or``, ``not``: ``"rope or softmax"``.
        diagnose: whether failures are traced to their place and to a known mistake, which takes most of the time.
        timeout: seconds that the subject may compute in one check; needs the main thread of a system with ``SIGPROF``.
        show_output: whether what the decoder prints is shown.
        device: "cpu", "cuda", "cuda:1" or "mps".
        dtype: "float32", "bfloat16" or "float64", with tolerances made for it.
        compile: whether what ``torch.compile`` makes of the decoder is judged, with this ``backend``.

    Everything runs in this process, on one thread, and leaves it as found: the working directory, what is imported,
    PyTorch's settings and generators. A path is read afresh each time. Not for two threads at once.

    Raises:
        CannotJudgeError: nothing can be judged (no such file, an import error, no check of that name, no such device
            here, none of the checks can run), in one line.
    """
    chosen = select(checks)
    setting = Setting(device, dtype, compile, backend)
    with Guest(subject, show_output=show_output, setting=setting).at_work() as guest:
        started = time.perf_counter()
        suite = Suite(guest, diagnose=diagnose, timeout=timeout)
        results = tuple(suite.run(chosen))
        require_any_ran(results)
        blocking = blockers(results, {result.check.id: result for result in suite.results()})
        return Verdict(guest.name, results, time.perf_counter() - started, guest.root, setting, blocking)


def check_decoder(subject: Any = None, *, checks: str | None = None, diagnose: bool = True, **setting: Any) -> None:
    """Raises :class:`FailedVerdictError`, an AssertionError with the report as its text, unless a decoder is right.

    The arguments are those of :func:`judge`, ``device``, ``dtype``, ``compile`` and ``backend`` among them. One line
    in a test: ``check_decoder("tests/adapters.py")``.
    """
    __tracebackhide__ = True
    judge(subject, checks=checks, diagnose=diagnose, **setting).raise_if_failed()
