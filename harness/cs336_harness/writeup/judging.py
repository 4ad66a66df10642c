"""Every number judged: what it equals among the quantities that may be stated, and what the words around it say.

Numbers name themselves. A number is *right* when it equals a true quantity, to the digits that were written, that the
words do not contradict. It is *wrong* only where the words say with certainty what it is, and that is another number.
Anything else is not recognised and counts for nothing: to call a right number wrong is the worst that can happen here.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from cs336_harness.cost.ledger import (
    BLOCK,
    BYTES,
    EVERYTHING,
    FLOPS,
    GROUPS,
    HEAD,
    LAYER,
    MODEL,
    NORMS,
    PARAMETERS,
    RATIO,
    SHARE,
    components_of,
)
from cs336_harness.cost.measure import Measure
from cs336_harness.cost.presets import readable_preset
from cs336_harness.cost.quantities import COMPONENT_GROUPS, Case, Quantity, quantity
from cs336_harness.writeup.books import Books, measure
from cs336_harness.writeup.claims import RIGHT, UNRECOGNISED, WRONG, Claim, Finding
from cs336_harness.writeup.diagnosis import diagnose, explained
from cs336_harness.writeup.document import Document, Passage, TableBlock
from cs336_harness.writeup.formulas import values_of
from cs336_harness.writeup.numbers import Written, find_numbers
from cs336_harness.writeup.ratios import judge_ratio
from cs336_harness.writeup.sentences import claims_of_passage
from cs336_harness.writeup.tables import claims_of_table
from cs336_harness.writeup.words import says

_MOST_NUMBERS = 1000
_FAR = math.log(20)
"""How far from the total a number may be that is taken for it without being called so."""

_UNCHANGED = "It is the number at {length:,} positions, and at {longer:,} it is another one."


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


def judge_claims(claims: Sequence[Claim], books: Books, has_parts: bool) -> list[Finding]:
    """A finding for every claim."""
    findings = [_judge(claim, books, has_parts) for claim in claims]
    findings = _totals_of_tables(findings, books)
    findings = _subtotals(findings, books)
    findings = _unchanged(findings, books)
    return [_named(finding, books) for finding in findings]


def numbers_that_name_themselves(document: Document) -> list[Written]:
    """The long numbers of a document."""
    texts: list[str] = []
    for block in document.blocks:
        if isinstance(block, Passage):
            texts.append(block.content.text)
        else:
            texts += (cell.text for row in block.rows for cell in row.cells)
    return [number for text in texts for number in find_numbers(text) if number.names_itself]


def _judge(claim: Claim, books: Books, has_parts: bool) -> Finding:
    if claim.dimension == RATIO:
        return judge_ratio(claim, books)
    if claim.dimension == SHARE and claim.number.dimension is None:
        claim = dataclasses.replace(claim, number=_as_share(claim.number))
    number = claim.number
    said = _roles(claim, books)
    for role in said:
        if number.matches(role.value):
            return Finding(claim, RIGHT, role)
    if other := _of_another_model(claim, said, books):
        return Finding(claim, WRONG, other)
    by_formula = _formula_says(claim, books)
    if by_formula is not None:
        return Finding(claim, WRONG, by_formula)
    if not (said and claim.certain and _answerable(claim, has_parts) and _is_in_the_account(claim)):
        return _without_label(claim, said, books.equal_to(number))
    nearest = _likeliest([role for role in said if role.dimension == claim.dimension] or said, number)
    of_the_whole = not claim.readings or claim.readings[0] == EVERYTHING
    if of_the_whole and _distance(number.value, nearest.value) > _FAR and not list(_hints(number, nearest, books)):
        return Finding(claim, UNRECOGNISED, None)
    excuse = next(_excuses(claim, said, books), None)
    if excuse is not None:
        return Finding(claim, RIGHT if number.names_itself else UNRECOGNISED, excuse)
    return Finding(claim, WRONG, nearest)


def _likeliest(said: Sequence[Quantity], number: Written) -> Quantity:
    """Which of the quantities that the words allow a wrong number was meant to be."""
    first = said[0].measure
    said = [role for role in said if role.measure.counted == first.counted]
    if first.components != HEAD:  # an output projection may be the head's; a wrong one is attention's
        said = [role for role in said if role.measure.components != HEAD] or said
    unchanged = (role for role in said if (shorter := _at_own_length(role)) and number.matches(shorter.value))
    return next(unchanged, None) or min(said, key=lambda role: _distance(number.value, role.value))


def _at_own_length(role: Quantity) -> Quantity | None:
    """The same at the context length of the model, where another length is asked for."""
    case = dataclasses.replace(role.case, sequence_length=role.case.shape.context_length)
    return quantity(role.measure, case) if case != role.case and role.before is None else None


def _without_label(claim: Claim, said: list[Quantity], equal: list[Quantity]) -> Finding:
    """A number whose words are not understood: right when it names itself, wrong when a mistake's number does."""
    number = claim.number
    if equal:
        return Finding(claim, RIGHT, equal[0])
    if said and number.names_itself and _speaks_of_the_answer(claim):
        for role in said:
            named = explained(number, role)
            if named and len(named[0]) == 1 and not _is_a_part(role, number):
                return Finding(claim, WRONG, role)
    return Finding(claim, UNRECOGNISED, None)


