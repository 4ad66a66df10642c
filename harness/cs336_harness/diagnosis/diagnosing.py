"""The diagnosis of one failed check: a known mistake that explains it, or the place."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Generator

from cs336_harness.checks import Check
from cs336_harness.defects import Defect, Place, contradiction
from cs336_harness.defects.defect import subject_of
from cs336_harness.diagnosis.localising import locate
from cs336_harness.diagnosis.matching import Match, Probe, match, match_pair, shows
from cs336_harness.diagnosis.observing import Defects, Experiment
from cs336_harness.diagnosis.programs import QUICK, can_show, program, programs_for, reaches
from cs336_harness.diagnosis.questions import LADDERS, Bench, leak_of, mixed_rows
from cs336_harness.diagnosis.readings import reading_of
from cs336_harness.diagnosis.readings.figures import measured
from cs336_harness.diagnosis.replaying import reproduced
from cs336_harness.diagnosis.reproducing import reproducer
from cs336_harness.diagnosis.slips import slip_of
from cs336_harness.diagnosis.two_calls import earlier_calls_shown
from cs336_harness.diagnosis.wording import Diagnosis
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, ConclusiveFailure, WrongShape

RAISES = "CS336_HARNESS_RAISES"
"""An environment variable. Where it is set, as under the harness's own tests, an exception in a diagnosis is raised."""


@contextlib.contextmanager
def _failure_not_hidden() -> Generator[None]:
    """A diagnosis that breaks must not hide the failure that it was to explain."""
    try:
        yield
    except Exception:
        if RAISES in os.environ:
            raise


@functools.lru_cache(maxsize=4)
def probe_of(subject: Subject) -> Probe:
    """What is known of a subject, kept for the next check that fails."""
    return Probe(subject)


def diagnose_check(subject: Subject, check: Check, failure: CheckFailure, *, pairs: bool = True) -> Diagnosis | None:
    """What the failure of a check comes from; None when none of the experiments shows anything.

    A failure that explains itself (a shape, an exception, a missing key) may have a name, but is not searched for one.
    """
    probe, explained = probe_of(subject), explains_itself(failure)
    with _failure_not_hidden():
        if isinstance(failure, ConclusiveFailure):
            return earlier_calls_shown(probe, check) if check.id.startswith(OF_EARLIER_CALLS) else None
        slip = slip_of(failure) if explained else None
        if slip is not None:
            return slip
        unnamed: list[str] = []
        for name in programs_for(check):
            if not probe.differing(name):
                continue
            found = match(probe, name) or _beside_those_already_named(probe, name)
            if found is None and pairs and not unnamed and not explained:
                found = _pair(probe, name)
            if found is not None and _by_repeating_alone(probe, name) and _spared(probe, name, found):
                found = None
            if found is not None and _makes_fail(found, check, failure):
                return _named(probe, name, check, found)
            unnamed.append(name)
        if unnamed and not explained:
            return _unnamed(probe, unnamed[0], check, failure)
        if not unnamed and failure.evidence.error_in_noise is not None:
            return _read_alone(probe, check)
    return None


OF_EARLIER_CALLS = ("components.earlier_calls", "information_flow.models_apart")
"""The checks of which a failure is shown by two calls."""

SECONDS_WITH_A_READING, SECONDS_WITHOUT = 0.5, 4.0
"""CPU seconds for the search of two mistakes at once: a reading says more than most pairs would."""


def _pair(probe: Probe, name: str) -> Match | None:
    """Two mistakes at once; not searched for again behind a reading that was told already."""
    read = probe.reading(name)
    if read is not None and read.text in probe.told:
        return None
    return match_pair(probe, name, SECONDS_WITHOUT if read is None else SECONDS_WITH_A_READING)


def explains_itself(failure: CheckFailure) -> bool:
    """Whether a failure is about the contract: the call raised, or returned something of another kind or shape."""
    return failure.__cause__ is not None or isinstance(failure, WrongShape)


