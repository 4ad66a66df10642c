"""The questions that a write-up answers, each right, wrong or missing: what a grade is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from cs336_harness.cost.ledger import BLOCK, BLOCK_NORMS, BYTES, FLOPS, GROUPS, MATMULS, PARAMETERS, SHARE
from cs336_harness.cost.units import grouped
from cs336_harness.shapes import DecoderShape
from cs336_harness.writeup.books import Books, open_books
from cs336_harness.writeup.claims import LEFT_OUT, MISSING, RIGHT, UNRECOGNISED, WRONG, Claim, Finding
from cs336_harness.writeup.configuration import Configuration, possible_configurations
from cs336_harness.writeup.consequences import Lines, added_up, in_the_model, with_consequences
from cs336_harness.writeup.derivation import judge_derivation, judge_self_test
from cs336_harness.writeup.document import Document, Passage, read_document
from cs336_harness.writeup.judging import judge_claims, numbers_that_name_themselves, read_claims
from cs336_harness.writeup.lexicon import find_mentions
from cs336_harness.writeup.ratios import judge_trends
from cs336_harness.writeup.sources import Source, read_source, source_of_text
from cs336_harness.writeup.words import says

QUESTIONS: dict[str, str] = {
    "a.parameters": "(a) trainable parameters in total",
    "a.memory": "(a) memory to load them",
    **{f"b.{name}": f"(b) multiply {name}" for name in MATMULS},
    "b.total": "(b) FLOPs of one forward pass",
    "b.sum": "(b) the lines add up to the total",
    "c.largest": "(c) what costs most",
    "derivation": "closed forms of the derivation",
    "self_test": "self-test",
    "d": "(d) smaller and larger models",
    "e": "(e) a longer context",
    "numbers": "every other number",
}
"""Id -> title of all that is asked. (d) and (e) may be left out, and so may what the write-up has no place for."""

_TOTALS = {
    "a.parameters": (PARAMETERS, "Write it with its unit: '... parameters'."),
    "a.memory": (BYTES, "Write it with its unit: bytes, GB or GiB."),
    "b.total": (FLOPS, "Write it with its unit, FLOPs, in a row or a sentence that says 'total'."),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """One question's verdict, with the findings that answer it and a line that says what is the matter."""

    question: str
    verdict: str
    message: str = ""
    at: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def lines(self) -> list[int]:
        """The lines that the answer stands on."""
        return sorted({finding.line for finding in self.findings} | set(self.at))

    @property
    def title(self) -> str:
        """The question in words."""
        return QUESTIONS.get(self.question, "(b) matrix multiplies")


