"""Manners of a call, for every component: arguments left alone, axes of size one kept, the input's dtype returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from cs336_harness.checks.comparing import REFERENCE, apart, attempt, judge_call, same, same_numbers, taught
from cs336_harness.checks.registry import GPU, Param, check, float32_alone
from cs336_harness.reference import sample_calls
from cs336_harness.subject.calling import Subject, own_copy
from cs336_harness.subject.failures import (
    AbsentEntryPoint,
    BlankEntryPoint,
    CheckFailure,
    Evidence,
    HarmlessToTheCourse,
    WrongShape,
    explained_by,
)

Sample = Callable[[int, int, int], dict[str, Any]]
"""Arguments of one entry point for so many rows, positions and heads."""


def _causal(batch: int, time: int) -> dict[str, Any]:
    mask = torch.ones(batch, time, time, dtype=torch.bool).tril()
    return sample_calls.scaled_dot_product_attention(
        batch, queries=time, keys=time, d_v=6, mask=mask, seed=110, std=1.0
    )


LAYOUT_ROUNDING = 1e-4
"""What another order of the same sums may change, and far less than other numbers do: a part of the largest element."""

_COPIES = "a decoder is handed copies there, and no argument of ours can be touched"
OWN_TENSORS = {**float32_alone(_COPIES), GPU: _COPIES}
"""Whatever is moved or cast is a copy."""

INPUTS = {"in_features", "token_ids", "in_query_or_key", "Q", "K", "V"}
"""The arguments that are no weights."""

SAMPLES: dict[str, tuple[str, Sample]] = {
    "linear": ("linear", lambda batch, time, _: sample_calls.linear(batch, time, seed=104)),
    "embedding": ("embedding", lambda batch, time, _: sample_calls.embedding(batch, time, seed=106)),
    "silu": ("positionwise_feedforward", lambda batch, time, _: sample_calls.silu(batch, time, 9, seed=107)),
    "softmax": ("softmax", lambda batch, time, _: sample_calls.softmax(batch, time, 9, seed=108)),
    "rmsnorm": ("rmsnorm", lambda batch, time, _: sample_calls.rmsnorm(batch, time, 12, seeds=(109, 113))),
    "swiglu": (
        "positionwise_feedforward",
        lambda batch, time, _: sample_calls.swiglu(batch, time, seeds=(101, 102, 103, 114)),
    ),
    "rope": ("rope", lambda batch, time, _: sample_calls.rope(batch, time, 8, seed=115)),
    "scaled_dot_product_attention": ("scaled_dot_product_attention", lambda batch, time, _: _causal(batch, time)),
    "multihead_self_attention": (
        "multihead_self_attention",
        lambda batch, time, heads: sample_calls.multihead_self_attention(batch, time, num_heads=heads),
    ),
    "multihead_self_attention_with_rope": (
        "multihead_self_attention",
        lambda batch, time, heads: sample_calls.multihead_self_attention_with_rope(
            batch, time, torch.arange(time)[None], num_heads=heads
        ),
    ),
    "transformer_block": (
        "transformer_block",
        lambda batch, time, heads: sample_calls.transformer_block(
            sample_calls.one_layer(num_heads=heads), batch, time, seeds=(9, 96)
        ),
    ),
}
"""The task and the sample of each component."""


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """What a call did to its arguments, in words; None when they are as they were."""
    for name, value in before.items():
        if isinstance(value, Mapping):
            if list(value) != list(after[name]):
                gone = sorted(set(value) - set(after[name]))
                return f"takes {gone[0]} out of {name}" if gone else f"adds names to {name}"
            inner = changed(value, after[name])
            if inner is not None:
                return inner
        elif isinstance(value, Tensor):
            if value.shape != after[name].shape or value.dtype != after[name].dtype:
                return f"changes the shape or the dtype of {name}"
            differs = (value != after[name]).nonzero()
            if len(differs):
                index = tuple(differs[0].tolist())
                return f"overwrites {name}, first at {index}: {value[index]:.4g} became {after[name][index]:.4g}"
    return None


def _in_dtype(arguments: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: convert(item) for name, item in value.items()}
        return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value

    return {name: convert(value) for name, value in arguments.items()}


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _each_component(*, after_its_own: bool) -> dict[str, Param]:
    """A case for each component, which comes after the component's own check where that is asked for."""
    return {
        name: Param(
            (f"run_{name}", sample),
            task=task,
            needs=[f"run_{name}"],
            after=[f"components.{name}"] if after_its_own else [],
        )
        for name, (task, sample) in SAMPLES.items()
    }


