"""What an experiment shows: a tensor, a plain fact, or that the call raised; and when two observations are the same."""

from __future__ import annotations

import copy
import dataclasses
import enum
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from cs336_harness.defects import Defect, Place, adapters_of
from cs336_harness.reference.kept import OBSERVATIONS, kept
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.tolerance import HALF_UNIT, TOLERANCE_IN_NOISE, rounding_noise
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import AbsentEntryPoint, BlankEntryPoint, CheckFailure

Defects = tuple[type[Defect], ...]

COARSE = 1e-2
"""Relative difference beyond which no rounding is worth measuring."""

NEARER = 0.2
"""A defect that rounds to few bits fits when the subject is this much nearer to it than to the oracle, on average:
float32 itself decides which value falls on which side of a rounding boundary."""


@dataclasses.dataclass(frozen=True, slots=True)
class Observed:
    """``value`` when there are numbers, otherwise ``text``: a fact, or that the call raised or is absent."""

    value: Tensor | None = None
    text: str = ""
    message: str = ""

    @property
    def absent(self) -> bool:
        """Whether the entry point is missing or blank, so that nothing was seen."""
        return self.text == ABSENT


ABSENT = "absent"
RAISED = "raised"


class Question(enum.Enum):
    """What is asked next when an experiment is the first of its program to differ."""

    NOTHING = enum.auto()
    STREAM = enum.auto()
    """What of embedding, stream, final norm and head is wrong, all sublayers being zero."""
    ONE_TOKEN = enum.auto()
    """Which of attention's weights, its norm or its residual branch is wrong, no other token being there."""
    EQUAL_SCORES = enum.auto()
    """Which keys each query sees, all scores being equal."""
    CONTENT = enum.auto()
    """What is wrong with scores that depend on the content alone."""
    ATTENTION = enum.auto()
    """What is wrong with scores that depend on content and position."""
    FEED_FORWARD = enum.auto()
    """Which of the feed-forward's weights, its norm or its residual branch is wrong."""
    FLOW = enum.auto()
    """Which position sees what it must not see, or does not see what it must."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One thing to try on a decoder.

    ``run`` gets a subject and returns a tensor or a fact. ``what`` ends the sentence "agrees …" or "differs …".
    ``place`` is where the fault is when this is the first experiment to show it; ``question`` is what is asked then, of
    calls of ``length`` positions. A ``decisive`` one makes all later ones of its program meaningless when it differs.
    ``entry_point`` and ``arguments`` are the call where there is just one; a model that is built has its ``shape`` in
    place of the entry point. ``code`` is the experiment as text. What the oracle and the defects give in it is ``kept``
    from run to run, unless it is a question that comes up once.
    """

    name: str
    what: str
    run: Callable[[Subject], Any]
    place: Place
    decisive: bool = False
    entry_point: str | None = None
    arguments: Callable[[], Mapping[str, Any]] | None = None
    shape: DecoderShape | None = None
    code: tuple[str, ...] = ()
    question: Question = Question.NOTHING
    length: int = 5
    kept: bool = True


Program = tuple[Experiment, ...]
"""The experiments on one entry point or on one subject matter, from the simplest to the whole: each adds one thing."""


def observe(subject: Subject, experiment: Experiment) -> Observed:
    """What the experiment shows of a subject. Never raises what the subject raises.

    Weights that are drawn, and not given, are the same whenever it is made: what defects show is kept from run to run.
    """
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            result = experiment.run(subject)
    except (AbsentEntryPoint, BlankEntryPoint):
        return Observed(text=ABSENT)
    except CheckFailure as failure:
        return Observed(text=RAISED, message=failure.message)
    if isinstance(result, Tensor) and result.device.type != "meta":
        return Observed(value=result.detach().to("cpu", torch.float64))
    return Observed(text=str(result))


@functools.lru_cache(maxsize=20000)
def expected_of(experiment: Experiment, defects: Defects = ()) -> Observed:
    """What the experiment shows of the oracle, or of the oracle with some defects."""
    name = _name_to_keep(experiment, defects)
    known = None if name is None else kept(OBSERVATIONS).get(name)
    if known is not None:
        return Observed(value=known) if isinstance(known, Tensor) else Observed(text=known[0], message=known[1])
    expected = _expected(experiment, defects)
    if name is not None:
        kept(OBSERVATIONS).add(name, [expected.text, expected.message] if expected.value is None else expected.value)
    return expected


