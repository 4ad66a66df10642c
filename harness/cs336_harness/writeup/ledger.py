"""What each component of a decoder costs, in one block and in the model: the truth, and what a mistake makes of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from cs336_harness.cost.matmuls import list_matmuls, list_weights
from cs336_harness.shapes import DecoderShape
from cs336_harness.writeup.numbers import BYTES, FLOPS, PARAMETERS

MATMULS = ("q_proj", "k_proj", "v_proj", "scores", "values", "output_proj", "w1", "w3", "w2", "lm_head")
"""The multiplies that part (b) asks for, in the order they happen."""

PROJECTIONS = frozenset(("q_proj", "k_proj", "v_proj", "output_proj"))
POSITION_PAIRS = frozenset(("scores", "values"))
FEED_FORWARD = frozenset(("w1", "w2", "w3"))
BLOCK_NORMS = frozenset(("ln1", "ln2"))
BLOCK = PROJECTIONS | POSITION_PAIRS | FEED_FORWARD | BLOCK_NORMS
EVERYTHING = BLOCK | {"token_embeddings", "ln_final", "lm_head"}

GROUPS = {
    "feed-forward": FEED_FORWARD,
    "attention projections": PROJECTIONS,
    "attention scores and values (T²)": POSITION_PAIRS,
    "lm_head": frozenset(("lm_head",)),
}
"""What part (c) compares."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ledger:
    """Parameters and FLOPs of each component, of one block where it is in a block, and how many blocks there are."""

    shape: DecoderShape
    batch_size: int
    sequence_length: int
    layers: int
    parameters: dict[str, int]
    flops: dict[str, int]

    def amount(self, dimension: str, components: Iterable[str], scope: str) -> int:
        """Parameters or FLOPs of some components, in one ``layer`` or in the whole ``model``."""
        costs = self.flops if dimension == FLOPS else self.parameters
        total = 0
        for component in components:
            times = self.layers if scope == "model" and component in BLOCK else 1
            total += times * costs.get(component, 0)
        return total

    def changed(self, dimension: str, **costs: int) -> Ledger:
        """This ledger with other costs for some components."""
        if dimension == FLOPS:
            return dataclasses.replace(self, flops=self.flops | costs)
        return dataclasses.replace(self, parameters=self.parameters | costs)


def true_ledger(shape: DecoderShape, batch_size: int, sequence_length: int) -> Ledger:
    """The ledger of a shape, read off the list of its weights and multiplies."""
    parameters = {}
    for weight in list_weights(shape):
        name = weight.name.removesuffix(".weight").rpartition(".")[2]
        parameters[name] = weight.parameters // weight.count
    flops = {
        multiply.name: multiply.flops // (shape.num_layers if multiply.per_layer else 1)
        for multiply in list_matmuls(shape, batch_size, sequence_length)
    }
    return Ledger(shape, batch_size, sequence_length, shape.num_layers, parameters, flops)


def components_of(dimension: str | None, components: frozenset[str]) -> frozenset[str]:
    """Those of the components that have a cost in a dimension: norms have no multiply, scores no weight."""
    if dimension in (PARAMETERS, BYTES):
        return components - POSITION_PAIRS
    return components - BLOCK_NORMS - {"ln_final"}
