"""What logits do not depend on and what a call leaves alone: each check has a subject that it must fail."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from vectorised import Vectorised, replaced, result_of, subject_of

from cs336_harness.checks import all_checks
from cs336_harness.reference.oracle import LayerWeights
from cs336_harness.reference.oracle_adapters import OracleModel
from cs336_harness.subject import built_models
from cs336_harness.subject.calling import Subject


class MeanOverTheBatch(Vectorised):
    def project_output(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().project_output(x + 1e-9 * x.mean(0, keepdim=True), weights)


class PlaceInTheBatch(Vectorised):
    def project_logits(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        return super().project_logits(x, weights) + 1e-3 * torch.arange(len(x))[:, None, None]


class SizeOfTheBatch(Vectorised):
    def project_logits(self, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        return super().project_logits(x, weights) * (1 + 1e-3 * len(x))


class Dropout(Vectorised):
    def project_output(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().project_output(torch.nn.functional.dropout(x, 0.1), weights)


class KeepsTheLongest(Vectorised):
    longest = 0

    def project_output(self, x: Tensor, weights: LayerWeights) -> Tensor:
        type(self).longest = max(self.longest, x.shape[-2])
        return super().project_output(x, weights) * self.longest


class TrainingScale(OracleModel):
    def forward(self, token_ids: Tensor) -> Tensor:
        return super().forward(token_ids) * (1.01 if self.training else 1.0)


class Draws(OracleModel):
    def forward(self, token_ids: Tensor) -> Tensor:
        torch.rand(1)
        return super().forward(token_ids)


class Counts(OracleModel):
    calls = 0

    def forward(self, token_ids: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(token_ids) * (1 + 1e-3 * self.calls)


class ShiftsIds(OracleModel):
    def forward(self, token_ids: Tensor) -> Tensor:
        logits = super().forward(token_ids)
        token_ids += 1
        return logits


def overwriting(subject: Subject) -> Subject:
    right = subject.module.run_transformer_lm

    def run_transformer_lm(weights: dict[str, Tensor], in_indices: Tensor, **rest: Any) -> Tensor:
        logits = right(weights=weights, in_indices=in_indices, **rest)
        in_indices += 1
        return logits

    return replaced(subject, run_transformer_lm=run_transformer_lm)


def default_dtype(subject: Subject) -> Subject:
    right = subject.module.run_transformer_lm

    def run_transformer_lm(**arguments: Any) -> Tensor:
        torch.set_default_dtype(torch.float64)
        return right(**arguments)

    return replaced(subject, run_transformer_lm=run_transformer_lm)


def no_grad(subject: Subject) -> Subject:
    right = subject.module.run_transformer_lm

    def run_transformer_lm(**arguments: Any) -> Tensor:
        torch.set_grad_enabled(False)
        return right(**arguments)

    return replaced(subject, run_transformer_lm=run_transformer_lm)


VIOLATORS = {
    "mean": (
        "batch_rows",
        subject_of(MeanOverTheBatch),
        "different logits when the other rows hold other tokens",
    ),
    "place": ("batch_rows", subject_of(PlaceInTheBatch), "row 0 gets different logits as row 1 of the batch"),
    "size": ("batch_rows", subject_of(SizeOfTheBatch), "row 0 gets different logits in a batch of its own"),
    "dropout": ("repeated_calls", subject_of(Dropout), "something is drawn at random"),
    "kept": ("repeated_calls", subject_of(KeepsTheLongest), "something is kept from one call to the next"),
    "training": (
        "train_and_eval",
        subject_of(Vectorised, TrainingScale),
        "than after model.eval()",
    ),
    "counts": ("repeated_calls_of_a_model", subject_of(Vectorised, Counts), "its forward pass keeps something"),
    "shifts": ("ids_untouched_by_a_model", subject_of(Vectorised, ShiftsIds), "the built model overwrites token_ids"),
    "draws": ("no_random_numbers", subject_of(Vectorised, Draws), "draws random numbers after model.train()"),
    "in place": ("arguments_untouched", overwriting(subject_of(Vectorised)), "overwrites in_indices"),
    "dtype": ("global_state", default_dtype(subject_of(Vectorised)), "torch.float32 before run_transformer_lm"),
    "grad mode": ("global_state", no_grad(subject_of(Vectorised)), "True before run_transformer_lm and False after it"),
}


@pytest.mark.parametrize("violator", VIOLATORS)
def test_a_broken_subject_fails_this_check_first(violator: str) -> None:
    name, subject, words = VIOLATORS[violator]
    before = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_rng_state()
    result = result_of(f"information_flow.{name}", subject)
    if violator in ("place", "size"):  # whether rows are told apart is asked of batch and heads before
        assert result.blocked_by == "components.batch_and_heads[transformer_lm]"
    else:
        assert result.outcome == "failed", (result.outcome, result.blocked_by)
    assert words in result.message
    assert "a correct decoder" in result.message
    assert (torch.get_default_dtype(), torch.is_grad_enabled()) == before[:2]
    assert torch.equal(torch.get_rng_state(), before[2])


def test_every_check_of_this_module_has_a_violator() -> None:
    own = {
        item.id.removeprefix("information_flow.")
        for item in all_checks().values()
        if item.group == "information_flow" and item.function.__module__.endswith("independence")
    }
    assert own == {name for name, _, _ in VIOLATORS.values()} | {"models_apart"}  # tests/harness/test_earlier_calls.py


def test_numbers_that_a_gpu_draws_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU stands in for a GPU whose generator each forward moves on."""
    states = iter(torch.arange(100))
    monkeypatch.setattr(built_models, "gpu_generator_state", lambda device: next(states))
    result = result_of("information_flow.no_random_numbers", subject_of(Vectorised))
    assert result.outcome == "failed"
    assert "draws random numbers after model.train()" in result.message


def test_a_model_that_does_not_build_is_the_configuration_s_failure() -> None:
    subject = replaced(subject_of(Vectorised), get_transformer_lm_weights=lambda model: {})
    result = result_of("information_flow.no_random_numbers", subject)
    assert (result.outcome, result.blocked_by) == ("blocked", "configuration.model_builds")
