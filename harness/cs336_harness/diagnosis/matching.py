"""Which known mistakes give exactly what a subject shows: single ones first, then pairs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Iterator

from cs336_harness.defects import Defect, contradiction
from cs336_harness.diagnosis.observing import RAISED, Defects, Experiment, Observed, expected_of, observe, same
from cs336_harness.diagnosis.programs import EVERY, QUICK, can_show, candidates, program
from cs336_harness.diagnosis.readings import Reading, reading_of
from cs336_harness.subject.calling import Subject

SECONDS_FOR_PAIRS = 4.0
"""CPU seconds that pairs are tried for one subject before nothing is claimed."""

SECONDS_FOR_A_BETTER_PAIR = 1.0


class Probe:
    """One subject under experiment. Every experiment is made once.

    ``told`` are the readings and ``named`` the defects that were told so far, each with the check that it was told for;
    ``answered`` what these leave unexplained in a program, and what explains that.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.told: dict[str, str] = {}
        self.named: dict[type[Defect], str] = {}
        self.seconds_for_pairs = SECONDS_FOR_PAIRS
        self.answered: dict[tuple[str, Defects], tuple[Experiment | None, Match | None]] = {}
        self._readings: dict[str, Reading | None] = {}
        self._seen: dict[Experiment, Observed] = {}

    def see(self, experiment: Experiment) -> Observed:
        """What the experiment shows of the subject."""
        if experiment not in self._seen:
            self._seen[experiment] = observe(self.subject, experiment)
        return self._seen[experiment]

    def reading(self, name: str) -> Reading | None:
        """The first number of a program that is not what it must be; None for a subject that does not repeat."""
        if name not in self._readings:
            repeats = not any(e.decisive and not same(self.see(e), e) for e in program(name))
            self._readings[name] = reading_of(self.subject, name) if repeats else None
        return self._readings[name]

    def first_told(self, reading: Reading, check: str) -> str | None:
        """The check that a reading was told for before; None when it is told now, for ``check``."""
        first = self.told.setdefault(reading.text, check)
        return None if first == check else first

    def differing(self, name: str) -> list[Experiment]:
        """The experiments of a program on which the subject is not what the oracle is."""
        return [experiment for experiment in program(name) if not same(self.see(experiment), experiment)]

    def deciding(self, name: str) -> list[Experiment]:
        """The experiments that a match is decided by: all of a program, or the decisive one that differs."""
        decisive = [e for e in program(name) if e.decisive and self.see(e).text != RAISED and not same(self.see(e), e)]
        return decisive or [e for e in program(name) if not self.see(e).absent]

    def fits(self, experiments: list[Experiment], *defects: type[Defect]) -> bool:
        """Whether these defects explain everything that the experiments show."""
        return all(same(self.see(experiment), experiment, defects) for experiment in experiments)


@dataclasses.dataclass(frozen=True, slots=True)
class Match:
    """The defects that fit. ``together``: only all of them at once; otherwise each of them fits alone."""

    defects: Defects
    together: bool = False


@functools.cache
def _unchanged(experiment: Experiment, defect: type[Defect]) -> bool:
    """Whether the defect does not show in the experiment."""
    return same(expected_of(experiment, (defect,)), experiment)


@functools.cache
def shows(defect: type[Defect], name: str) -> bool:
    """Whether the defect shows in any experiment of a program."""
    return any(not _unchanged(experiment, defect) for experiment in program(name))


def match(probe: Probe, name: str, *, given: Defects = ()) -> Match | None:
    """The defects that explain a whole program, or None. ``given`` ones are known to be there already."""
    experiments, leaving = probe.deciding(name), _unexplained(probe, name, given)
    if not leaving:
        return None
    # The first that differs rules out nearly all, is among the simplest, and is what a watch has worked out ahead.
    order = leaving + [experiment for experiment in experiments if experiment not in leaving]
    alone = [
        defect
        for defect in candidates(name)
        if not (given and defect.rounds) and contradiction(defect, *given) is None and probe.fits(order, defect, *given)
    ]
    return Match(tuple(_most_consistent(probe, name, alone))) if alone else None


