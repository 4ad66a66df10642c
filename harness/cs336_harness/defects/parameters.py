"""Defects of the closed form of parameters."""

from __future__ import annotations

from typing import Any

from cs336_harness.cost.matmuls import Weight, count_parameters, list_weights
from cs336_harness.defects.defect import AdaptersDefect, Place, defect
from cs336_harness.shapes import DecoderShape

LIST_THE_WEIGHTS = ("Write down the name and the size of every weight of a one-layer decoder, and add.",)


class _Parameters(AdaptersDefect):
    def changed(self, total: int, shape: DecoderShape) -> int:
        raise NotImplementedError

    def run_parameter_count(self, **sizes: Any) -> int:
        return self.changed(super().run_parameter_count(**sizes), DecoderShape(context_length=0, **sizes))


def parameters_of(shape: DecoderShape, *endings: str) -> int:
    """Parameters of the weights whose names end so."""
    listed: list[Weight] = [weight for weight in list_weights(shape) if weight.name.endswith(endings)]
    return count_parameters(listed)


@defect(
    "parameters-tied-head-counted",
    Place.ACCOUNTING,
    hint="How many vocabulary matrices does a tied decoder own?",
    steps=LIST_THE_WEIGHTS,
)
class ParametersTiedHeadCounted(_Parameters):
    """The head is counted although it is tied: the shared matrix is in the sum twice."""

    def changed(self, total: int, shape: DecoderShape) -> int:
        return total + (shape.vocab_size * shape.d_model if shape.tie_embeddings else 0)


@defect(
    "parameters-untied-head-forgotten",
    Place.ACCOUNTING,
    hint="How many vocabulary matrices does an untied decoder own?",
    steps=LIST_THE_WEIGHTS,
)
class ParametersUntiedHeadForgotten(_Parameters):
    """The head is never counted, not even when it has a matrix of its own."""

    def changed(self, total: int, shape: DecoderShape) -> int:
        return total - (0 if shape.tie_embeddings else shape.vocab_size * shape.d_model)


@defect(
    "parameters-embedding-subtracted-twice",
    Place.ACCOUNTING,
    hint="Is the sum that you subtract from already free of the doubled matrix?",
    steps=LIST_THE_WEIGHTS,
)
class ParametersEmbeddingSubtractedTwice(_Parameters):
    """When tied, the vocabulary matrix is taken off a sum that holds it once already: it is not counted at all."""

    def changed(self, total: int, shape: DecoderShape) -> int:
        return total - (shape.vocab_size * shape.d_model if shape.tie_embeddings else 0)


@defect(
    "parameters-embedding-forgotten",
    Place.ACCOUNTING,
    hint="A look-up costs no FLOPs; does its table cost memory?",
    steps=LIST_THE_WEIGHTS,
)
class ParametersEmbeddingForgotten(_Parameters):
    """The embedding is not counted, tied or untied."""

    def changed(self, total: int, shape: DecoderShape) -> int:
        return total - shape.vocab_size * shape.d_model


@defect(
    "parameters-norms-forgotten",
    Place.ACCOUNTING,
    hint="Which weights of the decoder are vectors?",
    steps=LIST_THE_WEIGHTS,
)
class ParametersNormsForgotten(_Parameters):
    """No norm's gain is counted: 2 · num_layers + 1 vectors of d_model are missing."""

    def changed(self, total: int, shape: DecoderShape) -> int:
        return total - parameters_of(shape, "ln1.weight", "ln2.weight", "ln_final.weight")


@defect(
    "parameters-final-norm-forgotten",
    Place.ACCOUNTING,
    hint="How many norms stand outside the layers?",
    steps=LIST_THE_WEIGHTS,
)
class ParametersFinalNormForgotten(_Parameters):
    """The final norm's gain is not counted: d_model is missing."""

    def changed(self, total: int, shape: DecoderShape) -> int:
        return total - parameters_of(shape, "ln_final.weight")


@defect(
    "parameters-one-norm-per-layer",
    Place.ACCOUNTING,
    hint="How many norms does one layer own?",
    steps=LIST_THE_WEIGHTS,
)
class ParametersOneNormPerLayer(_Parameters):
    """One norm is counted for each layer; there are two."""

    def changed(self, total: int, shape: DecoderShape) -> int:
        return total - parameters_of(shape, "ln2.weight")


@defect(
    "parameters-biases-counted",
    Place.ACCOUNTING,
    hint="What does a linear layer of this decoder own beside its matrix?",
    steps=LIST_THE_WEIGHTS,
)
class ParametersBiasesCounted(_Parameters):
    """A bias is counted for every linear layer in the blocks; this decoder has none."""

    def changed(self, total: int, shape: DecoderShape) -> int:
        matrices = [size for size in shape.layer_weight_shapes().values() if len(size) == 2]
        return total + shape.num_layers * sum(size[0] for size in matrices)


@defect(
    "parameters-grouped-heads-counted-in-full",
    Place.ACCOUNTING,
    hint="How many rows do k_proj and v_proj have when key/value heads are fewer than query heads?",
    steps=LIST_THE_WEIGHTS,
)
class ParametersGroupedHeadsCountedInFull(_Parameters):
    """k_proj and v_proj are counted as (d_model, d_model) although there are fewer key/value heads than query heads."""

    def changed(self, total: int, shape: DecoderShape) -> int:
        return total + 2 * shape.num_layers * (shape.d_model - shape.d_kv) * shape.d_model


@defect(
    "parameters-two-matrix-feed-forward",
    Place.ACCOUNTING,
    hint="How many matrices does a SwiGLU own?",
    steps=LIST_THE_WEIGHTS,
)
class ParametersTwoMatrixFeedForward(_Parameters):
    """Two matrices are counted for the feed-forward; SwiGLU has three."""

    def changed(self, total: int, shape: DecoderShape) -> int:
        return total - parameters_of(shape, "ffn.w3.weight")


@defect(
    "parameters-output-projection-forgotten",
    Place.ACCOUNTING,
    hint="How many projections belong to attention?",
    steps=LIST_THE_WEIGHTS,
)
class ParametersOutputProjectionForgotten(_Parameters):
    """Three projections are counted for attention; there are four."""

    def changed(self, total: int, shape: DecoderShape) -> int:
        return total - parameters_of(shape, "output_proj.weight")


@defect(
    "parameters-one-layer",
    Place.ACCOUNTING,
    hint="By which number is the sum of one block multiplied?",
    steps=LIST_THE_WEIGHTS,
)
class ParametersOneLayer(_Parameters):
    """The blocks are counted once, however many layers there are."""

    def changed(self, total: int, shape: DecoderShape) -> int:
        return (
            total - count_parameters(list_weights(shape)) + count_parameters(list_weights(shape.replace(num_layers=1)))
        )
