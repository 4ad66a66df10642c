"""A model that the subject assembled: built for a shape, given the harness's weights, and called with token ids.

Nothing that ``get_transformer_lm`` and ``get_transformer_lm_weights`` return is taken on trust: every canonical name
must give a live Parameter of the right size, and whatever the subject raises becomes one clear line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, Evidence, explained_by

ASSEMBLY = ("get_transformer_lm", "get_transformer_lm_weights")
"""The entry points that a check needs to build a model."""


class BuiltModel:
    """One model of the subject.

    ``module`` is what ``get_transformer_lm`` returned; ``parameters`` maps every canonical name of ``shape`` to the
    Parameter that ``get_transformer_lm_weights`` gave for it, both vocabulary names included.
    """

    def __init__(self, subject: Subject, shape: DecoderShape, module: nn.Module, parameters: dict[str, nn.Parameter]):
        self.subject = subject
        self.shape = shape
        self.module = module
        self.parameters = parameters

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Copies ``weights`` (canonical names) into the live Parameters, which keep identity, dtype and device."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(weights[name])

    def evidence(self, token_ids: Tensor | None = None) -> Evidence:
        """Evidence that names this model: its sizes, its weights as they are, and the token ids of the call."""
        arguments: dict[str, Any] = {
            **self.shape.model_arguments(),
            "weights": {name: parameter.detach().clone() for name, parameter in self.parameters.items()},
        }
        if token_ids is not None:
            arguments["in_indices"] = token_ids
        return Evidence(entry_point="get_transformer_lm", arguments=arguments)

    @explained_by("configuration.model_builds")
    def logits(self, token_ids: Tensor, *, grad: bool = False) -> Tensor:
        """Raw logits (batch, T, V) of token ids (batch, T): finite and of that shape, or :class:`CheckFailure`.

        ``grad`` leaves autograd on. The ids are handed over as a copy, on the device of the embedding.
        """
        what = "the model that get_transformer_lm built"
        given = token_ids.clone().to(self.parameters["token_embeddings.weight"].device)
        evidence = self.evidence(token_ids)
        result = self.subject.run(what, lambda: self.module(given), grad=grad, evidence=evidence)
        return self.subject.checked(what, result, (*token_ids.shape, self.shape.vocab_size), evidence)


@explained_by("configuration.model_builds")
def build(subject: Subject, shape: DecoderShape, weights: Mapping[str, Tensor] | None = None) -> BuiltModel:
    """The subject's model of a shape, with ``weights`` copied into its Parameters where they are given.

    Raises :class:`CheckFailure` when the model is no ``nn.Module``, or a name is missing, no Parameter, or of another
    size.
    """
    arguments = shape.model_arguments()
    module = subject.invoke("get_transformer_lm", copy=False, grad=True, **arguments)
    evidence = Evidence(entry_point="get_transformer_lm", arguments=arguments)
    if not isinstance(module, nn.Module):
        kind = "nothing (is a return statement missing?)" if module is None else f"a {type(module).__name__}"
        raise CheckFailure(f"get_transformer_lm returned {kind}; it must return a torch.nn.Module", evidence)
    model = BuiltModel(subject, shape, module, live_parameters(subject, shape, module))
    if weights is not None:
        model.load(weights)
    return model


def live_parameters(subject: Subject, shape: DecoderShape, module: nn.Module) -> dict[str, nn.Parameter]:
    """What ``get_transformer_lm_weights`` gives for a model: canonical name -> Parameter, in the canonical order."""
    given = subject.invoke("get_transformer_lm_weights", copy=False, grad=True, model=module)
    evidence = Evidence(entry_point="get_transformer_lm_weights", arguments=shape.model_arguments())
    what = "get_transformer_lm_weights"
    if not isinstance(given, Mapping):
        kind = "nothing (is a return statement missing?)" if given is None else f"a {type(given).__name__}"
        raise CheckFailure(f"{what} returned {kind}; it must return a dict: canonical name -> Parameter", evidence)
    sizes = shape.weight_shapes()
    missing = [name for name in sizes if name not in given]
    if missing:
        also = f", and of {len(missing) - 1} more" if len(missing) > 1 else ""
        message = f"{what} has no entry of the name {missing[0]}{also}; it must name every weight of the model"
        if shape.tie_embeddings and missing == ["lm_head.weight"]:
            message = f"{what} has no lm_head.weight; of a tied model both vocabulary names give the one Parameter"
        raise CheckFailure(message, evidence)
    for name, size in sizes.items():
        parameter = given[name]
        if not isinstance(parameter, nn.Parameter):
            kind = type(parameter).__name__
            raise CheckFailure(
                f"{what} gives a {kind} for {name}; it must give the model's own live Parameter, no copy and no view",
                evidence,
            )
        if tuple(parameter.shape) != size:
            raise CheckFailure(
                f"{name} has the shape {tuple(parameter.shape)}; at these sizes it must be {size}, (out, in)", evidence
            )
    return {name: given[name] for name in sizes}
