"""Rotary positions beyond 0, 1, 2, …: other thetas, positions that jump or differ by row, the end of the table.

Whether an argument is honoured is asked by comparing the subject with itself; the numbers are compared after that.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from cs336_harness.checks.comparing import attempt, judge_call, same_numbers
from cs336_harness.checks.registry import Param, check
from cs336_harness.reference import precision
from cs336_harness.reference.sample_calls import rope
from cs336_harness.reference.tolerance import LEAST_SHAKE, TOLERANCE_IN_NOISE
from cs336_harness.reference.weights import normal
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, ConclusiveFailure, Evidence

D_K = 8
LONG = 600
"""A table long enough to pass position 256, from where on bfloat16 skips integers."""

HONOURED = (
    "components.rope_theta",
    "components.rope_positions",
    "components.rope_rows",
    "components.rope_last_position",
)


def _call(subject: Subject, arguments: dict[str, Any]) -> Tensor:
    return subject.call("run_rope", shape=tuple(arguments["in_query_or_key"].shape), **arguments)


def _attempt(subject: Subject, arguments: dict[str, Any]) -> Tensor | None:
    return attempt(subject, "run_rope", tuple(arguments["in_query_or_key"].shape), **arguments)


def _no_effect(message: str, arguments: dict[str, Any]) -> CheckFailure:
    return CheckFailure(message, Evidence(entry_point="run_rope", arguments=arguments))


@check("components.rope_theta", task="rope", needs=["run_rope"])
def rope_theta(subject: Subject) -> None:
    """The theta that is passed is the theta that is used.

    Usually broken by 10000 written into the code.
    """
    usual, other = (rope(3, 5, D_K, theta=theta, seed=61) for theta in (10000.0, 100.0))
    result = _attempt(subject, usual)
    if same_numbers(result, _attempt(subject, other)) and not same_numbers(result, usual["in_query_or_key"]):
        raise _no_effect(
            "run_rope ignores theta: theta 10000 and theta 100 give the same numbers;"
            " a correct rotation turns pair i by position · theta^(-2i / d_k)",
            other,
        )


@check("components.rope_positions", task="rope", needs=["run_rope"])
def rope_positions(subject: Subject) -> None:
    """The positions that are passed are the positions that are used.

    Usually broken by positions counted anew from 0 to the length of the input.
    """
    counted = rope(3, 5, D_K, seed=62)
    jumping = {**counted, "token_positions": torch.tensor([0, 4, 5, 9, 17])}
    result = _attempt(subject, counted)
    if same_numbers(result, _attempt(subject, jumping)) and not same_numbers(result, counted["in_query_or_key"]):
        raise _no_effect(
            "run_rope ignores token_positions: positions 0, 4, 5, 9, 17 give the same numbers as 0, 1, 2, 3, 4;"
            " a correct rotation turns each vector by its own position",
            jumping,
        )


@check("components.rope_rows", task="rope", needs=["run_rope"], after=["components.rope_positions"])
def rope_rows(subject: Subject) -> None:
    """Positions of shape (batch, time): each row is turned by its own.

    Usually broken by taking ``token_positions[0]`` for all rows.
    """
    positions = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11], [0, 2, 4, 6, 8]])
    arguments = rope(1, 5, D_K, positions=positions, seed=63)
    x = arguments["in_query_or_key"].expand(3, 5, -1).clone()
    arguments["in_query_or_key"] = x
    result = _attempt(subject, arguments)
    turned = result is not None and not same_numbers(result, x)
    if turned and same_numbers(result[0], result[1]) and same_numbers(result[0], result[2]):
        raise _no_effect(
            "run_rope uses only the first row of token_positions: rows at 0 to 4 and at 7 to 11 come out the same;"
            " a correct rotation turns row b by token_positions[b]",
            arguments,
        )


def _picks_vectors(subject: Subject, arguments: dict[str, Any]) -> bool:
    """Whether two vectors at 1, 0 come out as at 0, 1, in this order or the other: positions pick the vectors."""
    plain, swapped = (
        _attempt(subject, {**arguments, "token_positions": torch.tensor(positions)}) for positions in ([0, 1], [1, 0])
    )
    return same_numbers(swapped, plain) or (plain is not None and same_numbers(swapped, plain.flip(-2)))


@check("components.rope_last_position", task="rope", needs=["run_rope"])
def rope_last_position(subject: Subject) -> None:
    """Every position up to max_seq_len - 1 may be asked for, however short the input.

    Usually broken by a table of cosines and sines that is as long as the input, or one too short.
    """
    arguments = rope(3, 2, D_K, positions=torch.tensor([18, 19]), seed=64)
    try:
        _call(subject, arguments)
    except CheckFailure as failure:
        if not isinstance(failure.__cause__, IndexError | RuntimeError | AssertionError | ValueError):
            raise
        if _attempt(subject, {**arguments, "token_positions": torch.tensor([0, 1])}) is None:
            return
        if _picks_vectors(subject, arguments):
            raise ConclusiveFailure(
                "run_rope uses token_positions to pick rows of in_query_or_key: 18 and 19 lie beyond its two vectors,"
                " and positions 1, 0 give the numbers of 0, 1; a correct rotation picks rows of cos and sin, and turns"
                f" vector t by the position token_positions[t] ({failure.message})",
                failure.evidence,
            ) from failure.__cause__
        raise CheckFailure(
            "run_rope cannot turn two vectors at positions 18 and 19 with max_seq_len 20: its table is too short;"
            f" a correct table has a row for each position from 0 to max_seq_len - 1 ({failure.message})",
            failure.evidence,
        ) from failure.__cause__


POSITIONS: dict[str, tuple[Tensor, int, str]] = {
    "jumping": (torch.tensor([0, 4, 5, 9, 17]), 20, "positions 0, 4, 5, 9, 17"),
    "descending": (torch.tensor([12, 9, 6, 3, 0]), 20, "positions 12, 9, 6, 3, 0"),
    "starting_late": (torch.arange(11, 16), 20, "positions 11 to 15"),
    "by_row": (
        torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11], [0, 2, 4, 6, 8]]),
        20,
        "positions that differ by row",
    ),
}


@check(
    "components.rope_position_values",
    task="rope",
    needs=["run_rope"],
    after=["components.rope", *HONOURED],
    cases=POSITIONS,
)
def rope_position_values(subject: Subject, case: tuple[Tensor, int, str]) -> float:
    """The rotation at positions that jump, descend, start anywhere or differ by row.

    Usually broken by indexing the table with a range in place of the positions.
    """
    positions, max_seq_len, words = case
    arguments = rope(3, 5, D_K, positions=positions, theta=500.0, max_seq_len=max_seq_len, seed=65)
    teach = "a correct rotation looks cos and sin up by token_positions"
    return judge_call(subject, "run_rope", what=words, teach=teach, **arguments)


@check(
    "components.rope_far_positions",
    task="rope",
    needs=["run_rope"],
    cases={
        "theta_10000": Param(10000.0, after=["components.rope", *HONOURED]),
        "theta_100": Param(100.0, after=[*HONOURED, "components.rope_far_positions[theta_10000]"]),
        "theta_500000": Param(500000.0, after=[*HONOURED, "components.rope_far_positions[theta_10000]"]),
    },
)
def rope_far_positions(subject: Subject, case: float) -> float:
    """Positions around 256 and up to the last of 600, for three thetas.

    Usually broken by positions, frequencies or tables in half precision: bfloat16 holds every integer up to 256.
    """
    positions = torch.tensor([255, 256, 257, 411, 598, 599])
    arguments = rope(3, 6, D_K, positions=positions, theta=case, max_seq_len=LONG, seed=66)
    teach = "a correct rotation keeps positions, frequencies, cos and sin in float32 or better"
    return judge_call(subject, "run_rope", what=f"theta {case:g}, positions 255 to 599", teach=teach, **arguments)


@check("components.rope_leading_axes", task="rope", needs=["run_rope"], after=["components.rope", *HONOURED])
def rope_leading_axes(subject: Subject) -> float:
    """Vectors of shape (batch, heads, time, d_k) with positions of shape (time,): the same turn in every row and head.

    Usually broken by a table that lines up with the heads in place of the positions.
    """
    arguments = rope(2, 3, 5, 6, positions=torch.tensor([1, 2, 4, 8, 16]), seed=67)
    axes = ("row", "head", "position", "channel")
    teach = "a correct rotation turns position t of every row and head alike"
    return judge_call(subject, "run_rope", axes, what="shape (batch, heads, time, d_k)", teach=teach, **arguments)


@check(
    "components.rope_other_shapes",
    task="rope",
    needs=["run_rope"],
    after=[
        "components.rope_leading_axes",
        "components.rope_rows",
        "components.rope_position_values[by_row]",
        "components.rope_position_values[jumping]",
    ],
    cases={
        "no_leading_axis": ((5,), (5,)),
        "positions_by_row": ((3, 5), (3, 5)),
        "positions_by_row_and_head": ((2, 3, 5), (2, 3, 5)),
        "positions_with_an_axis_for_heads": ((2, 3, 5), (2, 1, 5)),
    },
)
def rope_other_shapes(subject: Subject, case: tuple[tuple[int, ...], tuple[int, ...]]) -> float:
    """Shapes that the contract's dots allow and few callers use.

    Each position axis stands for the same axis of the vectors, or has size one.
    """
    vectors, positions_shape = case
    positions = (torch.arange(torch.Size(positions_shape).numel()) * 7 % 20).reshape(positions_shape)
    return judge_call(
        subject,
        "run_rope",
        ("row", "head", "position", "channel")[-1 - len(vectors) :],
        what=f"vectors of shape {(*vectors, 6)}, positions of shape {positions_shape}",
        **rope(*vectors, 6, positions=positions, seed=68),
    )


@check(
    "components.rope_is_a_rotation",
    task="rope",
    needs=["run_rope"],
    after=[
        "components.rope",
        "components.rope_far_positions[theta_10000]",
        "components.axes_of_size_one[rope]",
    ],
)
def rope_is_a_rotation(subject: Subject) -> float:
    """A rotation keeps every vector's length, and scores depend on the distance of positions alone, near and far.

    Usually broken by a scale in the table, or by positions that are clipped or rescaled past some length.
    """
    positions = torch.tensor([0, 3, 4, 9])
    unshifted = rope(1, 4, D_K, positions=positions, max_seq_len=LONG, seed=69)
    queries, keys = unshifted["in_query_or_key"], normal(*unshifted["in_query_or_key"].shape, seed=70)
    worst = 0.0
    scores_at: dict[int, Tensor] = {}
    for shift in (0, 17, 300, LONG - 10):
        arguments = {**unshifted, "token_positions": positions + shift}
        turned_queries = _call(subject, arguments)
        turned_keys = _call(subject, {**arguments, "in_query_or_key": keys})
        scores_at[shift] = turned_queries[0] @ turned_keys[0].T
        lengths, kept = queries[0].norm(dim=-1), turned_queries[0].norm(dim=-1)
        scale = precision.half_unit() + LEAST_SHAKE * (int(positions[-1]) + shift)  # angles stay float32
        stretched = float((kept - lengths).abs().max() / lengths.max()) / scale
        moved = float((scores_at[shift] - scores_at[0]).abs().max() / (lengths.max() * keys.norm(dim=-1).max())) / scale
        worst = max(worst, stretched, moved)
        if stretched > TOLERANCE_IN_NOISE:
            index = int(((kept - lengths).abs() > TOLERANCE_IN_NOISE * scale * lengths.max()).nonzero()[0])
            raise _no_effect(
                f"run_rope changes the length of a vector at position {int(positions[index]) + shift} from"
                f" {float(lengths[index]):.4g} to {float(kept[index]):.4g}; a rotation turns and never stretches",
                arguments,
            )
        if moved > TOLERANCE_IN_NOISE:
            raise _no_effect(
                f"run_rope: shifting queries and keys by {shift} positions moves their scores; in a correct rotation a"
                " score depends on the distance of the two positions alone",
                arguments,
            )
    return worst
