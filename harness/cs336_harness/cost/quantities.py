"""Every quantity that a written accounting answer may state, exactly: what it is worth, and what is worth so much.

A :class:`Quantity` is a :class:`~cs336_harness.cost.measure.Measure` of a :class:`Case`: parameters, bytes or FLOPs of
some components, in one block or in the model, per token or not; shares of the model, of a block, of attention; ratios
between components, between lengths and between models. :class:`Quantities` holds those of several cases and looks them
up both ways: by what a label says (:func:`quantity`) and by a value (:meth:`Quantities.near`), true, and as each known
mistake would have them (:meth:`Quantities.mistaken`). A value is in base units: parameters, bytes, FLOPs, a share of
one, times. Imports no torch; the table of the handout's four models takes some tens of milliseconds.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from cs336_harness.cost.ledger import (
    ATTENTION,
    BLOCK,
    BLOCK_NORMS,
    BYTES,
    EVERYTHING,
    FEED_FORWARD,
    FLOPS,
    HEAD,
    LAYER,
    MODEL,
    NORMS,
    PARAMETERS,
    POSITION_PAIRS,
    PROJECTIONS,
    RATIO,
    SHARE,
    VOCABULARY,
    Ledger,
    components_of,
    true_ledger,
)
from cs336_harness.cost.measure import Measure
from cs336_harness.cost.mistake import Mistake
from cs336_harness.cost.mistakes import MISTAKES, mistakes_in
from cs336_harness.cost.presets import PRESET_NAMES, nearest_multiple_of_64, preset
from cs336_harness.shapes import DecoderShape

EMBEDDING = frozenset(("token_embeddings",))

COMPONENT_GROUPS: dict[str, frozenset[str]] = {
    "the model": EVERYTHING,
    "a block": BLOCK,
    "feed-forward": FEED_FORWARD,
    "attention": ATTENTION,
    "attention projections": PROJECTIONS,
    "attention scores and values": POSITION_PAIRS,
    "head": HEAD,
    "embedding": EMBEDDING,
    "embedding and head": VOCABULARY,
    "query, key and value projections": PROJECTIONS - {"output_proj"},
    "query and key projections": frozenset(("q_proj", "k_proj")),
    "key and value projections": frozenset(("k_proj", "v_proj")),
    "attention without the output projection": ATTENTION - {"output_proj"},
    "w1 and w3": frozenset(("w1", "w3")),
    "projections and feed-forward": PROJECTIONS | FEED_FORWARD,
    "the two norms of a block": BLOCK_NORMS,
    "all norms": NORMS,
    "a block without its norms": ATTENTION | FEED_FORWARD,
    "everything outside the blocks": VOCABULARY | {"ln_final"},
    "head and final norm": HEAD | {"ln_final"},
    "everything but the embedding": EVERYTHING - EMBEDDING,
    "everything but the head": EVERYTHING - HEAD,
    "everything but embedding and head": EVERYTHING - VOCABULARY,
    "everything but the norms": EVERYTHING - NORMS,
    "everything but the T² terms": EVERYTHING - POSITION_PAIRS,
    "everything but the feed-forward": EVERYTHING - FEED_FORWARD,
    "everything but attention": EVERYTHING - ATTENTION,
    **{name: frozenset((name,)) for name in sorted(EVERYTHING - VOCABULARY)},
}
"""The sets of components that people add up, by name; those that few ask for come last."""

_STATED = tuple(COMPONENT_GROUPS)[:8] + tuple(sorted(EVERYTHING - VOCABULARY))
"""The groups that most answers state, for which the table of mistakes is made."""

_NAMES = {
    (counted, components_of(counted, components)): name
    for counted in (PARAMETERS, FLOPS)
    for name, components in reversed(COMPONENT_GROUPS.items())
}
_WHOLES = (EVERYTHING, BLOCK, ATTENTION, FEED_FORWARD, EVERYTHING - VOCABULARY)
_COMPARED = (FEED_FORWARD, ATTENTION, PROJECTIONS, POSITION_PAIRS, HEAD, BLOCK, EVERYTHING)


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One forward pass that an answer speaks of: a model by name, its shape, the batch size and the sequence length."""

    model: str
    shape: DecoderShape
    batch_size: int
    sequence_length: int

    @property
    def ledger(self) -> Ledger:
        """The true ledger."""
        return _ledger(self.shape, self.batch_size, self.sequence_length)


