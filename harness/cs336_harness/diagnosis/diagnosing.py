"""The diagnosis of one failed check: a known mistake that explains it, or the place."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Generator

from cs336_harness.checks import Check
from cs336_harness.defects import Defect, contradiction
from cs336_harness.defects.defect import subject_of
from cs336_harness.diagnosis.localising import Located, locate
from cs336_harness.diagnosis.matching import Match, Probe, match
from cs336_harness.diagnosis.programs import programs_for, reaches
from cs336_harness.diagnosis.replaying import reproduced
from cs336_harness.diagnosis.reproducing import reproducer
from cs336_harness.diagnosis.wording import Diagnosis
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure

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
    """What the failure of a check comes from; None when none of the experiments shows anything."""
    probe = probe_of(subject)
    with _failure_not_hidden():
        unnamed: list[str] = []
        for name in programs_for(check):
            if not probe.differing(name):
                continue
            found = match(probe, name, pairs=False) or _beside_those_already_named(probe, name)
            found = found or (match(probe, name) if pairs and not unnamed else None)
            if found is not None and _makes_fail(found, check, failure):
                return _named(probe, name, check, found)
            unnamed.append(name)
        located = locate(probe, unnamed[0]) if unnamed else None
        if located is not None:
            return _unnamed(probe, unnamed[0], check, failure, located)
    return None


def diagnose_blocked(subject: Subject, check: Check, failure: CheckFailure) -> Diagnosis | None:
    """A second mistake behind the first: what is left of a blocked check's failure beside the mistakes already named.

    None when these explain it, or when none was named. Where nothing known explains the rest, it has a place only.
    """
    probe = probe_of(subject)
    with _failure_not_hidden():
        name = next((name for name in programs_for(check) if probe.differing(name)), None)
        own = _already_named(probe, name) if name is not None else ()
        if name is None or not own or (name, own) in probe.answered:
            return None
        probe.answered.add((name, own))
        left = next((e for e in probe.deciding(name) if not probe.fits([e], *own)), None)
        if left is None:
            return None
        found = match(probe, name, given=own) or match(probe, name, pairs=False)
        if found is not None and not set(found.defects) & set(own) and _makes_fail(found, check, failure):
            return _named(probe, name, check, found)
        if found is None and not reproduced(check, failure, own):
            beside = " and ".join(defect.name for defect in own)
            return Diagnosis(
                str(left.place), "likely", evidence=[f"{beside} alone does not give this; differs {left.what}"]
            )
    return None


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
    located = locate(probe, name)
    single = len(found.defects) == 1 or found.together
    return Diagnosis(
        where=" and ".join(places) if found.together else places[0],
        confidence="certain" if single or len(places) == 1 else "likely",
        defects=found.defects,
        together=found.together,
        told_before=known[-1] if all(known) else None,
        evidence=[] if located is None else located.evidence,
        reproducer=reproducer(probe, name),
    )


def _unnamed(probe: Probe, name: str, check: Check, failure: CheckFailure, located: Located) -> Diagnosis | None:
    """The place alone. A message that states a broken promise or an exception says more than a place would."""
    if failure.evidence.error_in_noise is None:
        stated = failure.__cause__ is not None or check.group in ("tying", "configuration", "accounting")
        return None if stated else Diagnosis(where=str(located.place), confidence=located.confidence)
    return Diagnosis(
        where=str(located.place),
        confidence=located.confidence,
        evidence=located.evidence,
        reproducer=reproducer(probe, name),
    )