def diagnose_blocked(subject: Subject, check: Check, failure: CheckFailure) -> Diagnosis | None:
    """A second mistake behind the first: what is left of a blocked check's failure beside the mistakes already named.

    None when these explain it, or when none was named. Where nothing known explains the rest, it has a place only.
    """
    probe = probe_of(subject)
    with _failure_not_hidden():
        name = next((name for name in programs_for(check) if probe.differing(name)), None)
        own = _already_named(probe, name) if name is not None else ()
        if name is None or not own:
            return None
        asked_before = (name, own) in probe.answered
        left, found = _second(probe, name, own)
        if left is None:
            return None
        if found is not None and _makes_fail(found, check, failure):
            return _named(probe, name, check, found)
        if found is None and not asked_before and not reproduced(check, failure, own):
            return _unnamed_beside(probe, name, check, left, own)
    return None


def _unnamed_beside(probe: Probe, name: str, check: Check, left: Experiment, own: Defects) -> Diagnosis:
    """What named mistakes leave unexplained: a reading that they do not give, or the place alone."""
    read, theirs = probe.reading(name), reading_of(subject_of(*own), name)
    beside = f"{' and '.join(defect.name for defect in own)} alone does not give this"
    if read is not None and not read.vague and (theirs is None or theirs.place is not read.place):
        return Diagnosis(
            where=str(read.place),
            confidence="measured",
            told_before=probe.first_told(read, check.id),
            reading=read.text,
            table=list(read.table),
            evidence=[beside],
            reproducer=reproducer(probe, name),
        )
    flows = _flow_of(probe, name) if name in LADDERS else ""
    if flows and not _flow_of(Probe(subject_of(*own)), name):
        return Diagnosis(str(Place.INFORMATION_FLOW), "likely", evidence=[f"{beside}; {flows}"])
    return Diagnosis(str(left.place), "likely", evidence=[f"{beside}; wrong {left.what}"])


def _flow_of(probe: Probe, name: str) -> str:
    """Positions or rows that notice each other and must not, in words."""
    bench = Bench(probe, name)
    return mixed_rows(bench) or leak_of(bench)


def _second(probe: Probe, name: str, own: Defects) -> tuple[Experiment | None, Match | None]:
    """What some mistakes leave unexplained in a program, and the one beside them that explains it; searched for once.

    Whether it makes a check fail is another question for each check.
    """
    if (name, own) not in probe.answered:
        left = next((e for e in probe.deciding(name) if not probe.fits([e], *own)), None)
        found = None if left is None else match(probe, name, given=own) or match(probe, name)
        if found is not None and set(found.defects) & set(own):
            found = None
        probe.answered[name, own] = left, found
    return probe.answered[name, own]


def _already_named(probe: Probe, name: str) -> tuple[type[Defect], ...]:
    """The mistakes already named that reach into a program; none when they cannot be in one decoder."""
    named = tuple(probe.named)
    return () if contradiction(*named) is not None else tuple(defect for defect in named if reaches(defect, name))


def _beside_those_already_named(probe: Probe, name: str) -> Match | None:
    """What explains a program together with the mistakes already named; these themselves when they explain it."""
    named = _already_named(probe, name)
    if not named:
        return None
    experiments = probe.deciding(name)
    if probe.fits(experiments, *named):
        needed = tuple(d for d in named if not probe.fits(experiments, *(other for other in named if other is not d)))
        return Match(needed, together=len(needed) > 1) if needed else None
    return match(probe, name, given=named)


def _makes_fail(found: Match, check: Check, failure: CheckFailure) -> bool:
    """Whether the known mistakes make this very check fail in the same way: by numbers, or with the same words.

    A subject may have the mistake and fail the check for another reason.
    """
    named = found.defects if found.together else found.defects[:1]
    try:
        check(subject_of(*named))
    except CheckFailure as expected:
        if failure.evidence.error_in_noise is not None:
            return expected.evidence.error_in_noise is not None
        return _words(expected.message) == _words(failure.message)
    except Exception:
        return False
    return False


def _words(message: str) -> str:
    """A message without its numbers."""
    return re.sub(r"[-+]?\d[\d.,]*(e[-+]?\d+)?", "#", message)


