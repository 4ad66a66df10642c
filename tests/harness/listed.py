"""Known mistakes written once more, in plain float32 and by other means than the dictionary's: each must get a name."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from variations import Variation, VariationAdapters

from cs336_harness.reference.oracle_adapters import NORM_EPS
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject


class HalfSplit(Variation):
    """rope-half-split-pairs"""

    def rotate(self, x: Tensor, positions: Tensor, theta: float, *, inside: bool = False) -> Tensor:
        angles = torch.cat([self.angles(positions.to(x.dtype), x.shape[-1], theta)] * 2, -1)
        first, second = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-second, first], -1) * angles.sin()


class FixedTheta(Variation):
    """rope-theta-fixed"""

    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        return super().angles(positions, d_head, 10000.0)


class LayerNorm(Variation):
    """norm-subtracts-mean"""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return torch.nn.functional.layer_norm(x, x.shape[-1:], gain, eps=eps)


class EpsOutside(Variation):
    """norm-eps-outside-root"""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x / (x.norm(dim=-1, keepdim=True) / math.sqrt(x.shape[-1]) + eps) * gain


class Gelu(Variation):
    """silu-is-gelu"""

    def silu(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


class Exchanged(Variation):
    """feed-forward-w1-and-w3-exchanged"""

    def swiglu(self, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return (x @ w1.T * torch.nn.functional.silu(x @ w3.T)) @ w2.T


class Unscaled(Variation):
    """attention-scale-missing"""

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        return super().attend(Q * math.sqrt(Q.shape[-1]), K, V, allowed)


class MaskedAfter(Variation):
    """mask-after-softmax"""

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        weights = torch.softmax(Q @ K.mT / math.sqrt(Q.shape[-1]), -1)
        return (weights if allowed is None else weights * allowed) @ V


class NextSeen(Variation):
    """causal-mask-off-by-one"""

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        causal = allowed is not None and allowed.ndim == 2
        return super().attend(Q, K, V, torch.ones(Q.shape[-2], K.shape[-2]).tril(1).bool() if causal else allowed)


class MergedWrongly(Variation):
    """heads-merged-without-transpose"""

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        heads = super().attend(Q, K, V, allowed)
        if allowed is None or allowed.ndim > 2:
            return heads
        *rows, number, time, d_head = heads.shape
        return heads.reshape(*rows, time, number, d_head).transpose(-2, -3)


class PostNorm(Variation):
    """block-post-norm"""

    def block(self, x: Tensor, weights: Mapping[str, Tensor], heads: tuple[int, int], theta: float) -> Tensor:
        q, k, v, o = (weights[f"attn.{name}_proj.weight"] for name in ("q", "k", "v", "output"))
        attended = self.self_attention(x, (q, k, v, o), heads, torch.arange(x.shape[-2]), theta)
        x = self.rmsnorm(x + attended, weights["ln1.weight"], NORM_EPS)
        fed = self.swiglu(x, *(weights[f"ffn.w{i}.weight"] for i in (1, 2, 3)))
        return self.rmsnorm(x + fed, weights["ln2.weight"], NORM_EPS)


class Probabilities(Variation):
    """logits-softmax"""

    def transformer_lm(self, shape: DecoderShape, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        return super().transformer_lm(shape, weights, token_ids).softmax(-1)


class Coarse(Variation):
    """logits-in-bfloat16"""

    def transformer_lm(self, shape: DecoderShape, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        return super().transformer_lm(shape, weights, token_ids).bfloat16().float()


class CoarseNorm(Variation):
    """norm-in-bfloat16"""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return super().rmsnorm(x, torch.ones_like(gain), eps).bfloat16().float() * gain


LISTED: dict[str, Subject] = {
    str(cls.__doc__): Subject(VariationAdapters(cls()), str(cls.__doc__))
    for cls in (
        HalfSplit,
        FixedTheta,
        LayerNorm,
        EpsOutside,
        Gelu,
        Exchanged,
        Unscaled,
        MaskedAfter,
        NextSeen,
        MergedWrongly,
        PostNorm,
        Probabilities,
        Coarse,
        CoarseNorm,
    )
}
"""Name of the mistake -> a subject that makes it."""
