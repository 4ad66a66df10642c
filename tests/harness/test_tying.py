"""Every way that a tied model comes apart fails one check, and the message says which way it was."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from broken import broken, failures, results
from torch import Tensor, nn
from variations import COVERING, VariationAdapters, VariationModel

from cs336_harness.checks import all_checks, tied_identity
from cs336_harness.checks.tying import EMBEDDING, HEAD
from cs336_harness.reference.oracle_adapters import NORM_EPS
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import BuiltModel, Held, Inventory

FINE = COVERING["fill"]


class Model(VariationModel):
    """A correct model whose look-up and head a test may break: they compute with ``table()`` and ``head()``."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__(FINE, shape)

    def table(self) -> Tensor:
        return self.named()[EMBEDDING]

    def head(self) -> Tensor:
        return self.named()[HEAD]

    def forward(self, token_ids: Tensor) -> Tensor:
        weights = {**self.named(), EMBEDDING: self.table(), HEAD: self.head()}
        return self.variation.transformer_lm(self.shape.replace(tie_embeddings=False), weights, token_ids)


class ByAssignment(Model):
    """Tied as most models are: the head owns a name, and the name is given the embedding's Parameter."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__(shape.replace(tie_embeddings=False))
        if shape.tie_embeddings:
            self.tie()

    def tie(self) -> None:
        self.weights["lm_head/weight"] = self.weights["token_embeddings/weight"]

    def head(self) -> Tensor:
        return self.weights["lm_head/weight"]


class DrawnByAssignment(ByAssignment):
    """Draws its weights and computes a table in the constructor, as most models do, on whatever device is asked for."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__(shape)
        nn.init.trunc_normal_(self.weights["token_embeddings/weight"], std=0.02)
        self.register_buffer("table_of_cosines", torch.arange(8.0).cos())


class Copied(ByAssignment):
    def tie(self) -> None:
        self.weights["lm_head/weight"] = nn.Parameter(self.weights["token_embeddings/weight"].detach().clone())


class OneStorage(ByAssignment):
    def tie(self) -> None:
        self.weights["lm_head/weight"] = nn.Parameter(self.weights["token_embeddings/weight"].detach())


class CopiedInEachForward(Model):
    """The head has a matrix of its own, filled from the embedding before each use."""

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__(shape)
        self.own = nn.Parameter(torch.zeros(shape.vocab_size, shape.d_model))

    def head(self) -> Tensor:
        self.own.data.copy_(super().head().data)
        return self.own if self.shape.tie_embeddings else super().head()


class FilledOnce(Model):
    """The head is a plain tensor, filled from the embedding when first used."""

    def head(self) -> Tensor:
        if not self.shape.tie_embeddings:
            return super().head()
        if not hasattr(self, "filled"):
            self.filled = super().head().detach().clone()
        return self.filled


class HeadDetached(Model):
    def head(self) -> Tensor:
        return super().head().detach() if self.shape.tie_embeddings else super().head()


class HeadCloned(Model):
    def head(self) -> Tensor:
        return super().head().detach().clone() if self.shape.tie_embeddings else super().head()


class LookUpDetached(Model):
    def table(self) -> Tensor:
        return super().table().detach() if self.shape.tie_embeddings else super().table()


class LookUpCloned(Model):
    def table(self) -> Tensor:
        return super().table().detach().clone() if self.shape.tie_embeddings else super().table()


class LookUpParameterOfItsOwn(Model):
    """A Parameter is made of the embedding's values in each forward: its gradient goes nowhere."""

    def table(self) -> Tensor:
        return nn.Parameter(super().table().clone()) if self.shape.tie_embeddings else super().table()


class HeadParameterOfItsOwn(Model):
    def head(self) -> Tensor:
        return nn.Parameter(super().head().clone()) if self.shape.tie_embeddings else super().head()