def match_pair(probe: Probe, name: str, seconds: float = SECONDS_FOR_PAIRS) -> Match | None:
    """Two defects that explain a whole program at once, searched for during so many CPU seconds."""
    experiments, leaving = probe.deciding(name), _unexplained(probe, name)
    if not leaving:
        return None
    found = _first_pair(probe, name, experiments, experiments.index(leaving[0]), seconds)
    return Match(found, together=True) if found else None


def _unexplained(probe: Probe, name: str, given: Defects = ()) -> list[Experiment]:
    """The experiments that some defects leave unexplained; none where every call raises, which explains itself."""
    experiments = probe.deciding(name)
    if all(probe.see(experiment).text == RAISED for experiment in experiments):
        return []
    return [experiment for experiment in experiments if not same(probe.see(experiment), experiment, given)]


def _most_consistent(probe: Probe, name: str, alone: list[type[Defect]]) -> list[type[Defect]]:
    """Of several that fit, those that explain what the other entry points show as well: the cheap ones are asked first,
    and no more of them than it takes to tell the candidates apart."""
    for other in (*QUICK, *(every for every in EVERY if every not in QUICK)):
        if len(alone) < 2:
            break
        if other != name and any(can_show(defect, other) for defect in alone):
            alone = [defect for defect in alone if _explains(probe, defect, other)] or alone
    return alone


def _explains(probe: Probe, defect: type[Defect], name: str) -> bool:
    return probe.fits(probe.deciding(name), *((defect,) if can_show(defect, name) else ()))


def _spares_what_is_right(probe: Probe, name: str, defects: Defects) -> bool:
    """Whether the defects leave alone every single component that the subject has right."""
    right = [other for other in QUICK if other != name and not probe.differing(other)]
    return all(
        probe.fits(probe.deciding(other), defect) for other in right for defect in defects if can_show(defect, other)
    )


def _first_pair(probe: Probe, name: str, experiments: list[Experiment], first: int, seconds: float) -> Defects | None:
    """The first pair that fits, unless a later one also spares the components that are right."""
    started = time.process_time()
    deadline = started + min(seconds, probe.seconds_for_pairs)
    second_best: Defects | None = None
    for pair, order in _likely_pairs(probe, name, experiments, first, deadline):
        if time.process_time() > deadline:
            break
        if contradiction(*pair) is None and probe.fits(order, *pair):
            spares = _spares_what_is_right(probe, name, pair)
            second_best = pair if spares else second_best or pair
            if spares:
                break
            deadline = min(deadline, time.process_time() + SECONDS_FOR_A_BETTER_PAIR)
    probe.seconds_for_pairs -= time.process_time() - started
    return second_best


def _likely_pairs(
    probe: Probe, name: str, experiments: list[Experiment], first: int, deadline: float
) -> Iterator[tuple[Defects, list[Experiment]]]:
    """Pairs to try, each with the experiments in the order that rules it out soonest.

    A defect that explains the first experiment that differs may have a partner that shows only later. Where there is no
    such defect, both show in that experiment.
    """
    here, before = experiments[first], experiments[:first]
    unnoticed = []
    known = [defect for defect in candidates(name) if not defect.rounds]  # fits so loosely that it hides in any pair
    for defect in known:
        if time.process_time() > deadline:
            return
        if probe.fits(before, defect):
            unnoticed.append(defect)
    explaining = [defect for defect in unnoticed if probe.fits([here], defect)]
    for defect in explaining:
        later = next(e for e in experiments if not probe.fits([e], defect))
        order = [later, here, *before, *(e for e in experiments[first + 1 :] if e is not later)]
        yield from (((defect, other), order) for other in known if other is not defect)
    showing = [defect for defect in unnoticed if not _unchanged(here, defect)]
    order = [here, *before, *experiments[first + 1 :]]
    yield from ((pair, order) for pair in itertools.combinations(showing, 2))
