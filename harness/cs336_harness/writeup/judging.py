"""Every number judged: what it equals among the quantities that may be stated, and what the words around it say.

Numbers name themselves. A number is *right* when it equals a true quantity, to the digits that were written, that the
words do not contradict. It is *wrong* only where the words say with certainty what it is, and that is another number.
Anything else is not recognised and counts for nothing: to call a right number wrong is the worst that can happen here.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction

from cs336_harness.cost.ledger import (
    BLOCK,
    BLOCK_NORMS,
    BYTES,
    EVERYTHING,
    FLOPS,
    GROUPS,
    HEAD,
    LAYER,
    MODEL,
    NORMS,
    PARAMETERS,
    POSITION_PAIRS,
    RATIO,
    SHARE,
    components_of,
)
from cs336_harness.cost.measure import Explanation, Measure
from cs336_harness.cost.presets import readable_preset
from cs336_harness.cost.quantities import COMPONENT_GROUPS, EMBEDDING, Case, Quantity, quantity
from cs336_harness.writeup.books import Books, measure
from cs336_harness.writeup.claims import RIGHT, UNRECOGNISED, WRONG, Claim, Finding
from cs336_harness.writeup.diagnosis import diagnose, explained
from cs336_harness.writeup.document import Document, Passage, TableBlock
from cs336_harness.writeup.formulas import values_of
from cs336_harness.writeup.numbers import PREFIXES, Written, find_numbers
from cs336_harness.writeup.ratios import judge_ratio
from cs336_harness.writeup.sentences import claims_of_passage
from cs336_harness.writeup.tables import claims_of_table
from cs336_harness.writeup.words import says

_MOST_NUMBERS = 1000
_FAR = 20
"""How many times as large or small as the total a number may be that is taken for it without being called so."""
_AMOUNTS = (PARAMETERS, FLOPS, BYTES)
_SCORES, _VALUES = frozenset(("scores",)), frozenset(("values",))


def read_claims(document: Document) -> list[Claim]:
    """Every number of a document that says something about cost, with what stands around it.

    Raises:
        ValueError: there are more than a person writes.
    """
    claims: list[Claim] = []
    for block in document.blocks:
        claims += claims_of_table(block) if isinstance(block, TableBlock) else claims_of_passage(block)
        if len(claims) > _MOST_NUMBERS:
            raise ValueError(f"holds more than {_MOST_NUMBERS:,} numbers; a written answer has at most a few hundred")
    return claims


def numbers_that_name_themselves(document: Document) -> list[Written]:
    """The long numbers of a document."""
    texts: list[str] = []
    for block in document.blocks:
        if isinstance(block, Passage):
            texts.append(block.content.text)
        else:
            texts += (cell.text for row in block.rows for cell in row.cells)
    return [number for text in texts for number in find_numbers(text) if number.names_itself]


def judge_claims(claims: Sequence[Claim], books: Books, has_parts: bool) -> list[Finding]:
    """A finding for every claim: first by itself, then in the light of its table, of its part and of all the others."""
    findings = [_judge(claim, books, has_parts) for claim in claims]
    for in_the_light_of in (_its_column, _the_whole, _its_part):
        settled = in_the_light_of(findings, books)
        findings = [settled(finding) if finding.quantity is not None else finding for finding in findings]
    return _with_their_mistakes(findings, books)


def _judge(claim: Claim, books: Books, has_parts: bool) -> Finding:
    if claim.dimension == RATIO:
        return judge_ratio(claim, books)
    number = claim.number
    if claim.dimension == SHARE and number.dimension is None and number.value > 1:
        number = dataclasses.replace(number, value=number.value / 100, step=(number.step or Fraction(1)) / 100)
        claim = dataclasses.replace(claim, number=number)
    said = _roles(claim, books)
    for role in said:
        if number.matches(role.value):
            return Finding(claim, RIGHT, role)
    binary = number.in_binary()
    for role in said:
        if binary is not None and binary.matches(role.value):
            return Finding(claim, RIGHT, role, (_remark_on_unit(number.unit),))
    if other := _of_another_model(claim, said, books) or _of_its_formula(claim, books):
        return Finding(claim, WRONG, other)
    if not (said and claim.certain and _answerable(claim, has_parts) and _is_in_the_account(claim)):
        return _without_label(claim, said, books.equal_to(number))
    nearest = _likeliest([role for role in said if role.dimension == claim.dimension] or said, number)
    of_the_whole = not claim.readings or claim.readings[0] == EVERYTHING
    if of_the_whole and not _near(number.value, nearest.value) and not list(_hints(number, nearest, books)):
        return Finding(claim, UNRECOGNISED, None)
    excuse = next(_excuses(claim, said, books), None)
    if excuse is not None:
        return Finding(claim, RIGHT if number.names_itself else UNRECOGNISED, excuse)
    return Finding(claim, WRONG, nearest)


def _remark_on_unit(unit: str) -> str:
    power = PREFIXES.index(unit[0].upper())
    return f"It is right in {unit[0]}iB (1024{'¹²³⁴⁵⁶'[power]} bytes each); a {unit} is 1000{'¹²³⁴⁵⁶'[power]} bytes."


def _near(value: Fraction, true: Fraction) -> bool:
    return true > 0 and Fraction(1, _FAR) <= value / true <= _FAR


def _likeliest(said: Sequence[Quantity], number: Written) -> Quantity:
    """Which of the quantities that the words allow a wrong number was meant to be."""
    first = said[0].measure
    said = [role for role in said if role.measure.counted == first.counted]
    if first.components != HEAD:  # an output projection may be the head's; a wrong one is attention's
        said = [role for role in said if role.measure.components != HEAD] or said
    unchanged = (role for role in said if (shorter := _at_own_length(role)) and number.matches(shorter.value))
    return next(unchanged, None) or min(said, key=lambda role: _distance(number.value, role.value))


def _distance(value: Fraction, true: Fraction) -> float:
    return abs(math.log(value / true)) if value > 0 and true > 0 else math.inf


def _at_own_length(role: Quantity) -> Quantity | None:
    """The same at the context length of the model, where another length is asked for."""
    case = dataclasses.replace(role.case, sequence_length=role.case.shape.context_length)
    return quantity(role.measure, case) if case != role.case and role.before is None else None


def _without_label(claim: Claim, said: list[Quantity], equal: list[Quantity]) -> Finding:
    """A number whose words are not understood: right when it names itself, wrong when a mistake's number does."""
    number = claim.number
    if equal:
        return Finding(claim, RIGHT, equal[0])
    of_the_answer = (claim.readings or number.dimension) and claim.dimension is not None and not claim.aside
    for role in said if number.names_itself and of_the_answer else ():
        named = explained(number, role)
        if named and len(named[0]) == 1 and number.value >= role.value / 2:  # less is a part of it
            return Finding(claim, WRONG, role)
    return Finding(claim, UNRECOGNISED, None)


