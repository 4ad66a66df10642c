"""Experiments on the model entry points, from the simplest to the whole: each rung of a ladder adds one thing.

The first rung on which a subject leaves the oracle says where its fault is, and every rung helps to say which it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from cs336_harness.assembly import build
from cs336_harness.defects import Place
from cs336_harness.diagnosis import calls, facts
from cs336_harness.diagnosis.calls import GROUPED, HUGE_THETA, SMALL
from cs336_harness.diagnosis.observing import Experiment
from cs336_harness.failures import CheckFailure
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject import Subject

Ladder = tuple[Experiment, ...]
Rung = tuple[str, str, Place, Callable[[], Mapping[str, Any]]]


def _call(
    entry_point: str, arguments: Callable[[], Mapping[str, Any]], name: str, what: str, place: Place
) -> Experiment:
    cached = functools.cache(arguments)

    def run(subject: Subject) -> Any:
        return subject.invoke(entry_point, **cached())

    return Experiment(f"{entry_point}: {name}", what, run, place, entry_point=entry_point, arguments=cached)


def _ladder(entry_point: str, *rungs: Rung) -> Ladder:
    return tuple(_call(entry_point, arguments, name, what, place) for name, what, place, arguments in rungs)


def _repeating(entry_point: str, arguments: Callable[[], Mapping[str, Any]], *rungs: Rung) -> Ladder:
    return (_call_repeats(entry_point, arguments), *_ladder(entry_point, *rungs))


def _untouched(entry_point: str, arguments: Callable[[], Mapping[str, Any]], argument: str, place: Place) -> Experiment:
    def run(subject: Subject) -> str:
        given = {name: calls_copy(value) for name, value in arguments().items()}
        before = calls_copy(given[argument])
        subject.invoke(entry_point, copy=False, **given)
        return "untouched" if equal(given[argument], before) else "changed"

    return Experiment(f"{entry_point}: {argument} untouched", f"in what it does to {argument}", run, place)


def calls_copy(value: Any) -> Any:
    """A copy of a tensor or of a dict of tensors; anything else as it is."""
    if isinstance(value, torch.Tensor):
        return value.clone()
    return {name: item.clone() for name, item in value.items()} if isinstance(value, Mapping) else value


def equal(first: Any, second: Any) -> bool:
    """Whether two tensors, or two dicts of tensors, are the same to the last bit."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def _attention_rungs(make: Callable[..., dict[str, Any]], whole: calls.Surgery) -> tuple[Rung, ...]:
    """Rungs that attention, the block and the model share; ``whole`` silences what is not attention."""
    return (
        (
            "one token",
            "for a single token, where attention only hands its value over",
            Place.ATTENTION,
            lambda: make(time=1, surgery=whole),
        ),
        (
            "equal scores",
            "when all scores are equal, so that each position takes the mean of what it sees",
            Place.MASK,
            lambda: make(surgery=calls.uniform),
        ),
    )


def _unrotated(make: Callable[..., dict[str, Any]], theta: str) -> Callable[[], dict[str, Any]]:
    return lambda: {**make(surgery=calls.unrotated), theta: HUGE_THETA}


UNROTATED = "when theta is so large that nothing turns, so that only the content decides"


def _sizes(make: Callable[..., dict[str, Any]], whole: calls.Surgery) -> tuple[Rung, ...]:
    return (
        ("more positions", "with eleven positions", Place.INFORMATION_FLOW, lambda: make(time=11, surgery=whole)),
        (
            "full context",
            "when the input fills the context",
            Place.INFORMATION_FLOW,
            lambda: make(time=12, surgery=whole),
        ),
        ("as many rows as heads", "with as many rows as heads", Place.HEADS, lambda: make(batch=3, surgery=whole)),
        ("one row", "with a single row", Place.POST_PROCESSING, lambda: make(batch=1, surgery=whole)),
    )


def _linear(*leading: int) -> dict[str, Any]:
    return {
        "d_in": 10,
        "d_out": 6,
        "weights": calls.features(6, 10),
        "in_features": calls.features(*leading, 10, scale=0.5),
    }


def _embedding() -> dict[str, Any]:
    ids = calls.token_ids(SMALL, 2, 5)
    return {
        "vocab_size": 29,
        "d_model": 24,
        "weights": calls.weights_of(SMALL)["token_embeddings.weight"],
        "token_ids": ids,
    }


def _norm(*leading: int, eps: float = 1e-5, scale: float = 0.01) -> dict[str, Any]:
    gain = calls.weights_of(SMALL)["ln_final.weight"]
    return {"d_model": 24, "eps": eps, "weights": gain, "in_features": calls.features(*leading, 24, scale=scale)}


