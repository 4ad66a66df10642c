"""Defects of which norm stands where in a block."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from cs336_harness.defects.defect import OracleDefect, Place, defect
from cs336_harness.reference.oracle import LayerWeights

NORMED_BRANCH = (
    "Say the block's two lines aloud: x plus attention of the norm of x, then x plus feed-forward of the norm of x.",
)


@defect(
    "first-norm-missing",
    Place.FIRST_NORM,
    hint="What does your attention read: the residual stream, or the norm of it?",
    steps=NORMED_BRANCH,
)
class FirstNormMissing(OracleDefect):
    """Attention reads the residual stream as it is; ln1 is never applied."""

    def attention_sublayer(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return x + self.self_attention(x, weights, positions, self.shape.rope_theta)


@defect(
    "second-norm-missing",
    Place.SECOND_NORM,
    hint="What does your feed-forward read: the residual stream, or the norm of it?",
    steps=NORMED_BRANCH,
)
class SecondNormMissing(OracleDefect):
    """The feed-forward reads the residual stream as it is; ln2 is never applied."""

    def feed_forward_sublayer(self, x: Tensor, weights: LayerWeights) -> Tensor:
        return x + self.swiglu(x, *(weights[f"ffn.{name}.weight"] for name in ("w1", "w2", "w3")))


class _OtherGains(OracleDefect):
    def gains(self, weights: LayerWeights) -> dict[str, Tensor]:
        raise NotImplementedError

    def block(self, x: Tensor, weights: LayerWeights, positions: Tensor) -> Tensor:
        return super().block(x, {**weights, **self.gains(weights)}, positions)


@defect(
    "first-norm-used-twice",
    Place.SECOND_NORM,
    hint="A block owns two norms: which of them runs before the feed-forward, and is the other one ever called?",
    steps=("Set ln2's gains to zero: the feed-forward must give zeros.",),
)
class FirstNormUsedTwice(_OtherGains):
    """The feed-forward is fed through ln1 again; ln2 and its gains are never used."""

    def gains(self, weights: LayerWeights) -> dict[str, Tensor]:
        return {"ln2.weight": weights["ln1.weight"]}


@defect(
    "second-norm-used-twice",
    Place.FIRST_NORM,
    hint="A block owns two norms: which of them runs before attention, and is the other one ever called?",
    steps=("Set ln1's gains to zero: attention must give zeros.",),
)
class SecondNormUsedTwice(_OtherGains):
    """Attention is fed through ln2; ln1 and its gains are never used."""

    def gains(self, weights: LayerWeights) -> dict[str, Tensor]:
        return {"ln1.weight": weights["ln2.weight"]}


@defect(
    "norms-exchanged",
    Place.NORM,
    hint="ln1 comes before attention and ln2 before the feed-forward: check which weight each of yours was given.",
)
class NormsExchanged(_OtherGains):
    """ln1 and ln2 have changed places: each sublayer gets the other one's gains."""

    def gains(self, weights: LayerWeights) -> dict[str, Tensor]:
        return {"ln1.weight": weights["ln2.weight"], "ln2.weight": weights["ln1.weight"]}


@defect(
    "norm-gains-of-first-layer",
    Place.NORM,
    hint="Does each layer own its norms, or do all of them hold the same two objects?",
    steps=("Count the norm weights that your model lists: two for each layer and one at the end.",),
)
class NormGainsOfFirstLayer(OracleDefect):
    """Every layer is normed with the gains of the first one: the norms are shared between the layers."""

    def residual_stream(self, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        shared = {
            f"layers.{layer}.{norm}.weight": weights[f"layers.0.{norm}.weight"]
            for layer in range(self.shape.num_layers)
            for norm in ("ln1", "ln2")
        }
        return super().residual_stream({**weights, **shared}, token_ids)
