"""Defects of tying: what the two vocabulary weights of an assembled model are, and whether they stay it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cs336_harness.defects.defect import ModelDefect, OracleDefect, Place, defect
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.oracle_adapters import OracleModel, refuse_longer_than_context

ONE_OBJECT = (
    "Ask Python itself: is the head's weight `is` the embedding's weight? Equal values are not enough.",
    "Count the elements of model.parameters(): tied, the vocabulary matrix is in there once.",
)
TWO_GRADIENTS = (
    "Give the untied model equal weights, take both gradients of the same loss, and add them: the "
    "tied one must have the sum.",
)


def take_apart(model: OracleModel, head: nn.Parameter) -> None:
    """From here on a tied model has a head of its own."""
    model.oracle = type(model.oracle)(model.oracle.shape.replace(tie_embeddings=False))
    model.register_parameter(model.attribute("lm_head.weight"), head)


def embedding_of(model: OracleModel) -> nn.Parameter:
    """The model's embedding Parameter."""
    return model.weights()["token_embeddings.weight"]


class _SeparateHead(ModelDefect):
    def head(self) -> nn.Parameter:
        raise NotImplementedError

    def __init__(self, oracle: Oracle) -> None:
        super().__init__(oracle)
        if oracle.shape.tie_embeddings:
            take_apart(self, self.head())


@defect(
    "tied-head-is-a-copy",
    Place.TYING,
    hint="Do embedding and head hold one Parameter, or two that began with the same numbers?",
    steps=ONE_OBJECT,
)
class TiedHeadIsACopy(_SeparateHead):
    """The head starts with a copy of the embedding. The first optimiser step drives the two apart, and both are
    counted.
    """

    def head(self) -> nn.Parameter:
        return nn.Parameter(embedding_of(self).detach().clone())


@defect(
    "tied-flag-ignored",
    Place.TYING,
    hint="Follow tie_embeddings from the argument to the line that makes the head: what does it decide?",
    steps=ONE_OBJECT,
)
class TiedFlagIgnored(_SeparateHead):
    """tie_embeddings=True has no effect: the head has a weight of its own, with numbers of its own."""

    def head(self) -> nn.Parameter:
        return nn.Parameter(torch.randn_like(embedding_of(self)) / math.sqrt(embedding_of(self).shape[-1]))


@defect(
    "tied-head-shares-storage-only",
    Place.TYING,
    hint="Two Parameters can look at the same memory: how many objects does the optimiser see?",
    steps=ONE_OBJECT,
)
class TiedHeadSharesStorageOnly(_SeparateHead):
    """Two Parameters look at one storage. An optimiser keeps two states and steps twice; a change of dtype parts them
    for good.
    """

    def head(self) -> nn.Parameter:
        return nn.Parameter(embedding_of(self).data)


@defect(
    "tied-head-is-a-stale-buffer",
    Place.TYING,
    hint=(
        "From which tensor does your head multiply: from the embedding's Parameter as it is now, or as it "
        "was when the model was built?"
    ),
    steps=("Change one row of the embedding in place and look at that token's logit.", *TWO_GRADIENTS),
)
class TiedHeadIsAStaleBuffer(ModelDefect):
    """The head multiplies with a buffer that was copied from the embedding when the model was built: it never
    learns.
    """

    def __init__(self, oracle: Oracle) -> None:
        super().__init__(oracle)
        self.register_buffer("head_copy", embedding_of(self).detach().clone())

    def forward(self, token_ids: Tensor) -> Tensor:
        if not self.oracle.shape.tie_embeddings:
            return super().forward(token_ids)
        return forward_with(self, token_ids, head=self.get_buffer("head_copy"))


def forward_with(model: OracleModel, token_ids: Tensor, **weights: Tensor) -> Tensor:
    """The forward pass of a tied model with another tensor for the embedding (``table``) or for the head (``head``)."""
    refuse_longer_than_context(token_ids.shape[-1], model.oracle.shape.context_length)
    used: dict[str, Tensor] = dict(model.weights())
    used["lm_head.weight"] = weights.get("head", used["lm_head.weight"])
    used["token_embeddings.weight"] = weights.get("table", used["token_embeddings.weight"])
    apart = type(model.oracle)(model.oracle.shape.replace(tie_embeddings=False))
    logits = apart.transformer_lm({name: weight.to(torch.float64) for name, weight in used.items()}, token_ids)
    return logits.to(used["ln_final.weight"].dtype)


@defect(
    "tied-head-detached",
    Place.TYING,
    hint=(
        "Does the gradient find its way from the logits back to the shared weight, or is it cut off on the head's side?"
    ),
    steps=(
        "A token that never occurs in the input has a gradient too, through the head: is its row zero?",
        *TWO_GRADIENTS,
    ),
)
class TiedHeadDetached(ModelDefect):
    """The head uses a detached copy of the embedding in each forward: right logits, but half of the gradient is
    missing.
    """

    def forward(self, token_ids: Tensor) -> Tensor:
        if not self.oracle.shape.tie_embeddings:
            return super().forward(token_ids)
        return forward_with(self, token_ids, head=embedding_of(self).detach().clone())


