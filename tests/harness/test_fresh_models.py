"""What a constructor leaves, the layout of an input, pickle, gradients of ids that repeat: each has its violators."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from broken import RIGHT, broken, results
from torch import Tensor, nn
from variations import Variation, VariationAdapters, VariationModel

from cs336_harness.checks import all_checks
from cs336_harness.reference.oracle_adapters import NORM_EPS, refuse_sizes_that_do_not_fit
from cs336_harness.shapes import DecoderShape
from cs336_harness.verdict.suite import Result


def judged(model: type[VariationModel], *beginnings: str) -> dict[str, Result]:
    """What becomes of the checks of a subject whose models are of a class."""
    adapters = VariationAdapters(Variation())

    def get_transformer_lm(**sizes: Any) -> VariationModel:
        shape = DecoderShape(norm_eps=NORM_EPS, **sizes)
        refuse_sizes_that_do_not_fit(shape)
        return model(adapters.variation, shape)

    adapters.get_transformer_lm = get_transformer_lm  # ty: ignore[invalid-assignment]
    return results(adapters, *beginnings)


def failures_of(model: type[VariationModel], *beginnings: str) -> dict[str, str]:
    return {name: item.message for name, item in judged(model, *beginnings).items() if item.outcome == "failed"}


class NeverInitialised(VariationModel):
    """The second feed-forward matrix is whatever the memory held."""

    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        weight = self.weights["layers/1/ffn/w2/weight"]
        self.weights["layers/1/ffn/w2/weight"] = nn.Parameter(torch.empty(weight.shape))


class NeverInitialisedLike(VariationModel):
    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.weights["ln_final/weight"] = nn.Parameter(torch.empty_like(self.weights["ln_final/weight"]))


class GainsOfZero(VariationModel):
    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.weights["layers/0/ln2/weight"].data.zero_()


class SeedsEachLayer(VariationModel):
    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        for name, weight in self.weights.items():
            if name.startswith("layers/") and weight.ndim == 2:
                torch.manual_seed(sum(map(ord, name.partition("/attn")[2] + name.partition("/ffn")[2])))
                nn.init.normal_(weight)


class SeedsTheModel(VariationModel):
    def __init__(self, *sizes: Any) -> None:
        torch.manual_seed(0)
        super().__init__(*sizes)


class ViewsTheIds(VariationModel):
    def forward(self, token_ids: Tensor) -> Tensor:
        return super().forward(token_ids.view(-1).view(token_ids.shape))


class ReadsMemoryAsItLies(VariationModel):
    def forward(self, token_ids: Tensor) -> Tensor:
        return super().forward(token_ids.as_strided(token_ids.shape, (token_ids.shape[1], 1)))


VIOLATORS: list[tuple[str, type[VariationModel], str]] = [
    ("fresh_weights", NeverInitialised, "layers.1.ffn.w2.weight of a new model is never initialised"),
    ("fresh_weights", NeverInitialisedLike, "ln_final.weight of a new model is never initialised"),
    ("fresh_weights", GainsOfZero, "layers.0.ln2.weight of a new model is all zeros"),
    ("fresh_layers", SeedsEachLayer, "layers 0 and 1 of a new model start with the same numbers"),
    ("fresh_layers", SeedsTheModel, "two new models have the same weights whatever the seed is"),
    ("ids_of_any_layout", ViewsTheIds, "for token ids that are a transposed view"),
    ("ids_of_any_layout", ReadsMemoryAsItLies, "gives other logits for token ids that are a transposed view"),
]


@pytest.mark.parametrize(("name", "model", "words"), VIOLATORS, ids=lambda value: getattr(value, "__name__", None))
def test_a_violator_fails_its_check_alone(name: str, model: type[VariationModel], words: str) -> None:
    failed = failures_of(model, "configuration")
    assert list(failed) == [f"configuration.{name}"]
    assert words in failed[f"configuration.{name}"]


def test_every_check_of_the_module_has_a_violator() -> None:
    own = {name for name, check in all_checks().items() if check.function.__module__.endswith("fresh_models")}
    assert own == {f"configuration.{name}" for name, _, _ in VIOLATORS}


# The layout of an input

COMPONENTS = [name.partition("[")[2][:-1] for name in all_checks() if name.startswith("components.any_layout")]


def as_it_lies(value: Any) -> Any:
    """The numbers of a tensor in the order of its memory."""
    if not isinstance(value, Tensor) or value.is_contiguous():
        return value
    return value.transpose(0, 1).reshape(value.shape)


def needing(entry_point: str, change: Callable[[Any], Any]) -> Any:
    right = getattr(RIGHT, entry_point)

    def run(*args: Any, **arguments: Any) -> Tensor:
        return right(*map(change, args), **{name: change(value) for name, value in arguments.items()})

    return broken(**{entry_point: run})


def in_order(value: Any) -> Any:
    return value.view(-1).view(value.shape) if isinstance(value, Tensor) else value


@pytest.mark.parametrize("name", COMPONENTS)
def test_an_input_that_is_a_transposed_view(name: str) -> None:
    check_id = f"components.any_layout[{name}]"
    wrong = results(needing(f"run_{name}", as_it_lies), "components")
    assert [item.check.id for item in wrong.values() if item.outcome == "failed"] == [check_id]
    refused = results(needing(f"run_{name}", in_order), "components")
    assert refused[check_id].outcome == "advisory"
    assert not [item for item in refused.values() if item.outcome in ("failed", "blocked")]


# Gradients


class ByFrequency(VariationModel):
    """``nn.Embedding(scale_grad_by_freq=True)``: the gradient of an id is divided by how often it occurs."""

    def forward(self, token_ids: Tensor) -> Tensor:
        table = self.weights["token_embeddings/weight"]
        counts = token_ids.flatten().bincount(minlength=len(table)).clamp(min=1)[:, None]
        named = self.named()
        scaled = table / counts + (table - table / counts).detach()
        return self.variation.transformer_lm(self.shape, {**named, "token_embeddings.weight": scaled}, token_ids)


class Sparse(VariationModel):
    """``nn.Embedding(sparse=True)``."""

    def forward(self, token_ids: Tensor) -> Tensor:
        table = self.weights["token_embeddings/weight"]
        rows = F.embedding(token_ids, table, sparse=True).flatten(0, 1)
        head = self.weights.get("lm_head/weight", table)
        named = {**self.named(), "token_embeddings.weight": rows, "lm_head.weight": head}
        places = torch.arange(token_ids.numel()).view(token_ids.shape)
        shape = self.shape.replace(tie_embeddings=False, vocab_size=token_ids.numel())
        return self.variation.transformer_lm(shape, named, places)


def test_gradients_divided_by_the_count_of_an_id() -> None:
    failed = failures_of(ByFrequency, "slow_oracle.gradient", "slow_oracle.huggingface")
    assert list(failed) == ["slow_oracle.gradient_of_repeated_ids"]
    assert "of id 3, which occurs 2 times, is 0.5 times the right one" in failed["slow_oracle.gradient_of_repeated_ids"]


def test_sparse_gradients_are_gradients() -> None:
    assert not failures_of(Sparse, "slow_oracle.gradient", "information_flow.gradient", "tying")


# Pickle


class ComesApartInPickle(VariationModel):
    """Tied by a reference that pickle copies: afterwards the head computes with a matrix of its own."""

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "head": None}
        if "lm_head/weight" not in self.weights:
            state["head"] = self.weights["token_embeddings/weight"].detach().clone()
        return state

    def __deepcopy__(self, memo: Any) -> VariationModel:
        other = type(self)(self.variation, self.shape)
        other.load_state_dict(self.state_dict())
        return other

    def named(self) -> dict[str, nn.Parameter]:
        named = super().named()
        if self.__dict__.get("head") is not None:
            named["lm_head.weight"] = self.__dict__.setdefault("own", nn.Parameter(self.__dict__["head"]))
        return named


class CannotBePickled(VariationModel):
    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.activation = lambda x: x


def test_a_tie_that_pickle_loses() -> None:
    failed = failures_of(ComesApartInPickle, "tying.pickle")
    assert "after a round trip through pickle" in failed["tying.pickle"]


def test_a_model_that_cannot_be_pickled_is_right() -> None:
    assert judged(CannotBePickled, "tying.pickle")["tying.pickle"].outcome == "passed"
