"""Linear, Embedding, RMSNorm, SwiGLU and the two functions they need (CS336 handout: Basic Building Blocks).

Every weight is a plain Parameter. ``generator`` seeds its initial values, ``device`` and ``dtype`` say where and in
which precision it is made; on the meta device there are no values to draw.
"""

import math
from typing import TypedDict, Unpack

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn


class Creation(TypedDict, total=False):
    """How new weights are made."""

    generator: torch.Generator | None
    device: torch.device | str | None
    dtype: torch.dtype | None


def softmax(x: Float[Tensor, "*shape"], dim: int) -> Float[Tensor, "*shape"]:
    """exp(x) / Σ exp(x) along ``dim``; half precision is computed in float32 and returned in its own dtype."""
    if x.numel() == 0:  # nothing to normalise, and amax refuses an empty axis
        return x.clone()
    wide = at_least_float32(x)
    exponentials = (wide - wide.amax(dim, keepdim=True)).exp()  # the largest exponent is 0: no overflow
    return (exponentials / exponentials.sum(dim, keepdim=True)).to(x.dtype)


def silu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """x · sigmoid(x), elementwise (arXiv:1606.08415)."""
    return x * torch.sigmoid(x)


def at_least_float32(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Half precision widened to float32; float32 and float64 as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Linear(nn.Module):
    """y = W x without bias; ``weight`` is (d_out, d_in), as the CS336 handout stores it.

    Initial weights: normal with variance 2 / (d_in + d_out), cut at three standard deviations.
    """

    def __init__(self, d_in: int, d_out: int, **creation: Unpack[Creation]) -> None:
        super().__init__()
        self.weight = _new_weight(d_out, d_in, **creation)
        self.reset_parameters(creation.get("generator"))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weight anew."""
        d_out, d_in = self.weight.shape
        _fill_truncated_normal(self.weight, math.sqrt(2 / (d_in + d_out)), generator)

    def forward(self, x: Float[Tensor, "*batch d_in"]) -> Float[Tensor, "*batch d_out"]:
        return x @ self.weight.T


class Embedding(nn.Module):
    """Rows of ``weight`` (vocab_size, d_model) by token id, and the same rows as a tied output head.

    Initial weights: standard normal, cut at three standard deviations.
    """

    def __init__(self, vocab_size: int, d_model: int, **creation: Unpack[Creation]) -> None:
        super().__init__()
        self.weight = _new_weight(vocab_size, d_model, **creation)
        self.reset_parameters(creation.get("generator"))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weight anew."""
        _fill_truncated_normal(self.weight, 1.0, generator)

    def forward(self, token_ids: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch d_model"]:
        """Look the ids up.

        Raises:
            ValueError: the ids are no integers, or, in eager mode on the CPU, one is outside the vocabulary. Looking
                would stall a GPU, which has an assertion of its own; a compiled graph cannot branch on values.
        """
        if token_ids.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"token ids must be torch.int64 or torch.int32, got {token_ids.dtype}")
        if token_ids.is_cpu and not torch.compiler.is_compiling():
            self._refuse_ids_outside_the_vocabulary(token_ids)
        rows = self.weight.index_select(0, token_ids.flatten())  # weight[token_ids] has a ten times slower backward
        return rows.view(*token_ids.shape, self.weight.shape[1])

    def logits(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch vocab_size"]:
        """x @ E^T: the output head of a tied model (arXiv:1608.05859). No scale."""
        return x @ self.weight.T

    def _refuse_ids_outside_the_vocabulary(self, token_ids: Int[Tensor, "*batch"]) -> None:
        vocab_size = self.weight.shape[0]
        outside = (token_ids < 0) | (token_ids >= vocab_size)
        if outside.any():
            position = tuple(outside.nonzero()[0].tolist())
            raise ValueError(
                f"token id {token_ids[position].item()} at position {position} is outside the vocabulary: "
                f"vocab_size {vocab_size} has the ids 0 to {vocab_size - 1}"
            )


class RMSNorm(nn.Module):
    """x · w / sqrt(mean(x²) + eps) over the last axis, in at least float32 (arXiv:1910.07467).

    Squares of half-precision values under- and overflow, so x is widened first; the output has the dtype of x.
    The gain ``weight`` (d_model,) starts at one.
    """

    def __init__(self, d_model: int, eps: float = 1e-5, **creation: Unpack[Creation]) -> None:
        super().__init__()
        self.eps = eps
        self.weight = _new_weight(d_model, **creation)
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Set the gain to one; nothing is drawn."""
        nn.init.ones_(self.weight)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        wide = at_least_float32(x)
        # Not mean(): its backward divides every channel's gradient where one division per token will do.
        mean_square = wide.square().sum(dim=-1, keepdim=True) / wide.shape[-1]
        return (wide * torch.rsqrt(mean_square + self.eps) * self.weight).to(x.dtype)

    def extra_repr(self) -> str:
        return f"eps={self.eps}"


class SwiGLU(nn.Module):
    """W2 (silu(W1 x) ⊙ W3 x): W1 is the gate, W3 the value, W2 the way back to d_model (arXiv:2002.05202)."""

    def __init__(self, d_model: int, d_ff: int, **creation: Unpack[Creation]) -> None:
        super().__init__()
        self.w1 = Linear(d_model, d_ff, **creation)
        self.w2 = Linear(d_ff, d_model, **creation)
        self.w3 = Linear(d_model, d_ff, **creation)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        return self.w2(silu(self.w1(x)) * self.w3(x))


def _new_weight(*size: int, **creation: Unpack[Creation]) -> nn.Parameter:
    return nn.Parameter(torch.empty(size, device=creation.get("device"), dtype=creation.get("dtype")))


@torch.no_grad()
def _fill_truncated_normal(weight: nn.Parameter, std: float, generator: torch.Generator | None) -> None:
    """Normal with mean 0, cut at three standard deviations; drawn in float32 at least: half precision lacks tails."""
    if not weight.is_meta:
        drawn = torch.empty_like(weight, dtype=torch.promote_types(weight.dtype, torch.float32))
        weight.copy_(nn.init.trunc_normal_(drawn, std=std, a=-3 * std, b=3 * std, generator=generator))