def _name_to_keep(experiment: Experiment, defects: Defects) -> str | None:
    """Under which name an observation is kept; None for one that is made once (pairs are too many)."""
    if not experiment.kept or len(defects) > 1:
        return None
    return f"{experiment.name}|{'+'.join(defect.name for defect in defects)}"


def _expected(experiment: Experiment, defects: Defects) -> Observed:
    subject = Subject(adapters_of(*defects), "the reference")
    with torch.no_grad():
        return observe(subject, experiment)


@functools.lru_cache(maxsize=2000)
def noise_of(experiment: Experiment, defects: Defects = ()) -> float:
    """The rounding noise of what the oracle, or a variation of it, shows."""
    name = _name_to_keep(experiment, defects)
    known = None if name is None else kept(OBSERVATIONS).get(f"{name}|noise")
    if isinstance(known, Tensor):
        return float(known)
    noise = _noise(experiment, defects)
    if name is not None:
        kept(OBSERVATIONS).add(f"{name}|noise", torch.tensor(noise, dtype=torch.float64))
    return noise


def _noise(experiment: Experiment, defects: Defects) -> float:
    expected = expected_of(experiment, defects).value
    if expected is None or not expected.numel():
        return 0.0
    whole = expected.nan_to_num(0.0, 0.0, 0.0)
    least = FEW_OPERATIONS * float(whole.abs().max())
    if experiment.arguments is None:
        return least
    adapters, shape = copy.copy(adapters_of(*defects)), experiment.shape
    adapters.oracle_class = _with_rounded_angles(adapters.oracle_class)

    def reference(**arguments: Any) -> Tensor:
        if shape is None:
            result = getattr(adapters, experiment.entry_point or "")(**arguments)
        else:
            exact = {name: weight.to(torch.float64) for name, weight in arguments["weights"].items()}
            result = adapters.oracle_class(shape).transformer_lm(exact, arguments["in_indices"])
        return result.nan_to_num(0.0, 0.0, 0.0)

    arguments = experiment.arguments()
    with Subject(adapters, "the reference").at_home():
        return max(least, rounding_noise(reference, arguments, whole))


@functools.cache
def _with_rounded_angles(oracle_class: type[Oracle]) -> type[Oracle]:
    """The oracle with every angle at the far end of its rounding interval: a large one is off by much in float32."""

    class Rounded(oracle_class):  # ty: ignore[unsupported-base]
        def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
            return super().angles(positions, d_head, theta) * (1 + HALF_UNIT[torch.float32])

    return Rounded


FEW_OPERATIONS = 2.0**-23
"""Rounding noise relative to the largest value, below which none is trusted."""


def same(observed: Observed, experiment: Experiment, defects: Defects = ()) -> bool:
    """Whether rounding explains every difference between what was observed and what some defects (or none) show."""
    expected = expected_of(experiment, defects)
    if observed.absent or expected.absent:
        return True
    if observed.value is None or expected.value is None:
        return observed.value is expected.value and observed.text == expected.text
    if observed.value.shape != expected.value.shape:
        return False
    distance = apart(observed.value, expected.value)
    if distance == 0.0:
        return True
    scale = float(expected.value.nan_to_num(0.0, 0.0, 0.0).abs().max()) if expected.value.numel() else 0.0
    if not distance <= COARSE * scale + 1e-12:
        return False
    if distance <= TOLERANCE_IN_NOISE * FEW_OPERATIONS * scale:
        return True  # the noise is no less, and takes two passes to measure
    if distance <= TOLERANCE_IN_NOISE * noise_of(experiment, defects):
        return True
    return any(defect.rounds for defect in defects) and _nearer(observed.value, expected.value, experiment)


def _nearer(value: Tensor, coarse: Tensor, experiment: Experiment) -> bool:
    """By the mean, because one value that falls the other way is a whole step off."""
    right = expected_of(experiment).value
    if right is None or right.shape != value.shape:
        return False
    return float((value - coarse).abs().mean()) < NEARER * float((value - right).abs().mean())


def apart(first: Tensor, second: Tensor) -> float:
    """The largest difference; infinite when the shapes differ or not the same elements are finite."""
    if first.shape != second.shape or not bool((first.isfinite() == second.isfinite()).all()):
        return math.inf
    difference = (first - second).abs().nan_to_num(0.0, 0.0, 0.0)
    return float(difference.max()) if difference.numel() else 0.0
