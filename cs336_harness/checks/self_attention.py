"""Self-attention and the block beyond the snapshots: other sizes, positions that jump, batch and heads kept apart.

Whether an argument is honoured is asked by comparing the subject with itself; the numbers are compared after that.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cs336_harness.checks.judging import attempt, judge_call, same_numbers
from cs336_harness.checks.registry import check
from cs336_harness.failures import CheckFailure, Evidence
from cs336_harness.inputs import make_weights, normal
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject import Subject

MHA = "run_multihead_self_attention"
MHA_ROPE = "run_multihead_self_attention_with_rope"
BLOCK = "run_transformer_block"


def self_attention_arguments(d_model: int, num_heads: int, batch: int, time: int) -> dict[str, Any]:
    """Arguments of ``run_multihead_self_attention`` for these sizes, attention clearly not uniform."""
    names = ("q", "k", "v", "o")
    return {
        "d_model": d_model,
        "num_heads": num_heads,
        **{
            f"{name}_proj_weight": normal(d_model, d_model, seed=90 + i, std=(2 if name in "qk" else 1) * d_model**-0.5)
            for i, name in enumerate(names)
        },
        "in_features": normal(batch, time, d_model, seed=95),
    }


def rotary_attention_arguments(
    positions: Tensor | None, *, theta: float = 10000.0, max_seq_len: int = 20, batch: int = 2, time: int = 5
) -> dict[str, Any]:
    """Arguments of ``run_multihead_self_attention_with_rope``: 3 heads of 4 channels."""
    return {
        **self_attention_arguments(12, 3, batch, time),
        "max_seq_len": max_seq_len,
        "theta": theta,
        "token_positions": positions,
    }


def block_arguments(batch: int, time: int = 5, theta: float = 10000.0, heads: int = 3) -> dict[str, Any]:
    """Arguments of ``run_transformer_block``: 3 heads of 8 channels, width 24, d_ff 64."""
    shape = DecoderShape(
        vocab_size=2, context_length=20, d_model=24, num_layers=1, num_heads=heads, num_kv_heads=heads, d_ff=64
    )
    weights = {
        name.removeprefix("layers.0."): weight
        for name, weight in make_weights(shape, seed=9).items()
        if name.startswith("layers.0.")
    }
    return {
        "d_model": 24,
        "num_heads": heads,
        "d_ff": 64,
        "max_seq_len": 20,
        "theta": theta,
        "weights": weights,
        "in_features": normal(batch, time, 24, seed=96),
    }


def _call(subject: Subject, entry_point: str, arguments: dict[str, Any]) -> Tensor:
    return subject.call(entry_point, shape=tuple(arguments["in_features"].shape), **arguments)


def _attempt(subject: Subject, entry_point: str, arguments: dict[str, Any]) -> Tensor | None:
    return attempt(subject, entry_point, tuple(arguments["in_features"].shape), **arguments)


@check(
    "components.multihead_self_attention_sizes",
    task="multihead_self_attention",
    needs=[MHA],
    after=["components.multihead_self_attention"],
    cases={"one_head": (10, 1, 2, 3), "five_heads_of_six": (30, 5, 3, 7), "two_heads_of_nine": (18, 2, 3, 4)},
)
def multihead_self_attention_sizes(subject: Subject, case: tuple[int, int, int, int]) -> float:
    """Other widths, head counts, batches and lengths: no two of them equal.

    Usually broken by a size written into the code, or by two axes exchanged that happen to be equal elsewhere.
    """
    d_model, num_heads, batch, time = case
    return judge_call(
        subject,
        MHA,
        what=f"{batch} rows, {time} positions, {num_heads} heads of {d_model // num_heads} channels",
        teach="a correct attention splits the projected channels into heads, attends, and merges the heads in order",
        **self_attention_arguments(d_model, num_heads, batch, time),
    )


@check("components.attention_theta", task="multihead_self_attention", needs=[MHA_ROPE])
def attention_theta(subject: Subject) -> None:
    """The theta that is passed reaches the rotation inside attention.

    Usually broken by an adapter or a module that does not pass theta on.
    """
    usual, other = (rotary_attention_arguments(torch.arange(5)[None], theta=theta) for theta in (10000.0, 10.0))
    if same_numbers(_attempt(subject, MHA_ROPE, usual), _attempt(subject, MHA_ROPE, other)):
        raise CheckFailure(
            f"{MHA_ROPE} does not pass theta on: theta 10000 and theta 10 give the same numbers;"
            " a correct attention turns queries and keys with the theta it is given",
            Evidence(entry_point=MHA_ROPE, arguments=other),
        )


@check("components.block_theta", task="transformer_block", needs=[BLOCK])
def block_theta(subject: Subject) -> None:
    """The theta that is passed reaches the rotation inside the block.

    Usually broken by a block that does not pass theta on to its attention.
    """
    usual, other = (block_arguments(2, theta=theta) for theta in (10000.0, 10.0))
    if same_numbers(_attempt(subject, BLOCK, usual), _attempt(subject, BLOCK, other)):
        raise CheckFailure(
            f"{BLOCK} does not pass theta on: theta 10000 and theta 10 give the same numbers;"
            " a correct block turns queries and keys with the theta it is given",
            Evidence(entry_point=BLOCK, arguments=other),
        )


@check("components.attention_positions", task="multihead_self_attention", needs=[MHA_ROPE])
def attention_positions(subject: Subject) -> None:
    """The token_positions that are passed, of shape (1, time), reach the rotation inside attention.

    Usually broken by an attention that counts positions by itself.
    """
    counted, jumping = (
        rotary_attention_arguments(torch.tensor([positions])) for positions in ([0, 1, 2, 3, 4], [0, 4, 5, 9, 17])
    )
    if same_numbers(_attempt(subject, MHA_ROPE, counted), _attempt(subject, MHA_ROPE, jumping)):
        raise CheckFailure(
            f"{MHA_ROPE} ignores token_positions: positions 0, 4, 5, 9, 17 give the same numbers as 0, 1, 2, 3, 4;"
            " a correct attention turns each query and key by its own token's position",
            Evidence(entry_point=MHA_ROPE, arguments=jumping),
        )


ROTARY_AFTER = [
    "components.multihead_self_attention_with_rope",
    "components.attention_positions",
    "components.attention_theta",
]


@check(
    "components.attention_position_values",
    task="multihead_self_attention",
    needs=[MHA_ROPE],
    after=ROTARY_AFTER,
    cases={
        "jumping": ([0, 4, 5, 9, 17], 20),
        "starting_late": ([7, 8, 9, 10, 11], 20),
        "last_position": ([3, 8, 11, 18, 19], 20),
        "past_256": ([0, 255, 257, 411, 599], 600),
    },
)
def attention_position_values(subject: Subject, case: tuple[list[int], int]) -> float:
    """Attention at positions that jump, start late, reach max_seq_len - 1 and pass 256. The mask goes by order.

    Usually broken by a table that is as long as the input, or by a mask made from the positions.
    """
    positions, max_seq_len = case
    return judge_call(
        subject,
        MHA_ROPE,
        what=f"positions {', '.join(map(str, positions))} of max_seq_len {max_seq_len}",
        teach="a correct attention turns each query and key by its position, from a table of max_seq_len rows",
        **rotary_attention_arguments(torch.tensor([positions]), theta=500.0, max_seq_len=max_seq_len),
    )


@check(
    "components.attention_position_shapes",
    task="multihead_self_attention",
    needs=[MHA_ROPE],
    after=ROTARY_AFTER,
    advisory=True,
    cases={
        "time": torch.tensor([0, 4, 5, 9, 17]),
        "batch_time": torch.tensor([[0, 4, 5, 9, 17], [3, 4, 6, 7, 11]]),
        "none": None,
    },
)
def attention_position_shapes(subject: Subject, case: Tensor | None) -> float:
    """Positions of shape (time,), of shape (batch, time) with rows that differ, and none, which means 0, 1, 2, …"""
    shape = "none" if case is None else f"of shape {tuple(case.shape)}"
    teach = "a decoder that takes them turns row b by token_positions[b], and counts from 0 when there are none"
    return judge_call(
        subject, MHA_ROPE, what=f"positions {shape}", teach=teach, **rotary_attention_arguments(case, theta=500.0)
    )


def _rotary_for_batch(batch: int) -> tuple[str, dict[str, Any]]:
    return MHA_ROPE, rotary_attention_arguments(torch.arange(5)[None], batch=batch)


def _block_for_batch(batch: int) -> tuple[str, dict[str, Any]]:
    return BLOCK, block_arguments(batch)


for _name, _task, _case in (
    ("multihead_self_attention_with_rope", "multihead_self_attention", _rotary_for_batch),
    ("transformer_block", "transformer_block", _block_for_batch),
):

    @check(f"components.batch_and_heads[{_name}]", task=_task, needs=[f"run_{_name}"])
    def batch_and_heads(subject: Subject, case=_case) -> None:
        """Two rows and three heads, where one row is right: the batch axis is not taken for the head axis.

        Usually broken by cosines of shape (batch, time, …) against queries of shape (batch, heads, time, …): PyTorch
        lines axes up from the right, so the batch meets the heads. As many rows as heads, or one row, hide it.
        """
        entry_point, one = case(1)
        if not _is_right(subject, entry_point, one):
            return
        for batch in (2, 3):
            _, arguments = case(batch)
            one["in_features"] = arguments["in_features"][-1:]
            alone = _call(subject, entry_point, one)
            try:
                together = _call(subject, entry_point, arguments)[-1:]
            except CheckFailure as failure:
                raise _mixed(entry_point, batch, f"fails ({failure.message})", failure.evidence) from failure.__cause__
            if not same_numbers(alone, together):
                evidence = Evidence(entry_point=entry_point, arguments=arguments, actual=together, expected=alone)
                raise _mixed(entry_point, batch, f"gives row {batch - 1} other numbers", evidence)


def _is_right(subject: Subject, entry_point: str, arguments: dict[str, Any]) -> bool:
    try:
        judge_call(subject, entry_point, **arguments)
    except CheckFailure:
        return False
    return True


def _mixed(entry_point: str, batch: int, what: str, evidence: Evidence) -> CheckFailure:
    return CheckFailure(
        f"{entry_point} is right for one row and with {batch} rows and 3 heads {what}: the batch axis is lined up with"
        " the head axis; in a correct decoder cos and sin of (batch, time) positions get an axis for the heads",
        evidence,
    )
