"""How a block is wired: what each sublayer reads and where its output is added, found by trying what could stand there.

Every part of the block's two lines is a slot with a few expressions that may fill it. The subject's result is compared
with what each filling gives, those with the fewest wrong slots first; one that gives the very numbers is how the block
is wired. Nothing is said where none does.

Shapes: T positions, D = d_model; every tensor is (T, D).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from cs336_harness.defects import Place, adapters_of
from cs336_harness.diagnosis.readings.layers import SHAPE, random_layer
from cs336_harness.diagnosis.readings.reading import Reading, differ
from cs336_harness.diagnosis.readings.self_attention import block_of, layer_weights, logits_of, model_weights
from cs336_harness.reference.oracle_adapters import NORM_EPS
from cs336_harness.reference.weights import normal
from cs336_harness.subject.calling import Subject

TIME = 4
EXACT = 1e-4
"""Relative differences up to this are rounding; wirings differ by much more."""

MOST_WRONG = 2
"""How many slots may be wrong at once."""


@dataclasses.dataclass(slots=True)
class Values:
    """What the names in an expression stand for: ``x`` the block's input, ``a`` what attention adds, ``h`` the stream
    between the sublayers, ``f`` what the feed-forward adds, ``out`` the block's output."""

    x: Tensor
    a: Tensor
    h: Tensor
    f: Tensor
    out: Tensor


def _oracle() -> type:
    return adapters_of().oracle_class


def ln1(x: Tensor) -> Tensor:
    return _norm(x, "ln1.weight")


def ln2(x: Tensor) -> Tensor:
    return _norm(x, "ln2.weight")


def _norm(x: Tensor, gain: str) -> Tensor:
    return _oracle()(SHAPE).rmsnorm(x, random_layer()[gain].to(torch.float64), NORM_EPS)


def _attention(x: Tensor, keys: Tensor | None = None, values: Tensor | None = None) -> Tensor:
    """Of one input, or of one each for queries, keys and values."""
    oracle = _oracle()(SHAPE)
    layer = {name: weight.to(torch.float64) for name, weight in random_layer().items()}
    read = {"queries": x, "keys": x if keys is None else keys, "values": x if values is None else values}
    for part, given in read.items():
        projected = getattr(oracle, f"project_{part}")(given, layer)
        setattr(oracle, f"project_{part}", lambda x, weights, projected=projected: projected[None])
    return oracle.self_attention(x, layer, torch.arange(x.shape[-2]), SHAPE.rope_theta)


def _feed_forward(x: Tensor) -> Tensor:
    weights = (random_layer()[f"ffn.{name}.weight"].to(torch.float64) for name in ("w1", "w2", "w3"))
    return _oracle()(SHAPE).swiglu(x, *weights)