def _speaks_of_the_answer(claim: Claim) -> bool:
    return bool(claim.readings or claim.number.dimension) and claim.dimension is not None and not claim.aside


def _is_a_part(role: Quantity, number: Written) -> bool:
    return number.value < role.value / 2


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


def _excuses(claim: Claim, said: Sequence[Quantity], books: Books) -> Iterator[Quantity]:
    """What else may have been meant by a number that the words were read to be wrong for.

    Which of GPT-2's sizes is meant, and at which length, is open where the words name none; all else they have named.
    """
    siblings = books.models.values() if _model_is_open(claim, books) else ()
    shapes = {other.case.shape for other in said}
    lengths = {other.case.sequence_length for other in said}
    for case in books.cases:
        if case.shape not in shapes and case not in siblings:
            continue
        if (claim.lengths or _still(claim)) and case.sequence_length not in lengths:
            continue
        measures = dict.fromkeys(other.measure for other in said)
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


def _as_share(number: Written) -> Written:
    if number.value <= 1:
        return number
    return dataclasses.replace(number, value=number.value / 100, step=(number.step or Fraction(1)) / 100)


def _roles(claim: Claim, books: Books) -> list[Quantity]:
    dimensions = [claim.dimension] if claim.dimension else []
    if not claim.sure and claim.dimension in (None, PARAMETERS, FLOPS, BYTES):
        dimensions += [other for other in (PARAMETERS, FLOPS, BYTES) if other != claim.dimension]
    sizes = [books.configuration.bytes_per_value]
    if says("half", claim.context) and 2 not in sizes:
        sizes.append(2)
    roles: list[Quantity] = []
    for case in _cases(claim, books):
        for variant in _tied_variants(claim, case, books):
            for dimension in dimensions:
                for components in _readings(claim):
                    roles += _roles_of(claim, components, dimension, variant, sizes)
    return roles


def _cases(claim: Claim, books: Books) -> list[Case]:
    models = sorted(claim.models, key="smalxl".find) or ([None] if claim.part != "d" else [*books.models])
    lengths: Sequence[int | None] = sorted(claim.lengths) if claim.lengths else [None]
    if claim.part == "e":
        both = [books.long_length, books.main.sequence_length]
        both = both[:1] if _still(claim) else both
        lengths = both if not claim.lengths or claim.before_and_after else sorted(claim.lengths)
    elif claim.lengths:
        lengths = [*lengths, None] if claim.before_and_after else lengths
    return [books.at(model, length) for model in models for length in lengths]


def _still(claim: Claim) -> bool:
    """Whether a number of (e) is said to have stayed what it was."""
    return claim.part == "e" and not claim.before_and_after and says("still", claim.context)


def _readings(claim: Claim) -> list[frozenset[str]]:
    readings = list(claim.readings) or ([] if claim.dimension == SHARE else [EVERYTHING])
    if not claim.readings and claim.dimension == SHARE and claim.part in ("c", "d", "e"):
        readings = [*GROUPS.values(), EVERYTHING]
    if claim.table is None and claim.dimension != SHARE and _loose(claim) and EVERYTHING not in readings:
        readings.append(EVERYTHING)
    if claim.each and readings:
        readings += [frozenset((component,)) for component in sorted(readings[0])]
    if _about_tying(claim) and claim.dimension in (PARAMETERS, BYTES):
        readings.append(frozenset(("token_embeddings",)))
    return readings


def _about_tying(claim: Claim) -> bool:
    # The answers of (a) and (b) are about the stated model; only a sentence that says "tied" is about the other one.
    return bool(says("tying", claim.context) or (claim.part is None and says("tying", claim.paragraph)))


