"""Grading on many machines: the executor of a Dask cluster. The extra ``cluster`` installs what it needs.

Only the checker runs in a Dask worker. A submission runs in a process forked for it, shut in as it is on one machine,
and never in the worker itself. Every machine sees the submissions under the same path.
"""

from __future__ import annotations

from concurrent.futures import Executor

from cs336_harness.subject.failures import CannotJudgeError

CONNECT = "30s"


def dask_executor(address: str) -> Executor:
    """The executor of the cluster whose scheduler is at ``address`` (``tcp://host:8786``, or a scheduler file)."""
    try:
        from distributed import Client  # ty: ignore[import-not-found]
    except ImportError:
        raise CannotJudgeError(
            "--cluster needs Dask, which is not installed: `uv run --extra cluster cs336 grade …`"
        ) from None
    try:
        where = {"scheduler_file": address} if address.endswith(".json") else {"address": address}
        return Client(**where, timeout=CONNECT, set_as_default=False).get_executor(pure=False, retries=1)
    except (OSError, ValueError, TimeoutError) as error:
        raise CannotJudgeError(f"--cluster {address}: no scheduler answers there ({error})") from None