Expression = Callable[[Values], Any]
SLOTS: dict[str, dict[str, Expression]] = {
    "attention reads": {
        "ln1(x)": lambda v: ln1(v.x),
        "x": lambda v: v.x,
        "ln2(x)": lambda v: ln2(v.x),
        "ln1(ln1(x))": lambda v: ln1(ln1(v.x)),
        "ln1(x) + x": lambda v: ln1(v.x) + v.x,
        "ln1(x) for queries and keys, x for values": lambda v: (ln1(v.x), ln1(v.x), v.x),
        "ln1(x) for queries, x for keys and values": lambda v: (ln1(v.x), v.x, v.x),
        "x for queries, ln1(x) for keys and values": lambda v: (v.x, ln1(v.x), ln1(v.x)),
        "x for queries and keys, ln1(x) for values": lambda v: (v.x, v.x, ln1(v.x)),
        "ln1(x) for queries and values, x for keys": lambda v: (ln1(v.x), v.x, ln1(v.x)),
    },
    "attention gives": {
        "a": lambda v: v.a,
        "ln1(a)": lambda v: ln1(v.a),
        "ln2(a)": lambda v: ln2(v.a),
    },
    "the stream between the sublayers is": {
        "x + a": lambda v: v.x + v.a,
        "a": lambda v: v.a,
        "x": lambda v: v.x,
        "ln1(x) + a": lambda v: ln1(v.x) + v.a,
        "ln1(x + a)": lambda v: ln1(v.x + v.a),
        "ln2(x + a)": lambda v: ln2(v.x + v.a),
        "x + x + a": lambda v: 2 * v.x + v.a,
        "x + a + a": lambda v: v.x + 2 * v.a,
        "x - a": lambda v: v.x - v.a,
        "x + ln1(x) + a": lambda v: v.x + ln1(v.x) + v.a,
    },
    "the feed-forward reads": {
        "ln2(h)": lambda v: ln2(v.h),
        "h": lambda v: v.h,
        "ln1(h)": lambda v: ln1(v.h),
        "ln2(ln2(h))": lambda v: ln2(ln2(v.h)),
        "ln2(ln1(h))": lambda v: ln2(ln1(v.h)),
        "ln1(ln2(h))": lambda v: ln1(ln2(v.h)),
        "ln2(x)": lambda v: ln2(v.x),
        "x": lambda v: v.x,
        "ln1(x)": lambda v: ln1(v.x),
        "ln2(ln1(x))": lambda v: ln2(ln1(v.x)),
        "ln2(a)": lambda v: ln2(v.a),
        "a": lambda v: v.a,
        "ln2(ln1(x) + a)": lambda v: ln2(ln1(v.x) + v.a),
        "ln2(h) + a": lambda v: ln2(v.h) + v.a,
        "ln2(h + a)": lambda v: ln2(v.h + v.a),
        "ln2(x) + a": lambda v: ln2(v.x) + v.a,
        "ln2(h) + x": lambda v: ln2(v.h) + v.x,
        "ln2(h + x)": lambda v: ln2(v.h + v.x),
        "ln2(h) + h": lambda v: ln2(v.h) + v.h,
        "ln2(h) + ln1(x)": lambda v: ln2(v.h) + ln1(v.x),
        "ln2(x) + ln2(a)": lambda v: ln2(v.x) + ln2(v.a),
    },
    "the feed-forward gives": {
        "f": lambda v: v.f,
        "ln2(f)": lambda v: ln2(v.f),
        "ln1(f)": lambda v: ln1(v.f),
        "feed-forward(f)": lambda v: _feed_forward(v.f),
    },
    "the block gives": {
        "h + f": lambda v: v.h + v.f,
        "f": lambda v: v.f,
        "h": lambda v: v.h,
        "x + f": lambda v: v.x + v.f,
        "a + f": lambda v: v.a + v.f,
        "ln2(h) + f": lambda v: ln2(v.h) + v.f,
        "ln2(h + f)": lambda v: ln2(v.h + v.f),
        "ln1(h + f)": lambda v: ln1(v.h + v.f),
        "ln1(x) + f": lambda v: ln1(v.x) + v.f,
        "h + h + f": lambda v: 2 * v.h + v.f,
        "h + f + f": lambda v: v.h + 2 * v.f,
        "h - f": lambda v: v.h - v.f,
        "x + h + f": lambda v: v.x + v.h + v.f,
        "h + a + f": lambda v: v.h + v.a + v.f,
        "h + ln2(h) + f": lambda v: v.h + ln2(v.h) + v.f,
    },
}
"""What each slot may hold, the right expression first."""

RIGHT = tuple(next(iter(slot)) for slot in SLOTS.values())
AROUND: dict[str, Expression] = {
    "block(x)": lambda v: v.out,
    "x + block(x)": lambda v: v.x + v.out,
    "ln1(block(x))": lambda v: ln1(v.out),
    "ln2(block(x))": lambda v: ln2(v.out),
    "block(x) + ln1(x)": lambda v: v.out + ln1(v.x),
}
"""What a model may make of what its block gives for ``x``; the right one first."""


@functools.cache
def _tokens() -> Tensor:
    """Of order one: a norm changes their size, and what a sublayer adds is as large."""
    return normal(TIME, SHAPE.d_model, seed=25) * 2.0


@functools.lru_cache(maxsize=4096)
def _before(filling: tuple[str, ...]) -> Values:
    return _stream_behind(filling)


def _stream_behind(filling: tuple[str, ...]) -> Values:
    """What the slots up to ``len(filling)`` come to."""
    x = _tokens().to(torch.float64)
    if not filling:
        return Values(x, x, x, x, x)
    values = dataclasses.replace(_before(filling[:-1]))
    value = list(SLOTS.values())[len(filling) - 1][filling[-1]](values)
    match len(filling):
        case 1:
            values.a = _attention(*value) if isinstance(value, tuple) else _attention(value)
        case 2:
            values.a = value
        case 3:
            values.h = value
        case 4:
            values.f = _feed_forward(value)
        case 5:
            values.f = value
        case _:
            values.out = value
    return values