def _of_another_model(claim: Claim, said: Sequence[Quantity], books: Books) -> Quantity | None:
    """What a number should have been that is right for another of GPT-2's sizes only."""
    if _model_is_open(claim, books) or claim.models or claim.aside:
        return None
    equal = books.equal_to(claim.number)
    siblings = [case for case in books.models.values() if case != books.main]
    if not equal or any(role.case not in siblings for role in equal):
        return None
    own = [quantity(role.measure, books.main) for role in equal]
    return next((role for role in own if role in said), own[0])


def _model_is_open(claim: Claim, books: Books) -> bool:
    """Whether a number may be of another of GPT-2's sizes: not where somebody says what the answer is held against."""
    return not claim.models and (claim.part == "d" or not books.configuration.given_by)


def _of_its_formula(claim: Claim, books: Books) -> Quantity | None:
    """The true quantity that the expression before a number is, where it is one and the number is not its value."""
    if not re.search(r"[A-Za-z*×·^+²³]", claim.formula):
        return None
    values = sorted(values_of(claim.formula, books.main))
    layers = books.main.shape.num_layers
    factors = (1, layers, Fraction(1, layers), 2, 4, Fraction(1, 2))
    if any(claim.number.matches(value * factor) for value in values for factor in factors):
        return None
    for value in values:
        exact = dataclasses.replace(claim.number, value=value, step=Fraction(0), dimension=claim.dimension)
        if _near(value, claim.number.value) and (roles := books.equal_to(exact)):
            return roles[0]
    return None


