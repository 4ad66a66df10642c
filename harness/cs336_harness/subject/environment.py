"""The environment that the subject is judged in; set up before torch is imported."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Generator


def prepare_torch() -> None:
    """Keeps the subject on one thread, where results repeat bit by bit.

    The tensors of the checks are so small that a second thread costs more than it brings, and on a busy machine ten
    times as much. Whoever sets ``OMP_NUM_THREADS`` themselves keeps their setting.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # PyTorch's profiler writes lines of its own to standard error
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@contextlib.contextmanager
def loading_torch() -> Generator[None]:
    """For the imports of torch, and of what needs it: inside, nobody looks for garbage.

    What is imported stays until the process ends. To look through it again and again while it grows takes an eighth of
    the time, and once more as long when the process ends and takes it apart.
    """
    prepare_torch()
    looks = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if looks:
            gc.enable()