class HeadFillsABuffer(Model):
    """The head computes with a buffer into which each forward writes the embedding's values."""

    kept: Tensor

    def __init__(self, shape: DecoderShape) -> None:
        super().__init__(shape)
        self.register_buffer("kept", torch.zeros(shape.vocab_size, shape.d_model), persistent=False)

    def head(self) -> Tensor:
        return self.kept.copy_(super().head().detach()) if self.shape.tie_embeddings else super().head()


class HeadViewDetached(Model):
    """Detached, and turned and sliced, which copies nothing."""

    def head(self) -> Tensor:
        return super().head().data[:].T.T if self.shape.tie_embeddings else super().head()


class NothingConnected(Model):
    def forward(self, token_ids: Tensor) -> Tensor:
        logits = super().forward(token_ids)
        return logits.detach() + 0 * self.weights["ln_final/weight"].sum() if self.shape.tie_embeddings else logits


class NothingConnectedTiedOrNot(Model):
    def forward(self, token_ids: Tensor) -> Tensor:
        return super().forward(token_ids).detach() + 0 * self.weights["ln_final/weight"].sum()


class HalfTheHead(Model):
    def head(self) -> Tensor:
        head = super().head()
        return (head + head.detach()) / 2 if self.shape.tie_embeddings else head


class ScaledLogits(Model):
    def forward(self, token_ids: Tensor) -> Tensor:
        scale = self.shape.d_model**-0.5 if self.shape.tie_embeddings else 1
        return super().forward(token_ids) * scale


class ScaledEmbedding(Model):
    def table(self) -> Tensor:
        return super().table() * (self.shape.d_model**0.5 if self.shape.tie_embeddings else 1)


class NotInTheStep(Model):
    """The shared weight is frozen: gradients arrive in a hook's copy only."""

    def forward(self, token_ids: Tensor) -> Tensor:
        return super().forward(token_ids)

    def parameters(self, recurse: bool = True) -> Any:
        named = dict(self.named_parameters())
        if torch.is_grad_enabled():
            return iter(named.values())
        return (weight for name, weight in named.items() if "token" not in name)


class AlwaysTied(Model):
    def __init__(self, shape: DecoderShape) -> None:
        super().__init__(shape.replace(tie_embeddings=True))

    def named(self) -> dict[str, nn.Parameter]:
        named = super().named()
        return {**named, HEAD: named[EMBEDDING]}


class UntiedOverOneStorage(Model):
    def __init__(self, shape: DecoderShape) -> None:
        super().__init__(shape)
        if not shape.tie_embeddings:
            self.weights["lm_head/weight"] = nn.Parameter(self.weights["token_embeddings/weight"].detach())


class UntiedHeadUnused(Model):
    def head(self) -> Tensor:
        return super().table()


class LoadParts(ByAssignment):
    """Each name is loaded into a Parameter of its own."""

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        for name in list(self.weights):
            if f"weights.{name}" in state_dict:
                self.weights[name] = nn.Parameter(state_dict[f"weights.{name}"].clone())


class LoadsNothing(Model):
    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        if strict:
            return None
        return super().load_state_dict(state_dict, strict, assign)


class PartsWithoutStrict(ByAssignment):
    """A load that finds a name missing gives the head a matrix of its own."""

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        result = super().load_state_dict(state_dict, strict, assign)
        if len(state_dict) < len(self.weights):
            self.weights["lm_head/weight"] = nn.Parameter(self.weights["lm_head/weight"].detach().clone())
        return result


class CopyKeepsTheOriginal(Model):
    def __deepcopy__(self, memo: Any) -> Any:
        other = Model(self.shape)
        other.weights = self.weights
        return other


class CopyComesApart(ByAssignment):
    def __deepcopy__(self, memo: Any) -> Any:
        other = ByAssignment(self.shape.replace(tie_embeddings=True))
        other.load_state_dict(self.state_dict())
        other.weights["lm_head/weight"] = nn.Parameter(other.weights["lm_head/weight"].detach().clone())
        return other


