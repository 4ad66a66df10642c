"""Defects of how blocks are stacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from cs336_harness.defects.defect import OracleDefect, Place, defect
from cs336_harness.reference.oracle import LayerWeights

ONE_LAYER_AT_A_TIME = (
    "Silence every layer but one (output_proj and w2 to zero) and see whether that one speaks; then the next.",
)


class _Layers(OracleDefect):
    def used(self, num_layers: int) -> Sequence[int]:
        raise NotImplementedError

    def layers(self) -> Sequence[int]:
        return self.used(self.shape.num_layers)


@defect(
    "last-layer-skipped",
    Place.LAYERS,
    hint="How often does your loop run: count its first and its last turn.",
    steps=ONE_LAYER_AT_A_TIME,
)
class LastLayerSkipped(_Layers):
    """The loop over layers ends one early: the last layer's weights have no effect."""

    def used(self, num_layers: int) -> Sequence[int]:
        return range(num_layers - 1)


@defect(
    "first-layer-skipped",
    Place.LAYERS,
    hint="How often does your loop run: count its first and its last turn.",
    steps=ONE_LAYER_AT_A_TIME,
)
class FirstLayerSkipped(_Layers):
    """The loop over layers starts one late: the first layer's weights have no effect."""

    def used(self, num_layers: int) -> Sequence[int]:
        return range(1, num_layers)


@defect(
    "layers-reversed",
    Place.LAYERS,
    hint="Which layer reads the embedding?",
    steps=("Print the name of each layer's weights in the order in which the layers run.",),
)
class LayersReversed(_Layers):
    """The layers run last to first."""

    def used(self, num_layers: int) -> Sequence[int]:
        return range(num_layers - 1, -1, -1)


@defect(
    "first-layer-everywhere",
    Place.LAYERS,
    hint="Is each layer an object with weights of its own?",
    steps=ONE_LAYER_AT_A_TIME,
)
class FirstLayerEverywhere(_Layers):
    """Every layer uses the first layer's weights: one block object is called again and again."""

    def used(self, num_layers: int) -> Sequence[int]:
        return [0] * num_layers


@defect(
    "last-layer-everywhere",
    Place.LAYERS,
    hint="Is each layer an object with weights of its own? What was loaded last stays.",
    steps=ONE_LAYER_AT_A_TIME,
)
class LastLayerEverywhere(_Layers):
    """Every layer uses the last layer's weights: one block object is shared, and the last weights loaded are what it
    holds.
    """

    def used(self, num_layers: int) -> Sequence[int]:
        return [num_layers - 1] * num_layers


@defect(
    "first-layer-only",
    Place.LAYERS,
    hint="How often does your loop run? Look for a return inside it.",
    steps=ONE_LAYER_AT_A_TIME,
)
class FirstLayerOnly(_Layers):
    """Only the first layer runs, however many there are. With two layers this is one too few; with one, nobody
    notices.
    """

    def used(self, num_layers: int) -> Sequence[int]:
        return range(min(1, num_layers))


@defect(
    "last-layer-twice",
    Place.LAYERS,
    hint="How often does your loop run: count its first and its last turn.",
    steps=ONE_LAYER_AT_A_TIME,
)
class LastLayerTwice(_Layers):
    """The last layer runs once more after the loop."""

    def used(self, num_layers: int) -> Sequence[int]:
        return [*range(num_layers), num_layers - 1]


@defect(
    "layers-in-text-order",
    Place.LAYERS,
    hint="How does Python sort the names layers.2 and layers.10?",
    steps=("Sort the names of eleven layers as your code does and print them.",),
)
class LayersInTextOrder(_Layers):
    """The layers run in the order of their names as text: 0, 1, 10, 2, … Ten layers or fewer hide it."""

    def used(self, num_layers: int) -> Sequence[int]:
        return sorted(range(num_layers), key=str)


@defect(
    "layers-all-read-embedding",
    Place.LAYERS,
    hint="What does the second layer read: the embedding, or what the first layer returned?",
    steps=("Silence the last layer: the earlier ones must still have an effect on the logits.",),
)
class LayersAllReadEmbedding(OracleDefect):
    """Every layer is given the embedding, and only the last one's output is kept: the loop never feeds its result
    back.
    """

    def residual_stream(self, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        self.first_stream: Tensor | None = None
        return super().residual_stream(weights, token_ids)

    def block(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        if "first_stream" in self.__dict__:
            self.first_stream = x if self.first_stream is None else self.first_stream
            x = self.first_stream
        return super().block(x, weights, positions)


@defect(
    "residual-stream-in-bfloat16",
    Place.RESIDUAL,
    rounds=True,
    hint="In which dtype does one block hand its result to the next?",
)
class ResidualStreamInBfloat16(OracleDefect):
    """The stream passes through bfloat16 after every block: three digits of each value are kept."""

    def block(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return super().block(x, weights, positions).to(torch.bfloat16).to(torch.float64)
