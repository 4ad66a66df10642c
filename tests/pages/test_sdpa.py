"""Every statement of ``docs/SDPA.md``, and that the page and this file name each other."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from cs336_basics.attention import scaled_dot_product_attention as owned
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.oracle_adapters import OracleAdapters, partial_shape

PAGE = Path(__file__).resolve().parents[2] / "docs" / "SDPA.md"
ROWS, HEADS, QUERIES, KEYS, D_HEAD, D_VALUE = 2, 6, 4, 5, 8, 3
LIMITS = {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 1e-2}
KERNELS = [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]

sdpa = F.scaled_dot_product_attention
reference = OracleAdapters().run_scaled_dot_product_attention


def random(*size: int, seed: int) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


Q = random(ROWS, HEADS, QUERIES, D_HEAD, seed=1)
K = random(ROWS, HEADS, KEYS, D_HEAD, seed=2)
V = random(ROWS, HEADS, KEYS, D_HEAD, seed=3)
MASK = random(ROWS, HEADS, QUERIES, KEYS, seed=4) < 0.3
MASK[..., 2] = True
HIDDEN = torch.zeros(MASK.shape, dtype=torch.float64).masked_fill(~MASK, -torch.inf)


def same(actual: Tensor, expected: Tensor) -> bool:
    """Whether two float64 results are one but for rounding."""
    return bool((actual - expected).abs().max() < LIMITS[torch.float64] * expected.abs().max())


def triangle(queries: int, keys: int, diagonal: int = 0) -> Tensor:
    return torch.ones(queries, keys, dtype=torch.bool).tril(diagonal)


def with_gradients(attention: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """The output of a call and its gradients with respect to Q, K and V, against one fixed direction."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    output = attention(*leaves)
    direction = random(*output.shape, seed=5).to(output.dtype)
    return [output.detach(), *torch.autograd.grad((output * direction).sum(), leaves)]


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_numbers_and_gradients(dtype: torch.dtype) -> None:
    rounded = [tensor.to(dtype) for tensor in (Q, K, V)]
    added = HIDDEN.to(dtype)
    for given, mask in ((MASK, MASK), (added, MASK), (None, None)):
        expected = with_gradients(lambda q, k, v, mask=mask: reference(q, k, v, mask), *(x.double() for x in rounded))
        found = [with_gradients(lambda q, k, v, mask=mask: owned(q, k, v, mask), *rounded)]
        for kernel in KERNELS:
            with sdpa_kernel(kernel):
                found.append(with_gradients(lambda q, k, v, given=given: sdpa(q, k, v, attn_mask=given), *rounded))
        for actual in found:
            assert actual[0].dtype == dtype
            for one, other in zip(actual, expected, strict=True):
                assert (one.double() - other).abs().max() < LIMITS[dtype] * other.abs().max()


def test_scale() -> None:
    assert same(sdpa(Q, K, V), torch.softmax(Q @ K.mT / D_HEAD**0.5, -1) @ V)
    assert same(sdpa(Q, K, V, scale=0.1), torch.softmax(0.1 * Q @ K.mT, -1) @ V)
    assert not same(sdpa(Q, K, V), torch.softmax(Q @ K.mT / (HEADS * D_HEAD) ** 0.5, -1) @ V)


def test_boolean_mask_is_true_where_it_attends() -> None:
    moved = torch.where(MASK.any(-2)[..., None], V, V + 100)  # values that no query attends to
    assert same(sdpa(Q, K, V, attn_mask=MASK), reference(Q, K, V, MASK))
    only_first = torch.zeros(QUERIES, KEYS, dtype=torch.bool)
    only_first[:, 0] = True
    assert same(sdpa(Q, K, V, attn_mask=only_first), V[..., :1, :].expand(ROWS, HEADS, QUERIES, D_HEAD))
    assert same(sdpa(Q, K, moved, attn_mask=MASK), sdpa(Q, K, V, attn_mask=MASK))


