"""Holds every claim of a write-up against the configuration that the write-up states."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator
from fractions import Fraction

from cs336_harness.cost.ledger import BLOCK, EVERYTHING, GROUPS, Ledger, components_of, true_ledger
from cs336_harness.cost.presets import PRESET_NAMES, nearest_multiple_of_64, preset
from cs336_harness.writeup.claims import Claim, model_named
from cs336_harness.writeup.configuration import Configuration, row_configurations, sizes_in
from cs336_harness.writeup.diagnosis import Role, diagnose
from cs336_harness.writeup.document import Document, Passage, TableBlock
from cs336_harness.writeup.numbers import BYTES, FLOPS, PARAMETERS, RATIO, SHARE, Written
from cs336_harness.writeup.sentences import claims_of_passage
from cs336_harness.writeup.tables import claims_of_table

_MOST_NUMBERS = 1000

RIGHT, WRONG, MISSING, UNRECOGNISED = "right", "wrong", "missing", "not recognised"

_TYING = re.compile(r"\btie[ds]?\b|\btying\b|\bshar(?:ed|ing) (?:the )?(?:weights?|matri(?:x|ces)|embedding)", re.I)
_HALF = re.compile(r"\bbf16\b|\bbfloat16\b|\bfp16\b|\bfloat16\b|\bhalf[\s-]precision\b|\b16[\s-]bit\b", re.I)
_WHOLE = re.compile(r"\btotal\b|\boverall\b|\bforward pass\b|\bmodel\b|\baltogether\b|\bin all\b", re.I)
_OTHER_STATE = re.compile(
    r"\badam\w*|\boptimi[sz]er|\bgradients?\b|\bmoments?\b|\bactivations?\b|\btraining\b|\bbackward\b", re.I
)


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One number and what became of it: what it was held against, and the mistakes that fit, if any does."""

    claim: Claim
    verdict: str
    role: Role | None
    hints: tuple[str, ...] = ()

    @property
    def line(self) -> int:
        """The line of the write-up that the number stands on."""
        return self.claim.line


@dataclasses.dataclass(frozen=True, slots=True)
class _Books:
    """The ledgers that a write-up's parts speak of."""

    configuration: Configuration
    main: Ledger
    long: Ledger
    models: dict[str, Ledger]

    def of(self, claim: Claim) -> list[Ledger]:
        if claim.model is not None and claim.model != "xl":
            return [self.models[claim.model]]
        if claim.part == "d" and claim.model is None:
            return list(self.models.values())
        if claim.part == "e":
            if claim.length == self.main.sequence_length:
                return [self.main]
            return [self.long] if claim.length else [self.long, self.main]
        return [self.main]


def judge_claims(document: Document, configuration: Configuration) -> list[Finding]:
    """A finding for every number that says something about cost."""
    books = _books(document, configuration)
    claims = list(_claims(document))
    has_parts = bool(document.parts)
    findings = [_judge(claim, books, has_parts) for claim in claims]
    return [_settled(finding, findings) for finding in findings]


def _claims(document: Document) -> Iterator[Claim]:
    read = 0
    for block in document.blocks:
        for claim in claims_of_table(block) if isinstance(block, TableBlock) else claims_of_passage(block):
            if claim.dimension != RATIO or claim.part == "e":
                read += 1
                yield claim
            if read > _MOST_NUMBERS:
                raise ValueError(
                    f"holds more than {_MOST_NUMBERS:,} numbers; a written answer has at most a few hundred"
                )


def _books(document: Document, configuration: Configuration) -> _Books:
    shape = configuration.shape
    length = shape.context_length
    long = _long_length(document) or 16 * length
    return _Books(
        configuration,
        true_ledger(shape, configuration.batch_size, length),
        true_ledger(shape, configuration.batch_size, long),
        _models(document, configuration),
    )


def _long_length(document: Document) -> int | None:
    for block in document.blocks:
        if block.part == "e" and isinstance(block, Passage):
            for text in re.findall(r"\b\d{1,3},\d{3}\b|\b\d{4,6}\b", block.content.text):
                length = int(text.replace(",", ""))
                if length >= 2048 and length & (length - 1) == 0:
                    return length
    return None


