"""A call depends on its arguments alone: on no call before it, and on no memory that nobody wrote.

A class-level cache, a table kept under the length alone, a result whose memory was never written: all give numbers that
other checks would put down to theta, to a wrong table or to a missing mask. So this is asked first, in two ways.

*The same again*: the same arguments before and after others of the same shapes. *The other way round*: at sizes that
nobody asked for before, first these arguments and then those; at other such sizes, first those and then these. Where
what comes first is right and what comes second is wrong, both times, the order decides, and no argument is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from cs336_harness.checks.call_conventions import SAMPLES
from cs336_harness.checks.comparing import REFERENCE, apart, attempt
from cs336_harness.checks.registry import Param, check
from cs336_harness.reference import sample_calls
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, ConclusiveFailure, Evidence, explained_by

Sample = Callable[[int, int, int], dict[str, Any]]
"""Arguments of one entry point for so many positions, channels of a head, and rows of a table."""

NEVER_ASKED = ((6, 10, 31), (8, 14, 37))
"""Two such sizes, of which no other check asks: nothing can be kept for them yet."""

NEAR = 1e-3
"""How near to the reference, as a part of its largest number, a result is right here: the question is which of two very
different tables was used."""

FAR = 3e-2
"""How far from it a result is wrong here. Between the two lies what few bits do (a part computed in bfloat16), which is
now a little nearer than ``NEAR`` and now a little further, whatever the order."""


def _shape(d_head: int, reach: int) -> DecoderShape:
    return sample_calls.one_layer(d_model=3 * d_head, context_length=reach)


LARGER: dict[str, Sample] = {
    "rope": lambda time, d_head, reach: sample_calls.rope(2, time, d_head, max_seq_len=reach, seed=121),
    "multihead_self_attention": lambda time, d_head, _: sample_calls.multihead_self_attention(
        2, time, d_model=3 * d_head
    ),
    "multihead_self_attention_with_rope": lambda time, d_head, reach: sample_calls.multihead_self_attention_with_rope(
        2, time, torch.arange(time)[None], d_model=3 * d_head, max_seq_len=reach
    ),
    "transformer_block": lambda time, d_head, reach: sample_calls.transformer_block(
        _shape(d_head, reach), 2, time, seeds=(122, 123)
    ),
}
"""What keeps tables or masks; the other components are asked at the sizes of their usual sample."""


def _model(time: int, d_head: int, reach: int) -> dict[str, Any]:
    return sample_calls.transformer_lm(_shape(d_head, reach), 2, time, seeds=(124, 125))


def _cases() -> dict[str, Param]:
    cases = {}
    for name, (task, sample) in SAMPLES.items():
        usual: Sample = lambda time, d_head, reach, sample=sample: sample(2, time, 3)  # noqa: E731
        cases[name] = Param(
            (f"run_{name}", LARGER.get(name, usual)), task=task, needs=[f"run_{name}"], after=_parts(name)
        )
    whole = ("run_transformer_lm", _model)
    after = _parts("transformer_lm")
    cases["transformer_lm"] = Param(whole, task="transformer_lm", needs=["run_transformer_lm"], after=after)
    return cases


def _parts(name: str) -> list[str]:
    parts = {
        "swiglu": ["linear", "silu"],
        "scaled_dot_product_attention": ["softmax"],
        "multihead_self_attention": ["linear", "scaled_dot_product_attention"],
        "multihead_self_attention_with_rope": ["multihead_self_attention", "rope"],
        "transformer_block": ["rmsnorm", "swiglu", "multihead_self_attention_with_rope"],
        "transformer_lm": ["embedding", "transformer_block"],
    }
    return [f"components.earlier_calls[{part}]" for part in parts.get(name, [])]


@check("components.earlier_calls", cases=_cases())
def earlier_calls(subject: Subject, case: tuple[str, Sample]) -> None:
    """The same arguments give the same numbers, whatever was asked before, and every number was computed.

    Usually broken by a table or a mask that is kept for all instances under its length alone, by a cache that is never
    emptied, or by ``torch.empty`` returned where nothing was written.
    """
    entry_point, sample = case
    here, there = (sample(*sizes) for sizes in NEVER_ASKED)
    ask = _Asking(subject, entry_point)
    try:
        with explained_by(ask.own_check):
            first = ask.required(here)
    except CheckFailure as failure:
        if failure.__cause__ is None and _finite_where_unwritten_is_zero(ask, here):
            raise _unwritten(ask, here) from None
        raise
    _require_repeatable(ask, here)
    after_itself, again = ask(others(here)), ask(here)
    if again is None:
        raise _depends(ask, here, "the same call fails after one with other values of the same shapes")
    if not torch.equal(first, again):
        furthest = f"{float((again - first).abs().max()):.3g}"
        what = (
            f"the same call gives other numbers, up to {furthest} apart, after one with other values of the same shapes"
        )
        raise _depends(ask, here, what)
    if not (ask.error(here, first) < NEAR and ask.error(others(here), after_itself) > FAR):
        return
    beginning, second = ask(others(there)), ask(there)
    if ask.error(others(there), beginning) < NEAR and ask.error(there, second) > FAR:
        what = "of two calls with the same shapes the first is right and the second is wrong, whichever comes first"
        raise _depends(ask, there, what)


OWN_CHECKS = {"run_transformer_lm": "assembly.transformer_lm"}
"""The check that a failing call is told by, where it is no component's."""