@functools.lru_cache(maxsize=256)
def _ledger(shape: DecoderShape, batch_size: int, sequence_length: int) -> Ledger:
    return true_ledger(shape, batch_size, sequence_length)


@dataclasses.dataclass(frozen=True, slots=True)
class Quantity:
    """A value and what it is the value of.

    ``before`` is the case that a growth is measured from: the value is then how many times as much ``measure`` is in
    ``case``. ``mistake`` is the one that gives this value; the true quantities have none.
    """

    value: Fraction
    measure: Measure
    case: Case
    before: Case | None = None
    mistake: Mistake | None = None

    @property
    def dimension(self) -> str:
        """parameters, bytes, FLOPs, share or ratio."""
        return self.measure.dimension if self.before is None else RATIO

    @property
    def name(self) -> str:
        """What it is, in words: "FLOPs of feed-forward in one block"."""
        measure = self.measure
        counted = FLOPS if measure.what == FLOPS else PARAMETERS
        part = _NAMES.get((counted, measure.components)) or ", ".join(sorted(measure.components))
        said = f"{measure.what} of {part}"
        if measure.whole:
            said = f"{measure.dimension} of {said} to {_NAMES[counted, measure.whole]}"
        elif measure.components == components_of(counted, BLOCK):
            said = f"{measure.what} of {'one block' if measure.scope == LAYER else 'all blocks'}"
        elif measure.components <= BLOCK:
            said += " in one block" if measure.scope == LAYER else " in all blocks"
        said += ", per token" if measure.per_token else ""
        if measure.dimension == BYTES:
            said += f" at {measure.bytes_per_value} bytes"
        if self.before is not None:
            said = f"growth of {said} from {self.before.model} at {self.before.sequence_length}"
        return f"{said}, {self.case.model} at {self.case.sequence_length}"


def quantity(measure: Measure, case: Case, before: Case | None = None) -> Quantity:
    """What a label asks for: a measure of a case, or how many times as much it is as in the case ``before``."""
    return Quantity(_value(measure, case.ledger, before.ledger if before else None), measure, case, before)


def _value(measure: Measure, ledger: Ledger, before: Ledger | None) -> Fraction:
    value = measure.of(ledger)
    return value if before is None else value / (measure.of(before) or 1)


def handout_cases(shape: DecoderShape, batch_size: int = 1, long_length: int | None = None) -> list[Case]:
    """The cases of parts (a) to (e): the stated model, its three siblings, and the stated model at a longer context.

    The siblings are GPT-2's other sizes with the stated model's vocabulary, context length and tying, and with d_ff by
    the rule that gave its own. ``long_length`` is 16 times the context length unless another is given.
    """
    length = shape.context_length
    cases = [Case("gpt2-xl", shape, batch_size, length)]
    cases.append(Case("gpt2-xl", shape, batch_size, long_length or 16 * length))
    for name in PRESET_NAMES:
        if name != "gpt2-xl":
            cases.append(Case(name, sibling(shape, name), batch_size, length))
    return cases


def sibling(shape: DecoderShape, name: str) -> DecoderShape:
    """Another of GPT-2's sizes, where everything but width, depth and heads is as in ``shape``."""
    other = preset(name)
    wide = shape.d_ff == 4 * shape.d_model
    d_ff = 4 * other.d_model if wide else nearest_multiple_of_64(8 * other.d_model, 3)
    return other.replace(
        vocab_size=shape.vocab_size,
        context_length=shape.context_length,
        tie_embeddings=shape.tie_embeddings,
        d_ff=d_ff,
    )


