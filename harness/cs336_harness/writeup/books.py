"""The decoders and lengths that a write-up speaks of, and the table of every quantity that may be stated about them."""

from __future__ import annotations

import dataclasses
import functools
import re

from cs336_harness.cost.ledger import (
    BLOCK,
    EVERYTHING,
    FLOPS,
    LAYER,
    SHARE,
    components_of,
)
from cs336_harness.cost.measure import Measure
from cs336_harness.cost.presets import PRESET_NAMES, preset
from cs336_harness.cost.quantities import Amounts, Case, Quantity, sibling
from cs336_harness.shapes import DecoderShape
from cs336_harness.writeup.configuration import Configuration, row_configurations, sizes_in
from cs336_harness.writeup.document import Document, Passage, TableBlock
from cs336_harness.writeup.lexicon import models_named
from cs336_harness.writeup.numbers import Written


@dataclasses.dataclass(frozen=True)
class Books:
    """The cases of a write-up: the model it is about, GPT-2's other sizes, and the length of part (e)."""

    configuration: Configuration
    main: Case
    models: dict[str, Case]
    long_length: int

    def at(self, model: str | None, length: int | None) -> Case:
        """A model at a length; the configuration's where none is named."""
        case = self.models.get(model or "", self.main)
        return case if length is None else dataclasses.replace(case, sequence_length=length)

    @property
    def long(self) -> Case:
        """The configuration's model at the length of part (e)."""
        return self.at(None, self.long_length)

    @property
    def other_tying(self) -> Case:
        """The configuration's model with its head tied, if it is not, and untied, if it is."""
        shape = self.main.shape
        return dataclasses.replace(self.main, shape=shape.replace(tie_embeddings=not shape.tie_embeddings))

    @property
    def cases(self) -> tuple[Case, ...]:
        """Every case that a number may be of, the write-up's own first."""
        return tuple(dict.fromkeys((self.main, self.long, *self.models.values(), self.other_tying)))

    @functools.cached_property
    def _amounts(self) -> Amounts:
        return Amounts(self.cases, tuple(dict.fromkeys((self.configuration.bytes_per_value, 4, 2))))

    def equal_to(self, number: Written) -> list[Quantity]:
        """The true amounts that a number equals, to the digits that were written; the configuration's own first.

        None for a number of few digits: it equals something by chance.
        """
        if not number.names_itself:
            return []
        half = number.step / 2
        found = self._amounts.near(number.value - half, number.value + half, number.dimension)
        own = self.configuration.bytes_per_value
        return sorted(
            found,
            key=lambda quantity: (
                quantity.case != self.main,
                quantity.measure.per_token,
                quantity.measure.bytes_per_value != own,
                -len(quantity.measure.components),
            ),
        )


def measure(
    dimension: str, components: frozenset[str], scope: str, bytes_per_value: int = 4, counted: str = FLOPS
) -> Measure:
    """A measure of some components. A share is one of the model's amount, or of the block's where the scope says so."""
    if dimension != SHARE:
        return Measure(dimension, components_of(dimension, components), scope, bytes_per_value)
    whole = components_of(counted, BLOCK if scope == LAYER else EVERYTHING)
    return Measure(SHARE, components_of(counted, components), scope, counted=counted, whole=whole)


def open_books(document: Document, configuration: Configuration) -> Books:
    """The cases that a write-up's parts speak of."""
    shape, batch = configuration.shape, configuration.batch_size
    length = shape.context_length
    main = Case("", shape, batch, length)
    return Books(configuration, main, _models(document, main), _long_length(document, length) or 16 * length)


def _long_length(document: Document, length: int) -> int | None:
    """The power of two that part (e) states as its length."""
    for block in document.blocks:
        if block.part == "e":
            text = block.content.text if isinstance(block, Passage) else " ".join(cell.text for cell in block.header)
            for found in re.findall(r"\b\d{1,3},\d{3}\b|\b\d{4,6}\b", f"{block.heading} {text}"):
                stated = int(found.replace(",", ""))
                if stated >= 2048 and stated.bit_count() == 1 and stated != length:
                    return stated
    return None


def _models(document: Document, main: Case) -> dict[str, Case]:
    """GPT-2's sizes by name, with the sizes that part (d) states for them; the write-up's own model is one of them."""
    stated: dict[str, dict[str, int]] = {}
    for block in document.blocks:
        if isinstance(block, TableBlock):
            said = [(models_named(name), sizes) for name, sizes in row_configurations(block).items()]
        else:
            models = models_named(block.content.text, by_size=True) if block.part == "d" else frozenset()
            said = [(models, sizes_in(block.content.text))] if len(models) == 1 else []
        for models, sizes in said:
            for model in models:
                stated.setdefault(model, {}).update(sizes)
    shapes = {name: preset(name) for name in PRESET_NAMES}
    own = {name for name, shape in shapes.items() if (shape.d_model, shape.num_layers) == _width_and_depth(main)}
    own = own or {"gpt2-xl"}
    cases = {}
    for name in shapes:
        shape = _with_stated(sibling(main.shape, name), stated.get(name.removeprefix("gpt2-"), {}))
        case = main if name in own else dataclasses.replace(main, model=name, shape=shape)
        cases[name.removeprefix("gpt2-")] = case
    return cases


def _width_and_depth(case: Case) -> tuple[int, int]:
    return case.shape.d_model, case.shape.num_layers


def _with_stated(shape: DecoderShape, sizes: dict[str, int]) -> DecoderShape:
    sizes = {key: value for key, value in sizes.items() if key not in ("batch_size", "context_length") and value > 0}
    if "num_heads" in sizes:
        sizes.setdefault("num_kv_heads", sizes["num_heads"])
    changed = shape.replace(**sizes)
    return changed if changed.d_model % changed.num_heads == 0 else shape
