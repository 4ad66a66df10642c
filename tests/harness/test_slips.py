"""Exceptions that beginners meet first: each is told with its usual cause, and never a cause that is not there."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from variations import Variation, VariationAdapters

from cs336_harness.checks import all_checks
from cs336_harness.contract import MODEL_ENTRY_POINTS
from cs336_harness.diagnosis import Diagnosis, diagnose_check
from cs336_harness.subject.calling import Subject
from cs336_harness.verdict.suite import Suite

RIGHT = VariationAdapters(Variation())


def told(check_id: str, **wrong: Callable[..., Any]) -> Diagnosis | None:
    slip = SimpleNamespace(**{name: getattr(RIGHT, name) for name in MODEL_ENTRY_POINTS} | wrong)
    subject = Subject(slip, "slip")
    result = Suite(subject, diagnose=False).result(all_checks()[check_id])
    assert result.outcome == "failed"
    assert result.failure is not None
    return diagnose_check(subject, result.check, result.failure)


class Module(nn.Module):
    """Parameters and buffers of these names and sizes."""

    def __init__(self, parameters: dict[str, tuple[int, ...]], buffers: tuple[str, ...] = ()) -> None:
        super().__init__()
        for name, size in parameters.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(size)))
        for name in buffers:
            self.register_buffer(name, torch.zeros(1))


def loading(module: Module, *names: str) -> Callable[..., Any]:
    """A function that loads what it is given, in the order of its names, before anything else."""

    def run(**arguments: Any) -> Tensor:
        given = [value for key, value in arguments.items() if key.endswith(("weights", "weight"))]
        module.load_state_dict(dict(zip(names, given, strict=True)))
        return arguments["in_features"]

    def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
        return run(weights=weights, in_features=in_features)

    def run_swiglu(
        d_model: int, d_ff: int, w1_weight: Tensor, w2_weight: Tensor, w3_weight: Tensor, in_features: Tensor
    ) -> Tensor:
        return run(w1_weight=w1_weight, w2_weight=w2_weight, w3_weight=w3_weight, in_features=in_features)

    return run_linear if len(names) == 1 else run_swiglu


SWIGLU = {"w1": (128, 48), "w2": (48, 128), "w3": (128, 48)}


@pytest.mark.parametrize(
    ("module", "names", "words"),
    [
        (Module({"w": (128, 48)}), ("weight",), "the module calls it w, and it is loaded as weight"),
        (Module({"weight": (128, 48), "bias": (128,)}), ("weight",), "the contract has no biases"),
        (Module({"weight": (128, 48)}, ("cos",)), ("weight",), r"the module has cos, .*persistent=False"),
        (Module({}), ("layers.0.weight",), "nn.ModuleList registers them"),
        (Module({}), ("weight",), "the module has no Parameter called weight$"),
        (Module({"weight": (48, 128)}), ("weight",), r"made with the shape \(48, 128\) and given \(128, 48\)"),
        (Module(SWIGLU), ("w1", "w3", "w2"), "they are exchanged where they are loaded"),
    ],
    ids=["renamed", "bias", "buffer", "list", "absent", "turned", "exchanged"],
)
def test_weights_that_do_not_load(module: Module, names: tuple[str, ...], words: str) -> None:
    run = loading(module, *names)
    name = "run_linear" if len(names) == 1 else "run_swiglu"
    found = told(f"components.{name.removeprefix('run_')}", **{name: run})
    assert found is not None
    assert found.confidence == "likely"
    assert re.search(words, found.reading), found.reading


def test_an_einsum_that_takes_the_weight_the_other_way() -> None:
    def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
        return torch.einsum("...i,io->...o", in_features, weights)

    found = told("components.linear", run_linear=run_linear)
    assert found is not None
    assert found.reading.startswith("the einsum names the axes of the weight (128, 48) as (in, out)")


def test_a_mean_that_loses_its_axis() -> None:
    def run_rmsnorm(d_model: int, eps: float, weights: Tensor, in_features: Tensor) -> Tensor:
        return in_features / (in_features.pow(2).mean(-1) + eps).sqrt() * weights

    found = told("components.rmsnorm", run_rmsnorm=run_rmsnorm)
    assert found is not None
    assert found.reading.startswith("(4, 12) meets (4, 12, 48)")
    assert "keepdim=True" in found.reading


def test_two_dtypes_in_one_product() -> None:
    def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
        return in_features.double() @ weights.T

    def run_embedding(vocab_size: int, d_model: int, weights: Tensor, token_ids: Tensor) -> Tensor:
        return nn.functional.one_hot(token_ids, vocab_size) @ weights

    found = told("components.linear", run_linear=run_linear)
    assert found is not None
    assert "what is given is float32, and something on the way becomes float64" in found.reading
    found = told("components.embedding", run_embedding=run_embedding)
    assert found is not None
    assert "becomes int64 (an integer tensor such as one_hot)" in found.reading


def test_a_tensor_asked_for_its_truth() -> None:
    name = "run_multihead_self_attention_with_rope"

    def run(in_features: Tensor, token_positions: Tensor | None = None, **rest: Any) -> Tensor:
        if not token_positions:
            token_positions = torch.arange(in_features.shape[-2])
        return getattr(RIGHT, name)(in_features=in_features, token_positions=token_positions, **rest)

    found = told("components.multihead_self_attention_with_rope", **{name: run})
    assert found is not None
    assert "`if x is None`" in found.reading


def test_positions_that_get_their_axes_behind_time() -> None:
    def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
        while token_positions.ndim < in_query_or_key.ndim - 1:
            token_positions = token_positions.unsqueeze(1)
        angles = token_positions[..., None] * theta ** -(torch.arange(0, d_k, 2) / d_k)
        even, odd = in_query_or_key[..., ::2], in_query_or_key[..., 1::2]
        turned = even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()
        return torch.stack(turned, -1).flatten(-2)

    found = told("components.rope", run_rope=run_rope)
    assert found is not None
    assert found.where == "positions"
    assert "cos and sin have time where in_query_or_key (4, 12, 8) has its batch" in found.reading


def test_an_exception_of_another_kind_is_given_no_cause() -> None:
    def run_linear(d_in: int, d_out: int, weights: Tensor, in_features: Tensor) -> Tensor:
        raise RuntimeError("size mismatch, says the learner")

    found = told("components.linear", run_linear=run_linear)
    assert found is None or not found.reading
