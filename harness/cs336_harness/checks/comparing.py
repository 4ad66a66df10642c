"""What the checks share: one call of the subject, compared with a snapshot or with the oracle."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
from collections.abc import Generator, Mapping
from typing import Any

import torch
from torch import Tensor

from cs336_harness.reference import precision, recipes, snapshots
from cs336_harness.reference.answers import from_run_to_run
from cs336_harness.reference.hidden_inputs import hidden
from cs336_harness.reference.oracle import LayerWeights, Oracle
from cs336_harness.reference.oracle_adapters import OracleAdapters
from cs336_harness.reference.tolerance import LEAST_SHAKE, TOLERANCE_IN_NOISE, require_close, rounding_noise
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, Evidence

CHANNELS = ("row", "position", "channel")
LOGITS = ("row", "position", "token")

REFERENCE = OracleAdapters()
"""The oracle behind the contract's entry points, float64."""


class RoundedFrequencies(Oracle):
    """Rotary frequencies half a float32 unit off: a float32 angle at position p carries an error of p · 2^-24. In
    bfloat16 as well, because positions and angles stay float32 there.

    It serves to measure noise, which costs two passes for one of the oracle. So attention is computed for all rows and
    heads at once: the oracle's numbers, several times quicker.
    """

    def inverse_frequencies(self, d_head: int, theta: float) -> Tensor:
        """Every frequency at the far end of its rounding interval."""
        return super().inverse_frequencies(d_head, theta) * (1 + LEAST_SHAKE)

    def self_attention(self, x: Tensor, weights: LayerWeights, positions: Tensor | None, theta: float | None) -> Tensor:
        """Causal multi-head self-attention, as the oracle's."""
        num_heads, num_kv_heads = self.shape.num_heads, self.shape.num_kv_heads
        queries, keys, values = (
            project(x, weights).unflatten(-1, (heads, -1)).transpose(-3, -2)
            for project, heads in (
                (self.project_queries, num_heads),
                (self.project_keys, num_kv_heads),
                (self.project_values, num_kv_heads),
            )
        )
        if positions is not None and theta is not None:
            by_head = positions.unsqueeze(-2)
            queries, keys = self.rotate(queries, by_head, theta), self.rotate(keys, by_head, theta)
        shared = [self.kv_head_of(head, num_heads, num_kv_heads) for head in range(num_heads)]
        keys, values = keys[..., shared, :, :], values[..., shared, :, :]
        scores = queries @ keys.mT * self.score_scale(queries.shape[-1])
        later = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).triu(1)
        heads = self.softmax(scores.masked_fill(later, -torch.inf), -1) @ values
        return self.project_output(heads.transpose(-3, -2).flatten(-2), weights)


_ROUNDED_REFERENCE = OracleAdapters(RoundedFrequencies)


def judge_snapshot(subject: Subject, name: str, axes: tuple[str, ...] = CHANNELS) -> float:
    """The error in noise of one call against the public snapshot of that name, made anew where inputs are hidden."""
    stored = not hidden() and precision.dtype_judged() == "float32"
    snapshot = snapshots.read(name) if stored else recipes.remade(name)
    return _judge(subject, snapshot.entry_point, snapshot.arguments, snapshot.expected, snapshot.noise, axes, None)


def judge_call(
    subject: Subject,
    entry_point: str,
    axes: tuple[str, ...] = CHANNELS,
    *,
    what: str | None = None,
    teach: str | None = None,
    dtype: torch.dtype | None = None,
    **arguments: Any,
) -> float:
    """The error in noise of one call against the oracle, in the dtype that is judged in or in ``dtype``.

    ``what`` says in the message what is special about the call, ``teach`` what a correct decoder does there.
    """
    rounded_to = getattr(torch, precision.dtype_judged()) if dtype is None else dtype
    expected, noise = _expected(entry_point, rounded_to, _Arguments(arguments))
    with taught(teach):
        return _judge(subject, entry_point, arguments, expected, noise, axes, what)


class _Arguments:
    """The arguments of a call, equal to others of the same content."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values
        content = hashlib.blake2b()
        self._add(content, values)
        self.digest = content.hexdigest()

    def _add(self, content: Any, value: Any) -> None:
        if isinstance(value, Mapping):
            for name, item in value.items():
                content.update(name.encode())
                self._add(content, item)
        elif isinstance(value, Tensor):
            content.update(f"{value.dtype} {tuple(value.shape)}".encode())
            content.update(value.contiguous().view(-1).view(torch.uint8).numpy().data)
        else:
            content.update(repr(value).encode())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Arguments) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return self.digest


@functools.lru_cache(maxsize=1024)
@from_run_to_run
def _expected(entry_point: str, dtype: torch.dtype, arguments: _Arguments) -> tuple[Tensor, float]:
    """The oracle's result and its noise. Kept, because many subjects are asked the same."""
    expected = getattr(REFERENCE, entry_point)(**arguments.values)
    return expected, rounding_noise(getattr(_ROUNDED_REFERENCE, entry_point), arguments.values, expected, dtype)


@contextlib.contextmanager
def taught(lesson: str | None, of: type[CheckFailure] = CheckFailure) -> Generator[None]:
    """Ends the message of a failure, or of one kind of it, with what a correct decoder does."""
    try:
        yield
    except of as failure:
        if lesson is not None:
            failure.message = f"{failure.message}; {lesson}"
            failure.args = (failure.message,)
        raise


def attempt(subject: Subject, entry_point: str, shape: tuple[int, ...], **arguments: Any) -> Tensor | None:
    """One call, or None when it fails. For checks that ask one question and leave all else to the snapshot's check."""
    try:
        return subject.call(entry_point, shape=shape, **arguments)
    except CheckFailure:
        return None


def refused(failure: CheckFailure) -> bool:
    """Whether a call failed because the subject refused its sizes, with a ``ValueError`` or an assertion: no silent
    fault.
    """
    return isinstance(failure.__cause__, ValueError | AssertionError)


def same() -> float:
    """How far two results of one subject may lie apart and be the same, as a part of the largest element."""
    return TOLERANCE_IN_NOISE * precision.half_unit()


def same_numbers(first: Tensor | None, second: Tensor | None) -> bool:
    """Whether two results of a subject are one and the same but for rounding; None is like nothing.

    The yardstick is no measured noise: the same operations rounded differently, and not a reference, are compared, so
    what is left of the noise is the rounding of the result itself, half a unit in the last place of the largest
    element; :func:`same` is the usual multiple of it. ``benchmarks/tolerances.py`` prints what correct decoders use of
    it, and how far off the nearest pair is that must differ.
    """
    return apart(first, second) <= same()


def apart(first: Tensor | None, second: Tensor | None) -> float:
    """The largest difference of two results as a part of the first one's largest element; infinite beside None."""
    if first is None or second is None:
        return math.inf
    largest, furthest = float(first.abs().max()), float((first - second).abs().max())
    return furthest / largest if largest else (0.0 if furthest == 0 else math.inf)


def _judge(
    subject: Subject,
    entry_point: str,
    arguments: dict[str, Any],
    expected: Tensor,
    noise: float,
    axes: tuple[str, ...],
    what: str | None,
) -> float:
    call = f"{entry_point} ({what})" if what else entry_point
    evidence = Evidence(entry_point=entry_point, arguments=arguments)
    result = subject.invoke(entry_point, **arguments)
    actual = subject.checked(call, result, tuple(expected.shape), evidence)
    return require_close(call, actual, expected, noise, axes, evidence)
