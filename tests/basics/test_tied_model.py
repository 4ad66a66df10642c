"""A tied model has one vocabulary matrix by construction: nothing that is loaded, copied or moved makes it two."""

import copy
import dataclasses
from collections.abc import Callable

import pytest
import torch
from small_decoder import CONFIG, assert_near, seeded
from torch import Tensor

from cs336_basics.config import TransformerConfig
from cs336_basics.transformer import TransformerLM

UNTIED = CONFIG
TIED = dataclasses.replace(UNTIED, tie_embeddings=True)
IDS = torch.tensor([[3, 0, 30, 7], [1, 1, 2, 5]])


def model_of(config: TransformerConfig = TIED, seed: int = 0) -> TransformerLM:
    return TransformerLM(config, generator=seeded(seed))


def assert_one_matrix(model: TransformerLM) -> None:
    """No second name, and both uses move with the one weight: row 9 is looked up nowhere, yet its logit follows it."""
    assert "lm_head.weight" not in dict(model.named_parameters(remove_duplicate=False))
    assert "lm_head.weight" not in model.state_dict()
    before = model(IDS).detach()
    with torch.no_grad():
        model.token_embeddings.weight[9] *= 2
    after = model(IDS).detach()
    assert_near(after[..., 9], 2 * before[..., 9], 1e-5)
    assert torch.equal(after[..., 10:], before[..., 10:])


def by_both_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {**weights, "lm_head.weight": weights["token_embeddings.weight"].clone()}


def by_the_heads_name(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"lm_head.weight" if name == "token_embeddings.weight" else name: w for name, w in weights.items()}


@pytest.mark.parametrize("assign", [False, True], ids=["copied", "assigned"])
@pytest.mark.parametrize("names", [dict, by_both_names, by_the_heads_name], ids=["embedding", "both", "head"])
def test_weights_load_under_either_name(names: Callable[[dict[str, Tensor]], dict[str, Tensor]], assign: bool) -> None:
    source, model = model_of(seed=1), model_of(seed=2)
    weights = names(source.state_dict())
    given = dict(weights)
    model.load_state_dict(weights, assign=assign)
    assert list(weights) == list(given)  # the caller's dict is left as it was
    assert torch.equal(model(IDS), source(IDS))
    assert_one_matrix(model)


@pytest.mark.parametrize("strict", [True, False], ids=["strict", "not strict"])
def test_a_head_that_differs_from_the_embedding_is_refused_and_nothing_is_loaded(strict: bool) -> None:
    model = model_of()
    before = copy.deepcopy(model.state_dict())
    weights = by_both_names(model_of(seed=1).state_dict())
    weights["lm_head.weight"][[4, 7]] += 1e-6
    with pytest.raises(ValueError, match=r".") as refused:
        model.load_state_dict(weights, strict=strict)
    assert str(refused.value) == (
        "lm_head.weight and token_embeddings.weight differ in 2 of 31 rows, first in row 4, and this model is tied: "
        "it has one matrix for both. Load them with tie_embeddings=False, "
        "or leave one of the two names out of the state dict"
    )
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())


def test_a_head_of_another_shape_is_refused() -> None:
    weights = {**model_of().state_dict(), "lm_head.weight": torch.zeros(32, 24)}
    with pytest.raises(ValueError, match=r"have the shapes \(32, 24\) and \(31, 24\), and this model is tied"):
        model_of().load_state_dict(weights)


def test_it_loads_as_a_part_of_something_larger() -> None:
    whole = torch.nn.ModuleDict({"decoder": model_of()})
    source = model_of(seed=1)
    whole.load_state_dict({f"decoder.{name}": weight for name, weight in by_both_names(source.state_dict()).items()})
    assert torch.equal(whole["decoder"](IDS), source(IDS))


def test_a_deep_copy_is_tied_and_loads_on_its_own() -> None:
    model = model_of()
    twin = copy.deepcopy(model)
    del model
    source = model_of(seed=1)
    twin.load_state_dict(by_both_names(source.state_dict()))
    assert torch.equal(twin(IDS), source(IDS))
    assert_one_matrix(twin)


@pytest.mark.slow  # PyTorch imports sympy to empty a meta model
def test_materialisation_keeps_it_tied() -> None:
    model = TransformerLM(TIED, device="meta").to_empty(device="cpu")
    model.load_state_dict(by_both_names(model_of().state_dict()))
    assert_one_matrix(model)


def test_dtype_moves_and_assignment_to_a_meta_model_keep_it_tied() -> None:
    assert_one_matrix(model_of().to(torch.bfloat16).to(torch.float32))
    meta = TransformerLM(TIED, device="meta")
    meta.load_state_dict(by_both_names(model_of().state_dict()), assign=True)
    assert_one_matrix(meta)


def test_both_uses_send_their_gradient_into_the_one_matrix() -> None:
    tied, untied = model_of(), model_of(UNTIED)
    untied.load_state_dict(by_both_names(tied.state_dict()))
    for model in (tied, untied):
        model(IDS).square().mean().backward()
    assert untied.lm_head is not None
    parts = untied.token_embeddings.weight.grad, untied.lm_head.weight.grad
    assert all(part is not None and part.any() for part in parts)
    assert_near(tied.token_embeddings.weight.grad, sum(parts), 1e-6)


def test_an_untied_model_keeps_two_and_takes_any_head() -> None:
    model = model_of(UNTIED)
    weights = {**model.state_dict(), "lm_head.weight": torch.zeros(31, 24)}
    model.load_state_dict(weights)
    assert not model(IDS).any()
    assert model.token_embeddings.weight.any()
    del weights["lm_head.weight"]
    with pytest.raises(RuntimeError, match=r"Missing key.*lm_head\.weight"):
        model.load_state_dict(weights)
