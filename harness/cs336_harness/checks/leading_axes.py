"""Axes before the channels: three, one or none for every position-wise component, each of another size.

CS336's own tests call these components with two: refusing any of these calls is advisory, wrong numbers are a fault.
"""

from __future__ import annotations

from typing import Any

import torch

from cs336_harness.checks.comparing import judge_call, same_numbers
from cs336_harness.checks.components_beyond import FEED_FORWARD
from cs336_harness.checks.registry import Param, check
from cs336_harness.reference import sample_calls
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure

THREE, ONE, NONE = (2, 3, 5), (7,), ()


def _cases(name: str) -> dict[str, Param]:
    return {
        "three": Param(THREE, after=[f"components.{name}"]),
        "one": Param(ONE, after=[f"components.{name}_leading_axes[three]"]),
        "none": Param(NONE, after=[f"components.{name}_leading_axes[three]"]),
    }


def _axes(leading: tuple[int, ...]) -> tuple[str, ...]:
    return ("row", "group", "position", "channel")[-1 - len(leading) :]


def _judge_leading(subject: Subject, entry_point: str, leading: tuple[int, ...], teach: str, **arguments: Any) -> float:
    shape = (*leading, arguments["in_features"].shape[-1])
    return judge_call(subject, entry_point, _axes(leading), what=f"features of shape {shape}", teach=teach, **arguments)


def _rmsnorm_leading(subject: Subject, leading: tuple[int, ...]) -> float:
    arguments = sample_calls.rmsnorm(*leading, 6, seeds=(40, 39))
    features = arguments["in_features"]
    lesson = "a correct norm works over the last axis alone"
    try:
        return _judge_leading(subject, "run_rmsnorm", leading, lesson, **arguments)
    except CheckFailure as failure:
        actual = failure.evidence.actual
        if actual is None or len(leading) != 3:
            raise
        squares = features.square()
        for over_axis_two in (squares.mean(2, keepdim=True), squares.sum(2, keepdim=True) / features.shape[-1]):
            if same_numbers(features * torch.rsqrt(over_axis_two + 1e-5) * arguments["weights"], actual):
                break
        else:
            raise
        raise CheckFailure(
            f"run_rmsnorm normalises over axis 2 of features of shape {tuple(features.shape)}; a correct norm works"
            " over the last axis (dim=-1), which is axis 2 only when there are three",
            failure.evidence,
        ) from None


@check("components.linear_leading_axes", task="linear", needs=["run_linear"], cases=_cases("linear"))
def linear_leading_axes(subject: Subject, case: tuple[int, ...]) -> float:
    """A linear layer maps the last axis and leaves every other as it is, however many there are.

    Usually broken by a transpose or a reshape that counts axes from the front.
    """
    teach = "a correct linear layer maps the last axis and leaves every other as it is"
    return _judge_leading(subject, "run_linear", case, teach, **sample_calls.linear(*case, seed=41))


@check("components.embedding_leading_axes", task="embedding", needs=["run_embedding"], cases=_cases("embedding"))
def embedding_leading_axes(subject: Subject, case: tuple[int, ...]) -> float:
    """Token ids of any number of axes: one row for each id.

    Usually broken by a reshape for (batch, time).
    """
    return judge_call(
        subject,
        "run_embedding",
        _axes(case),
        what=f"token ids of shape {case}",
        teach="a correct embedding gives one row for each id and keeps the shape of the ids",
        **sample_calls.embedding(*case, seed=49),
    )


@check(
    "components.rmsnorm_leading_axes",
    task="rmsnorm",
    needs=["run_rmsnorm"],
    cases=_cases("rmsnorm"),
)
def rmsnorm_leading_axes(subject: Subject, case: tuple[int, ...]) -> float:
    """The norm works over the last axis, however many axes stand before it, each of another size.

    Usually broken by counting axes from the front: axis 2 is the last one only when there are three.
    """
    return _rmsnorm_leading(subject, case)


@check("components.silu_leading_axes", task=FEED_FORWARD, needs=["run_silu"], cases=_cases("silu"))
def silu_leading_axes(subject: Subject, case: tuple[int, ...]) -> float:
    """SiLU works element by element, whatever the shape.

    Usually broken by a shape that is written into the code.
    """
    arguments = sample_calls.silu(*case, 9, seed=47)
    return _judge_leading(subject, "run_silu", case, "silu works element by element", **arguments)


@check("components.swiglu_leading_axes", task=FEED_FORWARD, needs=["run_swiglu"], cases=_cases("swiglu"))
def swiglu_leading_axes(subject: Subject, case: tuple[int, ...]) -> float:
    """The feed-forward maps the last axis and leaves every other as it is, however many there are.

    Usually broken by a transpose or a reshape that counts axes from the front.
    """
    teach = "a correct feed-forward maps the last axis and leaves every other as it is"
    arguments = sample_calls.swiglu(*case, seeds=(43, 44, 45, 46))
    return _judge_leading(subject, "run_swiglu", case, teach, **arguments)


@check("components.softmax_leading_axes", task="softmax", needs=["run_softmax"], cases=_cases("softmax"))
def softmax_leading_axes(subject: Subject, case: tuple[int, ...]) -> float:
    """Softmax along the last axis of any number of axes, each of another size.

    Usually broken by counting axes from the front.
    """
    teach = "a correct softmax normalises each line along dim by itself"
    return _judge_leading(subject, "run_softmax", case, teach, **sample_calls.softmax(*case, 9, seed=48, std=2))
