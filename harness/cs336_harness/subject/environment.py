"""The environment that the subject is judged in; set up before torch is imported."""

from __future__ import annotations

import os


def prepare_torch() -> None:
    """Keeps the subject on one thread, where results repeat bit by bit.

    The tensors of the checks are so small that a second thread costs more than it brings, and on a busy machine ten
    times as much. Whoever sets ``OMP_NUM_THREADS`` themselves keeps their setting.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # PyTorch's profiler writes lines of its own to standard error
    os.environ.setdefault("OMP_NUM_THREADS", "1")