def test_multihead_attention_reads_it_the_other_way() -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64).eval()
    x = random(1, KEYS, 8, seed=6)
    changed = x.clone()
    changed[:, -1] += 1

    def moved(mask: Tensor) -> list[bool]:
        before, after = (layer(each, each, each, attn_mask=mask, need_weights=False)[0] for each in (x, changed))
        return ((after - before).abs().amax(-1)[0] > 1e-9).tolist()

    assert moved(~triangle(KEYS, KEYS)) == [False] * (KEYS - 1) + [True]
    assert moved(triangle(KEYS, KEYS, -1)) == [True] * KEYS  # a causal mask in the other meaning, kept whole rows


def test_additive_mask_of_minus_infinity_is_the_boolean_one() -> None:
    assert torch.equal(sdpa(Q, K, V, attn_mask=HIDDEN), sdpa(Q, K, V, attn_mask=MASK))


def test_a_bias_shifts_scores() -> None:
    bias = random(QUERIES, KEYS, seed=7)
    shifted = torch.softmax(Q @ K.mT / D_HEAD**0.5 + bias, -1) @ V
    assert same(sdpa(Q, K, V, attn_mask=bias), shifted)
    assert same(sdpa(Q, K, V, attn_mask=bias[:, :1].expand(QUERIES, KEYS)), sdpa(Q, K, V))


def test_ones_and_zeros_hide_nothing() -> None:
    added = sdpa(Q, K, V, attn_mask=MASK.double())
    assert not same(added, sdpa(Q, K, V, attn_mask=MASK))
    assert same(added, torch.softmax(Q @ K.mT / D_HEAD**0.5 + MASK, -1) @ V)


def test_integers_are_no_mask() -> None:
    with pytest.raises(RuntimeError, match="Expected attn_mask dtype to be bool or float"):
        sdpa(Q, K, V, attn_mask=MASK.long())


def test_masks_are_broadcast() -> None:
    for mask in (MASK[0, 0], MASK[:, :1, :1], MASK[:1, :, :, :]):
        assert same(sdpa(Q, K, V, attn_mask=mask), sdpa(Q, K, V, attn_mask=mask.expand(MASK.shape)))
    padding = torch.tensor([[True] * KEYS, [True] * 3 + [False] * (KEYS - 3)])[:, None, None]
    short = sdpa(Q[1:], K[1:, :, :3], V[1:, :, :3])
    assert same(sdpa(Q, K, V, attn_mask=padding)[1:], short)


def test_is_causal_is_the_lower_triangle() -> None:
    q, k, v = (tensor[:, :, :QUERIES] for tensor in (Q, K, V))
    causal = sdpa(q, k, v, is_causal=True)
    assert same(causal, sdpa(q, k, v, attn_mask=triangle(QUERIES, QUERIES)))
    one_head = Oracle(partial_shape(d_model=D_HEAD, num_heads=1)).attend_head(q[1, 2], k[1, 2], v[1, 2])
    assert same(causal[1, 2], one_head)  # the oracle has no mask: query t is given keys 0 to t
    assert same(causal, owned(q, k, v, is_causal=True))


def test_is_causal_starts_at_the_top_left() -> None:
    top_left = sdpa(Q, K, V, is_causal=True)
    assert same(top_left, sdpa(Q, K, V, attn_mask=triangle(QUERIES, KEYS)))
    assert torch.equal(top_left[..., 0, :], V[..., 0, :])
    bottom_right = sdpa(Q, K, V, attn_mask=triangle(QUERIES, KEYS, KEYS - QUERIES))
    longer = random(ROWS, HEADS, KEYS, D_HEAD, seed=8)
    longer[:, :, -QUERIES:] = Q
    assert same(bottom_right, sdpa(longer, K, V, is_causal=True)[:, :, -QUERIES:])
    assert not same(bottom_right, top_left)


@pytest.mark.slow
def test_the_bottom_right_triangle_is_causal_lower_right() -> None:
    from torch.nn.attention.bias import causal_lower_right  # imports the compiler: a second

    bottom_right = sdpa(Q, K, V, attn_mask=triangle(QUERIES, KEYS, KEYS - QUERIES))
    assert same(sdpa(Q, K, V, attn_mask=causal_lower_right(QUERIES, KEYS)), bottom_right)


