"""Diagnosis: where a fault is, and which known mistake it is. Only run on failure; right, or silent.

:func:`diagnose_check` explains one failed check. What is tried on a subject is tried once: :func:`probe_of` keeps it.
"""

from __future__ import annotations

import functools

from cs336_harness.checks import Check
from cs336_harness.defects import Defect
from cs336_harness.diagnosis.localising import Located, locate
from cs336_harness.diagnosis.matching import Match, Probe, match
from cs336_harness.diagnosis.programs import programs_for
from cs336_harness.diagnosis.reproducing import reproducer
from cs336_harness.diagnosis.telling import Diagnosis
from cs336_harness.failures import CheckFailure
from cs336_harness.subject import Subject

__all__ = ["Diagnosis", "Probe", "diagnose_check", "probe_of"]


@functools.lru_cache(maxsize=4)
def probe_of(subject: Subject) -> Probe:
    """What is known of a subject, kept for the next check that fails."""
    return Probe(subject)


def diagnose_check(subject: Subject, check: Check, failure: CheckFailure, *, pairs: bool = True) -> Diagnosis | None:
    """What the failure of a check comes from; None when none of the experiments shows anything.

    Never raises: a diagnosis that fails must not hide the failure that it was to explain.
    """
    probe = probe_of(subject)
    try:
        names = [name for name in programs_for(check) if probe.differing(name)]
        if not names:
            return None
        for name in names:
            found = match(probe, name, pairs=pairs and name == names[0])
            if found is not None:
                return _named(probe, name, found)
        located = locate(probe, names[0])
        return None if located is None else _unnamed(probe, names[0], located)
    except Exception:
        return None


def _named(probe: Probe, name: str, found: Match) -> Diagnosis:
    places = list(dict.fromkeys(str(defect.place) for defect in found.defects))
    located = locate(probe, name)
    single = len(found.defects) == 1 or found.together
    return Diagnosis(
        where=" and ".join(places) if found.together else places[0],
        confidence="certain" if single or len(places) == 1 else "likely",
        defects=found.defects,
        together=found.together,
        evidence=_summary(located, found.defects),
        reproducer=reproducer(probe, name),
    )


def _summary(located: Located | None, defects: tuple[type[Defect], ...]) -> list[str]:
    return [] if located is None else located.evidence


def _unnamed(probe: Probe, name: str, located: Located) -> Diagnosis:
    return Diagnosis(
        where=str(located.place),
        confidence=located.confidence,
        evidence=located.evidence,
        reproducer=reproducer(probe, name),
    )