class Quantities:
    """The quantities of some cases, looked up by value.

    ``bytes_per_value`` are the precisions in which memory is stated, the likeliest first.
    """

    def __init__(self, cases: Iterable[Case], bytes_per_value: Sequence[int] = (4, 2)) -> None:
        self.cases = tuple(dict.fromkeys(cases))
        self.bytes_per_value = tuple(bytes_per_value)
        self._mistakes: dict[Case, _Index] = {}
        self._true = _Index(itertools.chain(self._of_cases(), self._between_cases()))

    @property
    def all(self) -> list[Quantity]:
        """Every true quantity, by size."""
        return self._true.quantities

    def near(self, low: Fraction, high: Fraction, dimension: str | None = None) -> list[Quantity]:
        """The true quantities from ``low`` to ``high``, both included, of one dimension or of any."""
        return self._true.between(low, high, dimension)

    def mistaken(self, case: Case, low: Fraction, high: Fraction, dimension: str | None = None) -> list[Quantity]:
        """What one known mistake makes of a quantity of a case, from ``low`` to ``high``; the usual ones come first.

        A case's table of mistakes is made when it is first asked for. It knows single mistakes, and amounts, shares and
        growth of what most answers state; for any measure, and for several mistakes at once, there is
        :func:`cs336_harness.cost.measure.explanations`.
        """
        if case not in self._mistakes:
            self._mistakes[case] = _Index((*self._mistaken_in(case), *self._mistaken_growth(case)))
        found = self._mistakes[case].between(low, high, dimension)
        return sorted(found, key=lambda quantity: not (quantity.mistake and quantity.mistake.usual))

    def _of_cases(self) -> Iterator[Quantity]:
        for case, counted in self._counted():
            amounts = _Amounts(case.ledger)
            yield from (
                Quantity(value, measure, case)
                for measure in _measures(counted, self.bytes_per_value, tuple(COMPONENT_GROUPS))
                if (value := amounts.value(measure)) and not amounts.repeats(measure)
            )

    def _mistaken_in(self, case: Case) -> Iterator[Quantity]:
        true = _Amounts(case.ledger)
        for counted in (PARAMETERS, FLOPS):
            for mistake in mistakes_in(counted):
                changed = _Amounts(mistake.change(case.ledger))
                for measure in _measures(counted, self.bytes_per_value, _STATED):
                    if changed.differs(true, measure) and (value := changed.value(measure)):
                        yield Quantity(value, measure, case, mistake=mistake)

    def _counted(self) -> Iterator[tuple[Case, str]]:
        """Each case with what is counted in it; a model has the same parameters at every length."""
        weighed: set[DecoderShape] = set()
        for case in self.cases:
            yield case, FLOPS
            if case.shape not in weighed:
                yield case, PARAMETERS
            weighed.add(case.shape)

    def _between_cases(self) -> Iterator[Quantity]:
        for before, case in itertools.permutations(self.cases, 2):
            for measure in _growing(before, case):
                if value := _value(measure, case.ledger, before.ledger):
                    yield Quantity(value, measure, case, before)

    def _mistaken_growth(self, case: Case) -> Iterator[Quantity]:
        for mistake in MISTAKES.values():
            changed = mistake.change(case.ledger)
            for before in self.cases:
                for measure in _growing(before, case):
                    if measure.what not in mistake.prose:
                        continue
                    value = _value(measure, changed, mistake.change(before.ledger))
                    if value not in (0, _value(measure, case.ledger, before.ledger)):
                        yield Quantity(value, measure, case, before, mistake)


class _Index:
    """Quantities by value. Floats find the place quickly; fractions decide."""

    def __init__(self, quantities: Iterable[Quantity]) -> None:
        keyed = sorted(((float(quantity.value), quantity) for quantity in quantities), key=lambda pair: pair[0])
        self.floats = [key for key, _ in keyed]
        self.quantities = [quantity for _, quantity in keyed]

    def between(self, low: Fraction, high: Fraction, dimension: str | None) -> list[Quantity]:
        start = bisect.bisect_left(self.floats, float(low) * (1 - 1e-12))
        stop = bisect.bisect_right(self.floats, float(high) * (1 + 1e-12))
        return [
            quantity
            for quantity in self.quantities[start:stop]
            if low <= quantity.value <= high and dimension in (None, quantity.dimension)
        ]


