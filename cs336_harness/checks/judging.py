"""What the checks share: one call of the subject, compared with a snapshot or with the oracle."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cs336_harness import snapshots
from cs336_harness.compare import require_close, rounding_noise
from cs336_harness.failures import Evidence
from cs336_harness.oracle_adapters import OracleAdapters
from cs336_harness.subject import Subject

CHANNELS = ("row", "position", "channel")
LOGITS = ("row", "position", "token")

REFERENCE = OracleAdapters()
"""The oracle behind the contract's entry points, float64."""


def judge_snapshot(subject: Subject, name: str, axes: tuple[str, ...] = CHANNELS) -> float:
    """The error in noise of one call against the public snapshot of that name."""
    snapshot = snapshots.read(name)
    return _judge(subject, snapshot.entry_point, snapshot.arguments, snapshot.expected, snapshot.noise, axes, None)


def judge_call(
    subject: Subject,
    entry_point: str,
    axes: tuple[str, ...] = CHANNELS,
    *,
    what: str | None = None,
    dtype: torch.dtype = torch.float32,
    **arguments: Any,
) -> float:
    """The error in noise of one call against the oracle. ``what`` says in the message what is special about the call."""
    reference = getattr(REFERENCE, entry_point)
    expected = reference(**arguments)
    noise = rounding_noise(reference, arguments, expected, dtype)
    return _judge(subject, entry_point, arguments, expected, noise, axes, what)


def _judge(
    subject: Subject,
    entry_point: str,
    arguments: dict[str, Any],
    expected: Tensor,
    noise: float,
    axes: tuple[str, ...],
    what: str | None,
) -> float:
    actual = subject.call(entry_point, shape=tuple(expected.shape), **arguments)
    evidence = Evidence(entry_point=entry_point, arguments=arguments)
    return require_close(f"{entry_point}{f' ({what})' if what else ''}", actual, expected, noise, axes, evidence)
