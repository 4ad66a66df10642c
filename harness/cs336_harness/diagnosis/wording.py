"""What a diagnosis says: to a person in lines, to a program in JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from cs336_harness.defects import Defect


@dataclasses.dataclass(slots=True)
class Diagnosis:
    """Where a fault is, how sure that is, and which known mistake it is or what was measured.

    ``defects`` is the one known mistake that explains everything, or the few that cannot be told apart, or, with
    ``together``, the two that explain it only both at once; empty when none does. ``told_before`` is the check that the
    same was said of. ``reading`` is a number of the subject's own beside what it must be, with a small ``table``;
    beside a name, it is what speaks against it. ``evidence`` are sentences, ``reproducer`` lines of code,
    ``figures`` numbers to draw, by kind.
    """

    where: str
    confidence: str
    defects: tuple[type[Defect], ...] = ()
    together: bool = False
    told_before: str | None = None
    reading: str = ""
    table: list[str] = dataclasses.field(default_factory=list)
    evidence: list[str] = dataclasses.field(default_factory=list)
    reproducer: list[str] = dataclasses.field(default_factory=list)
    figures: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def title(self) -> str:
        """One line: the known mistake, or the place."""
        if not self.defects:
            return self.reading or f"in {self.where}"
        if self.together:
            return "two mistakes: " + " and ".join(defect.name for defect in self.defects)
        return self.defects[0].name

    @property
    def named(self) -> bool:
        """Whether a known mistake explains the failure, told here for the first time."""
        return bool(self.defects) and self.told_before is None

    @property
    def says_what(self) -> bool:
        """Whether it says what is wrong, a known mistake or a reading, here for the first time."""
        return (bool(self.defects) or bool(self.reading)) and self.told_before is None

    def lines(self, *, hint: bool = False) -> list[str]:
        """For a person: what is wrong, where, the evidence, the hint (with its steps, if asked for), how to see it."""
        if self.told_before is not None:
            return [f"the same as in {self.told_before}: {self.title}"]
        return [
            *self._what(),
            f"where: {self.where} ({self.confidence})",
            *self._evidence(),
            *self._hints(hint),
            *self._code(),
        ]

    def _what(self) -> list[str]:
        if not self.defects:
            return [f"what is wrong: {self.reading}", *(f"    {line}" for line in self.table)] if self.reading else []
        named = self.defects if self.together else self.defects[:1]
        lines = [f"what is wrong: {defect.explanation()}  [{defect.name}]" for defect in named]
        others = [] if self.together else self.defects[1:]
        if others:
            lines.append("also consistent with: " + "; ".join(f"{o.name} ({_first_sentence(o)})" for o in others))
        if self.reading:
            lines.append(f"but: {self.reading}")
        return lines

    def _evidence(self) -> list[str]:
        return [f"why there: {'; '.join(self.evidence)}"] if self.evidence else []

    def _hints(self, steps: bool) -> list[str]:
        named = self.defects if self.together else self.defects[:1]
        lines: list[str] = []
        for defect in named:
            lines.append(f"hint: {defect.hint}")
            if steps:
                lines += [f"  {number}. {step}" for number, step in enumerate(defect.steps, 1)]
        return lines

    def _code(self) -> list[str]:
        """The lines to paste, and where: in the folder in which Python finds what they import, or in a notebook."""
        if not self.reproducer:
            return []
        imports = next((line.split()[1] for line in self.reproducer if line.startswith("from ")), None)
        file = "" if imports is None else f"{imports.replace('.', '/')}.py"
        place = f"in the folder that holds {file}" if file else "where your functions are defined"
        return [f"see it for yourself on a small case, {place}:", *(f"    {line}" for line in self.reproducer)]

    def to_json(self) -> dict[str, Any]:
        """The shape of docs/DESIGN.md, "Outcomes and exit status", and what else is known."""
        return {
            "where": self.where,
            "confidence": self.confidence,
            "together": self.together,
            "told_before": self.told_before,
            "defects": [
                {
                    "name": defect.name,
                    "hint": defect.hint,
                    "explanation": defect.explanation(),
                    "steps": list(defect.steps),
                }
                for defect in self.defects
            ],
            "reading": self.reading,
            "table": list(self.table),
            "evidence": list(self.evidence),
            "reproducer": "\n".join(self.reproducer),
            "figures": dict(self.figures),
        }


def _first_sentence(defect: type[Defect]) -> str:
    return defect.explanation().partition(". ")[0].rstrip(".").partition(";")[0].partition(":")[0]