@dataclasses.dataclass(frozen=True, slots=True)
class Judgement:
    """A whole write-up, judged."""

    configuration: Configuration
    findings: tuple[Finding, ...]
    answers: dict[str, Answer]
    source: Source

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong or missing."""
        return all(answer.verdict in (RIGHT, LEFT_OUT) for answer in self.answers.values())


def judge_file(path: Path) -> Judgement:
    """The judgement of a file. Raises ValueError, one clear line, for a file that cannot be judged."""
    return judge_files([path])


def judge_files(paths: Sequence[Path], given: DecoderShape | None = None, handout: int | None = None) -> Judgement:
    """The judgement of one or several files. Raises ValueError, one clear line, for what cannot be judged."""
    source = read_source(paths)
    try:
        return judge_source(source, given, handout)
    except ValueError as error:
        raise ValueError(f"{', '.join(map(str, paths))} {error}") from error


def judge_text(text: str, given: DecoderShape | None = None, handout: int | None = None) -> Judgement:
    """The judgement of a Markdown text. Raises ValueError for what no person writes."""
    return judge_source(source_of_text(text), given, handout)


def judge_source(source: Source, given: DecoderShape | None = None, handout: int | None = None) -> Judgement:
    """The judgement of a write-up. ``given`` is the configuration, where it is not the text that states it."""
    document = read_document(source)
    claims = read_claims(document)
    books = _books(document, claims, possible_configurations(document, given, handout))
    findings = [*judge_claims(claims, books, bool(document.parts)), *judge_trends(document, books)]
    findings = with_consequences(findings, source)
    lines = Lines(findings)
    total = _total(findings, "b.total")
    answers = [
        _total(findings, "a.parameters"),
        _total(findings, "a.memory"),
        *(_multiply(name, lines) for name in MATMULS),
        total,
        _sum(lines, total, source),
        _largest(document, books, findings),
        Answer("derivation", *judge_derivation(document, books)),
        Answer("self_test", *judge_self_test(document)),
        *(_part(findings, part) for part in "de"),
    ]
    answers.append(_others(findings, answers))
    return Judgement(books.configuration, tuple(findings), {answer.question: answer for answer in answers}, source)


def _books(document: Document, claims: Sequence[Claim], configurations: Sequence[Configuration]) -> Books:
    """The books of the configuration that most long numbers of the text are quantities of, where it leaves a choice.

    Where they do not decide which handout's d_ff is meant, all numbers do.
    """
    choices = [open_books(document, configuration) for configuration in configurations]
    if len(choices) == 1:
        return choices[0]
    numbers = numbers_that_name_themselves(document)
    fits = [sum(bool(books.equal_to(number)) for number in numbers) for books in choices]
    first, *others = [books for books, fit in zip(choices, fits, strict=True) if fit == max(fits)]
    stated = first.configuration.stated
    if "d_ff" in stated:
        return first
    has_parts = bool(document.parts)
    alike = [first, *(books for books in others if books.configuration.stated == stated)]
    return max(alike, key=lambda books: sum(f.verdict == RIGHT for f in judge_claims(claims, books, has_parts)))


def _answer(question: str, found: Sequence[Finding], message: str = "") -> Answer:
    wrong = any(finding.verdict == WRONG for finding in found)
    return Answer(question, WRONG if wrong else RIGHT, message, (), tuple(found))


def _part(findings: list[Finding], part: str) -> Answer:
    """What is right and wrong in an optional part."""
    found = [f for f in findings if f.claim.part == part and f.verdict in (RIGHT, WRONG)]
    return _answer(part, found) if found else Answer(part, LEFT_OUT)


def _total(findings: list[Finding], question: str) -> Answer:
    dimension, how = _TOTALS[question]
    found = [
        finding
        for finding in findings
        if finding.quantity is not None
        and finding.dimension == dimension
        and finding.quantity.is_of_all
        and finding.claim.part not in ("d", "e")
    ]
    for part in (question[0], None):
        found = [finding for finding in found if finding.claim.part == part] or found
        if found and found[0].claim.part == part:
            break
    return _answer(question, found) if found else Answer(question, MISSING, f"No number was found for it. {how}")


def _multiply(name: str, lines: Lines) -> Answer:
    covering = [finding for finding in lines.all if name in finding.components]
    if not covering:
        message = "No line with its FLOPs was found; a line may stand for several multiplies together."
        return Answer(f"b.{name}", MISSING, message)
    narrowest = min(len(finding.components) for finding in covering)
    return _answer(f"b.{name}", [finding for finding in covering if len(finding.components) == narrowest])


def _sum(lines: Lines, total: Answer, source: Source) -> Answer:
    if lines.absent or not total.findings:
        what = f"the lines leave out {', '.join(lines.absent)}" if lines.absent else "there is no total"
        return Answer("b.sum", MISSING, f"Nothing to add up: {what}.")
    added, slack = added_up(lines.chosen)
    message = f"The lines add up to {grouped(round(added))}"
    for stated in total.findings:
        number = stated.claim.number
        if abs(number.value - added) > slack + number.step / 2:
            difference = _difference(number.value - added, lines.chosen, source)
            message += f", the total ({source.place(stated.line)}) says {number.text}: {difference}."
            return Answer("b.sum", WRONG, message, (), tuple(lines.chosen))
    return Answer("b.sum", RIGHT, f"{message}.", (), tuple(lines.chosen))


def _difference(difference: Fraction, lines: list[Finding], source: Source) -> str:
    if wrong := sorted({finding.line for finding in lines if finding.verdict == WRONG}):
        return f"correct {', '.join(map(source.place, wrong))} first"
    for finding in lines:
        value, _ = in_the_model(finding)
        if abs(abs(difference) - value) * 1000 <= value:
            verb = "leaves out" if difference < 0 else "counts twice"
            return f"it {verb} {source.place(finding.line)} ({finding.claim.label or finding.claim.number.text})"
    return f"{grouped(abs(round(difference)))} too {'little' if difference < 0 else 'much'}"


def _largest(document: Document, books: Books, findings: list[Finding]) -> Answer:
    """Whether the part that costs most is named, and the share that is stated beside it is its own."""
    ledger = books.main.ledger
    largest = max(GROUPS, key=lambda name: ledger.amount(FLOPS, GROUPS[name]))
    own = GROUPS[largest]
    parts = ("c",) if "c" in document.parts else (None, "a", "b")
    sentences = [block for block in document.blocks if isinstance(block, Passage) and block.part in parts]
    named = _naming_parts([sentence for sentence in sentences if says("most", sentence.content.words)])
    if not named and parts == ("c",):  # in its own part the answer may be as short as "the feed-forward"
        named = _naming_parts(sentences)
    for sentence, groups in named:
        if any(group <= own or group >= own for group in groups):
            shares = [
                finding
                for finding in findings
                if (finding.line, finding.dimension, finding.components) == (sentence.line, SHARE, own)
                and finding.verdict == WRONG
            ]
            message = f"{largest}{', but its share is another one' if shares else ''}"
            return Answer("c.largest", WRONG if shares else RIGHT, message, (sentence.line,), tuple(shares))
    if named:
        message = "Another part costs more than the one that is named."
        return Answer("c.largest", WRONG, message, (named[0][0].line,))
    return Answer("c.largest", MISSING, "No sentence says which part of the model costs most.")


def _naming_parts(sentences: list[Passage]) -> list[tuple[Passage, list[frozenset[str]]]]:
    """The sentences that name a part of the model, and which; "the blocks" is no part that answers the question."""
    named = [
        (sentence, [mention.readings[0] for mention in find_mentions(sentence.content.words)]) for sentence in sentences
    ]
    parts = [(sentence, [group for group in groups if not group >= BLOCK - BLOCK_NORMS]) for sentence, groups in named]
    return [(sentence, groups) for sentence, groups in parts if groups]


def _others(findings: list[Finding], answers: list[Answer]) -> Answer:
    answered = {id(finding) for answer in answers for finding in answer.findings}
    others = [f for f in findings if id(f) not in answered and f.verdict != UNRECOGNISED]
    if not others and not answered:
        return Answer("numbers", MISSING, "The write-up holds no number that answers anything.")
    return _answer("numbers", others)