def _models(document: Document, configuration: Configuration) -> dict[str, Ledger]:
    main = configuration.shape
    stated: dict[str, dict[str, int]] = {}
    for block in document.blocks:
        if isinstance(block, TableBlock):
            for name, sizes in row_configurations(block).items():
                if model := model_named(name):
                    stated.setdefault(model, {}).update(sizes)
        elif block.part == "d" and (model := model_named(block.content.text)):
            stated.setdefault(model, {}).update(sizes_in(block.content.text))
    models = {}
    for name in PRESET_NAMES:
        model = name.removeprefix("gpt2-")
        shape = preset(name).replace(vocab_size=main.vocab_size, context_length=main.context_length)
        shape = shape.replace(d_ff=_d_ff_by_the_same_rule(main.d_ff, main.d_model, shape.d_model))
        sizes = {key: value for key, value in stated.get(model, {}).items() if key != "batch_size"}
        if "num_heads" in sizes:
            sizes.setdefault("num_kv_heads", sizes["num_heads"])
        shape = main if model == "xl" else shape.replace(**sizes, tie_embeddings=main.tie_embeddings)
        models[model] = true_ledger(shape, configuration.batch_size, shape.context_length)
    return models


def _d_ff_by_the_same_rule(d_ff: int, d_model: int, other: int) -> int:
    if d_ff == 4 * d_model:
        return 4 * other
    return nearest_multiple_of_64(8 * other, 3)


def _judge(claim: Claim, books: _Books, has_parts: bool) -> Finding:
    if claim.dimension == RATIO:
        return _judge_ratio(claim, books)
    number = _as_share(claim.number) if claim.dimension == SHARE and claim.number.dimension is None else claim.number
    claim = dataclasses.replace(claim, number=number)
    roles = _roles(claim, books)
    for role in roles:
        if number.matches(role.true):
            return Finding(claim, RIGHT, role)
    if not roles or not _answerable(claim, has_parts):
        return Finding(claim, UNRECOGNISED, None)
    nearest = min(roles, key=lambda role: _distance(number.value, role.true))
    return Finding(claim, WRONG, nearest)


def _as_share(number: Written) -> Written:
    if number.value <= 1:
        return number
    return dataclasses.replace(number, value=number.value / 100, step=(number.step or Fraction(1)) / 100)


def _roles(claim: Claim, books: _Books) -> list[Role]:
    dimensions = [claim.dimension] if claim.dimension else [PARAMETERS, FLOPS]
    sizes = [books.configuration.bytes_per_value]
    if _HALF.search(claim.context) and 2 not in sizes:
        sizes.append(2)
    roles: list[Role] = []
    for ledger in books.of(claim):
        for variant in _tied_variants(claim, ledger):
            for dimension in dimensions:
                for components in _readings(claim):
                    roles += _roles_of(claim, components, dimension, variant, sizes)
    return roles


def _readings(claim: Claim) -> list[frozenset[str]]:
    readings = list(claim.readings) or ([] if claim.dimension == SHARE else [EVERYTHING])
    if not claim.readings and claim.dimension == SHARE and claim.part in ("c", "d", "e"):
        readings = [*GROUPS.values(), EVERYTHING]
    if claim.table is None and _loose(claim) and EVERYTHING not in readings:
        readings.append(EVERYTHING)
    if claim.each and readings:
        readings += [frozenset((component,)) for component in sorted(readings[0])]
    if _about_tying(claim) and claim.dimension in (PARAMETERS, BYTES):
        readings.append(frozenset(("token_embeddings",)))
    return readings


def _about_tying(claim: Claim) -> bool:
    # The answers of (a) and (b) are about the stated model; only a sentence that says "tied" is about the other one.
    return bool(_TYING.search(claim.context) or (claim.part is None and _TYING.search(claim.paragraph)))


def _loose(claim: Claim) -> bool:
    """Whether a sentence that names components may still speak of the whole."""
    return not claim.firm or BLOCK in claim.readings or (not claim.label and bool(_WHOLE.search(claim.context)))


