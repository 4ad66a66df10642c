"""A judgement for a person, the summary first, and for a program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from cs336_harness.cost.ledger import MATMULS
from cs336_harness.cost.presets import HANDOUTS, PRESET_NAMES, preset, readable_preset
from cs336_harness.writeup.claims import LEFT_OUT, MISSING, RIGHT, UNRECOGNISED, WRONG, Finding
from cs336_harness.writeup.configuration import Configuration
from cs336_harness.writeup.questions import Answer, Judgement
from cs336_harness.writeup.sources import Source

REMARK = "remark"
"""Heads a line about a right number that could be said better."""
_MOST_LISTED = 12
"""How many numbers of one cause, or not recognised, are listed before the rest are only counted."""
_WITHOUT_NUMBERS = ("c.largest", "derivation", "self_test", "b.sum", "b.multiplies")


def report_lines(judgement: Judgement, name: str, *, show_answers: bool = False) -> Iterator[tuple[str, str]]:
    """The report as (verdict, text): summary, what it is held against, questions, then what is wrong and why."""
    source, configuration = judgement.source, judgement.configuration
    yield "", f"{name}: {summary_line(judgement)}"
    yield "", f"Held against {describe_configuration(configuration)}"
    yield from (("", notice) for notice in configuration.notices)
    yield "", ""
    yield from ((answer.verdict, _question_line(answer, source)) for answer in _gathered(judgement))
    if causes := findings_by_cause(judgement):
        yield "", ""
    yield from ((WRONG, describe_cause(findings, source, show_answers=show_answers)) for findings in causes)
    remarks: dict[tuple[str, ...], list[Finding]] = {}
    for finding in judgement.findings:
        if finding.verdict == RIGHT and finding.hints:
            remarks.setdefault(finding.hints, []).append(finding)
    for hints, findings in remarks.items():
        shown = _listed(f"{source.place(finding.line)}: {finding.claim.number.text}" for finding in findings)
        yield REMARK, f"{shown}. {' '.join(hints)}"
    unknown = [finding for finding in judgement.findings if finding.verdict == UNRECOGNISED]
    if unknown:
        shown = _listed(f"{finding.claim.number.text} ({source.place(finding.line)})" for finding in unknown)
        yield "", ""
        yield UNRECOGNISED, f"{shown}: not one of the asked quantities in words that are understood, so not judged"


def findings_by_cause(judgement: Judgement) -> list[list[Finding]]:
    """The wrong numbers, those of one named mistake together: one mistake is one, however many numbers show it."""
    causes: dict[tuple[object, ...], list[Finding]] = {}
    wrong = [finding for finding in judgement.findings if finding.verdict == WRONG]
    for finding in wrong:
        if finding.follows is None:
            key = tuple(map(_cause_of, finding.hints)) or (finding.line, finding.claim.number.start)
            causes.setdefault(key, []).append(finding)
    groups = list(causes.values())
    for finding in wrong:
        if finding.follows is not None:
            same = (group for group in groups if any(other.line == finding.follows for other in group))
            next(same, groups[0]).append(finding)
    return groups


def _cause_of(hint: str) -> str:
    """What a hint says of the mistake, whatever number it is said of."""
    return re.sub(r"^This is the [A-Za-z]+(?: count)?", "This is", hint.partition(" It is also consistent")[0])


def describe_cause(findings: Sequence[Finding], source: Source, *, show_answers: bool = False) -> str:
    """One mistake and the numbers that show it: what the first claims to be, and which mistake it is."""
    first = findings[0]
    of_what = f"is not right for {first.quantity.description if first.quantity else 'what it stands for'}"
    if show_answers and first.quantity is not None:
        of_what += f", which is {first.quantity.readable}"
    if len(findings) == 1:
        said = f"{source.place(first.line)}: {first.claim.number.text} {of_what}"
    else:
        places = ", ".join(dict.fromkeys(source.place(finding.line) for finding in findings[:_MOST_LISTED]))
        texts = _listed(dict.fromkeys(finding.claim.number.text for finding in findings))
        said = f"{places}: {len(findings)} numbers of one cause ({texts}). The first {of_what}"
    return " ".join([f"{said}.", *first.hints])


def _listed(texts: Iterable[str]) -> str:
    shown = list(texts)
    more = f" and {len(shown) - _MOST_LISTED} more" if len(shown) > _MOST_LISTED else ""
    return ", ".join(shown[:_MOST_LISTED]) + more


def explain(answer: Answer, source: Source) -> str:
    """Why an answer is not right, each of its wrong numbers on a line of its own."""
    wrong = [finding for finding in answer.findings if finding.verdict == WRONG]
    first = f"{answer.title}: {answer.verdict}. {answer.message}".rstrip()
    return "\n".join([first, *(f"  {describe_cause([finding], source)}" for finding in wrong)])


def summary_line(judgement: Judgement) -> str:
    """How many of the questions are right, wrong and missing, and how many numbers."""
    verdicts = Counter(answer.verdict for answer in judgement.answers.values())
    numbers = Counter(finding.verdict for finding in judgement.findings)
    said = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in (RIGHT, WRONG, MISSING))
    left_out = f" ({verdicts[LEFT_OUT]} left out)" if verdicts[LEFT_OUT] else ""
    read = f"{said}{left_out}; {_count(len(judgement.findings), 'number')} read"
    if not judgement.findings:
        return read
    causes = len(findings_by_cause(judgement))
    of = f" of {_count(causes, 'cause')}" if causes else ""
    return f"{read}: {numbers[RIGHT]} right, {numbers[WRONG]} wrong{of}, {numbers[UNRECOGNISED]} not recognised"


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def describe_configuration(configuration: Configuration) -> str:
    """The configuration in one line: which handout's it is, if it is one's, and who names it."""
    shape = configuration.shape
    presets = {preset(name, year): (name, year) for year in HANDOUTS[::-1] for name in PRESET_NAMES}
    name, year = presets.get(shape, ("", 0))
    known = f"the {year} handout's {readable_preset(name)}: " if name else ""
    kv = "" if shape.num_kv_heads == shape.num_heads else f", num_kv_heads {shape.num_kv_heads}"
    origin = f", as {configuration.given_by} says" if configuration.given_by else ""
    if configuration.stated and not origin:
        origin = f", as {'far as ' if configuration.notices else ''}the write-up states it"
    return (
        f"{known}vocab_size {shape.vocab_size}, context_length {shape.context_length}, "
        f"num_layers {shape.num_layers}, d_model {shape.d_model}, num_heads {shape.num_heads}{kv}, d_ff {shape.d_ff}, "
        f"{'tied' if shape.tie_embeddings else 'untied'}, batch {configuration.batch_size}, {configuration.dtype}"
        f"{origin}"
    )


def judgement_json(judgement: Judgement, name: str) -> dict[str, Any]:
    """The judgement for a program: the questions by id, and every number that was read."""
    verdicts = Counter(answer.verdict for answer in judgement.answers.values())
    configuration, source = judgement.configuration, judgement.source
    shape = configuration.shape
    return {
        "file": name,
        "passed": judgement.passed,
        "summary": {verdict.replace(" ", "_"): verdicts[verdict] for verdict in (RIGHT, WRONG, MISSING, LEFT_OUT)},
        "configuration": {
            **{field: getattr(shape, field) for field in shape.model_arguments() if field != "rope_theta"},
            "batch_size": configuration.batch_size,
            "dtype": configuration.dtype,
            "given_by": configuration.given_by or None,
            "notices": list(configuration.notices),
        },
        "questions": [
            {
                "id": question,
                "title": answer.title,
                "verdict": answer.verdict,
                "message": answer.message,
                "lines": list(dict.fromkeys(map(source.number, answer.lines))),
            }
            for question, answer in judgement.answers.items()
        ],
        "causes": [
            {"hints": list(findings[0].hints), "lines": sorted({source.number(finding.line) for finding in findings})}
            for findings in findings_by_cause(judgement)
        ],
        "numbers": [
            {
                "line": source.number(finding.line),
                "place": source.place(finding.line),
                "text": finding.claim.number.text,
                "verdict": finding.verdict,
                "stands_for": finding.quantity.description if finding.quantity else None,
                "expected": _exact(finding.quantity.value) if finding.quantity else None,
                "hints": list(finding.hints),
            }
            for finding in judgement.findings
        ],
    }


def _exact(number: Fraction) -> int | float:
    return int(number) if number.denominator == 1 else float(number)


def _gathered(judgement: Judgement) -> Iterator[Answer]:
    """The answers: multiplies of one verdict in one line, and none for other numbers where there are none."""
    multiplies = {f"b.{name}": judgement.answers[f"b.{name}"] for name in MATMULS}
    for question, answer in judgement.answers.items():
        if question == next(iter(multiplies)):
            for verdict in (RIGHT, WRONG, MISSING):
                if group := [answer for answer in multiplies.values() if answer.verdict == verdict]:
                    findings = {id(finding): finding for answer in group for finding in answer.findings}
                    names = ", ".join(answer.question[2:] for answer in group)
                    message = f"{names}. {group[0].message}" if verdict == MISSING else names
                    yield Answer("b.multiplies", verdict, message, (), tuple(findings.values()))
        of_none = question == "numbers" and answer.verdict == RIGHT and not answer.findings
        if question not in multiplies and not of_none:
            yield answer


def _question_line(answer: Answer, source: Source) -> str:
    at = f" ({_places(answer.lines, source)})" if answer.lines else ""
    message = answer.message
    if answer.question == "numbers":
        verdicts = Counter(finding.verdict for finding in answer.findings)
        at, message = "", ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    elif answer.question in ("d", "e"):
        message = ", ".join(finding.claim.number.text for finding in answer.findings if finding.verdict == WRONG)
    elif answer.question not in _WITHOUT_NUMBERS and answer.verdict != MISSING:
        message = ", ".join(dict.fromkeys(finding.claim.number.text for finding in answer.findings))
    return f"{answer.title}{at}{': ' if message else ''}{message}"


def _places(lines: Iterable[int], source: Source) -> str:
    """Lines 3 to 5 of a file as such; the places of a notebook or a PDF by their names."""
    places = list(dict.fromkeys(source.place(line) for line in lines))
    if not all(re.fullmatch(r"line \d+", place) for place in places):
        return ", ".join(places[:4]) + (" …" if len(places) > 4 else "")
    runs: list[list[int]] = []
    for number in (int(place.split()[1]) for place in places):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
    return f"line{'s' if len(places) > 1 else ''} {shown}"
