"""What a command sets up before torch is imported."""

from __future__ import annotations

import os


def hide_accelerators() -> None:
    """Keeps the subject on the CPU, where results repeat bit by bit; code that moves itself to a GPU then stays.

    Whoever sets ``CUDA_VISIBLE_DEVICES`` themselves keeps their setting.
    """
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
