"""Where a fault is when no known mistake explains it: the first rung that differs, and a few questions there.

A question changes one thing in a call and asks what follows: does a head of zeros give zeros, do earlier positions
notice a later token, does the fault vanish with one head. The answers are the evidence.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import torch
from torch import Tensor

from cs336_harness.defects import Place
from cs336_harness.diagnosis import small_calls
from cs336_harness.diagnosis.matching import Probe
from cs336_harness.diagnosis.observing import RAISED, Experiment, Observed, Question, apart, same
from cs336_harness.diagnosis.programs import program
from cs336_harness.diagnosis.questions import LADDERS, Bench, leak_of, mixed_rows, unseen_by, zeroed
from cs336_harness.diagnosis.small_calls import SMALL
from cs336_harness.diagnosis.zeroed_sublayers import questions_of_a_model
from cs336_harness.reference.oracle_adapters import NORM_EPS


@dataclasses.dataclass(slots=True)
class Located:
    """A place, how sure it is, and why."""

    place: Place
    confidence: str
    evidence: list[str]
    in_the_stream: bool = False
    """Whether embedding, stream, norm or head are wrong already where all sublayers give zeros."""

    def certainly_flow(self, place: Place) -> bool:
        """Whether a reading of the mask is an echo: rows or positions meet outside of attention."""
        return place is Place.MASK and (self.in_the_stream or self.place is Place.INFORMATION_FLOW)


def locate(probe: Probe, name: str) -> Located | None:
    """Where the fault is that a program shows; None when it shows none."""
    differing = probe.differing(name)
    if not differing:
        return None
    facts_first = [e for e in differing if e.decisive and probe.see(e).text != RAISED]
    first = next((e for e in (*facts_first, *differing) if not e.decisive or e in facts_first), differing[0])
    seen = probe.see(first)
    if first.decisive:
        return Located(first.place, "likely", [DECIDED.get(seen.text, f"wrong {first.what}")])
    concluded = _conclusion(probe, name, first, seen)
    evidence = [concluded] if concluded else []
    if name not in LADDERS:
        return Located(first.place, "likely", evidence)
    place, answer = _ask(Bench(probe, name), first, seen)
    in_the_stream = first.question is Question.STREAM
    return Located(place, "likely", [*evidence, *([answer] if answer else [])], in_the_stream)


DECIDED = {
    "random": "the same call with another random seed gives other numbers: something in it draws random numbers,"
    " such as dropout, the bias of an nn.Linear, or a weight that is made anew and never loaded",
    "remembers": "the same call gives other numbers the second time: something is kept between calls, or never filled",
}
"""In words, what became of a call that was repeated."""


CONCLUSIONS = {
    Question.STREAM: "it is wrong already when attention and feed-forward add nothing, so it lies outside of both",
    Question.ONE_TOKEN: "a single token is wrong already, so it is not the mask, the scores or the positions",
    Question.EQUAL_SCORES: "one token alone is right, several are wrong even when all scores are equal: it is not the"
    " scores",
    Question.CONTENT: "right when all scores are equal, wrong when they differ: it is in the scores, not in the mask",
    Question.ATTENTION: "right when nothing turns, wrong when positions turn queries and keys",
    Question.FEED_FORWARD: "attention alone is right, the feed-forward alone is wrong",
}
"""What follows when an experiment is the first of its program to differ."""


def _conclusion(probe: Probe, name: str, first: Experiment, seen: Observed) -> str:
    """What follows from the first experiment that differs, all before it being right; nothing where all differ."""
    if seen.text == RAISED:
        return f"raises {first.what}: {seen.message}"
    comparable = [e for e in program(name) if not e.decisive and not e.code and not probe.see(e).absent]
    before = list(itertools.takewhile(lambda e: e is not first, comparable))
    if first.question in CONCLUSIONS and (before or first.question in (Question.STREAM, Question.ONE_TOKEN)):
        without_turning = first.question is Question.ATTENTION and name == "run_multihead_self_attention"
        return (
            "right when all scores are equal, wrong when they differ"
            if without_turning
            else CONCLUSIONS[first.question]
        )
    if not before:
        later = [e for e in comparable if same(probe.see(e), e)]
        return f"wrong {first.what}, right {later[-1].what}" if later else ""
    return f"right {before[-1].what}, wrong {first.what}"


def _ask(bench: Bench, first: Experiment, seen: Observed) -> tuple[Place, str]:
    if seen.text == RAISED:
        return (Place.CONFIGURATION if bench.name == "built" else first.place), ""
    mixed = mixed_rows(bench)
    if mixed:
        return Place.INFORMATION_FLOW, mixed
    match first.question:
        case Question.STREAM if bench.name == "run_transformer_block":
            return _stream_of_a_block(bench)
        case Question.STREAM:
            return questions_of_a_model(bench, first, seen.value)
        case Question.ONE_TOKEN | Question.EQUAL_SCORES | Question.CONTENT | Question.ATTENTION:
            return _attention(bench, first)
        case Question.FEED_FORWARD:
            return _feed_forward(bench)
        case Question.FLOW:
            return _flow(bench, first)
    return first.place, ""


def _flow(bench: Bench, first: Experiment) -> tuple[Place, str]:
    leak = leak_of(bench, first.length)
    if leak:
        return Place.INFORMATION_FLOW, leak
    unseen = unseen_by(bench, first.length) if first.length > SHORT else ""
    return (Place.MASK, unseen) if unseen else (first.place, "")


SHORT = 5
"""The length of the calls that are asked about first."""


def _attention(bench: Bench, first: Experiment) -> tuple[Place, str]:
    question, time = first.question, first.length
    attention_only = small_calls.nothing if "attention" in bench.name else small_calls.only_attention
    surgeries = {Question.EQUAL_SCORES: small_calls.uniform, Question.CONTENT: small_calls.unrotated}
    surgery = surgeries.get(question, attention_only)
    theta = "rope_theta" if "rope_theta" in bench.arguments() else "theta"

    def huge(arguments: dict[str, Any]) -> None:
        if question is Question.CONTENT:
            arguments[theta] = small_calls.HUGE_THETA

    if question is Question.CONTENT:
        given, other = (
            bench.output(surgery=attention_only),
            bench.output(lambda arguments: arguments.update({theta: 7.0}), surgery=attention_only),
        )
        if given is not None and other is not None and apart(given, other) == 0.0:
            return Place.POSITIONS, "theta has no effect"
    one_head = SMALL.replace(num_heads=1, num_kv_heads=1)
    by_heads = question is not Question.ATTENTION or bench.name == "run_multihead_self_attention"
    if by_heads and bench.agrees(huge, shape=one_head, time=time, surgery=surgery):
        return Place.HEADS, "with a single head it agrees"
    leak = leak_of(bench, surgery=surgery) if time > 1 else ""
    if leak:
        return Place.MASK, leak
    if question is Question.ONE_TOKEN:
        return _one_token(bench, surgery)
    if question is Question.EQUAL_SCORES:
        unseen = unseen_by(bench)
        return (Place.MASK, unseen) if unseen else (Place.ATTENTION, "every position sees exactly what it may see")
    if question is Question.ATTENTION and bench.name == "run_multihead_self_attention":
        return Place.ATTENTION, ""
    return first.place, ""


def _one_token(bench: Bench, surgery: small_calls.Surgery) -> tuple[Place, str]:
    if bench.name.startswith("run_multihead"):
        return Place.ATTENTION, ""
    layers = _layers(bench)
    if layers:
        return Place.LAYERS, layers
    if not bench.agrees(time=1, surgery=zeroed(surgery, "q_proj.weight", "k_proj.weight", "v_proj.weight")):
        return Place.RESIDUAL, "it differs even when queries, keys and values are zero"
    if bench.agrees(_normed, time=1, surgery=_unit_gains(surgery)):
        return Place.FIRST_NORM, "with an input that is normed already and gains of one it agrees"
    with_it, without = bench.output(time=1, surgery=surgery), bench.output(time=1, surgery=small_calls.zero_sublayers)
    if with_it is not None and without is not None and apart(with_it, without) == 0.0:
        return Place.RESIDUAL, "attention has no effect at all"
    return Place.ATTENTION, ""


def _layers(bench: Bench) -> str:
    """Whether, of three layers, some add what they must and others do not."""
    if bench.name == "run_transformer_block":
        return ""
    three = SMALL.replace(num_layers=3)
    right = [bench.agrees(shape=three, time=3, surgery=small_calls.only_layer(layer)) for layer in range(3)]
    if not any(right):
        return ""
    return f"of three layers, layer {right.index(True)} alone is right" + (
        "" if all(right) else f", layer {right.index(False)} is not"
    )


def _normed(arguments: dict[str, Any]) -> None:
    """Makes the first norm an identity: every row of the input has a root mean square of one, eps included."""

    def unit(x: Tensor) -> Tensor:
        return x / (x * x).mean(-1, keepdim=True).sqrt() * (1 - NORM_EPS) ** 0.5

    if "in_features" in arguments:
        arguments["in_features"] = unit(arguments["in_features"])
    else:
        table = "token_embeddings.weight"
        arguments["weights"] = {**arguments["weights"], table: unit(arguments["weights"][table])}


def _unit_gains(surgery: small_calls.Surgery) -> small_calls.Surgery:
    def operate(weights: dict[str, Tensor]) -> None:
        surgery(weights)
        for name in weights:
            if name.endswith(("ln1.weight", "ln2.weight")):
                weights[name] = torch.ones_like(weights[name])

    return operate


def _feed_forward(bench: Bench) -> tuple[Place, str]:
    leak = leak_of(bench, surgery=small_calls.only_feed_forward)
    if leak:
        return Place.INFORMATION_FLOW, leak
    if bench.agrees(_normed, time=3, surgery=_unit_gains(small_calls.only_feed_forward)):
        return Place.SECOND_NORM, "with an input that is normed already and gains of one it agrees"
    with_it, without = (
        bench.output(surgery=small_calls.only_feed_forward),
        bench.output(surgery=small_calls.zero_sublayers),
    )
    if with_it is not None and without is not None and apart(with_it, without) == 0.0:
        return Place.RESIDUAL, "the feed-forward has no effect at all"
    return Place.FEED_FORWARD, ""


def _stream_of_a_block(bench: Bench) -> tuple[Place, str]:
    leak = leak_of(bench, surgery=small_calls.zero_sublayers)
    if leak:
        return Place.INFORMATION_FLOW, leak
    return Place.RESIDUAL, "with both sublayers at zero, a block must hand its input through unchanged"
