"""Wrong numbers that only repeat another wrong number: one mistake should read as one mistake."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from cs336_harness.cost.ledger import BYTES, EVERYTHING, FLOPS, MATMULS, PARAMETERS, SHARE, components_of
from cs336_harness.writeup.claims import WRONG, Finding
from cs336_harness.writeup.sources import Source


def multiply_lines(findings: list[Finding]) -> list[Finding]:
    """The lines of (b): multiplies with their FLOPs, one for each set of components, tables before sentences."""
    lines: dict[frozenset[str], Finding] = {}
    found = [
        finding
        for finding in findings
        if finding.quantity is not None
        and finding.quantity.dimension == FLOPS
        and finding.claim.part in ("b", None, "c")
        and finding.components < frozenset(MATMULS)
    ]
    found.sort(key=lambda finding: (finding.claim.part != "b", finding.claim.table is None))
    for finding in found:
        if finding.quantity is not None:
            lines.setdefault(finding.components, finding)
    return list(lines.values())


def partition(lines: list[Finding]) -> list[Finding]:
    """Lines that share no multiply and leave none out, if there are such, without the subtotals among them."""
    finest = sorted(lines, key=lambda finding: len(finding.components) if finding.quantity else 0)
    return _exact_cover(finest, frozenset(MATMULS)) or _as_many_as_fit(finest)


def _exact_cover(lines: list[Finding], open_multiplies: frozenset[str]) -> list[Finding] | None:
    if not open_multiplies:
        return []
    first = min(open_multiplies)
    for line in lines:
        if line.quantity is not None and first in line.components and line.components <= open_multiplies:
            others = _exact_cover(lines, open_multiplies - line.components)
            if others is not None:
                return [line, *others]
    return None


def _as_many_as_fit(lines: list[Finding]) -> list[Finding]:
    chosen: list[Finding] = []
    taken: frozenset[str] = frozenset()
    for finding in lines:
        if finding.quantity is not None and not finding.components & taken:
            chosen.append(finding)
            taken |= finding.components
    return chosen


def in_the_model(finding: Finding) -> tuple[Fraction, Fraction]:
    """What a line says for all blocks together, and how far its rounding leaves that open."""
    role = finding.quantity
    times = role.case.ledger.layers if role is not None and role.measure.scope == "layer" else 1
    return times * finding.claim.number.value, times * finding.claim.number.step / 2


def added_up(lines: list[Finding]) -> tuple[Fraction, Fraction]:
    """The sum of some lines over the whole model, and how far their rounding leaves it open."""
    values, slacks = zip(*(in_the_model(finding) for finding in lines), strict=True) if lines else ((), ())
    return sum(values, Fraction(0)), sum(slacks, Fraction(0))


def with_consequences(findings: list[Finding], source: Source) -> list[Finding]:
    """The findings; a wrong number that follows from another one says so, and names no mistake of its own."""
    lines = partition(multiply_lines(findings))
    covered = frozenset().union(*(finding.components for finding in lines if finding.quantity))
    absent = [name for name in MATMULS if name not in covered]
    wrong = lines if any(line.verdict == WRONG for line in lines) else []
    return [_explained(finding, findings, wrong, absent, source) for finding in findings]


def _explained(
    finding: Finding, findings: list[Finding], lines: list[Finding], absent: list[str], source: Source
) -> Finding:
    if finding.verdict != WRONG or finding.quantity is None:
        return finding
    if count := _the_count(finding, findings):
        each = f"{finding.quantity.measure.bytes_per_value} bytes for each parameter"
        reason = f"It is {each} of {source.place(count.line)}, and right once that is."
        return dataclasses.replace(finding, hints=(reason,), follows=count.line)
    if lines and (reason := _from_lines(finding, lines, absent)):
        first = next(line for line in lines if line.verdict == WRONG)
        return dataclasses.replace(finding, hints=(reason,), follows=first.line)
    return finding


def _the_count(finding: Finding, findings: list[Finding]) -> Finding | None:
    """The wrong number of parameters that a memory was worked out from."""
    role = finding.quantity
    if role is None or role.dimension != BYTES:
        return None
    memory = finding.claim.number
    for other in findings:
        if other.verdict != WRONG or other.quantity is None or other.quantity.dimension != PARAMETERS:
            continue
        count = other.claim.number
        slack = memory.step / 2 + role.measure.bytes_per_value * count.step / 2
        same = other.components == role.measure.components
        if same and abs(memory.value - role.measure.bytes_per_value * count.value) <= slack:
            return other
    return None


def _from_lines(finding: Finding, lines: list[Finding], absent: list[str]) -> str | None:
    role, number = finding.quantity, finding.claim.number
    if role is None or finding.claim.part in ("d", "e"):
        return None
    whole, slack = added_up(lines)
    if role.dimension == FLOPS and role.measure.components == components_of(FLOPS, EVERYTHING):
        if abs(number.value - whole) <= slack + number.step / 2:
            without = f", and they leave out {', '.join(absent)}" if absent else ""
            return f"It is what the lines add up to; the mistake is in a line{without}."
        return None
    if absent:
        return None
    if role.dimension == SHARE and role.measure.counted == FLOPS and whole:
        of_part = [line for line in lines if line.quantity and line.components <= role.measure.components]
        if frozenset().union(*(line.components for line in of_part if line.quantity)) == role.measure.components:
            part, part_slack = added_up(of_part)
            room = number.step / 2 + (part_slack + slack * part / whole) / whole
            if abs(number.value - part / whole) <= room:
                return "It follows from the lines of (b), and is right once they are."
    return None