def _excuses(claim: Claim, said: Sequence[Quantity], books: Books) -> Iterator[Quantity]:
    """What else may have been meant by a number that the words were read to be wrong for.

    Which of GPT-2's sizes is meant, and at which length, is open where the words name none; all else they have named.
    """
    siblings = books.models.values() if _model_is_open(claim, books) else ()
    shapes = {other.case.shape for other in said}
    lengths = {other.case.sequence_length for other in said}
    measures = dict.fromkeys(other.measure for other in said)
    for case in books.cases:
        if case.shape not in shapes and case not in siblings:
            continue
        if (claim.lengths or _still(claim)) and case.sequence_length not in lengths:
            continue
        for asked in (*measures, *(_parts_and_wholes(claim, measures) if claim.shapeless else ())):
            role = quantity(asked, case)
            if claim.number.matches(role.value):
                yield role


def _parts_and_wholes(claim: Claim, measures: Iterable[Measure]) -> Iterator[Measure]:
    """What else a row may be of that has lost its table, and words with it: a part of what is named, or more.

    FLOPs without a word are one of the lines of (b) as likely as their total.
    """
    alone = claim.dimension == FLOPS and not claim.readings
    for asked in measures:
        for components in COMPONENT_GROUPS.values() if alone or asked.components <= BLOCK else ():
            if components < asked.components or components > asked.components:
                yield dataclasses.replace(asked, components=components_of(asked.what, components))


def _still(claim: Claim) -> bool:
    """Whether a number of (e) is said to have stayed what it was."""
    return claim.part == "e" and not claim.before_and_after and says("still", claim.context)


def _roles(claim: Claim, books: Books) -> list[Quantity]:
    """Every quantity that the words around a number allow it to be, the likeliest first."""
    dimensions = [claim.dimension] if claim.dimension else []
    if not claim.sure and claim.dimension in (None, *_AMOUNTS):
        dimensions += [other for other in _AMOUNTS if other != claim.dimension]
    sizes = [books.configuration.bytes_per_value]
    if says("half", claim.context) and 2 not in sizes:
        sizes.append(2)
    return [
        quantity(asked, variant)
        for case in _cases(claim, books)
        for variant in ([case, books.other_tying] if _about_tying(claim, claim.dimension) else [case])
        for dimension in dimensions
        for components in _readings(claim)
        for asked in _measures_of(claim, components, dimension, sizes)
    ]


def _cases(claim: Claim, books: Books) -> list[Case]:
    models = sorted(claim.models, key="smalxl".find) or ([None] if claim.part != "d" else [*books.models])
    lengths: Sequence[int | None] = sorted(claim.lengths) or [None]
    if claim.part == "e" and (not claim.lengths or claim.before_and_after):
        lengths = [books.long_length] if _still(claim) else [books.long_length, books.main.sequence_length]
    elif claim.lengths and claim.before_and_after:
        lengths = [*lengths, None]
    return [books.at(model, length) for model in models for length in lengths]


def _readings(claim: Claim) -> list[frozenset[str]]:
    readings = list(claim.readings) or ([] if claim.dimension == SHARE else [EVERYTHING])
    if not claim.readings and claim.dimension == SHARE and claim.part in ("c", "d", "e"):
        readings = [*GROUPS.values(), EVERYTHING]
    # A sentence that names components may still speak of the whole.
    loose = not claim.certain or BLOCK in claim.readings or (not claim.label and says("whole", claim.context))
    if claim.table is None and claim.dimension != SHARE and loose and EVERYTHING not in readings:
        readings.append(EVERYTHING)
    if claim.each and readings:
        readings += [frozenset((component,)) for component in sorted(readings[0])]
    if claim.dimension in (PARAMETERS, BYTES) and _about_tying(claim, claim.dimension):
        readings.append(EMBEDDING)
    return readings


