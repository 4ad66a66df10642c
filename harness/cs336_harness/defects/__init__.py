"""The fault dictionary: each known mistake as a few-line variation of the oracle.

``all_defects()`` gives them by name, ``subject_of(*defects)`` a subject that makes these mistakes. There is one file
for each region of the decoder.
"""

from cs336_harness.defects.defect import (
    AdaptersDefect,
    Defect,
    ModelDefect,
    OracleDefect,
    Place,
    adapters_of,
    all_defects,
    contradiction,
    real_defects,
    subject_of,
)

__all__ = [
    "AdaptersDefect",
    "Defect",
    "ModelDefect",
    "OracleDefect",
    "Place",
    "adapters_of",
    "all_defects",
    "contradiction",
    "real_defects",
    "subject_of",
]
