"""What a head's queries, keys and values are made of, and for which position they are turned.

For each head that is wrong, everything that could stand in place of its six parts is tried: the rows of another
projection or of another head, and another rotation. What gives the very numbers is what the head is made of.

Shapes: T positions, H heads, d channels of a head, D = d_model.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from cs336_harness.defects import Place, adapters_of
from cs336_harness.diagnosis.readings.reading import ROUNDING, Reading, ask, differ, factor, number
from cs336_harness.diagnosis.readings.self_attention import NORMED, SHAPE, attention_of, one_hot
from cs336_harness.reference.weights import normal
from cs336_harness.subject.calling import Subject

TIME = 6
HEADS, D_HEAD = SHAPE.num_heads, SHAPE.d_head
EXACT = 1e-3
NOT_AT_ALL = "not turned"
AS_IT_IS = "turned as for position t"
PARTS = {"queries": "q_proj", "keys": "k_proj", "values": "v_proj"}


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """How one of the three parts of a head is made: with which rows, and how it is turned."""

    rows: str
    turned: str


Head = tuple[Made, ...]
"""Queries, keys and values."""


@functools.cache
def matrices() -> Mapping[str, Tensor]:
    """Random projections that do not see the last channel, which all tokens share."""
    made = {
        name: normal(SHAPE.d_model, SHAPE.d_model, seed=30 + index, std=0.3)
        for index, name in enumerate(("q_proj", "k_proj", "v_proj"))
    }
    for matrix in made.values():
        matrix[:, -1] = 0
    return made


def own_rows(projection: str, head: int) -> str:
    """The rows of a projection that make one head, in words."""
    return f"rows {head * D_HEAD} to {(head + 1) * D_HEAD - 1} of {projection}"


@functools.cache
def _rows() -> dict[str, Tensor]:
    """Every choice of d rows that a head may be made of: (d, D)."""
    found = {}
    for name, matrix in matrices().items():
        for head in range(HEADS):
            found[own_rows(name, head)] = matrix[head * D_HEAD : (head + 1) * D_HEAD]
    for name, matrix in matrices().items():
        for head in range(HEADS):
            found[f"rows {head}, {head + HEADS}, {head + 2 * HEADS}, … of {name}"] = matrix[head::HEADS]
            found[f"columns {head * D_HEAD} to {(head + 1) * D_HEAD - 1} of {name}"] = matrix.T[
                head * D_HEAD : (head + 1) * D_HEAD
            ]
    return found


@functools.cache
def _part(made: Made) -> Tensor:
    """(T, d) in float64."""
    plain = NORMED * one_hot(TIME).to(torch.float64) @ _rows()[made.rows].to(torch.float64).T
    positions = torch.arange(TIME)
    return plain if made.turned == NOT_AT_ALL else _turned(plain, TURNED[made.turned](positions))


def _turned(plain: Tensor, positions: Tensor) -> Tensor:
    return adapters_of().oracle_class(SHAPE).rotate(plain, positions, SHAPE.rope_theta)


TURNED: dict[str, Callable[[Tensor], Tensor]] = {
    AS_IT_IS: lambda t: t,
    NOT_AT_ALL: lambda t: 0 * t,
    "turned as for position t + 1": lambda t: t + 1,
    "turned as for position t - 1": lambda t: t - 1,
    "turned as for position 2 t, so twice": lambda t: 2 * t,
    "turned as for position -t, so backwards": lambda t: -t,
    "turned as for position T - 1 - t, so counted from the end": lambda t: len(t) - 1 - t,
}
"""How the token at position t of T may be turned."""


@functools.lru_cache(maxsize=4096)
def _weights(queries: Made, keys: Made) -> Tensor:
    scores = _part(queries) @ _part(keys).T * D_HEAD**-0.5
    return scores.masked_fill(torch.ones(TIME, TIME).triu(1).bool(), -torch.inf).softmax(-1)


def _head(made: Head) -> Tensor:
    return _weights(made[0], made[1]) @ _part(made[2])


def _right(head: int, rotary: bool) -> Head:
    turned = AS_IT_IS if rotary else NOT_AT_ALL
    q, k, v = (own_rows(name, head) for name in PARTS.values())
    return Made(q, turned), Made(k, turned), Made(v, NOT_AT_ALL)


def _other(right: Head) -> Iterator[Head]:
    """Everything a head may be made of, with one part wrong, then two."""
    rows, turned = list(_rows()), list(TURNED)
    alternatives = [
        [Made(row, made.turned) for row in rows if row != made.rows]
        + [Made(made.rows, turn) for turn in turned if turn != made.turned]
        for made in right
    ]
    for part in range(3):
        for made in alternatives[part]:
            yield (*right[:part], made, *right[part + 1 :])
    for first, second in itertools.combinations(range(3), 2):
        for one, other in itertools.product(alternatives[first], alternatives[second]):
            both = list(right)
            both[first], both[second] = one, other
            yield tuple(both)


def read_projections(subject: Subject, name: str) -> Reading | None:
    """What the heads that are wrong are made of, where that explains them."""
    rotary = name != "run_multihead_self_attention"
    read = attention_of(subject, name, SHAPE, matrices(), TIME)
    if read is None:
        return None
    right = [_right(head, rotary) for head in range(HEADS)]
    wrong = [head for head in range(HEADS) if not _is(read[head], _head(right[head]))]
    if not wrong:
        return None
    made = {}
    for head in wrong:
        found = next((other for other in _other(right[head]) if _is(read[head], _head(other))), None)
        if found is None:
            return None
        made[head] = found
    return _said(made, right)


def _is(read: Tensor, head: Tensor) -> bool:
    """The last channel of the last head is not seen: the stream keeps its size there."""
    return not differ(read[:, : D_HEAD - 1], head[:, : D_HEAD - 1], EXACT)


def _said(made: Mapping[int, Head], right: list[Head]) -> Reading:
    head, everywhere = min(made), _alike(made)
    told, place = [], Place.HEADS
    for part, (what, projection) in enumerate(PARTS.items()):
        got, must = made[head][part], right[head][part]
        whose = f"{'every head' if everywhere else f'head {head}'}'s {what}"
        if got.rows != must.rows:
            other = next((name for name in PARTS.values() if own_rows(name, head) == got.rows), None)
            with_what = (other, projection) if everywhere and other is not None else (got.rows, must.rows)
            told.append(f"{whose} are made with {with_what[0]}, must be made with {with_what[1]}")
            place = Place.ATTENTION if everywhere else Place.HEADS
        if got.turned != must.turned:
            told.append(f"{whose} are {got.turned}, must be {must.turned}")
            place = Place.POSITIONS
    right_ones = [str(other) for other in range(HEADS) if other not in made]
    if right_ones:
        told.append(
            f"of the heads 0 to {HEADS - 1}, {' and '.join(right_ones)} {'are' if right_ones[1:] else 'is'} right"
        )
    return Reading("; ".join(told), place)


def _alike(made: Mapping[int, Head]) -> bool:
    """Whether every head is wrong in the same way."""
    ways = {
        tuple(
            (next((name for name in PARTS.values() if own_rows(name, head) == part.rows), part.rows), part.turned)
            for part in parts
        )
        for head, parts in made.items()
    }
    return len(made) == HEADS and len(ways) == 1


def read_output_projection(subject: Subject, name: str) -> Reading | None:
    """What a token's values are multiplied with at the end: the values are the token itself, and nothing else is there
    to be seen.
    """
    weight = normal(SHAPE.d_model, SHAPE.d_model, seed=37, std=0.2)
    identity, exact = torch.eye(SHAPE.d_model), weight.to(torch.float64)
    given = {"q_proj_weight": identity, "k_proj_weight": identity, "v_proj_weight": identity, "o_proj_weight": weight}
    sizes: dict[str, Any] = {"d_model": SHAPE.d_model, "num_heads": HEADS}
    if name.endswith("rope"):
        sizes |= {"max_seq_len": 64, "theta": SHAPE.rope_theta, "token_positions": torch.zeros(1, 1, dtype=torch.int64)}
    x = identity[:, None]
    read = ask(subject, name, x.shape, **sizes, **given, in_features=x)
    if read is None or not differ(read[:, 0].T, exact):
        return None
    others = {
        "output_proj is applied twice": exact @ exact,
        "output_proj is used as its transpose": exact.T,
        "output_proj is never applied": identity.to(torch.float64),
        "output_proj acts as output_proj + 1, so its input is added": exact + identity,
        "output_proj and its transpose are both applied": exact.T @ exact,
    }
    text = next((text for text, matrix in others.items() if not differ(read[:, 0].T, matrix)), None)
    return None if text is None else Reading(f"{text}; it must be applied once, as W x", Place.ATTENTION)


def read_added_input(subject: Subject, name: str) -> Reading | None:
    """Whether attention gives its input too: the output projection is zero, so nothing else can come out."""
    x = normal(TIME, SHAPE.d_model, seed=33)[None].repeat(2, 1, 1)
    given = {f"{part}_weight": matrix for part, matrix in matrices().items()}
    given["o_proj_weight"] = torch.zeros(SHAPE.d_model, SHAPE.d_model)
    sizes: dict[str, Any] = {"d_model": SHAPE.d_model, "num_heads": HEADS}
    if name.endswith("rope"):
        sizes |= {"max_seq_len": 64, "theta": SHAPE.rope_theta, "token_positions": torch.arange(TIME)[None]}
    read = ask(subject, name, x.shape, **sizes, **given, in_features=x)
    times = None if read is None else factor(read, x.to(torch.float64))
    if times is None or abs(times) < ROUNDING:
        return None
    how = "its input" if abs(times - 1) < ROUNDING else f"{number(times)} times its input"
    return Reading(
        f"with an output projection of zeros, attention gives {how}, must give 0: the block adds x, not attention",
        Place.ATTENTION,
    )
