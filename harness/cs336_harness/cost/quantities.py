"""What a number of a written accounting answer may be: a measure of a case, and every amount that is worth so much.

A :class:`Quantity` is a :class:`~cs336_harness.cost.measure.Measure` of a :class:`Case`: parameters, bytes or FLOPs of
some components, in one block or in the model, per token or not; a share of the model or of a block; a growth between
two cases. What a label says gives it (:func:`quantity`), and so does the value of a number that has digits enough
(:class:`Amounts`). A value is in base units: parameters, bytes, FLOPs, a share of one, times. Imports no torch.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
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
    MATMULS,
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
from cs336_harness.cost.presets import nearest_multiple_of_64, preset, readable_preset
from cs336_harness.cost.units import grouped, readable_bytes
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


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One forward pass that an answer speaks of: its shape, the batch size and the sequence length.

    ``model`` names one of GPT-2's sizes; it is empty for the model that the answer is about.
    """

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
    ``case``.
    """

    value: Fraction
    measure: Measure
    case: Case
    before: Case | None = None

    @property
    def dimension(self) -> str:
        """parameters, bytes, FLOPs, share or ratio."""
        return self.measure.dimension if self.before is None else RATIO

    @property
    def is_of_all(self) -> bool:
        """Whether it counts the whole of the model."""
        return self.measure.components == components_of(self.measure.what, EVERYTHING)

    @property
    def description(self) -> str:
        """What it is, in words: the FLOPs of q_proj in one block."""
        measure, case = self.measure, self.case
        what = _name_of(measure)
        model = f" of {readable_preset(case.model)}" if case.model else ""
        length = case.sequence_length
        elsewhere = model + (f" at {length:,} positions" if length != case.shape.context_length else "")
        blocks = "one block" if measure.scope == LAYER else f"all {case.shape.num_layers} blocks"
        if measure.dimension == SHARE:
            whole = "one block" if measure.scope == LAYER else "the model"
            return f"the share of {what} in the {measure.counted} of {whole}{elsewhere}"
        if self.dimension == RATIO:
            return f"the growth of the {measure.what} of {what}{elsewhere}"
        if measure.components < components_of(measure.what, BLOCK):
            what = f"{what} in {blocks}"
        dimension = "memory" if measure.dimension == BYTES else measure.dimension
        of_what = "in total" if self.is_of_all else f"of {blocks if what == 'the blocks' else what}"
        return f"the {dimension} {of_what}{elsewhere}"

    @property
    def readable(self) -> str:
        """The value, exact and readable."""
        if self.dimension == SHARE:
            return f"{float(100 * self.value):.2f} %"
        if self.dimension == RATIO:
            return f"{float(self.value):.2f} times"
        if self.dimension == BYTES:
            return f"{grouped(int(self.value))} bytes = {readable_bytes(int(self.value))}"
        return f"{grouped(int(self.value))} {self.dimension}"


def _name_of(measure: Measure) -> str:
    """What people call the components of a measure, or all of them where they have no name together."""
    named = (
        name for name, group in COMPONENT_GROUPS.items() if components_of(measure.what, group) == measure.components
    )
    in_order = (*MATMULS, *sorted(measure.components))
    name = next(named, None) or " + ".join(sorted(measure.components, key=in_order.index))
    return {"head": "lm_head", "a block": "the blocks"}.get(name, name)


def quantity(measure: Measure, case: Case, before: Case | None = None) -> Quantity:
    """What a label asks for: a measure of a case, or how many times as much it is as in the case ``before``."""
    value = measure.of(case.ledger)
    return Quantity(value / (measure.of(before.ledger) or 1) if before else value, measure, case, before)


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


class Amounts:
    """Every amount of parameters, bytes and FLOPs in some cases, looked up by its value.

    ``bytes_per_value`` are the precisions in which memory is stated, the likeliest first.
    """

    def __init__(self, cases: Iterable[Case], bytes_per_value: Sequence[int] = (4, 2)) -> None:
        cases = tuple(dict.fromkeys(cases))
        lengths: dict[DecoderShape, Case] = {}
        found = [
            quantity(measure, case)
            for case in cases
            for measure in _measures(tuple(bytes_per_value))
            # A model has the same parameters at every length.
            if measure.what == FLOPS or lengths.setdefault(case.shape, case) is case
        ]
        self.all = sorted((quantity for quantity in found if quantity.value), key=_value)

    def near(self, low: Fraction, high: Fraction, dimension: str | None = None) -> list[Quantity]:
        """The amounts from ``low`` to ``high``, both included, of one dimension or of any."""
        start, stop = bisect.bisect_left(self.all, low, key=_value), bisect.bisect_right(self.all, high, key=_value)
        return [quantity for quantity in self.all[start:stop] if dimension in (None, quantity.dimension)]


def _value(quantity: Quantity) -> Fraction:
    return quantity.value


@functools.cache
def _measures(bytes_per_value: tuple[int, ...]) -> tuple[Measure, ...]:
    """Everything that can be asked of one case in parameters, bytes or FLOPs."""
    return tuple(dict.fromkeys(measure for measure in _all_measures(bytes_per_value) if measure.components))


def _all_measures(bytes_per_value: tuple[int, ...]) -> Iterator[Measure]:
    for counted in (PARAMETERS, FLOPS):
        for group in COMPONENT_GROUPS.values():
            components = components_of(counted, group)
            for scope in (LAYER, MODEL) if components <= BLOCK else (MODEL,):
                yield Measure(counted, components, scope)
                if counted == FLOPS:
                    yield Measure(FLOPS, components, scope, per_token=True)
                else:
                    yield from (Measure(BYTES, components, scope, size) for size in bytes_per_value)
