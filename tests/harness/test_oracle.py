"""The oracle against PyTorch's own operations, which nobody here wrote."""

import pytest
import torch
import torch.nn.functional as F

from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.oracle_adapters import OracleAdapters
from cs336_harness.reference.weights import make_token_ids, make_weights, normal
from cs336_harness.shapes import DecoderShape

GQA = DecoderShape(
    vocab_size=23, context_length=7, d_model=24, num_layers=2, num_heads=6, num_kv_heads=2, d_ff=64, rope_theta=100.0
)
WEIGHTS = {name: weight.double() for name, weight in make_weights(GQA, seed=1).items()}


def layer(index: int) -> dict[str, torch.Tensor]:
    prefix = f"layers.{index}."
    return {name.removeprefix(prefix): weight for name, weight in WEIGHTS.items() if name.startswith(prefix)}


def test_elementary_steps_equal_pytorch() -> None:
    oracle, x = Oracle(GQA), normal(3, 5, 24, seed=2).double()
    gain = WEIGHTS["ln_final.weight"]
    assert torch.allclose(oracle.silu(x), F.silu(x), atol=1e-14)
    assert torch.allclose(oracle.softmax(x, 1), F.softmax(x, 1), atol=1e-14)
    assert torch.allclose(oracle.rmsnorm(x, gain, 1e-2), F.rms_norm(x, (24,), gain, 1e-2), atol=1e-13)
    assert torch.equal(
        oracle.linear(x, WEIGHTS["layers.0.ffn.w1.weight"]), F.linear(x, WEIGHTS["layers.0.ffn.w1.weight"])
    )


def test_rotation_equals_complex_multiplication() -> None:
    x = normal(2, 5, 8, seed=3).double()
    positions = torch.tensor([0, 3, 4, 9, 300])
    frequencies = 100.0 ** (-torch.arange(0, 8, 2, dtype=torch.float64) / 8)
    turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.exp(1j * positions[:, None] * frequencies)
    assert torch.allclose(Oracle(GQA).rotate(x, positions, 100.0), torch.view_as_real(turned).flatten(-2), atol=1e-13)


def test_masked_attention_equals_pytorch() -> None:
    query, key, value = (normal(2, 3, size, 8, seed=size).double() for size in (5, 7, 7))
    mask = torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(4)) < 0.6
    mask[..., 0] = True
    ours = OracleAdapters().run_scaled_dot_product_attention(query, key, value, mask)
    assert torch.allclose(ours, F.scaled_dot_product_attention(query, key, value, mask), atol=1e-13)


def test_causal_grouped_attention_equals_pytorch_with_repeated_heads() -> None:
    x = normal(2, 7, 24, seed=5).double()
    weights = layer(0)
    project = {name: F.linear(x, weights[f"attn.{name}_proj.weight"]) for name in ("q", "k", "v")}
    query = project["q"].unflatten(-1, (6, 4)).transpose(1, 2)
    key, value = (project[n].unflatten(-1, (2, 4)).transpose(1, 2).repeat_interleave(3, dim=1) for n in ("k", "v"))
    merged = F.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2).flatten(-2)
    expected = F.linear(merged, weights["attn.output_proj.weight"])
    assert torch.allclose(Oracle(GQA).self_attention(x, weights, None, None), expected, atol=1e-12)


def test_model_is_its_steps_and_is_differentiable() -> None:
    oracle = Oracle(GQA)
    token_ids = make_token_ids(GQA, 2, 6, seed=6)
    leaves = {name: weight.clone().requires_grad_() for name, weight in WEIGHTS.items()}
    logits = oracle.transformer_lm(leaves, token_ids)
    x = WEIGHTS["token_embeddings.weight"][token_ids]
    for index in range(2):
        x = oracle.block(x, layer(index), torch.arange(6))
    x = F.rms_norm(x, (24,), WEIGHTS["ln_final.weight"], GQA.norm_eps)
    assert torch.allclose(logits, F.linear(x, WEIGHTS["lm_head.weight"]), atol=1e-12)
    gradients = torch.autograd.grad(logits.square().sum(), list(leaves.values()))
    assert all(bool(gradient.abs().max() > 0) for gradient in gradients)


def test_tied_head_is_the_embedding() -> None:
    tied = Oracle(GQA.replace(tie_embeddings=True))
    token_ids = make_token_ids(GQA, 1, 3, seed=7)
    own_head = {**WEIGHTS, "lm_head.weight": WEIGHTS["token_embeddings.weight"]}
    assert torch.equal(tied.transformer_lm(WEIGHTS, token_ids), Oracle(GQA).transformer_lm(own_head, token_ids))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"num_heads": 7}, "not a multiple of num_heads 7"),
        ({"num_kv_heads": 4}, "not a multiple of num_kv_heads 4"),
        ({"num_heads": 8, "num_kv_heads": 8, "d_model": 24}, "head size 3"),
        ({"vocab_size": 0}, "vocab_size must be positive"),
    ],
)
def test_reference_model_refuses_sizes_that_do_not_fit(change: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        OracleAdapters().get_transformer_lm(**(GQA.model_arguments() | change))