def test_one_new_query_over_a_cache() -> None:
    queries = random(ROWS, HEADS, KEYS, D_HEAD, seed=8)
    whole, newest = sdpa(queries, K, V, is_causal=True), queries[:, :, -1:]
    assert same(sdpa(newest, K, V), whole[:, :, -1:])
    assert torch.equal(sdpa(newest, K, V, is_causal=True), V[:, :, :1])


def test_mask_and_is_causal_together() -> None:
    with sdpa_kernel(SDPBackend.MATH), pytest.raises(RuntimeError, match="attn_mask should not be set when is_causal"):
        sdpa(Q, K, V, attn_mask=MASK, is_causal=True)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), contextlib.suppress(RuntimeError):  # PyTorch 2.15 refuses it here too
        both = sdpa(Q, K, V, attn_mask=MASK, is_causal=True)
        assert same(both, sdpa(Q, K, V, attn_mask=MASK & triangle(QUERIES, KEYS)))
    with pytest.raises(ValueError, match="a mask or is_causal=True, not both"):
        owned(Q, K, V, MASK, is_causal=True)


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_a_row_that_sees_nothing(dtype: torch.dtype) -> None:
    q, k, v = (tensor.to(dtype) for tensor in (Q, K, V))
    mask = MASK.clone()
    mask[0, 1, 2] = False
    added = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -torch.inf)
    for kernel in KERNELS:
        for given in (mask, added):
            with sdpa_kernel(kernel):
                output, to_q, to_k, to_v = with_gradients(
                    lambda q, k, v, given=given: sdpa(q, k, v, attn_mask=given), q, k, v
                )
            assert not output[0, 1, 2].any()
            assert not to_q[0, 1, 2].any()
            assert all(bool(tensor.isfinite().all()) for tensor in (output, to_q, to_k, to_v))
    assert not owned(q, k, v, mask)[0, 1, 2].any()
    assert bool((torch.softmax(q @ k.mT + added, -1) @ v)[0, 1, 2].isnan().all())


def test_a_very_negative_number_is_not_minus_infinity() -> None:
    mask = MASK.clone()
    mask[0, 1, 2] = False
    lowest = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, torch.finfo(torch.float64).min)
    output = sdpa(Q, K, V, attn_mask=lowest)
    assert same(output[0, 1, 2], V[0, 1].mean(0))
    assert same(output[1], sdpa(Q, K, V, attn_mask=MASK)[1])


def test_grouped_heads_are_asked_for() -> None:
    with pytest.raises(RuntimeError, match="must match"):
        sdpa(Q, K[:, :2], V[:, :2])
    assert sdpa(Q, K[:, :2], V[:, :2], enable_gqa=True).shape == Q.shape
    assert same(sdpa(Q, K[:, :1], V[:, :1]), sdpa(Q, K[:, :1], V[:, :1], enable_gqa=True))


def test_neighbours_share_a_head() -> None:
    k, v = K[:, :2], V[:, :2]
    grouped = sdpa(Q, k, v, enable_gqa=True)
    shared = torch.arange(HEADS) // (HEADS // 2)
    in_turns = torch.arange(HEADS) % 2
    assert same(grouped, sdpa(Q, k[:, shared], v[:, shared]))
    assert not same(grouped, sdpa(Q, k[:, in_turns], v[:, in_turns]))
    assert same(grouped, owned(Q, k, v))


class _WithDropout(nn.Module):
    def forward(self, q: Tensor) -> Tensor:
        return sdpa(q, K, V, dropout_p=0.5)


def test_dropout_ignores_eval() -> None:
    layer = _WithDropout().eval()
    torch.manual_seed(0)
    assert not torch.equal(layer(Q), layer(Q))
    assert torch.equal(sdpa(Q, K, V, dropout_p=0.0), sdpa(Q, K, V))


def test_multihead_attention_does_not() -> None:
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True).eval()
    x = torch.ones(1, KEYS, 8).cumsum(-1)
    first, second = (layer(x, x, x)[0] for _ in range(2))
    assert torch.equal(first, second)
    layer.train()
    assert not torch.equal(layer(x, x, x)[0], first)


def test_the_page_and_these_tests_name_each_other() -> None:
    here = {
        name
        for name in globals()
        if name.startswith("test_") and name != "test_the_page_and_these_tests_name_each_other"
    }
    assert set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8"))) == here