@check("components.arguments_untouched", not_in=OWN_TENSORS, cases=_each_component(after_its_own=False))
def arguments_untouched(subject: Subject, case: tuple[str, Sample]) -> None:
    """A call leaves the tensors and the dict that it is given as they were.

    Usually broken by ``x -= …`` or ``x += …`` on an argument, or by ``pop`` on the dict of weights.
    """
    entry_point, sample = case
    given = sample(2, 5, 3)
    before = own_copy(given)
    with explained_by(f"components.{entry_point.removeprefix('run_')}"):
        result = subject.invoke(entry_point, copy=False, **given)
    require_untouched(subject, entry_point, before, given, result)


def require_untouched(
    subject: Subject, entry_point: str, before: dict[str, Any], after: dict[str, Any], result: object
) -> None:
    """Refuses a call, which gave ``result``, that changed what it was given.

    Other names in the caller's dict, as an adapter gives them to weights that it joins or renames, are wrong only
    where the next call with that dict gives other numbers.
    """
    what = changed(before, after)
    if what is None:
        return
    evidence = Evidence(entry_point=entry_point, arguments=before)
    told = f"{entry_point} {what}", "a correct decoder leaves its arguments as they are: others still need them"
    kept = _part(before, after)
    if isinstance(result, Tensor) and changed(kept, _part(after, kept)) is None:
        again = attempt(subject, entry_point, tuple(result.shape), **after)
        if again is None or same_numbers(result, again):
            raise HarmlessToTheCourse("; ".join(told), "the same dict twice", evidence)
        told = f"{told[0]}, and gives other numbers for the same dict afterwards", told[1]
    raise CheckFailure("; ".join(told), evidence)


