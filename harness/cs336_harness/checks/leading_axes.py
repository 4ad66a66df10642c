"""Axes before the channels: three, one or none for every position-wise component, each of another size.

CS336's own tests call these components with two: refusing any of these calls is advisory, wrong numbers are a fault.
"""

from __future__ import annotations

from typing import Any

import torch

from cs336_harness.checks.comparing import judge_call, same_numbers
from cs336_harness.checks.components_beyond import FEED_FORWARD
from cs336_harness.checks.registry import Param, check
from cs336_harness.reference.weights import gains, normal
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure

THREE, ONE, NONE = (2, 3, 5), (7,), ()


def _cases(name: str) -> dict[str, Param]:
    return {
        "three": Param(THREE, after=[f"components.{name}"]),
        "one": Param(ONE, after=[f"components.{name}_leading_axes[three]"]),
        "none": Param(NONE, after=[f"components.{name}_leading_axes[three]"]),
    }


def _judge_leading(subject: Subject, entry_point: str, leading: tuple[int, ...], teach: str, **arguments: Any) -> float:
    axes = ("row", "group", "position", "channel")[-1 - len(leading) :]
    shape = (*leading, arguments["in_features"].shape[-1])
    return judge_call(subject, entry_point, axes, what=f"features of shape {shape}", teach=teach, **arguments)


def _rmsnorm_leading(subject: Subject, leading: tuple[int, ...]) -> float:
    features = normal(*leading, 6, seed=39, std=0.1)
    arguments = {"d_model": 6, "eps": 1e-5, "weights": gains(6, seed=40), "in_features": features}
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


def _linear_leading(subject: Subject, leading: tuple[int, ...]) -> float:
    weights = normal(4, 11, seed=41, std=0.3)
    features = normal(*leading, 11, seed=42)
    teach = "a correct linear layer maps the last axis and leaves every other as it is"
    return _judge_leading(
        subject, "run_linear", leading, teach, d_in=11, d_out=4, weights=weights, in_features=features
    )


def _swiglu_leading(subject: Subject, leading: tuple[int, ...]) -> float:
    weights = {
        "w1_weight": normal(64, 24, seed=43, std=0.2),
        "w2_weight": normal(24, 64, seed=44, std=0.1),
        "w3_weight": normal(64, 24, seed=45, std=0.2),
    }
    features = normal(*leading, 24, seed=46)
    teach = "a correct feed-forward maps the last axis and leaves every other as it is"
    return _judge_leading(subject, "run_swiglu", leading, teach, d_model=24, d_ff=64, in_features=features, **weights)


def _silu_leading(subject: Subject, leading: tuple[int, ...]) -> float:
    features = normal(*leading, 9, seed=47)
    return _judge_leading(subject, "run_silu", leading, "silu works element by element", in_features=features)


def _softmax_leading(subject: Subject, leading: tuple[int, ...]) -> float:
    features = normal(*leading, 9, seed=48, std=2)
    teach = "a correct softmax normalises each line along dim by itself"
    return _judge_leading(subject, "run_softmax", leading, teach, in_features=features, dim=-1)


def _embedding_leading(subject: Subject, leading: tuple[int, ...]) -> float:
    count = torch.Size(leading).numel()
    token_ids = (torch.arange(count) * 5 % 13).reshape(leading)
    axes = ("row", "group", "position", "channel")[-1 - len(leading) :]
    return judge_call(
        subject,
        "run_embedding",
        axes,
        what=f"token ids of shape {leading}",
        teach="a correct embedding gives one row for each id and keeps the shape of the ids",
        vocab_size=13,
        d_model=8,
        weights=normal(13, 8, seed=49),
        token_ids=token_ids,
    )


@check("components.linear_leading_axes", task="linear", needs=["run_linear"], cases=_cases("linear"))
def linear_leading_axes(subject: Subject, case: tuple[int, ...]) -> float:
    """A linear layer maps the last axis and leaves every other as it is, however many there are.

    Usually broken by a transpose or a reshape that counts axes from the front.
    """
    return _linear_leading(subject, case)


@check("components.embedding_leading_axes", task="embedding", needs=["run_embedding"], cases=_cases("embedding"))
def embedding_leading_axes(subject: Subject, case: tuple[int, ...]) -> float:
    """Token ids of any number of axes: one row for each id.

    Usually broken by a reshape for (batch, time).
    """
    return _embedding_leading(subject, case)


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
    return _silu_leading(subject, case)


@check("components.swiglu_leading_axes", task=FEED_FORWARD, needs=["run_swiglu"], cases=_cases("swiglu"))
def swiglu_leading_axes(subject: Subject, case: tuple[int, ...]) -> float:
    """The feed-forward maps the last axis and leaves every other as it is, however many there are.

    Usually broken by a transpose or a reshape that counts axes from the front.
    """
    return _swiglu_leading(subject, case)


@check("components.softmax_leading_axes", task="softmax", needs=["run_softmax"], cases=_cases("softmax"))
def softmax_leading_axes(subject: Subject, case: tuple[int, ...]) -> float:
    """Softmax along the last axis of any number of axes, each of another size.

    Usually broken by counting axes from the front.
    """
    return _softmax_leading(subject, case)
