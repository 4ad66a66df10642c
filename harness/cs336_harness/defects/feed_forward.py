"""Defects of the activation and of the gated feed-forward."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cs336_harness.defects.defect import OracleDefect, Place, defect

SILU_VALUES = ("silu(0) = 0, silu(1) = 0.7311, silu(-1) = -0.2689: print yours.",)
GATE = (
    "Set w1 to zero: silu(0) = 0 closes the gate, and the output must be zero.",
    "Set w3 to zero: the output must be zero as well.",
)


@defect(
    "silu-is-sigmoid",
    Place.FEED_FORWARD,
    hint="SiLU has two factors: the sigmoid is one of them.",
    steps=SILU_VALUES,
)
class SiluIsSigmoid(OracleDefect):
    """The sigmoid alone is returned; SiLU is x times it. (In the feed-forward this makes a GLU of the SwiGLU.)"""

    def silu(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x)


@defect("silu-is-gelu", Place.FEED_FORWARD, hint="Which function multiplies x: the sigmoid?", steps=SILU_VALUES)
class SiluIsGelu(OracleDefect):
    """GELU stands where SiLU belongs: x times the normal distribution function, not x times the sigmoid."""

    def silu(self, x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x)


@defect("silu-is-gelu-tanh", Place.FEED_FORWARD, hint="Which function multiplies x: the sigmoid?", steps=SILU_VALUES)
class SiluIsGeluTanh(OracleDefect):
    """GELU in its tanh form stands where SiLU belongs (GPT-2's and Gemma's activation)."""

    def silu(self, x: Tensor) -> Tensor:
        return torch.nn.functional.gelu(x, approximate="tanh")


@defect(
    "silu-is-quick-gelu",
    Place.FEED_FORWARD,
    hint="What is x multiplied by inside your sigmoid?",
    steps=SILU_VALUES,
)
class SiluIsQuickGelu(OracleDefect):
    """x · sigmoid(1.702 x), an approximation of GELU; SiLU has no factor inside the sigmoid."""

    def silu(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


@defect("silu-is-relu", Place.FEED_FORWARD, hint="What does yours give at -1? Not zero.", steps=SILU_VALUES)
class SiluIsRelu(OracleDefect):
    """ReLU stands where SiLU belongs."""

    def silu(self, x: Tensor) -> Tensor:
        return torch.relu(x)


@defect("silu-is-tanh", Place.FEED_FORWARD, hint="SiLU grows like x for large x: does yours?", steps=SILU_VALUES)
class SiluIsTanh(OracleDefect):
    """tanh stands where SiLU belongs."""

    def silu(self, x: Tensor) -> Tensor:
        return torch.tanh(x)


@defect("silu-is-hard-swish", Place.FEED_FORWARD, hint="What shape does your sigmoid have?", steps=SILU_VALUES)
class SiluIsHardSwish(OracleDefect):
    """Hard-swish stands where SiLU belongs: x times a sigmoid made of three straight lines."""

    def silu(self, x: Tensor) -> Tensor:
        return torch.nn.functional.hardswish(x)


@defect("silu-is-relu-squared", Place.FEED_FORWARD, hint="What does yours give at -1? Not zero.", steps=SILU_VALUES)
class SiluIsReluSquared(OracleDefect):
    """The square of ReLU stands where SiLU belongs."""

    def silu(self, x: Tensor) -> Tensor:
        return torch.relu(x) ** 2


@defect("silu-sigmoid-squared", Place.FEED_FORWARD, hint="How many sigmoids multiply x?", steps=SILU_VALUES)
class SiluSigmoidSquared(OracleDefect):
    """x is multiplied by the sigmoid twice; SiLU has it once."""

    def silu(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x) ** 2


@defect(
    "silu-missing",
    Place.FEED_FORWARD,
    hint="Between W1 and the product something bends the numbers: what does in yours?",
    steps=SILU_VALUES,
)
class SiluMissing(OracleDefect):
    """x comes back as it went in: there is no activation."""

    def silu(self, x: Tensor) -> Tensor:
        return x


@defect(
    "silu-sign-flipped",
    Place.FEED_FORWARD,
    hint="Is sigmoid 1/(1 + exp(-x)) or 1/(1 + exp(x))?",
    steps=SILU_VALUES,
)
class SiluSignFlipped(OracleDefect):
    """The minus in the exponential is missing: x · sigmoid(-x), which vanishes for large x where SiLU grows."""

    def silu(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(-x)


@defect(
    "silu-in-bfloat16",
    Place.FEED_FORWARD,
    rounds=True,
    hint="In which dtype does your activation come out?",
)
class SiluInBfloat16(OracleDefect):
    """The activation passes through bfloat16: three digits of each value are kept."""

    def silu(self, x: Tensor) -> Tensor:
        return super().silu(x).to(torch.bfloat16).to(torch.float64)


@defect(
    "feed-forward-w1-and-w3-exchanged",
    Place.FEED_FORWARD,
    hint="Two matrices read the input: which of them goes through the activation?",
    steps=("Set w1 to zero, then w3: compare with what silu(0) = 0 makes of each.",),
)
class FeedForwardW1AndW3Exchanged(OracleDefect):
    """SiLU acts on W3 x instead of W1 x: the gate and the value have changed places."""

    def swiglu(self, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return super().swiglu(x, w3, w2, w1)


@defect(
    "feed-forward-gate-after-product",
    Place.FEED_FORWARD,
    hint="Does SiLU see W1 x alone, or the product already?",
    steps=GATE,
)
class FeedForwardGateAfterProduct(OracleDefect):
    """SiLU is taken of the product W1 x ⊙ W3 x; it belongs on W1 x, before the product."""

    def swiglu(self, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return self.linear(self.silu(self.linear(x, w1) * self.linear(x, w3)), w2)


@defect(
    "feed-forward-w3-missing",
    Place.FEED_FORWARD,
    hint="SwiGLU owns three matrices: which of yours is never multiplied?",
    steps=GATE,
)
class FeedForwardW3Missing(OracleDefect):
    """W3 is never used: W2 silu(W1 x), a feed-forward of two matrices with no gate."""

    def swiglu(self, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return self.linear(self.silu(self.linear(x, w1)), w2)


@defect(
    "feed-forward-activation-missing",
    Place.FEED_FORWARD,
    hint="The gate is bent before it multiplies: by which function, and where in yours?",
    steps=GATE,
    same_as=["silu-missing"],
)
class FeedForwardActivationMissing(OracleDefect):
    """The activation is left out of the feed-forward: W2(W1 x ⊙ W3 x). silu itself may be right."""

    def swiglu(self, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return self.linear(self.linear(x, w1) * self.linear(x, w3), w2)


@defect(
    "feed-forward-sum-for-product",
    Place.FEED_FORWARD,
    hint="How are gate and value joined: ⊙ is which operation?",
    steps=GATE,
)
class FeedForwardSumForProduct(OracleDefect):
    """silu(W1 x) and W3 x are added where they must be multiplied."""

    def swiglu(self, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return self.linear(self.silu(self.linear(x, w1)) + self.linear(x, w3), w2)


@defect(
    "feed-forward-activation-on-both",
    Place.FEED_FORWARD,
    hint="How many of the two branches go through SiLU?",
)
class FeedForwardActivationOnBoth(OracleDefect):
    """SiLU acts on both branches; only the gate W1 x goes through it."""

    def swiglu(self, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return self.linear(self.silu(self.linear(x, w1)) * self.silu(self.linear(x, w3)), w2)


@defect(
    "feed-forward-output-activated",
    Place.FEED_FORWARD,
    hint="W2 is the last thing that happens in the feed-forward: what happens after yours?",
)
class FeedForwardOutputActivated(OracleDefect):
    """SiLU is applied to the output of W2 once more."""

    def swiglu(self, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return self.silu(super().swiglu(x, w1, w2, w3))


@defect(
    "feed-forward-scaled",
    Place.FEED_FORWARD,
    hint="Which factor is multiplied in beside the three matrices?",
)
class FeedForwardScaled(OracleDefect):
    """The feed-forward is divided by sqrt(d_ff); only attention scores are scaled."""

    def swiglu(self, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return super().swiglu(x, w1, w2, w3) / math.sqrt(w1.shape[0])
