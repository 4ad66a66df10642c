"""Each public snapshot has a subject that fails its check, and that check alone; what builds on it is blocked."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from broken import RIGHT, broken, failures
from torch import Tensor
from variations import VARIATIONS, Variation, VariationAdapters

from cs336_harness.shapes import DecoderShape

FINE = Variation()


def scaled_embedding(weights: Tensor, token_ids: Tensor, d_model: int, **_: Any) -> Tensor:
    return weights[token_ids] * math.sqrt(d_model)


def gate_exchanged(w1_weight: Tensor, w3_weight: Tensor, **rest: Any) -> Tensor:
    return RIGHT.run_swiglu(w1_weight=w3_weight, w3_weight=w1_weight, **rest)


def gain_forgotten(weights: Tensor, **rest: Any) -> Tensor:
    return RIGHT.run_rmsnorm(weights=torch.ones_like(weights), **rest)


def halves_paired(in_query_or_key: Tensor, d_k: int, **rest: Any) -> Tensor:
    order = torch.arange(d_k).view(2, -1).T.flatten()
    return RIGHT.run_rope(in_query_or_key=in_query_or_key[..., order], d_k=d_k, **rest)[..., order.argsort()]


def mask_inverted(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return FINE.attend(Q, K, V, None if mask is None else ~mask)


def wrong_with_four_axes(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    scores = Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1])
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(1 if Q.ndim == 4 else -1) @ V


def heads_merged_without_transpose(in_features: Tensor, num_heads: int, d_model: int, **projections: Tensor) -> Tensor:
    q, k, v, o = (projections[f"{name}_proj_weight"] for name in "qkvo")
    parts = [(in_features @ w.T).unflatten(-1, (num_heads, -1)).transpose(-2, -3) for w in (q, k, v)]
    causal = torch.ones(in_features.shape[-2], in_features.shape[-2], dtype=torch.bool).tril()
    return FINE.attend(*parts, causal).reshape(in_features.shape) @ o.T


class KeysNotRotated(Variation):
    calls = 0

    def rotate(self, x: Tensor, positions: Tensor, theta: float, *, inside: bool = False) -> Tensor:
        KeysNotRotated.calls += 1
        return x if KeysNotRotated.calls % 2 == 0 else super().rotate(x, positions, theta, inside=inside)


class PostNorm(Variation):
    def block(self, x: Tensor, weights: Mapping[str, Tensor], heads: tuple[int, int], theta: float) -> Tensor:
        ones = {**weights, "ln1.weight": torch.ones_like(weights["ln1.weight"])}
        return super().block(x, ones, heads, theta)


class LouderFinalNorm(Variation):
    def transformer_lm(self, shape: DecoderShape, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        return super().transformer_lm(
            shape, {**weights, "ln_final.weight": weights["ln_final.weight"] * 1.1}, token_ids
        )


def only_when(condition: Callable[[int, int], bool], wrong: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """A ``run_transformer_lm`` that does ``wrong`` to its logits when (time, context_length) meet the condition."""

    def run(in_indices: Tensor, context_length: int, **rest: Any) -> Tensor:
        logits = RIGHT.run_transformer_lm(in_indices=in_indices, context_length=context_length, **rest)
        return wrong(logits) if condition(in_indices.shape[1], context_length) else logits

    return run


def last_position_twice(logits: Tensor) -> Tensor:
    return torch.cat([logits[:, :1], logits[:, :-1]], 1)


VIOLATORS: dict[str, Any] = {
    "components.linear": broken(run_linear=lambda weights, in_features, **_: in_features @ weights.T + 0.01),
    "components.embedding": broken(run_embedding=scaled_embedding),
    "components.silu": broken(run_silu=torch.nn.functional.gelu),
    "components.softmax": broken(run_softmax=lambda x, dim: RIGHT.run_softmax(2 * x, dim)),
    "components.rmsnorm": broken(run_rmsnorm=gain_forgotten),
    "components.swiglu": broken(run_swiglu=gate_exchanged),
    "components.rope": broken(run_rope=halves_paired),
    "components.scaled_dot_product_attention": broken(run_scaled_dot_product_attention=mask_inverted),
    "components.4d_scaled_dot_product_attention": broken(run_scaled_dot_product_attention=wrong_with_four_axes),
    "components.multihead_self_attention": broken(run_multihead_self_attention=heads_merged_without_transpose),
    "components.multihead_self_attention_with_rope": broken(
        run_multihead_self_attention_with_rope=VariationAdapters(
            KeysNotRotated()
        ).run_multihead_self_attention_with_rope
    ),
    "components.transformer_block": broken(run_transformer_block=VariationAdapters(PostNorm()).run_transformer_block),
    "assembly.transformer_lm": broken(run_transformer_lm=VariationAdapters(LouderFinalNorm()).run_transformer_lm),
    "assembly.transformer_lm_truncated_input": broken(
        run_transformer_lm=only_when(lambda time, limit: 1 < time < limit / 2, last_position_twice)
    ),
    "assembly.transformer_lm_full_context": broken(
        run_transformer_lm=only_when(lambda time, limit: time == limit, last_position_twice)
    ),
    "assembly.transformer_lm_one_token": broken(
        run_transformer_lm=only_when(lambda time, _: time == 1, torch.Tensor.squeeze)
    ),
}


@pytest.mark.parametrize("check_id", VIOLATORS)
def test_the_violator_of_a_snapshot_fails_its_check_alone(check_id: str) -> None:
    assert set(failures(VIOLATORS[check_id], "components", "assembly")) == {check_id}


def test_every_variation_has_the_numbers_of_every_snapshot() -> None:
    for variation in VARIATIONS.values():
        module = VariationAdapters(variation)
        assert not failures(module, "assembly")