def _roles_of(claim: Claim, components: frozenset[str], dimension: str, ledger: Ledger, sizes: list[int]) -> list[Role]:
    counted = components_of(dimension, components)
    if not counted:
        return []
    if dimension == SHARE:
        kinds = [PARAMETERS, FLOPS] if re.search(r"\bparam", claim.context, re.I) else [FLOPS]
        return [Role(SHARE, components_of(kind, components), "model", ledger, share_of=kind) for kind in kinds]
    scopes = ["model"]
    if counted <= BLOCK:
        scopes = [scope for scope in ("model", "layer") if scope in claim.scopes]
    bytes_each = sizes if dimension == BYTES else sizes[:1]
    return [Role(dimension, counted, scope, ledger, size) for scope in scopes for size in bytes_each]


def _tied_variants(claim: Claim, ledger: Ledger) -> list[Ledger]:
    if claim.dimension not in (PARAMETERS, BYTES, None) or not _about_tying(claim):
        return [ledger]
    shape = ledger.shape.replace(tie_embeddings=not ledger.shape.tie_embeddings)
    return [ledger, true_ledger(shape, ledger.batch_size, ledger.sequence_length)]


def _answerable(claim: Claim, has_parts: bool) -> bool:
    """Whether a number that fits nothing is a wrong answer, and not a remark about something else."""
    outside = has_parts and claim.part is None
    if claim.dimension is None or ((outside or (claim.in_list and claim.label)) and not claim.firm):
        return False
    if claim.dimension == BYTES and claim.number.value < 1000:
        return False
    if claim.table is None and _OTHER_STATE.search(claim.context):
        return False
    if claim.dimension == SHARE or claim.part in ("d", "e"):
        return claim.firm and (claim.part != "d" or claim.model is not None)
    if claim.number.value < 100_000 and not claim.firm:
        return False
    return claim.firm or claim.dimension in (PARAMETERS, BYTES, FLOPS)


def _judge_ratio(claim: Claim, books: _Books) -> Finding:
    number = claim.number
    longer = Fraction(books.long.sequence_length, books.main.sequence_length)
    total = Fraction(books.long.amount(FLOPS, EVERYTHING, "model"), books.main.amount(FLOPS, EVERYTHING, "model"))
    if any(number.matches(ratio) for ratio in (total, longer, longer**2)):
        return Finding(claim, RIGHT, None)
    return Finding(claim, UNRECOGNISED, None)


def _settled(finding: Finding, findings: list[Finding]) -> Finding:
    """The finding with its mistake named. A column is about one block or about all: its other rows say which."""
    role = finding.role
    if role is None:
        return finding
    if finding.claim.column is not None and len(finding.claim.scopes) == 2 and role.components <= BLOCK:
        scope = _scope_of_column(finding, findings)
        if scope is not None and scope != role.scope:
            role = dataclasses.replace(role, scope=scope)
            finding = dataclasses.replace(finding, verdict=WRONG, role=role)
    if finding.verdict != WRONG:
        return finding
    return dataclasses.replace(finding, hints=tuple(_hints(finding, role)))


def _scope_of_column(finding: Finding, findings: list[Finding]) -> str | None:
    """The scope that most of the other right rows of a number's column have, where the labels leave it open."""
    scopes = [
        other.role.scope
        for other in findings
        if other is not finding
        and (other.claim.table, other.claim.column) == (finding.claim.table, finding.claim.column)
        and other.verdict == RIGHT
        and other.role is not None
        and len(other.claim.scopes) == 2
        and other.role.components <= BLOCK
    ]
    most = max(set(scopes), key=scopes.count) if scopes else None
    return most if most and 2 * scopes.count(most) > len(scopes) and len(scopes) > 1 else None


def _hints(finding: Finding, role: Role) -> list[str]:
    number = finding.claim.number
    if number.unit.endswith("MACs"):
        as_flops = dataclasses.replace(number, value=number.value / 2, step=number.step / 2)
        if as_flops.matches(role.true):
            return ["These are FLOPs called MACs; a multiply-add is two FLOPs."]
    return diagnose(number, role)


def _distance(value: Fraction, true: Fraction) -> float:
    if value <= 0 or true <= 0:
        return math.inf
    return abs(math.log(value / true))
