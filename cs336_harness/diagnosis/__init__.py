"""Diagnosis: where a fault is, and which known mistake it is. Only run on failure; right, or silent.

:func:`diagnose_check` explains one failed check. What is tried on a subject is tried once: :func:`probe_of` keeps it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools

from cs336_harness.checks import Check
from cs336_harness.defects import contradiction
from cs336_harness.diagnosis.localising import Located, locate
from cs336_harness.diagnosis.matching import Match, Probe, match
from cs336_harness.diagnosis.programs import can_show, programs_for
from cs336_harness.diagnosis.reproducing import reproducer
from cs336_harness.diagnosis.telling import Diagnosis
from cs336_harness.failures import CheckFailure
from cs336_harness.subject import Subject

__all__ = ["Diagnosis", "Probe", "diagnose_blocked", "diagnose_check", "probe_of"]


@functools.lru_cache(maxsize=4)
def probe_of(subject: Subject) -> Probe:
    """What is known of a subject, kept for the next check that fails."""
    return Probe(subject)


def diagnose_check(subject: Subject, check: Check, failure: CheckFailure, *, pairs: bool = True) -> Diagnosis | None:
    """What the failure of a check comes from; None when none of the experiments shows anything.

    Never raises: a diagnosis that fails must not hide the failure that it was to explain.
    """
    probe = probe_of(subject)
    with contextlib.suppress(Exception):
        unnamed: list[str] = []
        for name in programs_for(check):
            if not probe.differing(name):
                continue
            found = match(probe, name, pairs=pairs and not unnamed)
            if found is not None:
                return _named(probe, name, check, found)
            unnamed.append(name)
        located = locate(probe, unnamed[0]) if unnamed else None
        return None if located is None else _unnamed(probe, unnamed[0], located)
    return None


def diagnose_blocked(subject: Subject, check: Check) -> Diagnosis | None:
    """A second mistake behind the first: what is left of a blocked check's failure beside the mistakes already named.

    None when these explain it, when none was named, or when nothing known explains the rest.
    """
    probe = probe_of(subject)
    with contextlib.suppress(Exception):
        told = tuple(dict.fromkeys(itertools.chain.from_iterable(probe.told)))
        name = next((name for name in programs_for(check) if probe.differing(name)), None)
        if name is None or not told or contradiction(*told) is not None or (name, told) in probe.answered:
            return None
        probe.answered.add((name, told))
        own = tuple(defect for defect in told if can_show(defect, name))
        if probe.fits(probe.telling(name), *own):
            return None
        found = match(probe, name, given=own) or match(probe, name, pairs=False)
        if found is not None and not set(found.defects) & set(told):
            return _named(probe, name, check, found)
    return None


def _named(probe: Probe, name: str, check: Check, found: Match) -> Diagnosis:
    before = probe.told.setdefault(found.defects, check.id)
    places = list(dict.fromkeys(str(defect.place) for defect in found.defects))
    located = locate(probe, name)
    single = len(found.defects) == 1 or found.together
    return Diagnosis(
        where=" and ".join(places) if found.together else places[0],
        confidence="certain" if single or len(places) == 1 else "likely",
        defects=found.defects,
        together=found.together,
        told_before=before if before != check.id else None,
        evidence=[] if located is None else located.evidence,
        reproducer=reproducer(probe, name),
    )


def _unnamed(probe: Probe, name: str, located: Located) -> Diagnosis:
    return Diagnosis(
        where=str(located.place),
        confidence=located.confidence,
        evidence=located.evidence,
        reproducer=reproducer(probe, name),
    )