class _Amounts:
    """What a ledger holds of each set of components, added up once for all the measures that ask for it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._known: dict[tuple[str, frozenset[str], str], int] = {}
        self._seen: set[tuple[object, ...]] = set()

    def value(self, measure: Measure) -> Fraction:
        amount = self._amount(measure.what, measure.components, measure.scope)
        if measure.whole:
            return Fraction(amount, self._amount(measure.what, measure.whole, measure.scope) or 1)
        if measure.per_token:
            return Fraction(amount, self.ledger.tokens)
        return Fraction(amount * measure.bytes_per_value if measure.dimension == BYTES else amount)

    def _amount(self, counted: str, components: frozenset[str], scope: str) -> int:
        key = (counted, components, scope)
        if key not in self._known:
            self._known[key] = self.ledger.amount(counted, components, scope)
        return self._known[key]

    def differs(self, true: _Amounts, measure: Measure) -> bool:
        """Whether either side of a measure is not what it is in another ledger."""
        what, scope = measure.what, measure.scope
        sides = (measure.components, measure.whole) if measure.whole else (measure.components,)
        return any(self._amount(what, side, scope) != true._amount(what, side, scope) for side in sides)

    def repeats(self, measure: Measure) -> bool:
        """Whether an earlier measure adds up the same costs: components that cost nothing make no other quantity."""
        costs = self.ledger.flops if measure.what == FLOPS else self.ledger.parameters
        parts = [frozenset(name for name in names if costs.get(name)) for names in (measure.components, measure.whole)]
        key = (measure.dimension, measure.what, *parts, measure.scope, measure.bytes_per_value, measure.per_token)
        known = key in self._seen
        self._seen.add(key)
        return known


@functools.cache
def _measures(counted: str, bytes_per_value: tuple[int, ...], groups: tuple[str, ...]) -> tuple[Measure, ...]:
    """Everything that can be asked about the parameters, or the FLOPs, of one case."""
    components = [components_of(counted, COMPONENT_GROUPS[name]) for name in groups]
    components = [part for part in dict.fromkeys(components) if part]
    measures = [*_amounts_of(counted, components, bytes_per_value), *_shares(counted, components), *_ratios(counted)]
    return tuple(dict.fromkeys(measures))


def _amounts_of(
    counted: str, components: Iterable[frozenset[str]], bytes_per_value: tuple[int, ...]
) -> Iterator[Measure]:
    for part in components:
        for scope in (LAYER, MODEL) if part <= BLOCK else (MODEL,):
            yield Measure(counted, part, scope)
            if counted == FLOPS:
                yield Measure(FLOPS, part, scope, per_token=True)
            else:
                yield from (Measure(BYTES, part, scope, size) for size in bytes_per_value)


def _shares(counted: str, components: Iterable[frozenset[str]]) -> Iterator[Measure]:
    for part, whole in itertools.product(components, _WHOLES):
        of = components_of(counted, whole)
        if part < of:
            yield Measure(SHARE, part, LAYER if of <= BLOCK else MODEL, counted=counted, whole=of)


def _ratios(counted: str) -> Iterator[Measure]:
    compared = dict.fromkeys(components_of(counted, part) for part in _COMPARED)
    for part, of in itertools.permutations(compared, 2):
        if part and of:
            yield Measure(RATIO, part, counted=counted, whole=of)


def _growing(before: Case, case: Case) -> Iterator[Measure]:
    """What is compared between two cases: FLOPs between lengths of one model, FLOPs and parameters between models."""
    if before == case:
        return
    if before.shape == case.shape:
        dimensions: tuple[str, ...] = (FLOPS,)
    elif before.sequence_length == case.sequence_length:
        dimensions = (FLOPS, PARAMETERS)
    else:
        return
    for dimension in dimensions:
        parts = dict.fromkeys(components_of(dimension, part) for part in _COMPARED)
        yield from (Measure(dimension, part) for part in parts if part)
