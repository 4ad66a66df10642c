"""A judgement for a person, line by line, and for a program."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from cs336_harness.cost.ledger import (
    BLOCK,
    EVERYTHING,
    FEED_FORWARD,
    MATMULS,
    POSITION_PAIRS,
    PROJECTIONS,
    components_of,
)
from cs336_harness.cost.presets import HANDOUTS, preset
from cs336_harness.cost.units import grouped, readable_bytes
from cs336_harness.writeup.configuration import Configuration
from cs336_harness.writeup.diagnosis import Role
from cs336_harness.writeup.judging import MISSING, RIGHT, UNRECOGNISED, WRONG, Finding
from cs336_harness.writeup.numbers import BYTES, SHARE
from cs336_harness.writeup.questions import Answer, Judgement

_NAMED_GROUPS = (
    ("feed-forward", FEED_FORWARD),
    ("attention projections", PROJECTIONS),
    ("attention scores and values", POSITION_PAIRS),
    ("attention", PROJECTIONS | POSITION_PAIRS),
    ("blocks", BLOCK),
    ("total", EVERYTHING),
)


def report_lines(judgement: Judgement, name: str, *, show_answers: bool = False) -> Iterator[tuple[str, str]]:
    """The report as (verdict, text): first what it is held against, then the questions, then every wrong number."""
    yield "", f"{name}: held against {describe_configuration(judgement.configuration)}"
    yield "", ""
    for answer in _gathered(judgement):
        yield answer.verdict, _question_line(answer)
    wrong = [finding for finding in judgement.findings if finding.verdict == WRONG]
    if wrong:
        yield "", ""
    for finding in wrong:
        yield WRONG, f"line {finding.line}: {describe_finding(finding, show_answers=show_answers)}"
    unknown = [finding for finding in judgement.findings if finding.verdict == UNRECOGNISED]
    if unknown:
        said = ", ".join(f"{finding.claim.number.text} (line {finding.line})" for finding in unknown)
        yield "", ""
        yield UNRECOGNISED, f"{said}: not one of the asked quantities, so not judged"
    yield "", ""
    yield "", summary_line(judgement)


def explain(answer: Answer) -> str:
    """Why an answer is not right, each of its wrong numbers on a line of its own."""
    wrong = [finding for finding in answer.findings if finding.verdict == WRONG]
    first = f"{answer.title}: {answer.verdict}. {answer.message}".rstrip()
    return "\n".join([first, *(f"  line {finding.line}: {describe_finding(finding)}" for finding in wrong)])


def summary_line(judgement: Judgement) -> str:
    """How many of the questions are right, wrong and missing."""
    verdicts = [answer.verdict for answer in judgement.answers.values()]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in (RIGHT, WRONG, MISSING))


def describe_configuration(configuration: Configuration) -> str:
    """The stated configuration in one line, and which handout's it is, if it is one's."""
    shape = configuration.shape
    known = next((f"the {year} handout's GPT-2 XL: " for year in HANDOUTS if shape == preset("gpt2-xl", year)), "")
    kv = "" if shape.num_kv_heads == shape.num_heads else f", num_kv_heads {shape.num_kv_heads}"
    return (
        f"{known}vocab_size {shape.vocab_size}, context_length {shape.context_length}, "
        f"num_layers {shape.num_layers}, d_model {shape.d_model}, num_heads {shape.num_heads}{kv}, d_ff {shape.d_ff}, "
        f"{'tied' if shape.tie_embeddings else 'untied'}, batch {configuration.batch_size}, {configuration.dtype}"
    )


def describe_finding(finding: Finding, *, show_answers: bool = False) -> str:
    """What a wrong number claims to be and which mistake it is, as far as one fits."""
    said = f"{finding.claim.number.text} is not right"
    if finding.role is not None:
        said += f" for {describe_role(finding.role)}"
        if show_answers:
            said += f", which is {readable_truth(finding.role)}"
    return " ".join([f"{said}.", *finding.hints])


def describe_role(role: Role) -> str:
    """What a number stands for, in words: FLOPs of q_proj in one block."""
    what = next(
        (name for name, group in _NAMED_GROUPS if components_of(role.dimension, group) == role.components),
        " + ".join(sorted(role.components, key=_in_order)),
    )
    if role.dimension == SHARE:
        return f"the share of {what} in the {role.share_of}"
    if what == "blocks":
        what = "one block" if role.scope == "layer" else f"all {role.ledger.layers} blocks"
    where = ""
    if role.components < components_of(role.dimension, BLOCK):
        where = " in one block" if role.scope == "layer" else f" in all {role.ledger.layers} blocks"
    dimension = "memory" if role.dimension == BYTES else role.dimension
    return f"the {dimension} in total" if what == "total" else f"the {dimension} of {what}{where}"


def _in_order(component: str) -> int:
    return MATMULS.index(component) if component in MATMULS else -1


def readable_truth(role: Role) -> str:
    """The right number, exact and readable."""
    if role.dimension == SHARE:
        return f"{float(100 * role.true):.2f} %"
    number = int(role.true)
    if role.dimension == BYTES:
        return f"{grouped(number)} bytes = {readable_bytes(number)}"
    return f"{grouped(number)} {role.dimension}"


def judgement_json(judgement: Judgement, name: str) -> dict[str, Any]:
    """The judgement for a program: the questions by id, and every number that was read."""
    verdicts = [answer.verdict for answer in judgement.answers.values()]
    shape = judgement.configuration.shape
    return {
        "file": name,
        "passed": judgement.passed,
        "summary": {verdict: verdicts.count(verdict) for verdict in (RIGHT, WRONG, MISSING)},
        "configuration": {
            **{field: getattr(shape, field) for field in shape.model_arguments() if field != "rope_theta"},
            "batch_size": judgement.configuration.batch_size,
            "dtype": judgement.configuration.dtype,
        },
        "questions": [
            {
                "id": answer.question,
                "title": answer.title,
                "verdict": answer.verdict,
                "message": answer.message,
                "lines": sorted({finding.line for finding in answer.findings}),
            }
            for answer in judgement.answers.values()
        ],
        "numbers": [_number_json(finding) for finding in judgement.findings],
    }


def _number_json(finding: Finding) -> dict[str, Any]:
    role = finding.role
    return {
        "line": finding.line,
        "text": finding.claim.number.text,
        "verdict": finding.verdict,
        "stands_for": describe_role(role) if role else None,
        "expected": _exact(role.true) if role else None,
        "hints": list(finding.hints),
    }


def _exact(number: Fraction) -> int | float:
    return int(number) if number.denominator == 1 else float(number)


def _gathered(judgement: Judgement) -> Iterator[Answer]:
    """The answers, multiplies of one verdict gathered into one line."""
    gathered: dict[str, list[Answer]] = {}
    for question, answer in judgement.answers.items():
        if question.startswith("b.") and question[2:] in MATMULS:
            gathered.setdefault(answer.verdict, []).append(answer)
    for question, answer in judgement.answers.items():
        if question == f"b.{MATMULS[0]}":
            for verdict in (RIGHT, WRONG, MISSING):
                if group := gathered.get(verdict):
                    yield _one_of(group)
        if not (question.startswith("b.") and question[2:] in MATMULS):
            yield answer


def _one_of(group: list[Answer]) -> Answer:
    first = group[0]
    findings = tuple({id(finding): finding for answer in group for finding in answer.findings}.values())
    names = ", ".join(answer.question[2:] for answer in group)
    message = f"{names}. {first.message}" if first.verdict == MISSING else names
    return Answer("b.multiplies", first.verdict, findings, message)


def _question_line(answer: Answer) -> str:
    lines = sorted({finding.line for finding in answer.findings})
    at = f" (line{'s' if len(lines) > 1 else ''} {_ranges(lines)})" if lines and answer.question != "numbers" else ""
    if answer.question == "numbers":
        at = f" ({len(answer.findings)} read)" if answer.findings else " (none read)"
    message = answer.message
    if answer.question not in ("b.multiplies", "b.sum", "c.largest") and answer.verdict != MISSING:
        message = (
            ", ".join(dict.fromkeys(f.claim.number.text for f in answer.findings))
            if answer.question != "numbers"
            else ""
        )
    return f"{answer.title}{at}{': ' if message else ''}{message}"


def _ranges(lines: list[int]) -> str:
    runs: list[list[int]] = []
    for line in lines:
        if runs and line == runs[-1][-1] + 1:
            runs[-1].append(line)
        else:
            runs.append([line])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
