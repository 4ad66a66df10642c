"""A judgement for a person, the summary first, and for a program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from cs336_harness.cost.ledger import (
    ATTENTION,
    BLOCK,
    BYTES,
    EVERYTHING,
    FEED_FORWARD,
    LAYER,
    MATMULS,
    POSITION_PAIRS,
    PROJECTIONS,
    RATIO,
    SHARE,
    components_of,
)
from cs336_harness.cost.presets import HANDOUTS, PRESET_NAMES, preset, readable_preset
from cs336_harness.cost.quantities import Quantity
from cs336_harness.cost.units import grouped, readable_bytes
from cs336_harness.writeup.claims import LEFT_OUT, MISSING, RIGHT, UNRECOGNISED, WRONG, Finding
from cs336_harness.writeup.configuration import Configuration
from cs336_harness.writeup.questions import Answer, Judgement
from cs336_harness.writeup.sources import Source

_NAMED_GROUPS = (
    ("feed-forward", FEED_FORWARD),
    ("attention projections", PROJECTIONS),
    ("attention scores and values", POSITION_PAIRS),
    ("attention", ATTENTION),
    ("blocks", BLOCK),
    ("total", EVERYTHING),
)
_MOST_LISTED = 12
"""How many numbers of one cause, or not recognised, are listed before the rest are only counted."""
_WITHOUT_NUMBERS = ("c.largest", "derivation", "self_test", "b.sum", "b.multiplies")


def report_lines(judgement: Judgement, name: str, *, show_answers: bool = False) -> Iterator[tuple[str, str]]:
    """The report as (verdict, text): summary, what it is held against, questions, then what is wrong and why."""
    yield "", f"{name}: {summary_line(judgement)}"
    yield "", f"Held against {describe_configuration(judgement.configuration)}{_origin(judgement.configuration)}"
    for notice in judgement.configuration.notices:
        yield "", notice
    yield "", ""
    for answer in _gathered(judgement):
        yield answer.verdict, _question_line(answer, judgement.source)
    causes = findings_by_cause(judgement)
    if causes:
        yield "", ""
    for findings in causes:
        yield WRONG, describe_cause(findings, judgement.source, show_answers=show_answers)
    unknown = [finding for finding in judgement.findings if finding.verdict == UNRECOGNISED]
    if unknown:
        shown = ", ".join(f"{f.claim.number.text} ({judgement.source.place(f.line)})" for f in unknown[:_MOST_LISTED])
        more = f" and {len(unknown) - _MOST_LISTED} more" if len(unknown) > _MOST_LISTED else ""
        yield "", ""
        yield (
            UNRECOGNISED,
            f"{shown}{more}: not one of the asked quantities in words that are understood, so not judged",
        )


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
    """One mistake and the numbers that show it."""
    first = findings[0]
    if len(findings) == 1:
        return f"{source.place(first.line)}: {describe_finding(first, show_answers=show_answers)}"
    places = ", ".join(dict.fromkeys(source.place(finding.line) for finding in findings[:_MOST_LISTED]))
    texts = ", ".join(dict.fromkeys(finding.claim.number.text for finding in findings[:_MOST_LISTED]))
    more = f" and {len(findings) - _MOST_LISTED} more" if len(findings) > _MOST_LISTED else ""
    said = (
        f"{places}: {len(findings)} numbers of one cause ({texts}{more}). The first is not right for {_what_for(first)}"
    )
    if show_answers and first.quantity is not None:
        said += f", which is {readable_truth(first.quantity)}"
    return " ".join([f"{said}.", *first.hints])


def explain(answer: Answer, source: Source) -> str:
    """Why an answer is not right, each of its wrong numbers on a line of its own."""
    wrong = [finding for finding in answer.findings if finding.verdict == WRONG]
    first = f"{answer.title}: {answer.verdict}. {answer.message}".rstrip()
    return "\n".join([first, *(f"  {source.place(finding.line)}: {describe_finding(finding)}" for finding in wrong)])


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
    """The configuration in one line, and which handout's it is, if it is one's."""
    shape = configuration.shape
    known = next(
        (
            f"the {year} handout's {readable_preset(name)}: "
            for year in HANDOUTS
            for name in PRESET_NAMES
            if shape == preset(name, year)
        ),
        "",
    )
    kv = "" if shape.num_kv_heads == shape.num_heads else f", num_kv_heads {shape.num_kv_heads}"
    return (
        f"{known}vocab_size {shape.vocab_size}, context_length {shape.context_length}, "
        f"num_layers {shape.num_layers}, d_model {shape.d_model}, num_heads {shape.num_heads}{kv}, d_ff {shape.d_ff}, "
        f"{'tied' if shape.tie_embeddings else 'untied'}, batch {configuration.batch_size}, {configuration.dtype}"
    )


def _origin(configuration: Configuration) -> str:
    """Where the configuration came from; a notice says it where the text states none."""
    if configuration.given_by:
        return f", as {configuration.given_by} says"
    if not configuration.stated:
        return ""
    return f", as {'far as ' if configuration.notices else ''}the write-up states it"


def describe_finding(finding: Finding, *, show_answers: bool = False) -> str:
    """What a wrong number claims to be and which mistake it is, as far as one fits."""
    said = f"{finding.claim.number.text} is not right"
    if finding.quantity is not None:
        said += f" for {_what_for(finding)}"
        if show_answers:
            said += f", which is {readable_truth(finding.quantity)}"
    return " ".join([f"{said}.", *finding.hints])


def _what_for(finding: Finding) -> str:
    return describe_quantity(finding.quantity) if finding.quantity is not None else "what it stands for"


def describe_quantity(quantity: Quantity) -> str:
    """What a number stands for, in words: the FLOPs of q_proj in one block."""
    measure, shape = quantity.measure, quantity.case.shape
    what = next(
        (name for name, group in _NAMED_GROUPS if components_of(measure.what, group) == measure.components),
        " + ".join(sorted(measure.components, key=_in_order)),
    )
    elsewhere = _elsewhere(quantity)
    if measure.dimension == SHARE:
        whole = "one block" if measure.scope == LAYER else "the model"
        return f"the share of {what} in the {measure.counted} of {whole}{elsewhere}"
    if quantity.dimension == RATIO:
        return f"the growth of the {measure.what} of {'the model' if what == 'total' else what}{elsewhere}"
    if what == "blocks":
        what = "one block" if measure.scope == LAYER else f"all {shape.num_layers} blocks"
    where = ""
    if measure.components < components_of(measure.what, BLOCK):
        where = " in one block" if measure.scope == LAYER else f" in all {shape.num_layers} blocks"
    dimension = "memory" if measure.dimension == BYTES else measure.dimension
    return f"the {dimension} {'in total' if what == 'total' else f'of {what}{where}'}{elsewhere}"


def _elsewhere(quantity: Quantity) -> str:
    """The model and the length, where they are not the ones that the write-up is about."""
    case = quantity.case
    model = f" of {readable_preset(case.model)}" if case.model else ""
    length = case.sequence_length
    return model + (f" at {length:,} positions" if length != case.shape.context_length else "")


def _in_order(component: str) -> int:
    return MATMULS.index(component) if component in MATMULS else -1


def readable_truth(quantity: Quantity) -> str:
    """The right number, exact and readable."""
    value = quantity.value
    if quantity.dimension == SHARE:
        return f"{float(100 * value):.2f} %"
    if quantity.dimension == RATIO:
        return f"{float(value):.2f} times"
    if quantity.dimension == BYTES:
        return f"{grouped(int(value))} bytes = {readable_bytes(int(value))}"
    return f"{grouped(int(value))} {quantity.dimension}"


def judgement_json(judgement: Judgement, name: str) -> dict[str, Any]:
    """The judgement for a program: the questions by id, and every number that was read."""
    verdicts = Counter(answer.verdict for answer in judgement.answers.values())
    configuration = judgement.configuration
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
                "id": answer.question,
                "title": answer.title,
                "verdict": answer.verdict,
                "message": answer.message,
                "lines": answer.lines,
            }
            for answer in judgement.answers.values()
        ],
        "causes": [
            {"hints": list(findings[0].hints), "lines": sorted({finding.line for finding in findings})}
            for findings in findings_by_cause(judgement)
        ],
        "numbers": [_number_json(finding, judgement.source) for finding in judgement.findings],
    }


def _number_json(finding: Finding, source: Source) -> dict[str, Any]:
    quantity = finding.quantity
    return {
        "line": finding.line,
        "place": source.place(finding.line),
        "text": finding.claim.number.text,
        "verdict": finding.verdict,
        "stands_for": describe_quantity(quantity) if quantity else None,
        "expected": _exact(quantity.value) if quantity else None,
        "hints": list(finding.hints),
    }


def _exact(number: Fraction) -> int | float:
    return int(number) if number.denominator == 1 else float(number)


def _gathered(judgement: Judgement) -> Iterator[Answer]:
    """The answers: multiplies of one verdict in one line, and none for other numbers where there are none."""
    gathered: dict[str, list[Answer]] = {}
    for question, answer in judgement.answers.items():
        if question.startswith("b.") and question[2:] in MATMULS:
            gathered.setdefault(answer.verdict, []).append(answer)
    for question, answer in judgement.answers.items():
        if question == f"b.{MATMULS[0]}":
            for verdict in (RIGHT, WRONG, MISSING):
                if group := gathered.get(verdict):
                    yield _one_of(group)
        of_none = question == "numbers" and answer.verdict == RIGHT and not answer.findings
        if not of_none and not (question.startswith("b.") and question[2:] in MATMULS):
            yield answer


def _one_of(group: list[Answer]) -> Answer:
    first = group[0]
    findings = tuple({id(finding): finding for answer in group for finding in answer.findings}.values())
    names = ", ".join(answer.question[2:] for answer in group)
    message = f"{names}. {first.message}" if first.verdict == MISSING else names
    return Answer("b.multiplies", first.verdict, findings, message)


def _question_line(answer: Answer, source: Source) -> str:
    at = f" ({_places(answer.lines, source)})" if answer.lines else ""
    message = answer.message
    if answer.question == "numbers":
        verdicts = Counter(finding.verdict for finding in answer.findings)
        at, message = "", ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    elif answer.question in ("d", "e"):
        message = ", ".join(f.claim.number.text for f in answer.findings if f.verdict == WRONG)
    elif answer.question not in _WITHOUT_NUMBERS and answer.verdict != MISSING:
        message = ", ".join(dict.fromkeys(finding.claim.number.text for finding in answer.findings))
    return f"{answer.title}{at}{': ' if message else ''}{message}"


def _places(lines: Iterable[int], source: Source) -> str:
    """Lines 3 to 5 of a file as such; the places of a notebook or a PDF by their names."""
    places = list(dict.fromkeys(source.place(line) for line in lines))
    if not all(re.fullmatch(r"line \d+", place) for place in places):
        return ", ".join(places[:4]) + (" …" if len(places) > 4 else "")
    numbers = [int(place.split()[1]) for place in places]
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
    return f"line{'s' if len(numbers) > 1 else ''} {shown}"