def _named(probe: Probe, name: str, check: Check, found: Match) -> Diagnosis:
    named = found.defects if found.together else found.defects[:1]
    known = [probe.named.get(defect) for defect in named]
    for defect in named:
        probe.named.setdefault(defect, check.id)
    places = list(dict.fromkeys(str(defect.place) for defect in found.defects))
    located = None if _others(probe, name, found) else locate(probe, name)  # what is seen there is of all of them
    told_before = known[-1] if all(known) else None
    doubt = None if told_before is not None else _doubt(probe, name, found)
    alone = found.together or len(found.defects) == 1
    return Diagnosis(
        where=" and ".join(places) if found.together else places[0],
        confidence="certain" if alone and doubt is None else "likely",
        defects=found.defects,
        together=found.together,
        told_before=told_before,
        reading=doubt or "",
        evidence=[] if located is None else [line for line in located.evidence if not _denies(line, places)],
        reproducer=reproducer(probe, name),
        figures={} if told_before is not None else measured(probe.subject, name, " and ".join(places)),
    )


def _denies(line: str, places: list[str]) -> bool:
    """Whether a conclusion says that the fault is not where a known mistake has its place, which shows there too."""
    denied = line.partition(" not ")[2] + (" attention, feed-forward, heads, mask" if "outside of both" in line else "")
    return any(place in denied for place in places)


def _others(probe: Probe, name: str, found: Match) -> Defects:
    """The mistakes already named that show in a program too."""
    others = tuple(d for d in _already_named(probe, name) if d not in found.defects and shows(d, name))
    return others if contradiction(*found.defects[:1], *others) is None else ()


def _doubt(probe: Probe, name: str, found: Match) -> str | None:
    """What speaks against a name: a reading that it does not give, or a component that it would break and is right."""
    named = found.defects if found.together else found.defects[:1]
    if _by_repeating_alone(probe, name):
        return "numbers that change from call to call fit more than one mistake"
    read, right = probe.reading(name), reading_of(subject_of(*named, *_others(probe, name, found)), name)
    if read is not None and not read.vague and (right is None or right.place is not read.place):
        return read.text
    spared = _spared(probe, name, found)
    return f"{spared[0]} alone is right: look at the line that calls it, or a second version of it" if spared else None


def _by_repeating_alone(probe: Probe, name: str) -> bool:
    """Whether a program shows nothing but that a call does not repeat."""
    return all(experiment.decisive for experiment in probe.deciding(name))


def _spared(probe: Probe, name: str, found: Match) -> list[str]:
    """The components that the subject has right and the mistakes would break."""
    named = found.defects if found.together else found.defects[:1]
    return [
        component
        for component in QUICK
        if component != name
        and not probe.differing(component)
        and all(not probe.see(experiment).absent for experiment in program(component))
        and any(can_show(defect, component) and not probe.fits(list(program(component)), defect) for defect in named)
    ]


def _read_alone(probe: Probe, check: Check) -> Diagnosis | None:
    """A reading where every experiment agrees: it measures at other places than they ask."""
    for name in programs_for(check):
        read = probe.reading(name)
        if read is not None and not read.vague:
            return Diagnosis(
                where=str(read.place),
                confidence="measured",
                told_before=probe.first_told(read, check.id),
                reading=read.text,
                table=list(read.table),
                figures=measured(probe.subject, name, str(read.place)),
            )
    return None


def _unnamed(probe: Probe, name: str, check: Check, failure: CheckFailure) -> Diagnosis | None:
    """A reading, or the place alone where numbers differ. A message that states a broken promise says more."""
    read, located = probe.reading(name), locate(probe, name)
    if located is not None and _by_repeating_alone(probe, name):
        return Diagnosis(
            where=str(located.place),
            confidence="measured",
            reading="; ".join(located.evidence),
            reproducer=reproducer(probe, name),
            figures=measured(probe.subject, name, str(located.place)),
        )
    numbers = failure.evidence.error_in_noise is not None or failure.evidence.influence is not None
    if located is None or (not numbers and (read is None or read.text in probe.told or probe.named)):
        return None
    if read is not None and not located.certainly_flow(read.place):
        return Diagnosis(
            where=str(read.place),
            confidence="measured" if not read.vague else "likely",
            told_before=None if read.vague else probe.first_told(read, check.id),
            reading=read.text,
            table=list(read.table),
            evidence=located.evidence if read.vague else located.evidence[:1],  # what was read says more than answers
            reproducer=reproducer(probe, name),
            figures=measured(probe.subject, name, str(read.place)),
        )
    if failure.evidence.error_in_noise is None:
        return None
    return Diagnosis(
        where=str(located.place),
        confidence=located.confidence,
        evidence=located.evidence,
        reproducer=reproducer(probe, name),
        figures=measured(probe.subject, name, str(located.place)),
    )