def _fillings() -> Iterator[tuple[str, ...]]:
    """Every way to fill the slots, those with the fewest wrong ones first."""
    slots = list(SLOTS.values())
    for wrong in range(1, MOST_WRONG + 1):
        for places in itertools.combinations(range(len(slots)), wrong):
            choices = [
                list(slot)[1:] if place in places else [right]
                for place, (slot, right) in enumerate(zip(slots, RIGHT, strict=True))
            ]
            yield from itertools.product(*choices)


def read_wiring(subject: Subject, name: str) -> Reading | None:
    """How the block is wired, where that explains its numbers."""
    if name == "run_transformer_block":
        read = block_of(subject, SHAPE, random_layer(), _tokens())
        return None if read is None else _wired(read, lambda stream: stream)
    read = _normed_stream(subject, name)
    if read is None:
        return None
    right = _stream_behind(RIGHT)
    for expression, around in list(AROUND.items())[1:]:
        if not differ(read, unit(around(right)), EXACT):
            text = (
                f"around the blocks: the stream goes on with {expression}, must go on with block(x); x is what went in,"
                " a block's own input or the embedding's output"
            )
            return Reading(text, Place.RESIDUAL)
    found = _wired(read, unit)
    if found is not None:
        later = _normed_stream(subject, name, behind=1)
        if later is not None and not differ(later, unit(right.out), EXACT):
            return dataclasses.replace(found, text=f"in layer 0 alone, {found.text}; layer 1 is right")
    return found


def unit(stream: Tensor) -> Tensor:
    """The final norm with gains of one."""
    return stream / (stream.square().mean(-1, keepdim=True) + NORM_EPS).sqrt()


def _normed_stream(subject: Subject, name: str, behind: int = 0) -> Tensor | None:
    """What the final norm makes of the stream behind one layer, itself ``behind`` so many that add nothing."""
    shape = SHAPE.replace(num_layers=behind + 1)
    weights = model_weights(shape, [layer_weights(shape)] * behind + [dict(random_layer())], _tokens())
    logits = logits_of(subject, name, shape, weights, torch.arange(TIME)[None].repeat(2, 1))
    return None if logits is None else logits[0, :, : SHAPE.d_model]


def _wired(read: Tensor, seen: Callable[[Tensor], Tensor]) -> Reading | None:
    if not differ(read, seen(_stream_behind(RIGHT).out), EXACT):
        return None
    roundly = None
    for filling in _fillings():
        given = seen(_stream_behind(filling).out)
        if not differ(read, given, EXACT):
            return _said(filling)
        if roundly is None and not differ(read, given):
            roundly = filling
    return None if roundly is None or not differ(read, seen(_stream_behind(RIGHT).out)) else _said(roundly)


def _said(filling: tuple[str, ...]) -> Reading:
    wrong = [
        f"{slot} {got}, must be {right}" if slot.endswith("is") else f"{slot} {got}, must {_plain(slot)} {right}"
        for slot, got, right in zip(SLOTS, filling, RIGHT, strict=True)
        if got != right
    ]
    return Reading(
        "; ".join(wrong),
        Place.RESIDUAL,
        (
            *_side_by_side(_lines(filling), _lines(RIGHT)),
            "x: the block's input; a: what attention adds; h: the stream between; f: what the feed-forward adds",
        ),
    )


def _plain(slot: str) -> str:
    return "read" if slot.endswith("reads") else "give"


def _lines(filling: tuple[str, ...]) -> list[str]:
    reads, a, h, second, f, out = filling
    given = [f"a = attention({reads})"]
    given += [f"a = {a}"] if a != "a" else []
    given += [f"h = {h}", f"f = feed-forward({second})"]
    given += [f"f = {f}"] if f != "f" else []
    return [*given, f"output = {out}"]


def _side_by_side(read: list[str], right: list[str]) -> tuple[str, str]:
    """Two rows whose columns stand under each other where there are as many."""
    if len(read) == len(right):
        widths = [max(map(len, pair)) for pair in zip(read, right, strict=True)]
        read, right = ([part.ljust(width) for part, width in zip(row, widths, strict=True)] for row in (read, right))
    return f"read     {'  '.join(read).rstrip()}", f"must be  {'  '.join(right).rstrip()}"
