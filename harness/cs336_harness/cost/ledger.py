"""What each component of a decoder costs, in one block and in the model: the truth, and what a mistake makes of it.

A ledger is the list of weights and matrix multiplies by component. Everything that is said about cost is read off one:
the answers of the two accounting entry points, every quantity that a written answer may state, and, once a mistake has
changed the ledger, what somebody who makes this mistake would say. Imports no torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from fractions import Fraction

from cs336_harness.cost.matmuls import list_matmuls, list_weights
from cs336_harness.shapes import DecoderShape

PARAMETERS = "parameters"
BYTES = "bytes"
FLOPS = "FLOPs"
SHARE = "share"
RATIO = "ratio"

MATMULS = ("q_proj", "k_proj", "v_proj", "scores", "values", "output_proj", "w1", "w3", "w2", "lm_head")
"""The matrix multiplies of a forward pass, in the order they happen."""

PROJECTIONS = frozenset(("q_proj", "k_proj", "v_proj", "output_proj"))
POSITION_PAIRS = frozenset(("scores", "values"))
ATTENTION = PROJECTIONS | POSITION_PAIRS
FEED_FORWARD = frozenset(("w1", "w2", "w3"))
BLOCK_NORMS = frozenset(("ln1", "ln2"))
NORMS = BLOCK_NORMS | {"ln_final"}
BLOCK = ATTENTION | FEED_FORWARD | BLOCK_NORMS
HEAD = frozenset(("lm_head",))
VOCABULARY = HEAD | {"token_embeddings"}
EVERYTHING = BLOCK | VOCABULARY | {"ln_final"}

GROUPS = {
    "feed-forward": FEED_FORWARD,
    "attention projections": PROJECTIONS,
    "attention scores and values (T²)": POSITION_PAIRS,
    "lm_head": HEAD,
}
"""The parts of a forward pass that are compared with one another."""

TERM_COMPONENTS = {
    "attention_projections": PROJECTIONS,
    "attention_scores": frozenset(("scores",)),
    "attention_values": frozenset(("values",)),
    "feed_forward": FEED_FORWARD,
    "lm_head": VOCABULARY,
}
"""The five terms of ``run_forward_flops``. A look-up that is counted as a multiply goes with the head."""

LAYER, MODEL = "layer", "model"
"""Scopes: one block, or the whole model with all its blocks."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ledger:
    """Parameters and FLOPs of each component, of one block where it is in a block, and how many blocks there are."""

    shape: DecoderShape
    batch_size: int
    sequence_length: int
    layers: int
    parameters: Mapping[str, int]
    flops: Mapping[str, int]

    @property
    def tokens(self) -> int:
        """Positions of one forward pass, B·T."""
        return self.batch_size * self.sequence_length

    def amount(self, dimension: str, components: Iterable[str], scope: str = MODEL) -> int:
        """Parameters or FLOPs of some components, in one ``layer`` or in the whole ``model``."""
        costs = self.flops if dimension == FLOPS else self.parameters
        total = 0
        for component in components:
            times = self.layers if scope == MODEL and component in BLOCK else 1
            total += times * costs.get(component, 0)
        return total

    def flops_by_term(self) -> dict[str, int]:
        """FLOPs of a forward pass under the five names of ``run_forward_flops``."""
        return {term: self.amount(FLOPS, components) for term, components in TERM_COMPONENTS.items()}

    def without(self, *components: str) -> Ledger:
        """This ledger where some components cost nothing."""
        gone = dict.fromkeys(components, 0)
        return dataclasses.replace(self, parameters={**self.parameters, **gone}, flops={**self.flops, **gone})

    def scaled(self, factor: Fraction | int, *components: str) -> Ledger:
        """This ledger with some components ``factor`` times as large, rounded down."""

        def scale(costs: Mapping[str, int]) -> dict[str, int]:
            return {name: int(cost * factor) if name in components else cost for name, cost in costs.items()}

        return dataclasses.replace(self, parameters=scale(self.parameters), flops=scale(self.flops))

    def with_parameters(self, **parameters: int) -> Ledger:
        """This ledger with other parameters for some components."""
        return dataclasses.replace(self, parameters={**self.parameters, **parameters})

    def with_flops(self, **flops: int) -> Ledger:
        """This ledger with other FLOPs for some components."""
        return dataclasses.replace(self, flops={**self.flops, **flops})

    def with_layers(self, layers: int) -> Ledger:
        """This ledger with another number of blocks; with none at all it stays as it is."""
        return dataclasses.replace(self, layers=layers) if layers > 0 else self


def true_ledger(shape: DecoderShape, batch_size: int, sequence_length: int) -> Ledger:
    """The ledger of a shape, read off the list of its weights and multiplies."""
    parameters: dict[str, int] = {}
    for weight in list_weights(shape):
        # A bias belongs to its matrix, and a norm on queries or keys to their projection.
        name = weight.name.split(".")[-2].replace("_norm", "_proj")
        parameters[name] = parameters.get(name, 0) + weight.parameters // weight.count
    flops = {
        multiply.name: multiply.flops // (shape.num_layers if multiply.per_layer else 1)
        for multiply in list_matmuls(shape, batch_size, sequence_length)
    }
    return Ledger(shape, batch_size, sequence_length, shape.num_layers, parameters, flops)


def components_of(dimension: str | None, components: frozenset[str]) -> frozenset[str]:
    """Those of the components that have a cost in a dimension: norms have no multiply, scores no weight."""
    if dimension in (PARAMETERS, BYTES):
        return components - POSITION_PAIRS
    return components - NORMS