class _Asking:
    """Calls of one entry point, and what the reference says to each."""

    def __init__(self, subject: Subject, entry_point: str) -> None:
        self.subject = subject
        self.entry_point = entry_point
        self.own_check = OWN_CHECKS.get(entry_point, f"components.{entry_point.removeprefix('run_')}")
        self._reference = getattr(REFERENCE, entry_point)

    def __call__(self, arguments: dict[str, Any]) -> Tensor | None:
        """The subject's result; None where it has none of the right shape."""
        return attempt(self.subject, self.entry_point, self._shape_of(arguments), **arguments)

    def required(self, arguments: dict[str, Any]) -> Tensor:
        """The same, for a call without which nothing can be asked."""
        return self.subject.call(self.entry_point, shape=self._shape_of(arguments), **arguments)

    def _shape_of(self, arguments: Mapping[str, Any]) -> tuple[int, ...]:
        if self.entry_point == "run_scaled_dot_product_attention":
            return (*arguments["Q"].shape[:-1], arguments["V"].shape[-1])
        (name,) = {"in_features", "token_ids", "in_query_or_key", "in_indices"} & set(arguments)
        widths = {"run_linear": "d_out", "run_embedding": "d_model", "run_transformer_lm": "vocab_size"}
        if self.entry_point not in widths:
            return tuple(arguments[name].shape)
        leading = arguments[name].shape[:-1] if self.entry_point == "run_linear" else arguments[name].shape
        return (*leading, arguments[widths[self.entry_point]])

    def error(self, arguments: dict[str, Any], result: Tensor | None) -> float:
        """How far a result is from the reference, as a part of its largest number."""
        return apart(self._reference(**arguments), result)


def others(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the same shapes and sizes, every value another one."""
    return {name: _other(name, value, arguments) for name, value in arguments.items()}


def _other(name: str, value: Any, arguments: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return {inner: _other(inner, weight, arguments) for inner, weight in value.items()}
    if name in ("theta", "rope_theta"):
        return 100.0
    if not isinstance(value, Tensor):
        return value
    if name == "token_positions":
        return value + 3
    if value.dtype == torch.bool:
        return torch.ones_like(value)
    return 1.25 * value.flip(-1) if value.is_floating_point() else (value + 1) % arguments["vocab_size"]


def _require_repeatable(ask: _Asking, arguments: dict[str, Any]) -> None:
    with ask.subject.unwritten_is(math.nan):
        unwritten = ask(arguments) is None
    if unwritten:
        raise _unwritten(ask, arguments)


def _finite_where_unwritten_is_zero(ask: _Asking, arguments: dict[str, Any]) -> bool:
    """Whether NaN and infinities in a result are what happened to stand in memory that nobody wrote."""
    with ask.subject.unwritten_is(0.0):
        return ask(arguments) is not None


def _unwritten(ask: _Asking, arguments: dict[str, Any]) -> ConclusiveFailure:
    return ConclusiveFailure(
        f"{ask.entry_point} is not repeatable: it returns memory that it never wrote (torch.empty, empty_like or"
        " new_empty), whatever was there before; a correct decoder computes every number that it returns",
        Evidence(entry_point=ask.entry_point, arguments=arguments),
    )


def _depends(ask: _Asking, arguments: dict[str, Any], what: str) -> ConclusiveFailure:
    return ConclusiveFailure(
        f"the result of {ask.entry_point} depends on earlier calls: {what}; something is kept from one call to the next"
        " (a table, a mask, a cache) under less than all that it was made from, or for all instances at once; in a"
        " correct decoder the arguments alone decide",
        Evidence(entry_point=ask.entry_point, arguments=arguments),
    )
