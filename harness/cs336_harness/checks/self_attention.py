"""Self-attention and the block beyond the snapshots: other sizes, positions that jump, batch and heads kept apart.

Whether an argument is honoured is asked by comparing the subject with itself; the numbers are compared after that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cs336_harness.checks.comparing import REFERENCE, apart, attempt, judge_call, same_numbers
from cs336_harness.checks.registry import Param, check
from cs336_harness.contract import ENTRY_POINTS
from cs336_harness.reference.sample_calls import (
    multihead_self_attention,
    multihead_self_attention_with_rope,
    one_layer,
    transformer_block,
    transformer_lm,
)
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, Evidence

MHA = "run_multihead_self_attention"
MHA_ROPE = "run_multihead_self_attention_with_rope"
BLOCK = "run_transformer_block"


def _rotary(
    positions: Tensor | None, *, batch: int = 2, theta: float = 10000.0, max_seq_len: int = 20
) -> dict[str, Any]:
    return multihead_self_attention_with_rope(batch, 5, positions, theta=theta, max_seq_len=max_seq_len)


def _block(batch: int, theta: float = 10000.0) -> dict[str, Any]:
    return transformer_block(one_layer(rope_theta=theta), batch, 5, seeds=(9, 96))


def _call(subject: Subject, entry_point: str, arguments: dict[str, Any]) -> Tensor:
    return subject.call(entry_point, shape=tuple(arguments["in_features"].shape), **arguments)


def _attempt(subject: Subject, entry_point: str, arguments: dict[str, Any]) -> Tensor | None:
    return attempt(subject, entry_point, tuple(arguments["in_features"].shape), **arguments)


@check(
    "components.multihead_self_attention_sizes",
    task="multihead_self_attention",
    needs=[MHA],
    after=["components.multihead_self_attention"],
    cases={"one_head": (10, 1, 2, 3), "five_heads_of_six": (30, 5, 3, 7), "two_heads_of_ten": (20, 2, 3, 4)},
)
def multihead_self_attention_sizes(subject: Subject, case: tuple[int, int, int, int]) -> float:
    """Other widths, head counts, batches and lengths: no two of them equal, the head size even as RoPE needs it.

    Usually broken by a size written into the code, or by two axes exchanged that happen to be equal elsewhere.
    """
    d_model, num_heads, batch, time = case
    return judge_call(
        subject,
        MHA,
        what=f"{batch} rows, {time} positions, {num_heads} heads of {d_model // num_heads} channels",
        teach="a correct attention splits the projected channels into heads, attends, and merges the heads in order",
        **multihead_self_attention(batch, time, d_model=d_model, num_heads=num_heads),
    )


@check(
    "components.attention_theta",
    task="multihead_self_attention",
    needs=[MHA_ROPE],
    after=["components.multihead_self_attention", "components.rope", "components.rope_theta"],
)
def attention_theta(subject: Subject) -> None:
    """The theta that is passed reaches the rotation inside attention.

    Usually broken by an adapter or a module that does not pass theta on, or does not rotate at all.
    """
    usual, other = (_rotary(torch.arange(5)[None], theta=theta) for theta in (10000.0, 10.0))
    result = _attempt(subject, MHA_ROPE, usual)
    if not same_numbers(result, _attempt(subject, MHA_ROPE, other)):
        return
    jumping = {**usual, "token_positions": torch.tensor([[0, 4, 5, 9, 17]])}
    if same_numbers(result, _attempt(subject, MHA_ROPE, jumping)):
        rotates = apart(_unturned(usual), result) > SURELY_APART
        what = "turns by a theta and positions of its own" if rotates else "does not rotate"
        message = f"{MHA_ROPE} {what}: neither theta nor token_positions changes any number"
    else:
        message = f"{MHA_ROPE} does not pass theta on: theta 10000 and theta 10 give the same numbers"
    raise CheckFailure(
        f"{message}; a correct attention turns queries and keys with the theta and the positions it is given",
        Evidence(entry_point=MHA_ROPE, arguments=other),
    )


SURELY_APART = 1e-3
"""What the rotation changes, at the least, as a part of the largest number; no rounding comes near it."""


def _unturned(arguments: dict[str, Any]) -> Tensor:
    """What attention gives for these arguments when nothing is turned."""
    names = ENTRY_POINTS[MHA].arguments
    return REFERENCE.run_multihead_self_attention(**{name: arguments[name] for name in names})


@check(
    "components.block_theta",
    task="transformer_block",
    needs=[BLOCK],
    after=["components.rmsnorm", "components.multihead_self_attention_with_rope"],
)
def block_theta(subject: Subject) -> None:
    """The theta that is passed reaches the rotation inside the block.

    Usually broken by a block that does not pass theta on to its attention.
    """
    usual, other = (_block(2, theta=theta) for theta in (10000.0, 10.0))
    result = _attempt(subject, BLOCK, usual)
    silent = {**usual["weights"], "attn.output_proj.weight": torch.zeros(24, 24)}
    attends = not same_numbers(result, _attempt(subject, BLOCK, {**usual, "weights": silent}))
    if attends and same_numbers(result, _attempt(subject, BLOCK, other)):
        raise CheckFailure(
            f"{BLOCK} does not pass theta on: theta 10000 and theta 10 give the same numbers;"
            " a correct block turns queries and keys with the theta it is given",
            Evidence(entry_point=BLOCK, arguments=other),
        )


@check(
    "components.attention_positions",
    task="multihead_self_attention",
    needs=[MHA_ROPE],
    after=["components.rope_positions", "components.attention_theta"],
)
def attention_positions(subject: Subject) -> None:
    """The token_positions that are passed, of shape (1, time), reach the rotation inside attention.

    Usually broken by an attention that counts positions by itself.
    """
    counted, jumping = (_rotary(torch.tensor([positions])) for positions in ([0, 1, 2, 3, 4], [0, 4, 5, 9, 17]))
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
    "components.rope_last_position",
    "components.rope_far_positions[theta_10000]",
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
        **_rotary(torch.tensor([positions]), theta=500.0, max_seq_len=max_seq_len),
    )


@check(
    "components.attention_position_shapes",
    task="multihead_self_attention",
    needs=[MHA_ROPE],
    after=[
        *ROTARY_AFTER,
        "components.attention_position_values[jumping]",
        "components.attention_position_values[last_position]",
    ],
    cases={
        "time": torch.tensor([0, 4, 5, 9, 17]),
        "batch_time": torch.tensor([[0, 4, 5, 9, 17], [3, 4, 6, 7, 11]]),
        "as_many_rows_as_heads": torch.tensor([[0, 4, 5, 9, 17], [3, 4, 6, 7, 11], [1, 2, 9, 12, 19]]),
        "none": Param(None, advisory=True),
    },
)
def attention_position_shapes(subject: Subject, case: Tensor | None) -> float:
    """Positions of shape (time,), of shape (batch, time) with rows that differ, and none (usually 0, 1, …).

    As many rows as heads is a case of its own: cosines of shape (batch, time, …) then line up with the heads without an
    error, and each head is turned by another row's positions. Where two rows are refused, that is the same refusal.
    """
    batch = len(case) if case is not None and case.ndim == 2 else 2
    arguments = _rotary(case, theta=500.0, batch=batch)
    if case is None:
        what, teach = "no positions", "the contract does not say what happens then; most count 0, 1, 2, …"
    else:
        what = f"{batch} rows, 3 heads, positions of shape {tuple(case.shape)}"
        teach = (
            "a decoder that takes them turns row b by token_positions[b]: cos and sin of (batch, time, …) get an axis"
            " for the heads"
        )
    try:
        return judge_call(subject, MHA_ROPE, what=what, teach=teach, **arguments)
    except CheckFailure as failure:
        if batch == 3 and (refusal := _refuses_rows(subject)) is not None:
            raise CheckFailure(
                f"{refusal.message}; with as many rows as heads it does not, and the numbers are wrong; {teach}",
                failure.evidence,
            ) from refusal.__cause__
        raise


def _refuses_rows(subject: Subject) -> CheckFailure | None:
    """How positions (batch, time) are refused where no sizes coincide; None where they are taken."""
    arguments = _rotary(torch.tensor([[0, 4, 5, 9, 17], [3, 4, 6, 7, 11]]), theta=500.0)
    try:
        _call(subject, MHA_ROPE, arguments)
    except CheckFailure as failure:
        return failure if failure.__cause__ is not None else None
    return None


def _rotary_for_batch(batch: int) -> dict[str, Any]:
    return _rotary(torch.arange(5)[None], batch=batch)


def _model_for_batch(batch: int) -> dict[str, Any]:
    return transformer_lm(one_layer(context_length=8), batch, 5, seeds=(97, 98))


@check(
    "components.batch_and_heads",
    cases={
        "multihead_self_attention_with_rope": Param(
            (MHA_ROPE, _rotary_for_batch, "in_features", 12),
            task="multihead_self_attention",
            needs=[MHA_ROPE],
            after=["components.multihead_self_attention", "components.rope"],
        ),
        "transformer_block": Param(
            (BLOCK, _block, "in_features", 24),
            task="transformer_block",
            needs=[BLOCK],
            after=["components.rmsnorm", "components.swiglu", "components.multihead_self_attention_with_rope"],
        ),
        "transformer_lm": Param(
            ("run_transformer_lm", _model_for_batch, "in_indices", 11),
            task="transformer_lm",
            needs=["run_transformer_lm"],
            after=[
                "components.embedding",
                "components.scaled_dot_product_attention",  # a smallest score of the whole tensor is of all rows
                "components.transformer_block",
            ],
        ),
    },
)
def batch_and_heads(subject: Subject, case: tuple[str, Callable[[int], dict[str, Any]], str, int]) -> None:
    """Two rows and three heads, where one row is right: the batch axis is not taken for the head axis.

    Usually broken by cosines of shape (batch, time, …) against queries of shape (batch, heads, time, …): PyTorch
    lines axes up from the right, so the batch meets the heads. As many rows as heads, or one row, hide it.
    """
    entry_point, sample, batched, width = case
    for batch in (2, 4):
        together = sample(batch)
        alone = {**together, batched: together[batched][-1:]}
        expected = attempt(subject, entry_point, (1, 5, width), **alone)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            again = attempt(subject, entry_point, (1, 5, width), **alone)
        if expected is None or not same_numbers(expected, again):
            return  # a call that raises, or draws random numbers, is told by other checks
        try:
            result = subject.call(entry_point, shape=(batch, 5, width), **together)
        except CheckFailure as failure:
            raise _mixed(entry_point, batch, f"fails ({failure.message})", failure.evidence) from failure.__cause__
        if not same_numbers(expected, result[-1:]):
            evidence = Evidence(entry_point=entry_point, arguments=together)
            raise _mixed(entry_point, batch, f"gives row {batch - 1} other numbers", evidence)


def _mixed(entry_point: str, batch: int, what: str, evidence: Evidence) -> CheckFailure:
    return CheckFailure(
        f"{entry_point} takes one row, and with {batch} rows and 3 heads {what}: the batch axis is lined up with"
        " the head axis, or rows see each other; in a correct decoder cos and sin of (batch, time, …) get an axis for"
        " the heads",
        evidence,
    )
