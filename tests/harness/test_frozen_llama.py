"""The oracle against the frozen numbers of transformers' Llama, and the check that holds a subject against them."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor

from cs336_harness.checks import frozen_llama
from cs336_harness.reference import recipes
from cs336_harness.reference.oracle import LayerWeights, Oracle
from cs336_harness.reference.oracle_adapters import OracleAdapters, OracleModel
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure

HALF_UNIT_OF_FLOAT32 = 2.0**-24


class HalfSplit(Oracle):
    """Rotates the pairs (i, i + d_head/2), as transformers itself does."""

    def rotary_pairs(self, d_head: int) -> tuple[slice, slice]:
        return slice(0, d_head // 2), slice(d_head // 2, d_head)


class Tiled(Oracle):
    """Query heads read the key/value heads in turns."""

    def kv_head_of(self, head: int, num_heads: int, num_kv_heads: int) -> int:
        return head % num_kv_heads


class OtherEps(Oracle):
    """The eps that a Llama config has when it says nothing."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return super().rmsnorm(x, gain, 1e-6)


class NoGradientOfKeys(Oracle):
    """Right logits; keys do not learn."""

    def project_keys(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return super().project_keys(x, weights).detach()


def test_the_oracle_gives_the_numbers_of_transformers() -> None:
    tensors, _ = frozen_llama.frozen()
    case = frozen_llama.frozen_case()
    leaves = {name: weight.double().requires_grad_() for name, weight in case.weights().items()}
    assert leaves.keys() == case.shape.weight_shapes().keys() == frozen_llama.part("gradients").keys()
    logits = Oracle(case.shape).transformer_lm(leaves, case.token_ids())
    (logits * case.direction()).sum().backward()
    largest = tensors["logits"].abs().max()
    assert (logits - tensors["logits"]).abs().max() < 1e-10 * largest
    for name, gradient in frozen_llama.part("gradients").items():
        found = leaves[name].grad
        assert found is not None
        assert (found - gradient).abs().max() <= 1.01 * HALF_UNIT_OF_FLOAT32 * gradient.abs().max(), name


def test_the_fixture_says_where_it_comes_from_and_hides_nothing() -> None:
    _, metadata = frozen_llama.frozen()
    shape = frozen_llama.frozen_case().shape
    config = json.loads(metadata["config"])
    assert metadata["producer"].startswith("transformers.LlamaForCausalLM")
    assert metadata["transformers"].startswith("5.")
    assert (config["rms_norm_eps"], config["rope_parameters"]["rope_theta"]) == (shape.norm_eps, shape.rope_theta)
    assert shape.rope_theta != 10000.0
    assert shape.num_heads // shape.num_kv_heads != shape.num_kv_heads > 1
    assert shape.d_ff % 64 == 0
    assert 2 * shape.d_model <= shape.d_ff <= 3 * shape.d_model
    assert frozen_llama.HUGGINGFACE_LLAMA in recipes.FROZEN
    assert frozen_llama.HUGGINGFACE_LLAMA not in recipes.unused()


def subject(oracle: type[Oracle]) -> Subject:
    return Subject(OracleAdapters(oracle, torch.float32), "oracle")


def test_the_oracle_passes_the_check() -> None:
    error_in_noise = frozen_llama.huggingface_llama(subject(Oracle))
    assert error_in_noise is not None
    assert error_in_noise < 1


class ParticularAboutWidth(OracleAdapters):
    """Refuses a d_ff that is no multiple of 64 between 2 and 3 times d_model."""

    def get_transformer_lm(self, **sizes: Any) -> OracleModel:
        if sizes["d_ff"] % 64 or not 2 * sizes["d_model"] <= sizes["d_ff"] <= 3 * sizes["d_model"]:
            raise ValueError(f"d_ff {sizes['d_ff']} is no multiple of 64 between 2 and 3 times {sizes['d_model']}")
        return super().get_transformer_lm(**sizes)


def test_a_decoder_that_is_particular_about_its_d_ff_passes_the_check() -> None:
    assert (
        frozen_llama.huggingface_llama(Subject(ParticularAboutWidth(Oracle, torch.float32), "particular")) is not None
    )


@pytest.mark.parametrize("defect", [HalfSplit, Tiled, OtherEps, NoGradientOfKeys])
def test_a_defect_fails_the_check(defect: type[Oracle]) -> None:
    expected = "k_proj.weight gets no gradient" if defect is NoGradientOfKeys else "logits of transformers'"
    with pytest.raises(CheckFailure, match=expected):
        frozen_llama.huggingface_llama(subject(defect))
