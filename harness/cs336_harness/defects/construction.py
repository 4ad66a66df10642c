"""Defects of building a model: sizes that are not honoured, not refused, or refused too late."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from cs336_harness.defects.defect import AdaptersDefect, ModelDefect, Place, defect
from cs336_harness.reference.oracle_adapters import NORM_EPS, OracleModel, refuse_sizes_that_do_not_fit
from cs336_harness.shapes import DecoderShape

REFUSE_FIRST = (
    "Build a model with d_model 10 and 3 heads: a ValueError with both numbers must come, and nothing else.",
)


class _Forgiving(AdaptersDefect):
    """Builds some shapes that must be refused."""

    def forgives(self, shape: DecoderShape) -> bool:
        raise NotImplementedError

    def get_transformer_lm(self, **sizes: Any) -> OracleModel:
        shape = DecoderShape(norm_eps=NORM_EPS, **sizes)
        if self.forgives(shape):
            return self.model_class(self.oracle_class(shape))
        return super().get_transformer_lm(**sizes)


@defect(
    "sizes-not-validated",
    Place.CONFIGURATION,
    hint="Which of the sizes must divide which? Somebody has to say so before the first weight is made.",
    steps=REFUSE_FIRST,
)
class SizesNotValidated(_Forgiving):
    """No size is ever checked: a model that cannot work is built, and fails later with a message about shapes, or not
    at all.
    """

    def forgives(self, shape: DecoderShape) -> bool:
        return True


@defect(
    "heads-not-validated",
    Place.CONFIGURATION,
    hint="What is left over when d_model is divided by num_heads?",
    steps=REFUSE_FIRST,
)
class HeadsNotValidated(_Forgiving):
    """A d_model that num_heads does not divide is accepted; the channels left over are lost or the shapes clash
    later.
    """

    def forgives(self, shape: DecoderShape) -> bool:
        return shape.num_heads > 0 and shape.d_model % shape.num_heads != 0


@defect(
    "kv-heads-not-validated",
    Place.CONFIGURATION,
    hint="How many query heads share one key/value head? It must be a whole number.",
    steps=("Build a model with 6 heads and 4 key/value heads.",),
)
class KvHeadsNotValidated(_Forgiving):
    """A num_heads that num_kv_heads does not divide is accepted."""

    def forgives(self, shape: DecoderShape) -> bool:
        return shape.num_kv_heads > 0 and shape.num_heads % shape.num_kv_heads != 0


@defect(
    "odd-head-size-accepted",
    Place.CONFIGURATION,
    hint="Rotary positions turn channels in pairs: what happens to the odd one?",
    steps=("Build a model with d_model 15 and 3 heads.",),
)
class OddHeadSizeAccepted(_Forgiving):
    """A head with an odd number of channels is accepted; its last channel has no partner to turn with."""

    def forgives(self, shape: DecoderShape) -> bool:
        return shape.num_heads > 0 and shape.d_model > 0 and (shape.d_model // shape.num_heads) % 2 != 0


@defect(
    "non-positive-sizes-accepted",
    Place.CONFIGURATION,
    hint="What does your model do with zero layers, or with a vocabulary of none?",
    steps=("Build a model with each size at zero in turn.",),
)
class NonPositiveSizesAccepted(_Forgiving):
    """Zero and negative sizes are not refused."""

    def forgives(self, shape: DecoderShape) -> bool:
        sizes = {name: size for name, size in shape.model_arguments().items() if name != "tie_embeddings"}
        return min(sizes.values()) <= 0


class _OtherRefusal(AdaptersDefect):
    def get_transformer_lm(self, **sizes: Any) -> OracleModel:
        try:
            return super().get_transformer_lm(**sizes)
        except ValueError as error:
            raise AssertionError(str(error)) from None


@defect(
    "sizes-refused-by-assert",
    Place.CONFIGURATION,
    hint="An assert disappears under python -O: which exception says that a value is wrong?",
    steps=REFUSE_FIRST,
)
class SizesRefusedByAssert(_OtherRefusal):
    """Sizes that do not fit raise AssertionError; the contract asks for ValueError, which a caller can rely on."""


@defect(
    "sizes-refused-after-allocation",
    Place.CONFIGURATION,
    hint="In which order does your constructor work: check first, or allocate first?",
    steps=(
        "Build a model with a vocabulary of 10**12 and sizes that do not divide: the ValueError must come at once.",
    ),
)
class SizesRefusedAfterAllocation(AdaptersDefect):
    """The embedding is allocated before the sizes are checked; a wrong config costs memory, or runs out of it first."""

    def get_transformer_lm(self, **sizes: Any) -> OracleModel:
        torch.empty(max(sizes["vocab_size"], 0), max(sizes["d_model"], 0))
        return super().get_transformer_lm(**sizes)


class _Forward(ModelDefect):
    def unchecked(self, token_ids: Tensor) -> Tensor:
        """The forward pass without the check of the length."""
        shape = self.oracle.shape
        self.oracle.shape = shape.replace(context_length=max(shape.context_length, token_ids.shape[-1]))
        try:
            return super().forward(token_ids)
        finally:
            self.oracle.shape = shape


@defect(
    "time-over-context-accepted",
    Place.CONFIGURATION,
    hint="What does context_length promise, and who keeps the promise?",
    steps=("Call the model with context_length + 1 tokens.",),
)
class TimeOverContextAccepted(_Forward):
    """Inputs longer than context_length are computed without a word; a ValueError with both numbers must come."""

    def forward(self, token_ids: Tensor) -> Tensor:
        return self.unchecked(token_ids)


@defect(
    "time-equal-to-context-refused",
    Place.CONFIGURATION,
    hint="Is it > or >=? An input may fill the context.",
    steps=("Call the model with exactly context_length tokens.",),
)
class TimeEqualToContextRefused(ModelDefect):
    """An input that fills the context exactly is refused."""

    def forward(self, token_ids: Tensor) -> Tensor:
        if token_ids.shape[-1] >= self.oracle.shape.context_length:
            raise ValueError(f"{token_ids.shape[-1]} tokens, context length {self.oracle.shape.context_length}")
        return super().forward(token_ids)


@defect(
    "time-over-context-truncated",
    Place.CONFIGURATION,
    hint="What becomes of the tokens that do not fit? A reader must be told.",
    steps=("Call the model with context_length + 1 tokens and print the shape of the logits.",),
)
class TimeOverContextTruncated(ModelDefect):
    """Tokens past context_length are cut off without a word; a ValueError with both numbers must come."""

    def forward(self, token_ids: Tensor) -> Tensor:
        return super().forward(token_ids[:, -self.oracle.shape.context_length :])


@defect(
    "time-over-context-other-error",
    Place.CONFIGURATION,
    hint="Which line fails when the input is too long? A reader should learn it from a sentence, not from a shape.",
    steps=("Call the model with context_length + 1 tokens and read the message.",),
)
class TimeOverContextOtherError(ModelDefect):
    """An input that is too long fails somewhere inside with an error about shapes; a ValueError with both numbers must
    come.
    """

    def forward(self, token_ids: Tensor) -> Tensor:
        try:
            return super().forward(token_ids)
        except ValueError:
            raise RuntimeError("The size of tensor a must match the size of tensor b at dimension 1") from None


class _OtherSizes(AdaptersDefect):
    def changed(self, sizes: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    def get_transformer_lm(self, **sizes: Any) -> OracleModel:
        refuse_sizes_that_do_not_fit(DecoderShape(norm_eps=NORM_EPS, **sizes))
        return super().get_transformer_lm(**{**sizes, **self.changed(sizes)})


@defect(
    "config-rope-theta-ignored",
    Place.CONFIGURATION,
    hint="Follow rope_theta from get_transformer_lm to the angles: where is it dropped?",
    steps=("Build two models with theta 100 and 10000 and the same weights: the logits must differ.",),
)
class ConfigRopeThetaIgnored(_OtherSizes):
    """get_transformer_lm drops rope_theta, and the model turns with the default of 10000; run_transformer_lm is
    right.
    """

    def changed(self, sizes: dict[str, Any]) -> dict[str, Any]:
        return {"rope_theta": 10000.0}


@defect(
    "config-num-kv-heads-ignored",
    Place.CONFIGURATION,
    hint="How large is k_proj when there are fewer key/value heads than query heads?",
    steps=("Build a model with 6 heads and 2 key/value heads and print the size of k_proj.",),
)
class ConfigNumKvHeadsIgnored(_OtherSizes):
    """num_kv_heads has no effect: there are as many key/value heads as query heads, and k_proj and v_proj are too
    large.
    """

    def changed(self, sizes: dict[str, Any]) -> dict[str, Any]:
        return {"num_kv_heads": sizes["num_heads"]}


@defect(
    "config-one-kv-head",
    Place.CONFIGURATION,
    hint="How large is k_proj when there are 2 key/value heads, and how large when there is 1?",
    steps=("Build a model with 6 heads and 2 key/value heads and print the size of k_proj.",),
)
class ConfigOneKvHead(_OtherSizes):
    """Any num_kv_heads below num_heads is taken for one: grouped-query attention became multi-query attention."""

    def changed(self, sizes: dict[str, Any]) -> dict[str, Any]:
        return {"num_kv_heads": sizes["num_heads"] if sizes["num_kv_heads"] == sizes["num_heads"] else 1}


@defect(
    "config-kv-heads-taken-for-group-size",
    Place.CONFIGURATION,
    hint="num_kv_heads counts key/value heads: how many query heads share one, and which of the two do you use?",
    steps=("Build a model with 6 heads and 2 key/value heads and print the size of k_proj: two heads, not three.",),
)
class ConfigKvHeadsTakenForGroupSize(_OtherSizes):
    """num_kv_heads is taken for the number of query heads that share one key/value head."""

    def changed(self, sizes: dict[str, Any]) -> dict[str, Any]:
        return {"num_kv_heads": sizes["num_heads"] // sizes["num_kv_heads"]}


@defect(
    "lm-num-kv-heads-misread",
    Place.CONFIGURATION,
    hint="num_kv_heads counts key/value heads: into how many heads do you split keys and values?",
    steps=("Call run_transformer_lm with 6 heads and num_kv_heads=2: k has two heads, each read by three queries.",),
)
class LmNumKvHeadsMisread(AdaptersDefect):
    """run_transformer_lm takes num_kv_heads, but does not split keys and values into so many heads: the count is
    ignored, or taken for the number of query heads that share one.
    """

    def run_transformer_lm(self, *args: Any, num_kv_heads: int | None = None, **arguments: Any) -> Tensor:
        if num_kv_heads is not None:
            num_kv_heads = arguments["num_heads"] // num_kv_heads
        return super().run_transformer_lm(*args, num_kv_heads=num_kv_heads, **arguments)


@defect(
    "config-d-ff-ignored",
    Place.CONFIGURATION,
    hint="d_ff comes in as an argument: what is your feed-forward's width computed from?",
    steps=("Print the size of w1 for a d_ff of your choice.",),
)
class ConfigDffIgnored(_OtherSizes):
    """d_ff has no effect: the feed-forward is four times as wide as the model."""

    def changed(self, sizes: dict[str, Any]) -> dict[str, Any]:
        return {"d_ff": 4 * sizes["d_model"]}


@defect(
    "config-d-ff-rounded",
    Place.CONFIGURATION,
    hint="d_ff comes in as an argument: is it used as it is?",
    steps=("Print the size of w1 for a d_ff that is no multiple of 64.",),
)
class ConfigDffRounded(_OtherSizes):
    """d_ff is rounded up to a multiple of 64 without a word."""

    def changed(self, sizes: dict[str, Any]) -> dict[str, Any]:
        return {"d_ff": -(-sizes["d_ff"] // 64) * 64}


@defect(
    "config-vocabulary-padded",
    Place.CONFIGURATION,
    hint="How many logits does a position have? As many as the vocabulary has tokens.",
    steps=("Print the last axis of the logits for a vocabulary of 101.",),
)
class ConfigVocabularyPadded(_OtherSizes):
    """The vocabulary is rounded up to a multiple of 64 without a word, and there are logits for tokens that do not
    exist.
    """

    def changed(self, sizes: dict[str, Any]) -> dict[str, Any]:
        return {"vocab_size": -(-sizes["vocab_size"] // 64) * 64}


@defect(
    "config-one-layer-fewer",
    Place.CONFIGURATION,
    hint="How many blocks are in your list when num_layers is 2?",
    steps=("List the names of the weights of a model with two layers.",),
)
class ConfigOneLayerFewer(_OtherSizes):
    """The model is built with one layer too few."""

    def changed(self, sizes: dict[str, Any]) -> dict[str, Any]:
        return {"num_layers": sizes["num_layers"] - 1}


@defect(
    "logits-in-float64",
    Place.CONFIGURATION,
    hint="In which dtype do logits come back from weights in float32?",
)
class LogitsInFloat64(ModelDefect):
    """The built model returns its logits in float64 although its weights are float32."""

    def forward(self, token_ids: Tensor) -> Tensor:
        return super().forward(token_ids).to(torch.float64)


@defect(
    "weights-are-copies",
    Place.CONFIGURATION,
    hint="Is what get_transformer_lm_weights returns the model's own Parameter, or a copy of it?",
    steps=("Change one returned weight in place: the logits must change.",),
)
class WeightsAreCopies(AdaptersDefect):
    """get_transformer_lm_weights returns copies: whoever loads or trains them changes nothing in the model."""

    def get_transformer_lm_weights(self, model: OracleModel) -> dict[str, nn.Parameter]:
        copies: dict[int, nn.Parameter] = {}
        return {
            name: copies.setdefault(id(weight), nn.Parameter(weight.detach().clone()))
            for name, weight in super().get_transformer_lm_weights(model).items()
        }
