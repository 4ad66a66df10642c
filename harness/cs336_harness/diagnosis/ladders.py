"""Experiments on the model entry points, from the simplest to the whole: each rung of a ladder adds one thing.

The first rung on which a subject leaves the oracle says where its fault is, and every rung helps to say which it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from cs336_harness.defects import Place
from cs336_harness.diagnosis import facts, small_calls
from cs336_harness.diagnosis.component_ladders import COMPONENT_LADDERS
from cs336_harness.diagnosis.observing import Experiment, Program, Question
from cs336_harness.diagnosis.rungs import Rung, repeating_ladder, repeats
from cs336_harness.diagnosis.small_calls import GROUPED, HUGE_THETA, SMALL
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import build
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import AbsentArgument, CheckFailure


def _attention_rungs(make: Callable[..., dict[str, Any]], whole: small_calls.Surgery) -> tuple[Rung, ...]:
    """Rungs that attention, the block and the model share; ``whole`` zeroes what is not attention."""
    return (
        Rung(
            "one token",
            "for a single token, where attention only hands its value over",
            Place.ATTENTION,
            lambda: make(time=1, surgery=whole),
            Question.ONE_TOKEN,
            length=1,
        ),
        Rung(
            "equal scores",
            "when all scores are equal, so that each position takes the mean of what it sees",
            Place.MASK,
            lambda: make(surgery=small_calls.uniform),
            Question.EQUAL_SCORES,
        ),
    )


def _unrotated(make: Callable[..., dict[str, Any]], theta: str) -> Callable[[], dict[str, Any]]:
    return lambda: {**make(surgery=small_calls.unrotated), theta: HUGE_THETA}


UNROTATED = "when theta is so large that nothing turns, so that only the content decides"


def _sizes(make: Callable[..., dict[str, Any]], whole: small_calls.Surgery) -> tuple[Rung, ...]:
    return (
        Rung(
            "more positions",
            "with eleven positions",
            Place.INFORMATION_FLOW,
            lambda: make(time=11, surgery=whole),
            Question.FLOW,
            length=11,
        ),
        Rung(
            "full context",
            "when the input fills the context",
            Place.INFORMATION_FLOW,
            lambda: make(time=12, surgery=whole),
            Question.FLOW,
            length=12,
        ),
        Rung(
            "as many rows as heads",
            "with as many rows as heads",
            Place.HEADS,
            lambda: make(batch=3, surgery=whole),
            Question.FLOW,
        ),
        Rung("one row", "with a single row", Place.POST_PROCESSING, lambda: make(batch=1, surgery=whole)),
    )


@functools.cache
def ladder(entry_point: str) -> Program:
    """The experiments on one of the twelve model entry points."""
    return (_MODEL_LADDERS[entry_point] if entry_point in _MODEL_LADDERS else COMPONENT_LADDERS[entry_point])()


def _attention_ladder() -> Program:
    make = small_calls.attention_call
    return repeating_ladder(
        "run_multihead_self_attention",
        make,
        *_attention_rungs(make, small_calls.nothing),
        Rung("attention", "on five positions", Place.ATTENTION, lambda: make(), Question.ATTENTION),
        *_sizes(make, small_calls.nothing),
    )


def _rotary_attention_ladder() -> Program:
    make = small_calls.rotary_attention_call
    return repeating_ladder(
        "run_multihead_self_attention_with_rope",
        make,
        *_attention_rungs(make, small_calls.nothing),
        Rung("no rotation", UNROTATED, Place.ATTENTION, _unrotated(make, "theta"), Question.CONTENT),
        Rung("attention", "on five positions", Place.POSITIONS, lambda: make(), Question.ATTENTION),
        Rung(
            "jumping positions",
            "at positions that jump",
            Place.POSITIONS,
            lambda: make(positions=(2, 5, 6, 11, 40)),
        ),
        *_sizes(make, small_calls.nothing),
    )


def _block_ladder() -> Program:
    make = small_calls.block_call
    return repeating_ladder(
        "run_transformer_block",
        make,
        Rung(
            "zeroed sublayers",
            "when both sublayers give zeros and only the stream is left",
            Place.RESIDUAL,
            lambda: make(surgery=small_calls.zero_sublayers),
            Question.STREAM,
        ),
        *_attention_rungs(make, small_calls.only_attention),
        Rung("no rotation", UNROTATED, Place.ATTENTION, _unrotated(make, "theta"), Question.CONTENT),
        Rung(
            "attention",
            "with attention alone",
            Place.POSITIONS,
            lambda: make(surgery=small_calls.only_attention),
            Question.ATTENTION,
        ),
        Rung(
            "feed-forward",
            "with the feed-forward alone",
            Place.FEED_FORWARD,
            lambda: make(surgery=small_calls.only_feed_forward),
            Question.FEED_FORWARD,
        ),
        Rung("both", "with both sublayers", Place.RESIDUAL, lambda: make(), Question.FLOW),
        *_sizes(make, small_calls.nothing),
    )


def model_rungs(make: Callable[..., dict[str, Any]]) -> tuple[Rung, ...]:
    """The ladder of a whole model, from the bare embedding and head to eleven layers."""
    three, two = SMALL.replace(num_layers=3), SMALL.replace(num_layers=2)
    return (
        Rung(
            "zeroed sublayers",
            "when every sublayer gives zeros and only embedding, final norm and head are left",
            Place.FINAL_NORM,
            lambda: make(time=4, surgery=small_calls.zero_sublayers),
            Question.STREAM,
        ),
        *_attention_rungs(make, small_calls.only_attention),
        Rung("no rotation", UNROTATED, Place.ATTENTION, _unrotated(make, "rope_theta"), Question.CONTENT),
        Rung(
            "attention",
            "with attention alone",
            Place.POSITIONS,
            lambda: make(surgery=small_calls.only_attention),
            Question.ATTENTION,
        ),
        Rung(
            "feed-forward",
            "with the feed-forward alone",
            Place.FEED_FORWARD,
            lambda: make(time=3, surgery=small_calls.only_feed_forward),
            Question.FEED_FORWARD,
        ),
        Rung("one layer", "with one whole layer", Place.RESIDUAL, lambda: make(time=4), Question.FLOW),
        *(
            Rung(
                f"layer {layer} of 3 alone",
                f"when of three layers only layer {layer} adds anything",
                Place.LAYERS,
                functools.partial(make, three, time=3, surgery=small_calls.only_layer(layer)),
            )
            for layer in range(3)
        ),
        Rung("three layers", "with three layers", Place.LAYERS, lambda: make(three, time=4), Question.FLOW),
        Rung(
            "full context of two layers",
            "with two layers and a full context",
            Place.INFORMATION_FLOW,
            lambda: make(two, batch=1, time=12),
            Question.FLOW,
            length=12,
        ),
        *_sizes(make, small_calls.nothing),
        Rung("one token alone", "for one token in one row", Place.POST_PROCESSING, lambda: make(batch=1, time=1)),
        Rung(
            "eleven layers",
            "with eleven layers",
            Place.LAYERS,
            lambda: make(SMALL.replace(num_layers=11), batch=1, time=2),
        ),
    )


GROUPED_RUNGS = [
    ("six heads over two", "with six query heads over two key/value heads", GROUPED),
    ("six heads over one", "with six query heads over one key/value head", GROUPED.replace(num_kv_heads=1)),
    ("six heads over three", "with six query heads over three key/value heads", GROUPED.replace(num_kv_heads=3)),
]


def _model_ladder() -> Program:
    return (
        *repeating_ladder("run_transformer_lm", small_calls.model_call, *model_rungs(small_calls.model_call)),
        *(_grouped_once(name, what, shape) for name, what, shape in GROUPED_RUNGS),
        *facts.MODEL_SIDE_EFFECTS,
    )


def _grouped_once(name: str, what: str, shape: DecoderShape) -> Experiment:
    """A call with key/value heads of their own number, of a function that takes it."""

    @functools.cache
    def arguments() -> Mapping[str, Any]:
        return {**small_calls.model_call(shape), "num_kv_heads": shape.num_kv_heads}

    def run(subject: Subject) -> Any:
        if not subject.takes("run_transformer_lm", "num_kv_heads"):
            raise AbsentArgument("run_transformer_lm", "num_kv_heads")
        return subject.invoke("run_transformer_lm", **arguments())

    return Experiment(
        f"run_transformer_lm: {name}", what, run, Place.HEADS, entry_point="run_transformer_lm", arguments=arguments
    )


def _built(arguments: Mapping[str, Any], shape: DecoderShape, subject: Subject) -> torch.Tensor:
    return build(subject, shape, arguments["weights"]).forward(arguments["in_indices"])


def _shape_of(arguments: Mapping[str, Any], like: DecoderShape) -> DecoderShape:
    return like.replace(**{name: arguments[name] for name in ("num_layers", "num_heads", "rope_theta")})


@functools.cache
def built_ladder() -> Program:
    """The experiments on what ``get_transformer_lm`` builds: the model's ladder, then grouped heads and tying."""
    experiments = []
    for rung in model_rungs(small_calls.model_call):
        experiments.append(_built_once(rung, SMALL))
    for name, what, shape in GROUPED_RUNGS:
        rung = Rung(name, what, Place.HEADS, functools.partial(small_calls.model_call, shape))
        experiments.append(_built_once(rung, shape))
    tied = SMALL.replace(tie_embeddings=True)
    rung = Rung("tied", "when it is tied", Place.TYING, functools.partial(small_calls.model_call, tied))
    experiments.append(_built_once(rung, tied))

    def prepare(subject: Subject) -> Callable[[], torch.Tensor]:
        model = build(subject, SMALL, small_calls.weights_of(SMALL))
        model.set_mode("eval")
        return lambda: model.forward(small_calls.token_ids(SMALL, 2, 5))

    return (repeats("get_transformer_lm", prepare), *experiments, *facts.SIDE_EFFECTS)


def _built_once(rung: Rung, like: DecoderShape) -> Experiment:
    """A rung of the model's ladder, its call made of a model that is built for it."""
    arguments = functools.cache(rung.arguments)

    def run(subject: Subject) -> torch.Tensor:
        result = _built(arguments(), _shape_of(arguments(), like), subject)
        if not isinstance(result, torch.Tensor):
            raise CheckFailure("the model returned no tensor")
        return result

    return Experiment(
        f"get_transformer_lm: {rung.name}",
        rung.what,
        run,
        rung.place,
        arguments=arguments,
        shape=like,
        question=rung.question,
        length=rung.length,
    )


_MODEL_LADDERS: dict[str, Callable[[], Program]] = {
    "run_multihead_self_attention": _attention_ladder,
    "run_multihead_self_attention_with_rope": _rotary_attention_ladder,
    "run_transformer_block": _block_ladder,
    "run_transformer_lm": _model_ladder,
}