@defect(
    "tied-look-up-detached",
    Place.TYING,
    hint="Does the gradient find its way back to the shared weight through the look-up too?",
    steps=TWO_GRADIENTS,
)
class TiedLookUpDetached(ModelDefect):
    """The look-up uses a detached copy of the shared weight: right logits, but only the head's gradient arrives."""

    def forward(self, token_ids: Tensor) -> Tensor:
        if not self.oracle.shape.tie_embeddings:
            return super().forward(token_ids)
        return forward_with(self, token_ids, table=embedding_of(self).detach().clone())


@defect(
    "tied-embedding-scaled",
    Place.TYING,
    hint="What does your model do only when tie_embeddings is on? Tying shares a weight and changes nothing else.",
    steps=("Give tied and untied models the same weights: the logits must be the same.",),
)
class TiedEmbeddingScaled(OracleDefect):
    """When tied, the looked-up rows are multiplied by sqrt(d_model), as in Vaswani et al.; untied they are not."""

    def embed_tokens(self, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        scale = math.sqrt(self.shape.d_model) if self.shape.tie_embeddings else 1.0
        return super().embed_tokens(weights, token_ids) * scale


@defect(
    "tied-head-scaled",
    Place.TYING,
    hint="What does your model do only when tie_embeddings is on? Tying shares a weight and changes nothing else.",
    steps=("Give tied and untied models the same weights: the logits must be the same.",),
)
class TiedHeadScaled(OracleDefect):
    """When tied, the logits are divided by sqrt(d_model) (as in T5); untied they are not."""

    def project_logits(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        scale = math.sqrt(self.shape.d_model) if self.shape.tie_embeddings else 1.0
        return super().project_logits(x, weights) / scale


@defect(
    "untied-weights-shared",
    Place.TYING,
    hint="With tie_embeddings off, how many vocabulary matrices does your model own?",
    steps=("Untied, set lm_head.weight to zero: does the embedding become zero as well?",),
)
class UntiedWeightsShared(ModelDefect):
    """Embedding and head are one Parameter even with tie_embeddings=False: tying is written into the code."""

    def __init__(self, oracle: Oracle) -> None:
        super().__init__(type(oracle)(oracle.shape.replace(tie_embeddings=True)))


@defect(
    "tied-head-parameter-left-over",
    Place.TYING,
    hint="Tied, the model owns one vocabulary matrix: which Parameter is it that nothing uses?",
    steps=ONE_OBJECT,
)
class TiedHeadParameterLeftOver(ModelDefect):
    """The head's own Parameter is still there although nothing uses it: it is counted, saved, and never gets a
    gradient.
    """

    def __init__(self, oracle: Oracle) -> None:
        super().__init__(oracle)
        if oracle.shape.tie_embeddings:
            self.left_over = nn.Parameter(torch.zeros_like(embedding_of(self)))


def copied_head(model: OracleModel) -> nn.Parameter:
    """A head of its own with the embedding's numbers."""
    return nn.Parameter(embedding_of(model).detach().clone())


@defect(
    "tie-lost-on-load",
    Place.TYING,
    hint="Loading gives each name its values: does it also give each name an object of its own?",
    steps=("Load a state dict and ask again: is the head's weight `is` the embedding's?",),
)
class TieLostOnLoad(ModelDefect):
    """load_state_dict puts a new Parameter under each name: after loading, embedding and head are two."""

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        result = super().load_state_dict(*args, **kwargs)
        if self.oracle.shape.tie_embeddings:
            take_apart(self, copied_head(self))
        return result


@defect(
    "tie-lost-on-deepcopy",
    Place.TYING,
    hint=(
        "Who else holds the shared weight: a closure, a list, a tensor that is no Parameter? Those are "
        "not copied along."
    ),
    steps=("Copy the model with copy.deepcopy and ask the copy: is the head's weight `is` the embedding's?",),
)
class TieLostOnDeepcopy(ModelDefect):
    """A deep copy of the model has two vocabulary matrices where the original has one."""

    def __deepcopy__(self, memo: dict[int, Any]) -> OracleModel:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        if made.oracle.shape.tie_embeddings:
            take_apart(made, copied_head(made))
        return made


@defect(
    "tie-lost-on-dtype-change",
    Place.TYING,
    hint="After .to(dtype), does every use still read the same Parameter?",
    steps=("Move the model to another dtype and ask again: is the head's weight `is` the embedding's?",),
)
class TieLostOnDtypeChange(ModelDefect):
    """.to(dtype) leaves the model with two vocabulary matrices where it had one."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> OracleModel:
        super()._apply(fn, recurse)
        if self.oracle.shape.tie_embeddings:
            take_apart(self, copied_head(self))
        return self
