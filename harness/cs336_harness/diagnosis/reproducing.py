"""The smallest call that still shows a fault, as a dozen lines to paste that need the learner's adapters and torch.

Each candidate is text, run as it stands on the subject and on the oracle; the first on which they clearly differ stays.
"""

from __future__ import annotations

import functools

import torch

from cs336_harness.defects import Place
from cs336_harness.diagnosis import snippets
from cs336_harness.diagnosis.facts import entry_points_of, fact
from cs336_harness.diagnosis.matching import Probe
from cs336_harness.diagnosis.observing import ABSENT, RAISED, Experiment, Observed, apart, expected_of
from cs336_harness.reference.tolerance import unravelled

CLEARLY = 1e-3, 2e-5
"""Relative differences that count as clear: the first is asked for, and if no candidate reaches it, the second."""


def reproducer(probe: Probe, name: str) -> list[str]:
    """Lines that show the fault in the smallest shape found; none when no small shape shows it."""
    differing = probe.differing(name)
    written = [experiment for experiment in differing if experiment.code]
    if written and all(experiment.code or experiment.decisive for experiment in differing):
        return told(probe, written[0])
    raises = all(probe.see(experiment).text == RAISED for experiment in differing)
    for least in CLEARLY:
        for candidate in _candidates(name):
            if _shows(probe.see(candidate), candidate, least, raises):
                return told(probe, candidate)
    return told(probe, written[0]) if written else []


def _shows(seen: Observed, candidate: Experiment, least: float, raises: bool) -> bool:
    right = expected_of(candidate)
    if seen.text == ABSENT or right.value is None:
        return False
    if seen.value is None:
        return raises and seen.text == RAISED
    if seen.value.shape != right.value.shape:
        return True
    return apart(seen.value, right.value) > least * float(right.value.abs().max())


def told(probe: Probe, experiment: Experiment) -> list[str]:
    """An experiment as lines to paste, ending with what a correct decoder gives and what this one gives."""
    seen, right = probe.see(experiment), expected_of(experiment)
    entry_points = entry_points_of(experiment.code)
    imported = [f"from {_module(probe)} import {', '.join(entry_points)}"] if probe.subject.importable else []
    lines = ["import torch", *imported, "", *experiment.code[:-1]]
    shown = experiment.code[-1]
    if "(" in shown and experiment.code[-1].endswith(")") and seen.value is not None:
        lines.append(f"out = {shown}")
        shown = "out"
    if seen.value is None or right.value is None or seen.value.shape != right.value.shape:
        return [*lines, f"print({shown})", f"# a correct decoder gives {_brief(right)}, this one {_brief(seen)}"]
    place = _worst(seen.value, right.value)
    element = f"{shown}[{', '.join(map(str, place))}].item()" if place else f"{shown}.item()"
    lines.append(f"print({element})")
    return [
        *lines,
        f"# a correct decoder gives {float(right.value[place]):.6g}, this one {float(seen.value[place]):.6g}",
    ]


def _module(probe: Probe) -> str:
    """The adapters module as the learner imports it from their own directory."""
    path = probe.subject.path
    if path is None:
        return "adapters"
    return f"tests.{path.stem}" if path.parent.name == "tests" else path.stem


def _worst(seen: torch.Tensor, right: torch.Tensor) -> tuple[int, ...]:
    difference = (seen - right).abs().nan_to_num(nan=torch.inf)
    return unravelled(int(difference.argmax()), difference.shape)


def _brief(observed: Observed) -> str:
    if observed.value is not None:
        return f"shape {tuple(observed.value.shape)}"
    if observed.text == RAISED:
        return observed.message.partition(" raised ")[2] or "an exception"
    return observed.text if len(observed.text) <= 60 else observed.text[:57] + "..."


@functools.cache
def _candidates(name: str) -> tuple[Experiment, ...]:
    codes = snippets.CODES[name]() if name in snippets.CODES else iter(())
    return tuple(fact(f"{name} reproduced, {i}", "", Place.CONFIGURATION, *code) for i, code in enumerate(codes))