def _part(values: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """What of ``values`` has a name in ``names``, in the order of these."""
    return {
        name: _part(values[name], inner) if isinstance(inner, Mapping) else values[name]
        for name, inner in names.items()
        if name in values
    }


@check("components.axes_of_size_one", cases=_each_component(after_its_own=True))
def axes_of_size_one(subject: Subject, case: tuple[str, Sample]) -> float:
    """One row, one position, one head: every axis stays, and the numbers are right.

    Usually broken by ``squeeze()``, which drops every axis of size one.
    """
    entry_point, sample = case
    teach = "a correct decoder keeps axes of size one, which squeeze() without an axis drops"
    with taught(teach, of=WrongShape):
        return judge_call(subject, entry_point, what="one row, one position", **sample(1, 1, 1))


@check("components.any_layout", cases=_each_component(after_its_own=True))
def any_layout(subject: Subject, case: tuple[str, Sample]) -> None:
    """An input that is a transposed view gives the numbers of the same input lying in order.

    Usually broken by ``.view`` after an operation that keeps the order of the memory, or by ``as_strided``.
    """
    entry_point, sample = case
    in_order = sample(2, 5, 3)
    shape = tuple(getattr(REFERENCE, entry_point)(**in_order).shape)
    with explained_by(f"components.{entry_point.removeprefix('run_')}"):
        expected = subject.call(entry_point, shape=shape, **in_order)
    views = {name: in_order[name].transpose(0, 1).contiguous().transpose(0, 1) for name in INPUTS & set(in_order)}
    lesson = "a correct decoder takes an input in whatever order it lies in memory (.reshape, not .view)"
    with taught(lesson):
        result = subject.call(entry_point, shape=shape, **{**in_order, **views})
        if apart(expected, result) > max(LAYOUT_ROUNDING, same()):
            raise CheckFailure(
                f"{entry_point} gives other numbers for an input that is a transposed view than for the same one lying"
                f" in order, up to {float((result - expected).abs().max()):.3g} apart",
                Evidence(entry_point=entry_point, arguments={**in_order, **views}),
            )


@check(
    "components.float32_kept",
    advisory=True,
    not_in=float32_alone("it is about float32"),
    cases=_each_component(after_its_own=True),
)
def float32_kept(subject: Subject, case: tuple[str, Sample]) -> None:
    """Float32 in, float32 out. No test of CS336's asks for it, and a float64 result has the right numbers in it.

    Usually missed by a table of cosines or a constant in float64, which widens everything that it meets.
    """
    _require_dtype(subject, case, torch.float32)


def _require_dtype(subject: Subject, case: tuple[str, Sample], dtype: torch.dtype) -> Tensor:
    entry_point, sample = case
    arguments = _in_dtype(sample(2, 5, 3), dtype)
    result = subject.invoke(entry_point, **arguments)
    returned = _short(result.dtype) if isinstance(result, Tensor) else "no tensor"
    if returned != _short(dtype):
        raise CheckFailure(
            f"{entry_point} was given {_short(dtype)} and returned {returned};"
            " a correct decoder returns the dtype it was given",
            Evidence(entry_point=entry_point, arguments=arguments),
        )
    return result


def _report(failures: dict[str, CheckFailure], lesson: str) -> None:
    if not failures:
        return
    first = next(iter(failures.values()))
    others = f" (and {len(failures) - 1} more do not take it)" if len(failures) > 1 else ""
    evidence = Evidence(details=[failure.message for failure in failures.values()], entry_point=next(iter(failures)))
    raise CheckFailure(f"{first.message}{others}; {lesson}", evidence)


def _filled(subject: Subject) -> dict[str, tuple[str, Sample]]:
    """What can be called; without any, the check is as blank as the first that is there, or skipped."""
    states = {f"run_{name}": subject.state(f"run_{name}") for name in SAMPLES}
    filled = {
        f"run_{name}": (f"run_{name}", sample)
        for name, (_, sample) in SAMPLES.items()
        if states[f"run_{name}"] == "filled"
    }
    if not filled:
        blank = [entry_point for entry_point, state in states.items() if state == "blank"]
        raise BlankEntryPoint(blank[0]) if blank else AbsentEntryPoint(next(iter(states)), subject.short_name)
    return filled


ALL_RIGHT = [f"components.{name}" for name in SAMPLES]
"""What must be right before it is asked how precise it is."""


@check(
    "components.bfloat16_kept",
    task="transformer_block",
    advisory=True,
    after=ALL_RIGHT,
    not_in=float32_alone("what is computed shows it"),
)
def bfloat16_kept(subject: Subject) -> None:
    """Bfloat16 in, bfloat16 out. Not asked by the course; a model that is trained in bfloat16 needs it.

    Usually missed by a float32 table or mask that widens everything it meets.
    """
    failures = {}
    for entry_point, case in _filled(subject).items():
        try:
            _require_dtype(subject, case, torch.bfloat16)
        except CheckFailure as failure:
            failures[entry_point] = failure
    _report(failures, "a model that is to run in bfloat16 needs this")


@check(
    "components.float64_computed",
    task="transformer_block",
    advisory=True,
    after=ALL_RIGHT,
    not_in=float32_alone("what is computed shows it"),
)
def float64_computed(subject: Subject) -> None:
    """Float64 in, float64 out, with the precision of float64. Not asked by the course; gradient checks need it.

    Usually missed by a module that is built in float32 and copies its weights, or by a float32 table.
    """
    failures = {}
    for entry_point, case in _filled(subject).items():
        try:
            result = _require_dtype(subject, case, torch.float64)
        except CheckFailure as failure:
            failures[entry_point] = failure
            continue
        expected = getattr(REFERENCE, entry_point)(**_in_dtype(case[1](2, 5, 3), torch.float64))
        if result.shape == expected.shape and 1e-11 < float((result - expected).abs().max()) < 1e-4:
            failures[entry_point] = CheckFailure(f"{entry_point} was given float64 and computed in float32")
    _report(failures, "gradient checks in float64 need weights, tables and masks in float64")