def _about_tying(claim: Claim, dimension: str | None) -> bool:
    # The answers of (a) and (b) are about the stated model; only a sentence that says "tied" is about the other one.
    said = says("tying", claim.context) or (claim.part is None and says("tying", claim.paragraph))
    return said and dimension in (PARAMETERS, BYTES, None)


def _measures_of(claim: Claim, components: frozenset[str], dimension: str, sizes: list[int]) -> list[Measure]:
    if dimension == SHARE:
        kinds = [PARAMETERS, FLOPS] if says("of_parameters", claim.context) else [FLOPS]
        scopes = [MODEL, LAYER] if components <= BLOCK and (claim.of_block or claim.scopes == {LAYER}) else [MODEL]
        kinds = [kind for kind in kinds if components_of(kind, components)]
        return [measure(SHARE, components, scope, counted=kind) for kind in kinds for scope in scopes]
    counted = components_of(dimension, components)
    scopes = [scope for scope in (MODEL, LAYER) if scope in claim.scopes] if counted <= BLOCK else [MODEL]
    bytes_each = sizes if dimension == BYTES else sizes[:1]
    return [measure(dimension, counted, scope, size) for scope in scopes for size in bytes_each] if counted else []


def _answerable(claim: Claim, has_parts: bool) -> bool:
    """Whether a number that fits nothing is a wrong answer, and not a remark about something else."""
    number = claim.number
    if claim.dimension is None or not number.value or (has_parts and claim.part is None and not claim.readings):
        return False
    if claim.dimension == BYTES and (number.value < 1000 or re.search(r"batch", claim.context, re.I)):
        return False  # to load the model takes no batch
    if claim.part == "d" and not claim.models:
        return False
    if not claim.readings:
        return number.dimension in _AMOUNTS and number.value >= 100_000
    return number.dimension is not None or claim.table is not None or number.value >= 100_000


def _is_in_the_account(claim: Claim) -> bool:
    """Whether what a claim speaks of is counted at all: norms and the look-up have no FLOPs here."""
    first = claim.readings[0] if claim.readings else EVERYTHING
    uncounted = claim.dimension in (FLOPS, SHARE) and first & (NORMS | EMBEDDING)
    return not uncounted or first >= BLOCK or first == HEAD | EMBEDDING


_Settled = Callable[[Finding], Finding]


def _its_column(findings: list[Finding], books: Books) -> _Settled:
    """Where the labels leave open whether a number is of one block or of all, most other rows of its column say it."""

    def scopes_beside(finding: Finding) -> list[str]:
        claim = finding.claim
        return [
            other.quantity.measure.scope
            for other in findings
            if other is not finding
            and (other.claim.table, other.claim.column) == (claim.table, claim.column)
            and other.verdict == RIGHT
            and other.quantity is not None
            and len(other.claim.scopes) == 2
            and other.components <= BLOCK
        ]

    def settled(finding: Finding) -> Finding:
        role, claim = finding.quantity, finding.claim
        if role is None or claim.table is None or claim.column is None or len(claim.scopes) != 2:
            return finding
        open_to_both = finding.verdict == RIGHT and role.dimension != SHARE and finding.components <= BLOCK
        if not (open_to_both and claim.certain and claim.readings[:1] != (EVERYTHING,)):
            return finding
        beside = scopes_beside(finding)
        other = LAYER if role.measure.scope == MODEL else MODEL
        if len(beside) < 2 or 2 * beside.count(other) <= len(beside):
            return finding
        meant = quantity(dataclasses.replace(role.measure, scope=other), role.case)
        return dataclasses.replace(finding, verdict=WRONG, quantity=meant)

    return settled