def _loose(claim: Claim) -> bool:
    """Whether a sentence that names components may still speak of the whole."""
    return not claim.certain or BLOCK in claim.readings or (not claim.label and says("whole", claim.context))


def _roles_of(claim: Claim, components: frozenset[str], dimension: str, case: Case, sizes: list[int]) -> list[Quantity]:
    if not components_of(dimension if dimension != SHARE else None, components):
        return []
    if dimension == SHARE:
        kinds = [PARAMETERS, FLOPS] if says("of_parameters", claim.context) else [FLOPS]
        scopes = [MODEL, LAYER] if components <= BLOCK and (claim.of_block or claim.scopes == {LAYER}) else [MODEL]
        kinds = [kind for kind in kinds if components_of(kind, components)]
        return [quantity(measure(SHARE, components, scope, counted=kind), case) for kind in kinds for scope in scopes]
    counted = components_of(dimension, components)
    scopes = [scope for scope in (MODEL, LAYER) if scope in claim.scopes] if counted <= BLOCK else [MODEL]
    bytes_each = sizes if dimension == BYTES else sizes[:1]
    return [quantity(measure(dimension, counted, scope, size), case) for scope in scopes for size in bytes_each]


def _tied_variants(claim: Claim, case: Case, books: Books) -> list[Case]:
    if claim.dimension not in (PARAMETERS, BYTES, None) or not _about_tying(claim):
        return [case]
    return [case, books.other_tying]


def _answerable(claim: Claim, has_parts: bool) -> bool:
    """Whether a number that fits nothing is a wrong answer, and not a remark about something else."""
    if claim.dimension is None or not claim.number.value or (has_parts and claim.part is None and not claim.readings):
        return False
    if claim.dimension == BYTES and (claim.number.value < 1000 or re.search(r"batch", claim.context, re.I)):
        return False  # to load the model takes no batch
    if claim.part == "d" and not claim.models:
        return False
    if not claim.readings:
        return claim.number.dimension in (PARAMETERS, BYTES, FLOPS) and claim.number.value >= 100_000
    return claim.number.dimension is not None or claim.table is not None or claim.number.value >= 100_000


def _is_in_the_account(claim: Claim) -> bool:
    """Whether what a claim speaks of is counted at all: norms and the look-up have no FLOPs here."""
    first = claim.readings[0] if claim.readings else EVERYTHING
    uncounted = claim.dimension in (FLOPS, SHARE) and first & (NORMS | {"token_embeddings"})
    return not uncounted or first >= BLOCK or first == HEAD | {"token_embeddings"}


def _formula_says(claim: Claim, books: Books) -> Quantity | None:
    """The true quantity that the expression before a number is, where it is one and the number is not its value."""
    if not re.search(r"[A-Za-z*×·^+²³]", claim.formula):
        return None
    case = books.main
    parameters = int(case.ledger.amount(PARAMETERS, EVERYTHING))
    values = values_of(claim.formula, case.shape, case.sequence_length, case.batch_size, parameters)
    layers = case.shape.num_layers
    near = (1, layers, Fraction(1, layers), 2, 4, Fraction(1, 2))
    if any(claim.number.matches(value * factor) for value in values for factor in near):
        return None
    for value in sorted(values):
        if not _same_magnitude(value, claim.number.value):
            continue
        exact = Written("", value, Fraction(0), claim.dimension, "", 0, 0, working=False)
        if roles := books.equal_to(exact):
            return roles[0]
    return None


def _same_magnitude(one: Fraction, other: Fraction) -> bool:
    return other > 0 and Fraction(1, 20) < one / other < 20


def _totals_of_tables(findings: list[Finding], books: Books) -> list[Finding]:
    """A total of rows that are right for one block is the block's."""
    settled = []
    for finding in findings:
        role, claim = finding.quantity, finding.claim
        if role is not None and claim.table is not None and claim.column is not None and len(claim.scopes) == 2:
            scope = _scope_of_column(finding, findings)
            if (
                scope is not None
                and role.measure.components <= BLOCK
                and scope != role.measure.scope
                and finding.verdict == RIGHT
            ):
                other = dataclasses.replace(role.measure, scope=scope)
                if role.dimension != SHARE and claim.certain and claim.readings[:1] != (EVERYTHING,):
                    finding = dataclasses.replace(finding, verdict=WRONG, quantity=quantity(other, role.case))
        settled.append(finding)
    return settled


