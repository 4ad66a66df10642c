"""How many bits the numbers of a check have: what a subject is judged in, seen from inputs, noise and messages.

Float32 unless somebody says otherwise. Inside :func:`judged_in` inputs are drawn so that the dtype holds them exactly,
and rounding noise is that of the dtype. Imports no torch.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator

HALF_UNIT: dict[str, float] = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "bfloat16": 2.0**-9,
    "float16": 2.0**-12,
}
"""Half a unit in the last place, relative, of each dtype."""

BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one number of each dtype."""


class _State(threading.local):
    dtype: str = "float32"


_now = _State()


@contextlib.contextmanager
def judged_in(dtype: str) -> Generator[None]:
    """Inside, checks ask in this dtype and allow for its rounding."""
    before, _now.dtype = _now.dtype, dtype
    try:
        yield
    finally:
        _now.dtype = before


def dtype_judged() -> str:
    """The name of the dtype that a check is asked in now."""
    return _now.dtype


def half_unit() -> float:
    """Half a unit in the last place of that dtype, relative."""
    return HALF_UNIT[_now.dtype]
