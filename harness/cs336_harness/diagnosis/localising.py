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
from cs336_harness.diagnosis.observing import RAISED, Experiment, apart
from cs336_harness.diagnosis.programs import program
from cs336_harness.diagnosis.questions import LADDERS, Bench, leak_of, mixed_rows, unseen_by, zeroed
from cs336_harness.diagnosis.silent_model import silent_model
from cs336_harness.diagnosis.small_calls import SMALL
from cs336_harness.reference.oracle_adapters import NORM_EPS


@dataclasses.dataclass(slots=True)
class Located:
    """A place, how sure it is, and why."""

    place: Place
    confidence: str
    evidence: list[str]


def locate(probe: Probe, name: str) -> Located | None:
    """Where the fault is that a program shows; None when it shows none."""
    differing = probe.differing(name)
    if not differing:
        return None
    facts_first = [e for e in differing if e.decisive and probe.see(e).text != RAISED]
    first = next((e for e in (*facts_first, *differing) if not e.decisive or e in facts_first), differing[0])
    seen = probe.see(first)
    before = [e for e in itertools.takewhile(lambda e: e is not first, program(name)) if not e.decisive and not e.code]
    evidence = [f"agrees {e.what}" for e in before if not probe.see(e).absent][-2:]
    evidence.append(f"differs {first.what}" if seen.text != RAISED else f"raises {first.what}: {seen.message}")
    if name not in LADDERS or first.decisive:
        return Located(first.place, "likely", evidence)
    rung = first.name.partition(": ")[2]
    place, answer = _ask(Bench(probe, name), rung, first, seen.value, raises=seen.text == RAISED)
    return Located(place, "likely", [*evidence, *([answer] if answer else [])])


def _ask(bench: Bench, rung: str, first: Experiment, seen: Tensor | None, *, raises: bool) -> tuple[Place, str]:
    if raises:
        return (Place.CONFIGURATION if bench.name == "built" else first.place), ""
    mixed = mixed_rows(bench)
    if mixed:
        return Place.INFORMATION_FLOW, mixed
    if rung == "silent":
        return (
            silent_model(bench, first, seen) if bench.name in ("run_transformer_lm", "built") else silent_block(bench)
        )
    if rung in ("one token", "equal scores", "no rotation", "attention"):
        return _attention(bench, rung, first.place)
    if rung == "feed-forward":
        return _feed_forward(bench)
    if rung.startswith(("more", "full", "as many", "three", "one layer", "both")):
        time = 12 if "full" in rung else 11 if rung.startswith("more") else 5
        leak = leak_of(bench, time)
        if leak:
            return Place.INFORMATION_FLOW, leak
        unseen = unseen_by(bench, time) if time > 5 else ""
        if unseen:
            return Place.MASK, unseen
    return first.place, ""


def _attention(bench: Bench, rung: str, place: Place) -> tuple[Place, str]:
    attention_only = small_calls.nothing if "attention" in bench.name else small_calls.only_attention
    surgery = {"equal scores": small_calls.uniform, "no rotation": small_calls.unrotated}.get(rung, attention_only)
    time = 1 if rung == "one token" else 5
    theta = "rope_theta" if "rope_theta" in bench.arguments() else "theta"

    def huge(arguments: dict[str, Any]) -> None:
        if rung == "no rotation":
            arguments[theta] = small_calls.HUGE_THETA

    if rung == "no rotation":
        first, second = (
            bench.output(surgery=attention_only),
            bench.output(lambda arguments: arguments.update({theta: 7.0}), surgery=attention_only),
        )
        if first is not None and second is not None and apart(first, second) == 0.0:
            return Place.POSITIONS, "theta has no effect"
    one_head = SMALL.replace(num_heads=1, num_kv_heads=1)
    by_heads = rung != "attention" or bench.name == "run_multihead_self_attention"
    if by_heads and bench.agrees(huge, shape=one_head, time=time, surgery=surgery):
        return Place.HEADS, "with a single head it agrees"
    leak = leak_of(bench, surgery=surgery) if time > 1 else ""
    if leak:
        return Place.MASK, leak
    if rung == "one token":
        return _one_token(bench, surgery)
    if rung == "equal scores":
        unseen = unseen_by(bench)
        return (Place.MASK, unseen) if unseen else (Place.ATTENTION, "every position sees exactly what it may see")
    if rung == "attention" and bench.name == "run_multihead_self_attention":
        return Place.ATTENTION, ""
    return place, ""


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
    heard, unheard = bench.output(time=1, surgery=surgery), bench.output(time=1, surgery=small_calls.silence)
    if heard is not None and unheard is not None and apart(heard, unheard) == 0.0:
        return Place.RESIDUAL, "attention has no effect at all"
    return Place.ATTENTION, ""


def _layers(bench: Bench) -> str:
    """Whether, of three layers, some speak as they must and others do not."""
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
    heard, unheard = bench.output(surgery=small_calls.only_feed_forward), bench.output(surgery=small_calls.silence)
    if heard is not None and unheard is not None and apart(heard, unheard) == 0.0:
        return Place.RESIDUAL, "the feed-forward has no effect at all"
    return Place.FEED_FORWARD, ""


def silent_block(bench: Bench) -> tuple[Place, str]:
    leak = leak_of(bench, surgery=small_calls.silence)
    if leak:
        return Place.INFORMATION_FLOW, leak
    return Place.RESIDUAL, "with both sublayers silenced, a block must hand its input through unchanged"
