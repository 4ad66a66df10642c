"""Explicit and fused attention are one function, in output and gradient, for every sharing of heads."""

import dataclasses

import pytest
import torch
from small_decoder import CONFIG, assert_near, seeded
from torch import Tensor

from cs336_basics.attention import fused_scaled_dot_product_attention as fused
from cs336_basics.attention import scaled_dot_product_attention as explicit
from cs336_basics.transformer import TransformerLM


def queries_keys_values(kv_heads: int, queries: int = 5, keys: int = 5) -> list[Tensor]:
    sizes = ((2, 6, queries, 4), (2, kv_heads, keys, 4), (2, kv_heads, keys, 3))
    return [torch.randn(size, generator=seeded(), dtype=torch.float64, requires_grad=True) for size in sizes]


@pytest.mark.parametrize("kv_heads", [6, 2, 1], ids=["MHA", "GQA", "MQA"])
@pytest.mark.parametrize("how", ["open", "causal", "masked", "rectangular"])
def test_explicit_equals_fused_in_output_and_gradient(kv_heads: int, how: str) -> None:
    inputs = queries_keys_values(kv_heads, queries=3 if how == "rectangular" else 5)
    mask = torch.rand(2, 1, 5, 5, generator=seeded(1)) < 0.6 if how == "masked" else None
    if mask is not None:
        mask[0, 0, 2] = False  # one query attends to no key
    outputs = [attend(*inputs, mask, is_causal=how == "causal") for attend in (explicit, fused)]
    assert_near(*outputs, 1e-12)
    direction = torch.randn(outputs[0].shape, generator=seeded(2), dtype=torch.float64)
    gradients = [torch.autograd.grad((output * direction).sum(), inputs) for output in outputs]
    for own, other in zip(*gradients, strict=True):
        assert_near(own, other, 1e-12)


def test_neighbouring_query_heads_share_a_kv_head() -> None:
    Q, K, V = queries_keys_values(2)
    for head in range(6):
        alone = explicit(Q[:, head], K[:, head // 3], V[:, head // 3])
        assert_near(explicit(Q, K, V)[:, head], alone, 1e-14)


def test_a_query_that_attends_to_no_key_gets_zeros_and_passes_zero_gradients() -> None:
    Q, K, V = queries_keys_values(6)
    output = explicit(Q, K, V, torch.zeros(5, 5, dtype=torch.bool))
    assert not output.any()
    assert not any(gradient.any() for gradient in torch.autograd.grad(output.sum(), (Q, K, V)))


def test_a_mask_hides_its_keys_entirely_however_large_the_scores() -> None:
    Q, K, V = queries_keys_values(6)
    loud = K.detach().clone()
    loud[..., 3:, :] *= 1e30
    mask = torch.arange(5) < 3
    assert torch.equal(explicit(Q, loud, V, mask.expand(5, 5)), explicit(Q, K, V, mask.expand(5, 5)))


def test_a_mask_together_with_is_causal_is_refused() -> None:
    Q, K, V = queries_keys_values(6)
    with pytest.raises(ValueError, match="takes a mask or is_causal=True, not both"):
        explicit(Q, K, V, torch.ones(5, 5, dtype=torch.bool), is_causal=True)


@pytest.mark.parametrize("num_kv_heads", [6, 2, 1], ids=["MHA", "GQA", "MQA"])
def test_the_whole_model_is_the_same_with_either(num_kv_heads: int) -> None:
    config = dataclasses.replace(CONFIG, num_kv_heads=num_kv_heads)
    first = TransformerLM(config, explicit, generator=seeded(), dtype=torch.float64)
    second = TransformerLM(config, fused, generator=seeded(), dtype=torch.float64)
    token_ids = torch.randint(31, (3, 9), generator=seeded())
    outputs = [model(token_ids) for model in (first, second)]
    assert_near(*outputs, 1e-11)
    for output in outputs:
        output.square().mean().backward()
    for own, other in zip(first.parameters(), second.parameters(), strict=True):
        assert_near(own.grad, other.grad, 1e-11)
