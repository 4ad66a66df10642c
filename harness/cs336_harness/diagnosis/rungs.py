"""What the ladders are made of: experiments that are one call each, and whether a call repeats."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from cs336_harness.defects import Place
from cs336_harness.diagnosis.observing import Experiment
from cs336_harness.subject.calling import Subject

Ladder = tuple[Experiment, ...]
Rung = tuple[str, str, Place, Callable[[], Mapping[str, Any]]]
"""Name, what it is in words, the place that it speaks for, and the arguments of its call."""


def call_rung(
    entry_point: str, arguments: Callable[[], Mapping[str, Any]], name: str, what: str, place: Place
) -> Experiment:
    cached = functools.cache(arguments)

    def run(subject: Subject) -> Any:
        return subject.invoke(entry_point, **cached())

    return Experiment(f"{entry_point}: {name}", what, run, place, entry_point=entry_point, arguments=cached)


def ladder_of(entry_point: str, *rungs: Rung) -> Ladder:
    return tuple(call_rung(entry_point, arguments, name, what, place) for name, what, place, arguments in rungs)


def repeating_ladder(entry_point: str, arguments: Callable[[], Mapping[str, Any]], *rungs: Rung) -> Ladder:
    return (call_repeats(entry_point, arguments), *ladder_of(entry_point, *rungs))


def repeats(name: str, prepare: Callable[[Subject], Callable[[], torch.Tensor]]) -> Experiment:
    """Whether the same call gives the same numbers again, with random numbers that differ and with the same ones."""

    def run(subject: Subject) -> str:
        call = prepare(subject)
        results = []
        with torch.random.fork_rng(devices=[]):
            for seed in (1, 1, 2):
                torch.manual_seed(seed)
                results.append(call())
        first, again, later = (result.detach().nan_to_num(nan=torch.pi) for result in results)
        if not torch.equal(first, again):
            return "remembers"
        return "repeats" if torch.equal(again, later) else "random"

    return Experiment(f"{name}: repeats", "when it is called again", run, Place.INFORMATION_FLOW, decisive=True)


def call_repeats(entry_point: str, arguments: Callable[[], Mapping[str, Any]]) -> Experiment:
    return repeats(entry_point, lambda subject: lambda: subject.invoke(entry_point, **arguments()))
