"""TransformerLM: names, context, dtypes, devices without values, and compiling whole."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jaxtyping
import pytest
import torch
from small_decoder import CONFIG, assert_near, seeded, token_ids

from cs336_basics.attention import fused_scaled_dot_product_attention, scaled_dot_product_attention
from cs336_basics.config import TransformerConfig
from cs336_basics.transformer import TransformerLM
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.weights import make_weights
from cs336_harness.shapes import DecoderShape


def model_of(config: TransformerConfig = CONFIG, **options: Any) -> TransformerLM:
    return TransformerLM(config, generator=seeded(), **options)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_it_equals_the_oracle_in_float64(tied: bool) -> None:
    config = dataclasses.replace(CONFIG, tie_embeddings=tied)
    names = [field.name for field in dataclasses.fields(DecoderShape)]
    shape = DecoderShape(**{name: getattr(config, name) for name in names})
    weights = {name: weight.double() for name, weight in make_weights(shape, seed=0).items()}
    model = model_of(config, dtype=torch.float64)
    model.load_state_dict(weights)
    assert_near(model(token_ids(2, 7)), Oracle(shape).transformer_lm(weights, token_ids(2, 7)), 1e-10)


def test_its_state_is_the_canonical_weights_and_nothing_else() -> None:
    expected = DecoderShape(**{field.name: getattr(CONFIG, field.name) for field in dataclasses.fields(DecoderShape)})
    state = model_of().state_dict()
    assert {name: tuple(weight.shape) for name, weight in state.items()} == expected.weight_shapes()
    assert list(model_of(dataclasses.replace(CONFIG, tie_embeddings=True)).state_dict()) == list(state)[:-1]
    assert not list(model_of().buffers())


def test_one_generator_seeds_every_weight_and_no_two_layers_alike() -> None:
    first, again = model_of(), model_of()
    for own, other in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(own, other)
    for own, other in zip(first.layers[0].parameters(), first.layers[1].parameters(), strict=True):
        assert own is not other
        assert own.ndim == 1 or not torch.equal(own, other)


@pytest.mark.slow  # PyTorch imports sympy to empty a meta model
def test_meta_then_to_empty_then_reset_is_the_same_model() -> None:
    model = TransformerLM(CONFIG, device="meta")
    model = model.to_empty(device="cpu")
    model.reset_parameters(seeded())
    assert torch.equal(model(token_ids(2, 12)), model_of()(token_ids(2, 12)))


def test_ids_may_have_any_leading_axes_and_rows_do_not_mix() -> None:
    model, ids = model_of(dtype=torch.float64), token_ids(2, 3, 7)
    logits = model(ids)
    assert logits.shape == (2, 3, 7, 31)
    assert_near(model(ids[1, 2]), logits[1, 2], 1e-12)


def test_longer_than_the_context_is_refused_and_exactly_as_long_is_not() -> None:
    assert model_of()(token_ids(2, 12)).shape == (2, 12, 31)
    with pytest.raises(ValueError, match=r"^13 tokens are more than context_length 12: shorten the input, raise"):
        model_of()(token_ids(2, 13))


def test_keep_last_looks_at_the_last_tokens_alone() -> None:
    model = model_of(dataclasses.replace(CONFIG, context_policy="keep_last"))
    ids, positions = token_ids(2, 15), torch.arange(15) + 40
    assert torch.equal(model(ids), model(ids[:, -12:]))
    assert torch.equal(model(ids, positions), model(ids[:, -12:], positions[-12:]))
    assert torch.equal(model(ids[:, :5]), model_of()(ids[:, :5]))


@pytest.mark.parametrize("shape", [(0,), (2, 0)], ids=str)
def test_no_tokens_at_all_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^token_ids of shape .* hold no tokens; a decoder needs at least one$"):
        model_of()(torch.empty(shape, dtype=torch.int64))


def test_positions_may_be_passed_and_only_their_distances_count() -> None:
    model, ids = model_of(dtype=torch.float64), token_ids(2, 5)
    logits = model(ids)
    jumps = torch.tensor([[0, 1, 5, 9, 300], [4, 3, 2, 1, 0]])
    moved = model(ids, jumps)
    assert not torch.allclose(moved, logits)
    for row in range(2):
        assert_near(model(ids[row], jumps[row]), moved[row], 1e-12)
    for positions in (torch.arange(5), torch.arange(5)[None], torch.arange(5).expand(2, 5), torch.arange(5) + 1000):
        assert_near(model(ids, positions), logits, 1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_it_moves_to_other_dtypes_and_stays_near(dtype: torch.dtype) -> None:
    exact, moved = model_of().double(), model_of().to(dtype)
    with torch.no_grad():
        logits = moved(token_ids(2, 12))
    assert logits.dtype == dtype
    assert_near(logits.double(), exact(token_ids(2, 12)), 60 * torch.finfo(dtype).eps)


@pytest.fixture
def shapes_unchecked() -> Iterator[None]:
    """A compiler cannot look into the shape checks of a test run."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.mark.slow
@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("attention", [scaled_dot_product_attention, fused_scaled_dot_product_attention])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_it_compiles_as_one_graph(attention: Any, tied: bool) -> None:
    model = model_of(dataclasses.replace(CONFIG, tie_embeddings=tied), attention=attention)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    logits, expected = compiled(token_ids(2, 7)), model(token_ids(2, 7))
    assert_near(logits, expected, 1e-5)
    direction = torch.randn(logits.shape, generator=seeded())
    weights = list(model.parameters())
    gradients = [torch.autograd.grad((output * direction).sum(), weights) for output in (logits, expected)]
    for own, other in zip(*gradients, strict=True):
        assert_near(own, other, 1e-4)