def _scope_of_column(finding: Finding, findings: list[Finding]) -> str | None:
    """The scope that most of the other right rows of a number's column have, where the labels leave it open."""
    scopes = [
        other.quantity.measure.scope
        for other in findings
        if other is not finding
        and (other.claim.table, other.claim.column) == (finding.claim.table, finding.claim.column)
        and other.verdict == RIGHT
        and other.quantity is not None
        and len(other.claim.scopes) == 2
        and other.components <= BLOCK
    ]
    most = max(set(scopes), key=scopes.count) if scopes else None
    return most if most and 2 * scopes.count(most) > len(scopes) and len(scopes) > 1 else None


def _subtotals(findings: list[Finding], books: Books) -> list[Finding]:
    """A "total" that is a true part of the whole is a subtotal, where the whole is stated as well."""
    stated = [finding.quantity for finding in findings if finding.verdict == RIGHT and finding.quantity is not None]

    def settled(finding: Finding) -> Finding:
        role = finding.quantity
        if role is None or finding.claim.dimension == RATIO:
            return finding
        if finding.verdict == WRONG and _is_whole(role) and role in stated:
            parts = [part for part in books.equal_to(finding.claim.number) if part.case == role.case]
            return dataclasses.replace(finding, verdict=RIGHT, quantity=parts[0]) if parts else finding
        if (
            finding.verdict == RIGHT
            and _claims_the_whole(finding)
            and role.measure.components == BLOCK - {"ln1", "ln2"}
        ):
            whole = quantity(measure(FLOPS, EVERYTHING, MODEL), role.case)
            if role.measure.scope == MODEL and whole not in stated:
                return dataclasses.replace(finding, verdict=WRONG, quantity=whole)
        return finding

    return [settled(finding) for finding in findings]


def _is_whole(role: Quantity) -> bool:
    return role.measure.components == components_of(role.measure.what, EVERYTHING)


def _claims_the_whole(finding: Finding) -> bool:
    claim = finding.claim
    return (
        claim.certain
        and claim.readings[:1] == (EVERYTHING,)
        and claim.table is not None
        and LAYER not in _scopes_in_label(claim)
    )


def _scopes_in_label(claim: Claim) -> set[str]:
    return {LAYER} if says("blocks", claim.context) else set()


def _unchanged(findings: list[Finding], books: Books) -> list[Finding]:
    """Part (e) with nothing but the numbers of the shorter context: they were never worked out."""
    of_e = [finding for finding in findings if finding.claim.part == "e" and finding.claim.dimension in (FLOPS, SHARE)]
    judged = [finding for finding in of_e if finding.verdict == RIGHT and finding.quantity is not None]
    if not judged or any(finding.quantity and finding.quantity.case != books.main for finding in judged):
        return findings
    if any(finding.claim.before_and_after or finding.claim.lengths for finding in judged):
        return findings

    def settled(finding: Finding) -> Finding:
        role = finding.quantity
        if finding in judged and finding.claim.certain and role is not None:
            longer = quantity(role.measure, books.long)
            if not finding.claim.number.matches(longer.value):
                return dataclasses.replace(finding, verdict=WRONG, quantity=longer)
        return finding

    return [settled(finding) for finding in findings]


def _named(finding: Finding, books: Books) -> Finding:
    """The finding with its mistake named."""
    role = finding.quantity
    if finding.verdict != WRONG or role is None or finding.hints:
        return finding
    return dataclasses.replace(finding, hints=tuple(_hints(finding.claim.number, role, books)))


def _hints(number: Written, role: Quantity, books: Books) -> Iterator[str]:
    if role.case == books.main:
        for case in books.models.values():
            if case != role.case and number.names_itself and number.matches(quantity(role.measure, case).value):
                yield f"It is the number of {readable_preset(case.model)}."
                return
    if number.unit.endswith("MACs"):
        as_flops = dataclasses.replace(number, value=number.value / 2, step=number.step / 2)
        if as_flops.matches(role.value):
            yield "These are FLOPs called MACs; a multiply-add is two FLOPs."
            return
    shorter = _at_own_length(role)
    if shorter is not None and number.matches(shorter.value):
        length, longer = shorter.case.sequence_length, role.case.sequence_length
        yield _UNCHANGED.format(length=length, longer=longer)
        return
    yield from diagnose(number, role)


def _distance(value: Fraction, true: Fraction) -> float:
    if value <= 0 or true <= 0:
        return math.inf
    return abs(math.log(value / true))
