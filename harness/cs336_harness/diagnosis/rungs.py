"""What programs are made of: experiments that are one call each, and whether a call repeats."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from cs336_harness.defects import Place
from cs336_harness.diagnosis.observing import Experiment, Program, Question
from cs336_harness.subject.calling import Subject


@dataclasses.dataclass(frozen=True, slots=True)
class Rung:
    """One call, not yet of any entry point: the fields of an :class:`Experiment`, and the arguments of its call."""

    name: str
    what: str
    place: Place
    arguments: Callable[[], Mapping[str, Any]]
    question: Question = Question.NOTHING
    length: int = 5

    def of(self, entry_point: str) -> Experiment:
        """The experiment that calls an entry point."""
        arguments = functools.cache(self.arguments)

        def run(subject: Subject) -> Any:
            return subject.invoke(entry_point, **arguments())

        return Experiment(
            f"{entry_point}: {self.name}",
            self.what,
            run,
            self.place,
            entry_point=entry_point,
            arguments=arguments,
            question=self.question,
            length=self.length,
        )


def ladder(entry_point: str, *rungs: Rung) -> Program:
    """The experiments of an entry point."""
    return tuple(rung.of(entry_point) for rung in rungs)


def repeating_ladder(entry_point: str, arguments: Callable[[], Mapping[str, Any]], *rungs: Rung) -> Program:
    """The experiments of an entry point, after whether a call of it repeats."""
    return (call_repeats(entry_point, arguments), *ladder(entry_point, *rungs))


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
    """Whether the same call of an entry point gives the same numbers again."""
    return repeats(entry_point, lambda subject: lambda: subject.invoke(entry_point, **arguments()))
