"""Axes before the channels: none, one or three for every position-wise component, each of another size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cs336_harness.checks.comparing import judge_call, same_numbers
from cs336_harness.checks.components_beyond import FEED_FORWARD
from cs336_harness.checks.registry import check
from cs336_harness.reference.weights import gains, normal
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure

LEADING_AXES: dict[str, tuple[int, ...]] = {"none": (), "one": (7,), "three": (2, 3, 5), "three_taken": (2, 3, 5)}


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


for _name, _task, _judge in (
    ("linear", "linear", _linear_leading),
    ("embedding", "embedding", _embedding_leading),
    ("rmsnorm", "rmsnorm", _rmsnorm_leading),
    ("silu", FEED_FORWARD, _silu_leading),
    ("swiglu", FEED_FORWARD, _swiglu_leading),
    ("softmax", "softmax", _softmax_leading),
):

    def leading_axes(subject: Subject, case: str, judge: Callable[..., float] = _judge) -> float | None:
        """Any number of axes may stand before the channels, each of another size.

        Usually broken by counting axes from the front: axis 2 is the last one only when there are three. Only the norm
        must take three; of the others wrong numbers are a fault, and refusing them is advisory (three_taken).
        """
        try:
            return judge(subject, LEADING_AXES[case])
        except CheckFailure as failure:
            if case == "three" and judge is not _rmsnorm_leading and failure.__cause__ is not None:
                return None
            raise

    _id = f"components.{_name}_leading_axes"
    for _count, _before, _advisory in (
        ("three", f"components.{_name}", False),
        *([] if _name == "rmsnorm" else [("three_taken", f"{_id}[three]", True)]),
        ("one", f"{_id}[three]", _name == "embedding"),
        ("none", f"{_id}[three]", True),
    ):
        check(
            _id,
            task=_task,
            needs=[f"run_{_name}"],
            after=[_before],
            advisory=_advisory,
            cases={_count: _count},
        )(leading_axes)
