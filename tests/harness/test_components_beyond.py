"""Each check beyond the snapshots has a subject that fails it, and it alone, with a message that says just that."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from broken import RIGHT, broken, failures
from torch import Tensor
from variations import Variation, VariationAdapters

# Norm and softmax


def eps_ignored(eps: float, **rest: Any) -> Tensor:
    return RIGHT.run_rmsnorm(eps=1e-5, **rest)


def eps_clamped_from(low: float, high: float) -> Callable[..., Tensor]:
    return lambda eps, **rest: RIGHT.run_rmsnorm(eps=min(max(eps, low), high), **rest)


def norm_clamped(in_features: Tensor, weights: Tensor, eps: float, d_model: int) -> Tensor:
    return in_features * torch.rsqrt(in_features.square().mean(-1, keepdim=True).clamp(min=1e-6) + eps) * weights


def norm_of_clipped(in_features: Tensor, **rest: Any) -> Tensor:
    return RIGHT.run_rmsnorm(in_features=in_features.clamp(-9e3, 9e3), **rest)


def norm_over_axis_two(in_features: Tensor, weights: Tensor, eps: float, d_model: int) -> Tensor:
    return in_features * torch.rsqrt(in_features.square().sum(2, keepdim=True) / d_model + eps) * weights


def norm_squared_first(in_features: Tensor, weights: Tensor, eps: float, d_model: int) -> Tensor:
    mean = in_features.square().mean(-1, keepdim=True)
    return (in_features.float() * torch.rsqrt(mean.float() + eps)).to(in_features.dtype) * weights


def softmax_without_maximum(x: Tensor, dim: int) -> Tensor:
    return x.exp() / x.exp().sum(dim, keepdim=True)


def softmax_of_mean(x: Tensor, dim: int) -> Tensor:
    powers = (x - x.mean(dim, keepdim=True)).exp()
    return powers / powers.sum(dim, keepdim=True)


def softmax_of_global_maximum(x: Tensor, dim: int) -> Tensor:
    return softmax_without_maximum(x - x.max(), dim)


def wrong_with_axes(entry_point: str, count: int) -> Callable[..., Tensor]:
    """Right, but for results of so many axes, which are twice too large."""

    def run(*args: Any, **arguments: Any) -> Tensor:
        result = getattr(RIGHT, entry_point)(*args, **arguments)
        return result * 2 if result.ndim == count else result

    return run


def d_ff_rounded(d_ff: int, w2_weight: Tensor, **rest: Any) -> Tensor:
    kept = d_ff // 64 * 64
    cut = {name: rest.pop(name)[:kept] for name in ("w1_weight", "w3_weight")}
    return RIGHT.run_swiglu(d_ff=kept, w2_weight=w2_weight[:, :kept], **cut, **rest)


def silu_by_quotient(x: Tensor) -> Tensor:
    return x * (x.exp() / (1 + x.exp()))


def gate_capped(w1_weight: Tensor, w2_weight: Tensor, w3_weight: Tensor, in_features: Tensor, **_: Any) -> Tensor:
    gate = F.silu((in_features @ w1_weight.T).clamp(-20, 20))
    return (gate * (in_features @ w3_weight.T)) @ w2_weight.T


# Rotary positions


def rope_with(**changed: Callable[[Any], Any]) -> Callable[..., Tensor]:
    """The rotation with some of its arguments changed on the way."""

    def run(**arguments: Any) -> Tensor:
        return RIGHT.run_rope(**arguments | {name: change(arguments[name]) for name, change in changed.items()})

    return run


def counted(positions: Tensor) -> Tensor:
    return torch.arange(positions.shape[-1])


def first_row(positions: Tensor) -> Tensor:
    return positions[0] if positions.ndim > 1 else positions


def table_of_input_length(in_query_or_key: Tensor, token_positions: Tensor, max_seq_len: int, **rest: Any) -> Tensor:
    table = torch.arange(max(in_query_or_key.shape[-2], max_seq_len - 1))
    return RIGHT.run_rope(
        in_query_or_key=in_query_or_key, token_positions=table[token_positions], max_seq_len=max_seq_len, **rest
    )


def vectors_picked(in_query_or_key: Tensor, token_positions: Tensor, **rest: Any) -> Tensor:
    picked = in_query_or_key[..., token_positions, :]
    return RIGHT.run_rope(in_query_or_key=picked, token_positions=token_positions, **rest)


def vectors_picked_and_put_back(in_query_or_key: Tensor, token_positions: Tensor, **rest: Any) -> Tensor:
    turned = torch.zeros_like(in_query_or_key)
    turned[..., token_positions, :] = vectors_picked(in_query_or_key, token_positions, **rest)
    return turned


def tables_in_bfloat16(in_query_or_key: Tensor, token_positions: Tensor, theta: float, **_: Any) -> Tensor:
    return Variation().rotate(in_query_or_key, token_positions.to(torch.bfloat16), theta)


def wrapped_at_17(positions: Tensor) -> Tensor:
    return positions % 17 if positions.max() < 200 else positions


def table_by_heads(in_query_or_key: Tensor, token_positions: Tensor, **rest: Any) -> Tensor:
    if in_query_or_key.ndim == 4:
        heads = in_query_or_key.transpose(1, 2)
        return RIGHT.run_rope(in_query_or_key=heads, token_positions=token_positions[: heads.shape[-2]], **rest).mT.mT
    return RIGHT.run_rope(in_query_or_key=in_query_or_key, token_positions=token_positions, **rest)


def stretched_far_away(in_query_or_key: Tensor, token_positions: Tensor, **rest: Any) -> Tensor:
    turned = RIGHT.run_rope(in_query_or_key=in_query_or_key, token_positions=token_positions, **rest)
    return torch.where(token_positions.sum() == 1216, turned * 1.1, turned)  # 300 + (0, 3, 4, 9)


def rescaled_far_away(positions: Tensor) -> Tensor:
    return positions * 0.9 if positions.sum() == 1216 else positions


# Attention


def no_mask_is_causal(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    causal = torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool).tril()
    return Variation().attend(Q, K, V, causal if mask is None else mask)


def scaled_by_values(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
    return RIGHT.run_scaled_dot_product_attention(Q * (Q.shape[-1] / V.shape[-1]) ** 0.5, K, V, mask)


class ExpAsItIs(Variation):
    def softmax(self, x: Tensor, dim: int) -> Tensor:
        return softmax_without_maximum(x, dim)


def attention_with(**changed: Callable[[Any], Any]) -> Callable[..., Tensor]:
    """Attention with RoPE with some of its arguments changed on the way."""

    def run(**arguments: Any) -> Tensor:
        arguments |= {name: change(arguments[name]) for name, change in changed.items()}
        return RIGHT.run_multihead_self_attention_with_rope(**arguments)

    return run


def block_at_one_theta(theta: float, **rest: Any) -> Tensor:
    return RIGHT.run_transformer_block(theta=10000.0, **rest)


class BatchAgainstHeads(Variation):
    """Cosines of (batch, time, …) against queries of (batch, heads, time, …)."""

    def rotate(self, x: Tensor, positions: Tensor, theta: float, *, inside: bool = False) -> Tensor:
        if x.ndim == 4:
            positions = torch.arange(x.shape[-2]).expand(x.shape[0], -1)
        return super().rotate(x, positions, theta, inside=inside)


class LinedUpWithHeads(Variation):
    """Cosines of (batch, time, …) against queries of (batch, heads, time, …), where that is no error."""

    def rotate(self, x: Tensor, positions: Tensor, theta: float, *, inside: bool = False) -> Tensor:
        if x.shape[0] == x.shape[1] == positions.shape[0] and positions.ndim == 3:
            positions = positions.squeeze(1)[None]
        return super().rotate(x, positions, theta, inside=inside)


lined_up_with_heads = VariationAdapters(LinedUpWithHeads()).run_multihead_self_attention_with_rope
MIXED = VariationAdapters(BatchAgainstHeads())

AFTER_ROPE = "run_multihead_self_attention_with_rope"

VIOLATORS: list[tuple[str, Any, str]] = [
    ("rmsnorm_eps", broken(run_rmsnorm=eps_ignored), "ignores eps: eps 1e-05 and eps 0.1 give the same"),
    ("rmsnorm_eps_values[0.1]", broken(run_rmsnorm=eps_clamped_from(0, 0.05)), "eps 0.1.*inside the root"),
    ("rmsnorm_eps_values[1e-8]", broken(run_rmsnorm=eps_clamped_from(1e-6, 1)), "eps 1e-08.*first at row 0"),
    ("rmsnorm_scales[1e-4]", broken(run_rmsnorm=norm_clamped), "inputs of size 0.0001"),
    ("rmsnorm_scales[1e4]", broken(run_rmsnorm=norm_of_clipped), "inputs of size 10000"),
    ("rmsnorm_leading_axes[three]", broken(run_rmsnorm=norm_over_axis_two), r"normalises over axis 2 .*dim=-1"),
    ("softmax_dim", broken(run_softmax=lambda x, dim: x.softmax(-1)), "ignores dim: .*those of dim 2"),
    ("softmax_large", broken(run_softmax=softmax_without_maximum), "near 1e4.*NaN.*subtracts the maximum"),
    ("softmax_far_apart", broken(run_softmax=softmax_of_mean), "1e4 above the others.*NaN.*no exponent is above zero"),
    ("softmax_global_maximum", broken(run_softmax=softmax_of_global_maximum), "NaN.*each line's own maximum"),
    ("silu_extremes", broken(run_silu=silu_by_quotient), "NaN.*sigmoid"),
    ("swiglu_gate", broken(run_swiglu=gate_capped), "gates near ±100.*W1 x is the gate"),
    ("swiglu_d_ff", broken(run_swiglu=d_ff_rounded), "d_ff 100.*neither rounds d_ff nor computes its own"),
    ("rope_theta", broken(run_rope=rope_with(theta=lambda _: 10000.0)), "ignores theta"),
    ("rope_positions", broken(run_rope=rope_with(token_positions=counted)), "ignores token_positions"),
    ("rope_rows", broken(run_rope=rope_with(token_positions=first_row)), "only the first row of token_positions"),
    ("rope_last_position", broken(run_rope=table_of_input_length), "table is too short"),
    ("rope_last_position", broken(run_rope=vectors_picked), "to pick rows of in_query_or_key: 18 and 19"),
    ("rope_last_position", broken(run_rope=vectors_picked_and_put_back), "picks rows of cos and sin"),
    ("rope_position_values[jumping]", broken(run_rope=rope_with(token_positions=wrapped_at_17)), "0, 4, 5, 9, 17"),
    ("rope_far_positions[theta_10000]", broken(run_rope=tables_in_bfloat16), "255 to 599.*float32 or better"),
    ("rope_leading_axes", broken(run_rope=wrong_with_axes("run_rope", 4)), "position t of every row and head alike"),
    ("rope_is_a_rotation", broken(run_rope=stretched_far_away), "position 300 from .* never stretches"),
    ("rope_is_a_rotation", broken(run_rope=rope_with(token_positions=rescaled_far_away)), "by 300 positions moves"),
    ("attention_no_mask", broken(run_scaled_dot_product_attention=no_mask_is_causal), "no mask for a causal mask"),
    (
        "attention_large_scores",
        broken(run_scaled_dot_product_attention=VariationAdapters(ExpAsItIs()).run_scaled_dot_product_attention),
        "scores around 150.*NaN.*largest score",
    ),
    ("attention_sizes[d_v_differs]", broken(run_scaled_dot_product_attention=scaled_by_values), "takes d_v from V"),
    ("attention_theta", broken(**{AFTER_ROPE: attention_with(theta=lambda _: 1000.0)}), "does not pass theta on"),
    (
        "attention_theta",
        broken(**{AFTER_ROPE: attention_with(theta=lambda _: 1000.0, token_positions=counted)}),
        "turns by a theta and positions of its own: neither",
    ),
    (
        "attention_theta",
        broken(**{AFTER_ROPE: attention_with(token_positions=torch.zeros_like)}),
        "does not rotate: neither",
    ),
    ("block_theta", broken(run_transformer_block=block_at_one_theta), "does not pass theta on"),
    ("attention_positions", broken(**{AFTER_ROPE: attention_with(token_positions=counted)}), "ignores token_pos"),
    (
        "attention_position_values[past_256]",
        broken(**{AFTER_ROPE: attention_with(token_positions=lambda positions: positions.clamp(max=511))}),
        "0, 255, 257, 411, 599 of max_seq_len 600",
    ),
    (
        "batch_and_heads[multihead_self_attention_with_rope]",
        broken(**{AFTER_ROPE: MIXED.run_multihead_self_attention_with_rope}),
        "one row, and with 2 rows and 3 heads fails.*lined up with the head axis",
    ),
    ("batch_and_heads[transformer_block]", broken(run_transformer_block=MIXED.run_transformer_block), "lined up"),
    ("batch_and_heads[transformer_lm]", broken(run_transformer_lm=MIXED.run_transformer_lm), "lined up with the head"),
]

SDPA = "run_scaled_dot_product_attention"


def attention_wrong_when(condition: Callable[[Tensor, Tensor, Tensor | None], bool]) -> Any:
    """Attention that is right but where the condition on (Q, V, mask) holds."""

    def run(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
        result = RIGHT.run_scaled_dot_product_attention(Q, K, V, mask)
        return result * 2 if condition(Q, V, mask) else result

    return broken(**{SDPA: run})


def narrow(Q: Tensor, V: Tensor) -> bool:
    return Q.shape[-1] != V.shape[-1] and Q.shape[-2] == 5 and float(Q.abs().max()) < 8


def heads_wrong_when(condition: Callable[[int, int], bool]) -> Any:
    def run(num_heads: int, d_model: int, **rest: Any) -> Tensor:
        result = RIGHT.run_multihead_self_attention(num_heads=num_heads, d_model=d_model, **rest)
        return result.flip(-1) if condition(num_heads, d_model) else result

    return broken(run_multihead_self_attention=run)


def positions_of(change: Callable[[Tensor], Tensor]) -> Any:
    return broken(run_rope=rope_with(token_positions=change))


def wrapped_at_512_when_theta_is(wrapped: int) -> Any:
    def run(theta: float, token_positions: Tensor, **rest: Any) -> Tensor:
        positions = token_positions % 512 if theta == wrapped else token_positions
        return RIGHT.run_rope(theta=theta, token_positions=positions, **rest)

    return broken(run_rope=run)


def attention_positions_of(change: Callable[[Tensor], Tensor]) -> Any:
    return broken(**{AFTER_ROPE: attention_with(token_positions=lambda p: p if p is None else change(p))})


CASES: dict[str, Any] = {
    "attention_sizes[d_v_differs]": attention_wrong_when(
        lambda Q, V, mask: narrow(Q, V) and Q.ndim == 3 and mask is not None and 15 < int(mask[0].sum()) < 35
    ),
    "attention_sizes[open_mask]": attention_wrong_when(
        lambda Q, V, mask: narrow(Q, V) and mask is not None and bool(mask.all())
    ),
    "attention_sizes[no_mask]": attention_wrong_when(lambda Q, V, mask: mask is None),
    "attention_sizes[one_key_visible]": attention_wrong_when(
        lambda Q, V, mask: narrow(Q, V) and mask is not None and int(mask.sum(-1).max()) == 1
    ),
    "attention_sizes[batch_and_heads]": attention_wrong_when(lambda Q, V, _: narrow(Q, V) and Q.shape[:2] == (2, 4)),
    "multihead_self_attention_sizes[one_head]": heads_wrong_when(lambda _, d_model: d_model == 10),
    "multihead_self_attention_sizes[five_heads_of_six]": heads_wrong_when(lambda heads, _: heads == 5),
    "multihead_self_attention_sizes[two_heads_of_ten]": heads_wrong_when(lambda _, d_model: d_model == 20),
    "rope_position_values[descending]": positions_of(lambda p: p.sort().values if p.ndim == 1 and p[0] == 12 else p),
    "rope_position_values[by_row]": positions_of(lambda p: p[[0, 1, 1]] if p.ndim == 2 else p),
    "rope_position_values[starting_late]": positions_of(lambda p: p + 1 if 10 < p.min() < 18 else p),
    "attention_position_values[jumping]": attention_positions_of(lambda p: p.clamp(max=12) if p.max() == 17 else p),
    "attention_position_values[last_position]": attention_positions_of(
        lambda p: p.clamp(max=18) if p.max() == 19 else p
    ),
    "attention_position_values[starting_late]": attention_positions_of(lambda p: p.where(p[..., :1] != 7, p % 9)),
    "attention_position_shapes[time]": attention_positions_of(lambda p: 2 * p if p.ndim == 1 else p),
    "attention_position_shapes[batch_time]": attention_positions_of(lambda p: p[:1] if len(p) == 2 else p),
    "attention_position_shapes[as_many_rows_as_heads]": broken(**{AFTER_ROPE: lined_up_with_heads}),
    "attention_other_shapes[no_leading_axis]": attention_wrong_when(lambda Q, V, _: Q.ndim == 2),
    "attention_other_shapes[three_leading_axes]": attention_wrong_when(lambda Q, V, _: Q.ndim == 5),
    "attention_other_shapes[one_mask_for_all]": attention_wrong_when(
        lambda Q, V, mask: mask is not None and mask.ndim < Q.ndim
    ),
    "rope_other_shapes[no_leading_axis]": broken(run_rope=wrong_with_axes("run_rope", 2)),
    "rope_other_shapes[positions_by_row]": positions_of(lambda p: p + (p == 14) if p.shape == (3, 5) else p),
    "rope_other_shapes[positions_by_row_and_head]": positions_of(lambda p: p[0] if p.shape == (2, 3, 5) else p),
    "rope_other_shapes[positions_with_an_axis_for_heads]": positions_of(
        lambda p: p[0] if p.shape[-2:] == (1, 5) else p
    ),
    **{
        f"{name}_leading_axes[{count}]": broken(**{f"run_{name}": wrong_with_axes(f"run_{name}", axes)})
        for name in ("linear", "embedding", "rmsnorm", "silu", "swiglu", "softmax")
        for count, axes in (("three", 4), ("one", 2), ("none", 1))
    },
    **{f"rope_far_positions[theta_{theta}]": wrapped_at_512_when_theta_is(theta) for theta in (100, 500000)},
    **{
        f"softmax_every_dim[{case}]": broken(
            run_softmax=lambda x, dim, case=case: x.softmax(dim) * (2 if dim == case and x.shape == (3, 4, 5) else 1)
        )
        for case in (0, 1, 2, -2, -3)
    },
}
"""Right subjects but for one case."""


def require_only(name: str, failed: dict[str, str]) -> None:
    """The violator of a check fails that check and no other; the message says what to do when it does."""
    assert f"components.{name}" in failed, f"components.{name} passes a subject that it must fail"
    others = sorted(set(failed) - {f"components.{name}"})
    assert not others, f"the violator of components.{name} also fails {others}: name the one in the other's `after`"


@pytest.mark.parametrize("name", CASES)
def test_one_case_alone(name: str) -> None:
    require_only(name, failures(CASES[name], "components"))


@pytest.mark.parametrize(("name", "module", "message"), VIOLATORS, ids=[name for name, _, _ in VIOLATORS])
def test_a_violator_fails_its_check_alone_and_is_told_so(name: str, module: Any, message: str) -> None:
    failed = failures(module, "components", "assembly", "configuration")
    require_only(name, failed)
    assert re.search(message, failed[f"components.{name}"]), failed


def test_a_softmax_by_logsumexp_is_correct() -> None:
    subject = broken(run_softmax=lambda x, dim: (x - x.logsumexp(dim, keepdim=True)).exp())
    assert failures(subject, "components.softmax") == {}