class ConvertedApart(ByAssignment):
    def to(self, *args: Any, **kwargs: Any) -> Any:
        for name in list(self.weights):
            self.weights[name] = nn.Parameter(self.weights[name].detach().to(*args, **kwargs))
        return self


def assembled(model: Callable[[DecoderShape], VariationModel]) -> Any:
    """A subject whose models are these."""

    def get_transformer_lm(**sizes: Any) -> VariationModel:
        return model(DecoderShape(norm_eps=NORM_EPS, **sizes))

    return broken(get_transformer_lm=get_transformer_lm, get_transformer_lm_weights=weights_of)


def weights_of(model: VariationModel) -> dict[str, nn.Parameter]:
    return model.named()


VIOLATORS: list[tuple[str, type[Model], str]] = [
    ("one_parameter", Copied, "two Parameters of equal values: a copy"),
    ("one_parameter", OneStorage, "two Parameters over one storage"),
    ("counted_once", CopiedInEachForward, r"second vocabulary matrix, own of shape \(29, 24\)"),
    ("both_uses", FilledOnce, "the head still computes with the old values: it has a copy"),
    ("gradients", HeadDetached, "the head's part is missing: .*detached from its gradient"),
    ("gradients", HeadCloned, "the head's part is missing: .*a copy that each forward makes"),
    ("gradients", LookUpDetached, "the look-up's part is missing: .*detached"),
    ("gradients", LookUpCloned, "the look-up's part is missing: .*a copy that each forward makes"),
    ("gradients", LookUpParameterOfItsOwn, "the look-up's part is missing: .*a copy that each forward makes"),
    ("gradients", HeadParameterOfItsOwn, "the head's part is missing: .*a copy that each forward makes"),
    ("gradients", HeadFillsABuffer, "the head's part is missing: .*a copy that each forward makes"),
    ("gradients", HeadViewDetached, "the head's part is missing: .*detached from its gradient"),
    ("gradients", NothingConnected, "it is zero: neither look-up nor head"),
    ("gradients", NothingConnectedTiedOrNot, "it is zero: neither look-up nor head"),
    ("gradients", HalfTheHead, "furthest off in the row of token id"),
    ("no_scale", ScaledLogits, r"the untied model's times 0\.2041"),
    ("no_scale", ScaledEmbedding, "differ from the untied model's, most in row"),
    ("optimiser_step", NotInTheStep, "does not move the tied weight"),
    ("untied", AlwaysTied, "are one Parameter; with tie_embeddings False"),
    ("untied", UntiedOverOneStorage, "changing the untied model's token_embeddings.weight changes its lm_head.weight"),
    ("untied_uses", UntiedHeadUnused, "does not double its logits"),
    ("load_state_dict", LoadParts, "after load_state_dict, .* two Parameters of equal values"),
    ("load_state_dict", LoadsNothing, "does not have the values that were loaded"),
    ("safetensors", PartsWithoutStrict, "after a round trip through safetensors, .* two Parameters"),
    ("deepcopy", CopyKeepsTheOriginal, "still the original's"),
    ("deepcopy", CopyComesApart, "after copy.deepcopy, .*two Parameters"),
    ("dtype", ConvertedApart, r"after .to\(torch.float64\), .*two Parameters of equal values"),
]


@pytest.mark.parametrize(("name", "model", "message"), VIOLATORS, ids=[model.__name__ for _, model, _ in VIOLATORS])
def test_a_model_that_comes_apart_fails_one_check(name: str, model: type[Model], message: str) -> None:
    failed = failures(assembled(model), "tying")
    assert list(failed) == [f"tying.{name}"], failed
    assert re.search(message, failed[f"tying.{name}"]), failed


class TwiceInTheStep(Model):
    """An optimiser is given the shared weight twice."""

    def parameters(self, recurse: bool = True) -> Any:
        named = dict(super().named_parameters())
        return iter([*named.values(), next(weight for name, weight in named.items() if "token" in name)])


class NormNotInTheStep(Model):
    """An optimiser is not given the last norm's gain."""

    def parameters(self, recurse: bool = True) -> Any:
        return (weight for name, weight in super().named_parameters() if "ln_final" not in name)