def _the_whole(findings: list[Finding], books: Books) -> _Settled:
    """A "total" that is a true part of the whole is a subtotal where the whole is stated as well, and wrong if not."""
    stated = [finding.quantity for finding in findings if finding.verdict == RIGHT]
    values_apart = any(finding.components == _VALUES for finding in findings)

    def settled(finding: Finding) -> Finding:
        role, claim = finding.quantity, finding.claim
        if role is None or claim.dimension == RATIO:
            return finding
        if finding.verdict == WRONG and finding.components == _SCORES and not values_apart:
            # "attention scores" is both products to whoever has no line for the second
            both = quantity(measure(role.dimension, POSITION_PAIRS, role.measure.scope), role.case)
            return Finding(claim, RIGHT, both) if claim.number.matches(both.value) else finding
        if finding.verdict == WRONG and role.is_of_all and role in stated:
            parts = [part for part in books.equal_to(claim.number) if part.case == role.case]
            return dataclasses.replace(finding, verdict=RIGHT, quantity=parts[0]) if parts else finding
        said_to_be_all = claim.certain and claim.readings[:1] == (EVERYTHING,) and claim.table is not None
        of_all_blocks = role.measure.components == BLOCK - BLOCK_NORMS and role.measure.scope == MODEL
        if finding.verdict == RIGHT and said_to_be_all and of_all_blocks and not says("blocks", claim.context):
            whole = quantity(measure(FLOPS, EVERYTHING, MODEL), role.case)
            if whole not in stated:
                return dataclasses.replace(finding, verdict=WRONG, quantity=whole)
        return finding

    return settled


def _its_part(findings: list[Finding], books: Books) -> _Settled:
    """Part (e) with nothing but the numbers of the shorter context: they were never worked out."""
    judged = [
        finding
        for finding in findings
        if finding.claim.part == "e" and finding.claim.dimension in (FLOPS, SHARE) and finding.verdict == RIGHT
    ]
    unchanged = all(
        finding.quantity is not None
        and finding.quantity.case == books.main
        and not (finding.claim.before_and_after or finding.claim.lengths)
        for finding in judged
    )

    def settled(finding: Finding) -> Finding:
        if unchanged and finding in judged and finding.claim.certain and finding.quantity is not None:
            longer = quantity(finding.quantity.measure, books.long)
            if not finding.claim.number.matches(longer.value):
                return dataclasses.replace(finding, verdict=WRONG, quantity=longer)
        return finding

    return settled


def _with_their_mistakes(findings: list[Finding], books: Books) -> list[Finding]:
    """The wrong numbers with the mistakes that give them: the one that gives most of them first, where several fit."""
    unexplained = [f for f in findings if f.verdict == WRONG and f.quantity is not None and not f.hints]
    together = Counter(
        named for f in unexplained if f.quantity is not None for named in explained(f.claim.number, f.quantity)
    )
    return [
        dataclasses.replace(f, hints=tuple(_hints(f.claim.number, f.quantity, books, together)))
        if f in unexplained and f.quantity is not None
        else f
        for f in findings
    ]


def _hints(
    number: Written, role: Quantity, books: Books, together: Mapping[Explanation, int] | None = None
) -> Iterator[str]:
    """The mistake that gives a wrong number, as a sentence; nothing where none does."""
    siblings = [case for case in books.models.values() if case != role.case] if role.case == books.main else []
    same = (case for case in siblings if number.names_itself and number.matches(quantity(role.measure, case).value))
    halved = dataclasses.replace(number, value=number.value / 2, step=number.step / 2)
    shorter = _at_own_length(role)
    if case := next(same, None):
        yield f"It is the number of {readable_preset(case.model)}."
    elif number.unit.endswith("MACs") and halved.matches(role.value):
        yield "These are FLOPs called MACs; a multiply-add is two FLOPs."
    elif shorter is not None and number.matches(shorter.value):
        length, longer = shorter.case.sequence_length, role.case.sequence_length
        yield f"It is the number at {length:,} positions, and at {longer:,} it is another one."
    else:
        yield from diagnose(number, role, together or {})
