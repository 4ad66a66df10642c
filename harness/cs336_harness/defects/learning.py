"""Defects of what an optimiser sees: weights that it is not given, or that take no gradient."""

from __future__ import annotations

from torch import nn

from cs336_harness.defects.defect import ModelDefect, Place, defect
from cs336_harness.reference.oracle import Oracle

COUNT_THEM = ("Count model.parameters(): a decoder of two layers lists nine weights for each, and three more.",)


class _Frozen(ModelDefect):
    def frozen(self, name: str) -> bool:
        raise NotImplementedError

    def __init__(self, oracle: Oracle) -> None:
        super().__init__(oracle)
        for name, weight in self.weights().items():
            if self.frozen(name):
                weight.requires_grad_(False)


@defect(
    "weights-frozen",
    Place.CONFIGURATION,
    hint="Which weights does your model allow to learn? Print requires_grad of each.",
    steps=("for name, weight in model.named_parameters(): print(name, weight.requires_grad)",),
)
class WeightsFrozen(_Frozen):
    """No weight takes a gradient: requires_grad is False everywhere, so nothing can be trained."""

    def frozen(self, name: str) -> bool:
        return True


@defect(
    "embedding-frozen",
    Place.CONFIGURATION,
    hint="Which weights does your model allow to learn? Print requires_grad of each.",
    steps=("for name, weight in model.named_parameters(): print(name, weight.requires_grad)",),
)
class EmbeddingFrozen(_Frozen):
    """The embedding takes no gradient (requires_grad is False), so it stays what it was at the start."""

    def frozen(self, name: str) -> bool:
        return name == "token_embeddings.weight"


@defect(
    "blocks-in-a-plain-list",
    Place.CONFIGURATION,
    hint="Which kind of list tells PyTorch that there are modules in it?",
    steps=COUNT_THEM,
)
class BlocksInAPlainList(ModelDefect):
    """The blocks are kept in a Python list: model.parameters() does not know their weights, so the optimiser never
    trains them and state_dict never saves them. nn.ModuleList registers them.
    """

    def __init__(self, oracle: Oracle) -> None:
        super().__init__(oracle)
        self.__dict__["unregistered"] = {
            name: self._parameters.pop(name) for name in list(self._parameters) if name.startswith("layers")
        }

    def weights(self) -> dict[str, nn.Parameter]:
        hidden: dict[str, nn.Parameter] = self.__dict__["unregistered"]
        found = super().weights()
        return {
            name: found[name] if name in found else hidden[self.attribute(name)]
            for name in (*self.oracle.shape.weight_shapes(), "lm_head.weight")
        }