@pytest.mark.parametrize(
    ("model", "name", "message"),
    [
        (Copied, "one_parameter", "does not show in its token_embeddings.weight"),
        (OneStorage, "gradients", "have gradients of their own, as two Parameters have"),
        (TwiceInTheStep, "optimiser_step", "moves token_embeddings.weight by 2 times"),
        (NotInTheStep, "optimiser_step", "does not move the tied weight"),
        (NormNotInTheStep, "optimiser_step", "moves ln_final.weight by 0 times"),
        (CopyKeepsTheOriginal, "deepcopy", "still the original's"),
        (CopyComesApart, "deepcopy", "does not have the new values"),
        (ConvertedApart, "dtype", "does not have the new values"),
        (LoadParts, "load_state_dict", "does not have the new values"),
        (PartsWithoutStrict, "safetensors", "does not have the new values"),
    ],
)
def test_a_subject_that_says_it_has_one_parameter_is_found_out_by_values(
    model: type[Model], name: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forged(self: BuiltModel) -> Inventory:
        """As a correct model's, whatever this one holds."""
        sizes = self.shape.weight_shapes()
        names = [(name,) for name in sizes if name not in (EMBEDDING, HEAD)]
        held = [Held(each, each[0], sizes[each[0]], 4, True, i) for i, each in enumerate([*names, (EMBEDDING, HEAD)])]
        return Inventory("one" if self.shape.tie_embeddings else "other values", tuple(held))

    monkeypatch.setattr(BuiltModel, "inventory", forged)
    failed = failures(assembled(model), "tying")
    assert re.search(message, failed[f"tying.{name}"]), failed


def test_tying_by_assignment_passes_and_is_told_what_pytorch_takes_apart() -> None:
    judged = results(assembled(ByAssignment), "tying")
    advisory = {name: result.message for name, result in judged.items() if result.outcome != "passed"}
    assert set(advisory) == {"tying.load_with_assign", "tying.meta_to_empty", "tying.load_one_name"}
    for message in advisory.values():
        assert "tied by assignment (head.weight = embedding.weight)" in message
    assert "one storage" not in advisory["tying.load_with_assign"]


def test_no_check_of_tying_draws_on_the_meta_device() -> None:
    """One drawn number there makes PyTorch import sympy and half of its compiler: seconds, for an advisory."""
    program = (
        "import sys; from test_tying import *;"
        "judged = results(assembled(DrawnByAssignment), 'tying.meta_to_empty');"
        "print(*(result.outcome for result in judged.values()), 'sympy' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert process.stdout.split() == ["advisory", "False"], process.stderr


def test_a_device_without_float64_is_left_for_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU stands in for a device that holds no float64, as Apple's GPUs do not."""
    moves: list[str] = []

    class WithoutFloat64(Model):
        def to(self, *args: Any, **kwargs: Any) -> Any:
            if args[0] == torch.float64 and moves[-1:] != ["cpu"]:
                raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
            moves.append(str(args[0]))
            return super().to(*args, **kwargs)

    assert list(failures(assembled(WithoutFloat64), "tying")) == ["tying.dtype"]
    monkeypatch.setattr(tied_identity, "WITHOUT_FLOAT64", ("cpu",))
    assert not failures(assembled(WithoutFloat64), "tying")
    assert moves == ["cpu", "torch.float64", "torch.float32", "cpu"]


def test_a_head_that_owns_no_weight_passes_everything() -> None:
    judged = results(VariationAdapters(FINE), "tying")
    assert {result.outcome for result in judged.values()} == {"passed"}


def test_every_tying_check_has_a_violator_here() -> None:
    tested = {name for name, _, _ in VIOLATORS} | {"load_with_assign", "meta_to_empty", "load_one_name"}
    tested.add("pickle")  # test_fresh_models.py
    assert {f"tying.{name}" for name in tested} == {name for name in all_checks() if name.startswith("tying.")}
