r"""Scaled dot-product attention, explicit and fused, and causal self-attention over it (arXiv:1706.03762).

MHA, GQA and MQA are one code path: there are ``num_kv_heads`` key and value heads, and query head h reads head
h // (num_heads / num_kv_heads) of them.

    MHA, 6 over 6       GQA, 6 over 2       MQA, 6 over 1
    q 0 1 2 3 4 5       q 0 1 2 3 4 5       q 0 1 2 3 4 5
      | | | | | |         \|/   \|/         \_\_\_/_/_/
    k 0 1 2 3 4 5       k  0     1          k      0
"""

import math
from typing import Protocol, Unpack, runtime_checkable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Complex, Float
from torch import Tensor, nn

from cs336_basics.cache import LayerCache
from cs336_basics.layers import Creation, Linear, softmax
from cs336_basics.rope import rotate


@runtime_checkable
class Attention(Protocol):
    """What a decoder calls: Q (*batch, heads, queries, d_head), K and V with as many heads or fewer."""

    def __call__(
        self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor: ...


def scaled_dot_product_attention(
    Q: Float[Tensor, "*q_batch queries d_k"],
    K: Float[Tensor, "*kv_batch keys d_k"],
    V: Float[Tensor, "*kv_batch keys d_v"],
    mask: Bool[Tensor, "*mask_batch queries keys"] | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "*q_batch queries d_v"]:
    """softmax(Q K^T / sqrt(d_k)) V, step by step.

    Args:
        K, V: with as many heads (the third axis from the right) as Q, or fewer, which neighbouring query heads
            then share (arXiv:2305.13245).
        mask: True where a query attends to a key. A query that attends to none gets zeros, as from the fused kernel.
        is_causal: query t attends to the keys 0 to t, and to those only.

    Raises:
        ValueError: both a mask and ``is_causal`` are given.
    """
    if is_causal:
        if mask is not None:
            raise ValueError("attention takes a mask or is_causal=True, not both; combine them in the mask")
        mask = torch.ones(Q.shape[-2], K.shape[-2], dtype=torch.bool, device=Q.device).tril()
    if Q.ndim > 2 and K.shape[-3] != Q.shape[-3]:
        K, V = (part.repeat_interleave(Q.shape[-3] // part.shape[-3], dim=-3) for part in (K, V))
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])  # (*batch, queries, keys)
    if mask is None:
        return softmax(scores, dim=-1) @ V
    # The lowest number rather than -inf, which makes NaN of a query that attends to no key; hence the second masking.
    lowest = torch.finfo(scores.dtype).min
    return softmax(scores.masked_fill(~mask, lowest), dim=-1).masked_fill(~mask, 0.0) @ V


def fused_scaled_dot_product_attention(
    Q: Float[Tensor, "*batch heads queries d_k"],
    K: Float[Tensor, "*batch kv_heads keys d_k"],
    V: Float[Tensor, "*batch kv_heads keys d_v"],
    mask: Bool[Tensor, "*mask_batch queries keys"] | None = None,
    is_causal: bool = False,
) -> Float[Tensor, "*batch heads queries d_v"]:
    """The same function by PyTorch's fused kernels, which never hold the (queries, keys) matrix (arXiv:2205.14135).

    Q, K and V need a heads axis.
    """
    grouped = K.shape[-3] != Q.shape[-3]
    return F.scaled_dot_product_attention(Q, K, V, attn_mask=mask, is_causal=is_causal, enable_gqa=grouped)


class CausalSelfAttention(nn.Module):
    """Each token attends to itself and to the tokens before it, in ``num_heads`` heads of ``d_head`` channels."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        d_head: int,
        attention: Attention = scaled_dot_product_attention,
        **creation: Unpack[Creation],
    ) -> None:
        super().__init__()
        self.d_head = d_head
        self.attention = attention
        self.q_proj = Linear(d_model, num_heads * d_head, **creation)
        self.k_proj = Linear(d_model, num_kv_heads * d_head, **creation)
        self.v_proj = Linear(d_model, num_kv_heads * d_head, **creation)
        self.output_proj = Linear(num_heads * d_head, d_model, **creation)

    def forward(
        self,
        x: Float[Tensor, "*batch time d_model"],
        rotary: Complex[Tensor, "*positions time pairs"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "*batch time d_model"]:
        """Attend; when ``rotary`` is given, queries and keys are turned by it, all heads alike.

        With a ``cache``, x (batch, time, d_model) continues the tokens that it holds and joins them.
        """
        q = self.q_proj(x).unflatten(-1, (-1, self.d_head))  # (*batch, time, num_heads, d_head)
        k = self.k_proj(x).unflatten(-1, (-1, self.d_head))  # (*batch, time, num_kv_heads, d_head)
        v = self.v_proj(x).unflatten(-1, (-1, self.d_head))
        if rotary is not None:
            q, k = rotate(q, rotary.unsqueeze(-2)), rotate(k, rotary.unsqueeze(-2))
        q, k, v = (part.transpose(-3, -2) for part in (q, k, v))  # (*batch, heads, time, d_head)
        mask = None
        if cache is not None:
            k, v = cache.extend(k, v)
            mask = _mask_of_the_last(q.shape[-2], k.shape[-2], k.device)
        attended = self.attention(q, k, v, mask, is_causal=mask is None)
        return self.output_proj(attended.transpose(-3, -2).flatten(-2))


def _mask_of_the_last(queries: int, keys: int, device: torch.device) -> Bool[Tensor, "queries keys"]:
    """Causal where the queries are the last of the keys' tokens: query i stands at position keys - queries + i."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)
