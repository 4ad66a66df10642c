"""The lines of (b), and wrong numbers that only repeat another one: one mistake should read as one mistake."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from fractions import Fraction

from cs336_harness.cost.ledger import BYTES, FLOPS, LAYER, MATMULS, PARAMETERS, SHARE
from cs336_harness.writeup.claims import WRONG, Finding
from cs336_harness.writeup.sources import Source


def in_the_model(finding: Finding) -> tuple[Fraction, Fraction]:
    """What a line says for all blocks together, and how far its rounding leaves that open."""
    role, number = finding.quantity, finding.claim.number
    times = role.case.ledger.layers if role is not None and role.measure.scope == LAYER else 1
    return times * number.value, times * number.step / 2


def added_up(lines: Iterable[Finding]) -> tuple[Fraction, Fraction]:
    """The sum of some lines over the whole model, and how far their rounding leaves it open."""
    values = [in_the_model(line) for line in lines]
    return sum((value for value, _ in values), Fraction(0)), sum((slack for _, slack in values), Fraction(0))


class Lines:
    """The lines of (b): multiplies with their FLOPs, tables before sentences.

    ``all`` has one for each set of components; ``chosen`` are lines among them that share no multiply and leave none
    out, if there are such, and ``absent`` are the multiplies that no line names.
    """

    def __init__(self, findings: Iterable[Finding]) -> None:
        found = [
            finding
            for finding in findings
            if finding.dimension == FLOPS
            and finding.claim.part in ("b", None, "c")
            and finding.components < frozenset(MATMULS)
        ]
        found.sort(key=lambda finding: (finding.claim.part != "b", finding.claim.table is None))
        by_components = {finding.components: finding for finding in reversed(found)}
        self.all = sorted(by_components.values(), key=found.index)
        finest = sorted(self.all, key=lambda finding: len(finding.components))
        self.chosen = _exact_cover(finest, frozenset(MATMULS)) or _as_many_as_fit(finest)
        covered = frozenset().union(*(line.components for line in self.chosen))
        self.absent = [name for name in MATMULS if name not in covered]


def _exact_cover(lines: list[Finding], open_multiplies: frozenset[str]) -> list[Finding] | None:
    if not open_multiplies:
        return []
    first = min(open_multiplies)
    for line in lines:
        if first in line.components and line.components <= open_multiplies:
            others = _exact_cover(lines, open_multiplies - line.components)
            if others is not None:
                return [line, *others]
    return None


def _as_many_as_fit(lines: list[Finding]) -> list[Finding]:
    chosen: list[Finding] = []
    for finding in lines:
        if not any(finding.components & other.components for other in chosen):
            chosen.append(finding)
    return chosen


def with_consequences(findings: list[Finding], source: Source) -> list[Finding]:
    """The findings; a wrong number that follows from another one says so, and names no mistake of its own."""
    lines = Lines(findings)
    first_wrong = next((line for line in lines.chosen if line.verdict == WRONG), None)

    def explained(finding: Finding) -> Finding:
        if finding.verdict != WRONG or finding.quantity is None:
            return finding
        if count := _the_count(finding, findings):
            each = f"{finding.quantity.measure.bytes_per_value} bytes for each parameter"
            reason = f"It is {each} of {source.place(count.line)}, and right once that is."
            return dataclasses.replace(finding, hints=(reason,), follows=count.line)
        if first_wrong and (reason := _from_lines(finding, lines)):
            return dataclasses.replace(finding, hints=(reason,), follows=first_wrong.line)
        return finding

    return [explained(finding) for finding in findings]


def _the_count(finding: Finding, findings: list[Finding]) -> Finding | None:
    """The wrong number of parameters that a memory was worked out from."""
    if finding.dimension != BYTES or finding.quantity is None:
        return None
    memory, each = finding.claim.number, finding.quantity.measure.bytes_per_value
    counts = (other for other in findings if other.verdict == WRONG and other.dimension == PARAMETERS)
    for other in counts:
        count = other.claim.number
        room = (memory.step + each * count.step) / 2
        if other.components == finding.components and abs(memory.value - each * count.value) <= room:
            return other
    return None


def _from_lines(finding: Finding, lines: Lines) -> str | None:
    role, number = finding.quantity, finding.claim.number
    if role is None or finding.claim.part in ("d", "e"):
        return None
    whole, slack = added_up(lines.chosen)
    if role.dimension == FLOPS and role.is_of_all and abs(number.value - whole) <= slack + number.step / 2:
        without = f", and they leave out {', '.join(lines.absent)}" if lines.absent else ""
        return f"It is what the lines add up to; the mistake is in a line{without}."
    if role.dimension == SHARE and role.measure.counted == FLOPS and whole and not lines.absent:
        of_part = [line for line in lines.chosen if line.components <= role.measure.components]
        if frozenset().union(*(line.components for line in of_part)) == role.measure.components:
            part, part_slack = added_up(of_part)
            room = number.step / 2 + (part_slack + slack * part / whole) / whole
            if abs(number.value - part / whole) <= room:
                return "It follows from the lines of (b), and is right once they are."
    return None