def _swiglu(*leading: int, d_ff: int = 64) -> dict[str, Any]:
    sizes = {"w1_weight": (d_ff, 24), "w2_weight": (24, d_ff), "w3_weight": (d_ff, 24)}
    weights = {name: calls.normal(*size, seed=index, std=0.2) for index, (name, size) in enumerate(sizes.items())}
    return {"d_model": 24, "d_ff": d_ff, **weights, "in_features": calls.features(*leading, 24)}


def _softmax(dim: int, scale: float = 2.0) -> dict[str, Any]:
    return {"in_features": calls.features(2, 3, 4, scale=scale), "dim": dim}


def _far_apart() -> dict[str, Any]:
    x = calls.features(2, 3, 4)
    x[0] -= 10000
    return {"in_features": x, "dim": -1}


def _positions(*rows: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor(rows if len(rows) > 1 else rows[0])


@functools.cache
def ladder(entry_point: str) -> Ladder:
    """The experiments on one of the twelve model entry points."""
    return _LADDERS[entry_point]()


def _norm_ladder() -> Ladder:
    return _ladder(
        "run_rmsnorm",
        ("large input", "on an input of order one", Place.NORM, lambda: _norm(2, 3, scale=1.0)),
        ("small input", "on a small input, where eps counts", Place.NORM, lambda: _norm(2, 3)),
        ("large eps", "with eps = 0.1", Place.NORM, lambda: _norm(2, 3, eps=0.1)),
        ("tiny input", "on an input of 1e-4", Place.NORM, lambda: _norm(2, 3, scale=1e-4)),
        ("two axes", "on an input (time, channel)", Place.NORM, lambda: _norm(3)),
        ("four axes", "on an input of four axes", Place.NORM, lambda: _norm(2, 3, 4)),
        ("one row", "with a single row", Place.POST_PROCESSING, lambda: _norm(1, 3)),
    )


def _rope_ladder() -> Ladder:
    here = Place.POSITIONS
    return _ladder(
        "run_rope",
        ("position 0", "at position 0, where nothing turns", here, lambda: rope(2, time=1)),
        ("plain positions", "at the positions 0, 1, 2, …", here, lambda: rope(2)),
        ("other theta", "with theta = 10000", here, lambda: rope(2, theta=10000.0)),
        ("jumping positions", "at positions that jump", here, lambda: rope(2, positions=_positions((0, 3, 4, 9, 11)))),
        ("late start", "at positions that start late", here, lambda: rope(2, positions=_positions((5, 6, 7, 8, 9)))),
        (
            "positions by row",
            "at positions that differ by row",
            here,
            lambda: rope(2, positions=_positions((0, 1, 2, 3, 4), (7, 8, 9, 10, 11))),
        ),
        (
            "far positions",
            "at positions past 256",
            here,
            lambda: rope(2, positions=_positions((255, 256, 257, 259, 301)), reach=400),
        ),
        ("last position", "at the last position, max_seq_len - 1", here, lambda: rope(2, time=5, reach=5)),
        ("batch and heads", "on (batch, heads, time, channel)", Place.HEADS, lambda: rope(2, 3)),
        ("one row", "with a single row", Place.POST_PROCESSING, lambda: rope(1)),
    )


def rope(*leading: int, **options: Any) -> dict[str, Any]:
    """Short for the arguments of ``run_rope``."""
    return calls.rope_call(*leading, **options)


def _product_ladder() -> Ladder:
    return _repeating(
        "run_scaled_dot_product_attention",
        lambda: calls.product_call(2),
        ("open mask", "when every key is visible", Place.ATTENTION, lambda: calls.product_call(2, mask="open")),
        ("one key", "when one key is visible", Place.MASK, lambda: calls.product_call(2, mask="one")),
        ("mask", "under a mask", Place.MASK, lambda: calls.product_call(2)),
        ("heads", "with two leading axes", Place.ATTENTION, lambda: calls.product_call(2, 3)),
        ("wide values", "when values are wider than keys", Place.ATTENTION, lambda: calls.product_call(2, width=12)),
        ("no mask", "without a mask", Place.ATTENTION, lambda: calls.product_call(2, mask="none")),
        ("one row", "with a single row", Place.POST_PROCESSING, lambda: calls.product_call(1)),
    )


def _attention_ladder() -> Ladder:
    make = calls.attention_call
    return _repeating(
        "run_multihead_self_attention",
        make,
        *_attention_rungs(make, calls.nothing),
        ("attention", "on five positions", Place.ATTENTION, lambda: make()),
        *_sizes(make, calls.nothing),
    )


def _rotary_attention_ladder() -> Ladder:
    make = calls.rotary_attention_call
    return _repeating(
        "run_multihead_self_attention_with_rope",
        make,
        *_attention_rungs(make, calls.nothing),
        ("no rotation", UNROTATED, Place.ATTENTION, _unrotated(make, "theta")),
        ("attention", "on five positions", Place.POSITIONS, lambda: make()),
        (
            "jumping positions",
            "at positions that jump",
            Place.POSITIONS,
            lambda: make(positions=(2, 5, 6, 11, 40)),
        ),
        *_sizes(make, calls.nothing),
    )


def _block_ladder() -> Ladder:
    make = calls.block_call
    return _repeating(
        "run_transformer_block",
        make,
        (
            "silent",
            "when both sublayers are silenced and only the stream is left",
            Place.RESIDUAL,
            lambda: make(surgery=calls.silence),
        ),
        *_attention_rungs(make, calls.only_attention),
        ("no rotation", UNROTATED, Place.ATTENTION, _unrotated(make, "theta")),
        ("attention", "with attention alone", Place.POSITIONS, lambda: make(surgery=calls.only_attention)),
        (
            "feed-forward",
            "with the feed-forward alone",
            Place.FEED_FORWARD,
            lambda: make(surgery=calls.only_feed_forward),
        ),
        ("both", "with both sublayers", Place.RESIDUAL, lambda: make()),
        *_sizes(make, calls.nothing),
    )


def model_rungs(make: Callable[..., dict[str, Any]]) -> tuple[Rung, ...]:
    """The ladder of a whole model, from the bare embedding and head to eleven layers."""
    three, two = SMALL.replace(num_layers=3), SMALL.replace(num_layers=2)
    return (
        (
            "silent",
            "when every sublayer is silenced and only embedding, final norm and head are left",
            Place.FINAL_NORM,
            lambda: make(time=4, surgery=calls.silence),
        ),
        *_attention_rungs(make, calls.only_attention),
        ("no rotation", UNROTATED, Place.ATTENTION, _unrotated(make, "rope_theta")),
        ("attention", "with attention alone", Place.POSITIONS, lambda: make(surgery=calls.only_attention)),
        (
            "feed-forward",
            "with the feed-forward alone",
            Place.FEED_FORWARD,
            lambda: make(time=3, surgery=calls.only_feed_forward),
        ),
        ("one layer", "with one whole layer", Place.RESIDUAL, lambda: make(time=4)),
        *(
            (
                f"layer {layer} of 3 alone",
                f"when layer {layer} of three is the only one that speaks",
                Place.LAYERS,
                functools.partial(make, three, time=3, surgery=calls.only_layer(layer)),
            )
            for layer in range(3)
        ),
        ("three layers", "with three layers", Place.LAYERS, lambda: make(three, time=4)),
        (
            "full context of two layers",
            "with two layers and a full context",
            Place.INFORMATION_FLOW,
            lambda: make(two, batch=1, time=12),
        ),
        *_sizes(make, calls.nothing),
        ("one token alone", "for one token in one row", Place.POST_PROCESSING, lambda: make(batch=1, time=1)),
        (
            "eleven layers",
            "with eleven layers",
            Place.LAYERS,
            lambda: make(SMALL.replace(num_layers=11), batch=1, time=2),
        ),
    )


def _model_ladder() -> Ladder:
    return (
        *_repeating("run_transformer_lm", calls.model_call, *model_rungs(calls.model_call)),
        _untouched("run_transformer_lm", calls.model_call, "weights", Place.INFORMATION_FLOW),
        _untouched("run_transformer_lm", calls.model_call, "in_indices", Place.INFORMATION_FLOW),
        Experiment(
            "run_transformer_lm: global state", "in what it leaves behind", _global_state, Place.INFORMATION_FLOW
        ),
    )


def _global_state(subject: Subject) -> str:
    subject.invoke("run_transformer_lm", grad=True, **calls.model_call())
    visit = subject.last_visit
    dtype, grad = visit.default_dtype, visit.grad_enabled
    return f"default dtype {'kept' if dtype[0] == dtype[1] else 'changed'}, grad mode {'kept' if grad[0] == grad[1] else 'changed'}"


def repeats(name: str, prepare: Callable[[Subject], Callable[[], torch.Tensor]]) -> Experiment:
    """Whether the same call gives the same numbers again, with random numbers that differ and with the same ones."""

    def run(subject: Subject) -> str:
        call = prepare(subject)
        results = []
        with torch.random.fork_rng(devices=[]):
            for seed in (1, 1, 2):
                torch.manual_seed(seed)
                results.append(call())
        if not torch.equal(results[0], results[1]):
            return "remembers"
        return "repeats" if torch.equal(results[1], results[2]) else "random"

    return Experiment(f"{name}: repeats", "when it is called again", run, Place.INFORMATION_FLOW, decisive=True)


def _call_repeats(entry_point: str, arguments: Callable[[], Mapping[str, Any]]) -> Experiment:
    return repeats(entry_point, lambda subject: lambda: subject.invoke(entry_point, **arguments()))


_LADDERS: dict[str, Callable[[], Ladder]] = {
    "run_linear": lambda: _ladder(
        "run_linear",
        ("three axes", "on a (rows, time, channel) input", Place.LINEAR, lambda: _linear(2, 3)),
        ("one row", "with a single row", Place.POST_PROCESSING, lambda: _linear(1, 3)),
    ),
    "run_embedding": lambda: _ladder("run_embedding", ("tokens", "on ten tokens", Place.EMBEDDING, _embedding)),
    "run_silu": lambda: _ladder(
        "run_silu",
        (
            "values",
            "between -6 and 6",
            Place.FEED_FORWARD,
            lambda: {"in_features": torch.linspace(-6, 6, 24).view(2, 3, 4)},
        ),
        (
            "one row",
            "with a single row",
            Place.POST_PROCESSING,
            lambda: {"in_features": torch.linspace(-6, 6, 24).view(1, 6, 4)},
        ),
    ),
    "run_softmax": lambda: (
        *_ladder(
            "run_softmax",
            ("last axis", "along the last axis", Place.ATTENTION, lambda: _softmax(-1)),
            ("first axis", "along the first axis", Place.ATTENTION, lambda: _softmax(0)),
            ("middle axis", "along the middle axis", Place.ATTENTION, lambda: _softmax(1)),
            ("huge values", "on values of ten thousand", Place.ATTENTION, lambda: _softmax(-1, 10000.0)),
            ("slices far apart", "when one slice lies far below another", Place.ATTENTION, _far_apart),
        ),
        _untouched("run_softmax", lambda: _softmax(-1), "in_features", Place.ATTENTION),
    ),
    "run_rmsnorm": _norm_ladder,
    "run_swiglu": lambda: _ladder(
        "run_swiglu",
        ("three axes", "on a (rows, time, channel) input", Place.FEED_FORWARD, lambda: _swiglu(2, 3)),
        ("odd width", "with a d_ff of 40", Place.FEED_FORWARD, lambda: _swiglu(2, 3, d_ff=40)),
        ("one row", "with a single row", Place.POST_PROCESSING, lambda: _swiglu(1, 3)),
    ),
    "run_rope": _rope_ladder,
    "run_scaled_dot_product_attention": _product_ladder,
    "run_multihead_self_attention": _attention_ladder,
    "run_multihead_self_attention_with_rope": _rotary_attention_ladder,
    "run_transformer_block": _block_ladder,
    "run_transformer_lm": _model_ladder,
}


def _built(arguments: Mapping[str, Any], shape: DecoderShape, subject: Subject) -> torch.Tensor:
    model = build(subject, shape, arguments["weights"])
    return model.subject.run("the model", lambda: model.module(arguments["in_indices"].clone()))


def _shape_of(arguments: Mapping[str, Any], like: DecoderShape) -> DecoderShape:
    return like.replace(**{name: arguments[name] for name in ("num_layers", "num_heads", "rope_theta")})


@functools.cache
def built_ladder() -> Ladder:
    """The experiments on the model that ``get_transformer_lm`` builds: the model's ladder, then grouped heads and tying."""
    rungs = []
    for name, what, place, arguments in model_rungs(calls.model_call):
        rungs.append(_build_rung(name, what, place, arguments, SMALL))
    grouped = [
        ("six heads over two", "with six query heads over two key/value heads", GROUPED),
        ("six heads over one", "with six query heads over one key/value head", GROUPED.replace(num_kv_heads=1)),
        ("six heads over three", "with six query heads over three key/value heads", GROUPED.replace(num_kv_heads=3)),
    ]
    for name, what, shape in grouped:
        rungs.append(_build_rung(name, what, Place.HEADS, functools.partial(calls.model_call, shape), shape))
    tied = SMALL.replace(tie_embeddings=True)
    rungs.append(_build_rung("tied", "when it is tied", Place.TYING, functools.partial(calls.model_call, tied), tied))

    def prepare(subject: Subject) -> Callable[[], torch.Tensor]:
        model = build(subject, SMALL, calls.weights_of(SMALL))
        model.module.eval()
        return lambda: subject.run("the model", lambda: model.module(calls.token_ids(SMALL, 2, 5)))

    return (repeats("get_transformer_lm", prepare), *rungs, *facts.MANNERS)


def _build_rung(
    name: str, what: str, place: Place, arguments: Callable[[], Mapping[str, Any]], like: DecoderShape
) -> Experiment:
    cached = functools.cache(arguments)

    def run(subject: Subject) -> torch.Tensor:
        result = _built(cached(), _shape_of(cached(), like), subject)
        if not isinstance(result, torch.Tensor):
            raise CheckFailure("the model returned no tensor")
        return result

    return Experiment(f"get_transformer_lm: {name}", what, run, place, arguments=cached, shape=like)
