"""Faults that the dictionary does not hold: a plain float32 decoder, broken in one place each, and where that place is.

They must be caught and placed, and no known mistake may be claimed for them.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import torch
from torch import Tensor
from variations import Variation, VariationAdapters, VariationModel

from cs336_harness.defects import Place
from cs336_harness.reference.oracle_adapters import NORM_EPS, refuse_sizes_that_do_not_fit
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject

Step = Callable[[Tensor], Tensor]

UNLISTED: dict[str, tuple[Any, tuple[Place, ...]]] = {}
"""Name -> adapters and the places that are right."""


def unlisted(*places: Place) -> Callable[[type[Variation]], type[Variation]]:
    """Registers a broken decoder; its docstring is the name."""

    def register(cls: type[Variation]) -> type[Variation]:
        UNLISTED[str(cls.__doc__).rstrip(".")] = (VariationAdapters(cls()), places)
        return cls

    return register


def subject_of(name: str) -> Subject:
    """The subject with that fault."""
    return Subject(UNLISTED[name][0], name)


def is_causal(allowed: Tensor | None) -> TypeGuard[Tensor]:
    """Whether a mask comes from self-attention: the callers of attention alone give theirs more axes, or more keys than
    queries."""
    return allowed is not None and allowed.ndim == 2 and allowed.shape[0] == allowed.shape[1]


class OtherMask(Variation):
    def seen(self, allowed: Tensor) -> Tensor:
        raise NotImplementedError

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        return super().attend(Q, K, V, self.seen(allowed) if is_causal(allowed) else allowed)


@unlisted(Place.MASK)
class Window(OtherMask):
    """A window of six positions."""

    def seen(self, allowed: Tensor) -> Tensor:
        return allowed.triu(-5)


@unlisted(Place.MASK, Place.INFORMATION_FLOW)
class Prefix(OtherMask):
    """The first three positions see each other."""

    def seen(self, allowed: Tensor) -> Tensor:
        open_square = torch.zeros_like(allowed)
        open_square[:3, :3] = True
        return allowed | open_square


@unlisted(Place.MASK, Place.INFORMATION_FLOW)
class OneLeak(OtherMask):
    """Position 2 sees position 4."""

    def seen(self, allowed: Tensor) -> Tensor:
        leaking = allowed.clone()
        leaking[2:3, 4:5] = True
        return leaking


@unlisted(Place.MASK)
class SecondHidden(OtherMask):
    """The second position is seen by itself only."""

    def seen(self, allowed: Tensor) -> Tensor:
        hiding = allowed.clone()
        hiding[2:, 1:2] = False
        return hiding


class OtherScores(Variation):
    def scored(self, scores: Tensor) -> Tensor:
        raise NotImplementedError

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        scores = self.scored(Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1]))
        return self.softmax(scores if allowed is None else scores.masked_fill(~allowed, -torch.inf), -1) @ V


@unlisted(Place.ATTENTION)
class Temperature(OtherScores):
    """Scores divided by a temperature of 1.1."""

    def scored(self, scores: Tensor) -> Tensor:
        return scores / 1.1


@unlisted(Place.ATTENTION)
class Clamped(OtherScores):
    """Scores clamped to one."""

    def scored(self, scores: Tensor) -> Tensor:
        return scores.clamp(-1, 1)


@unlisted(Place.POSITIONS, Place.ATTENTION, Place.HEADS, Place.MASK)
class Alibi(OtherScores):
    """A penalty for distance added to the scores."""

    def scored(self, scores: Tensor) -> Tensor:
        rows, columns = torch.arange(scores.shape[-2])[:, None], torch.arange(scores.shape[-1])
        return scores - 0.1 * (rows - columns).abs()


@unlisted(Place.MASK)
class SmallFill(Variation):
    """Hidden scores filled with -5."""

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        scores = Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1])
        return self.softmax(scores if allowed is None else scores.masked_fill(~allowed, -5.0), -1) @ V


@unlisted(Place.ATTENTION)
class CentredValues(Variation):
    """The values' mean over the channels subtracted."""

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        return super().attend(Q, K, V - V.mean(-1, keepdim=True), allowed)


class OtherHeads(Variation):
    def merged(self, heads: Tensor) -> Tensor:
        raise NotImplementedError

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        result = super().attend(Q, K, V, allowed)
        return self.merged(result) if is_causal(allowed) and result.shape[-3] > 1 else result


@unlisted(Place.HEADS)
class SilentHead(OtherHeads):
    """The last head silent."""

    def merged(self, heads: Tensor) -> Tensor:
        kept = torch.ones(heads.shape[-3], 1, 1)
        kept[-1] = 0
        return heads * kept


@unlisted(Place.HEADS)
class HeadsRolled(OtherHeads):
    """Each head's output written where the next one's belongs."""

    def merged(self, heads: Tensor) -> Tensor:
        return heads.roll(1, -3)


@unlisted(Place.NORM)
class LargeEps(Variation):
    """An eps of 1e-3 in every norm."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return super().rmsnorm(x, gain, 1e-3)


@unlisted(Place.NORM)
class MaximumNorm(Variation):
    """The largest channel stands for the root mean square."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x / (x.abs().amax(-1, keepdim=True) + eps) * gain


@unlisted(Place.POSITIONS)
class Stretched(Variation):
    """Positions halved, as in position interpolation."""

    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        return super().angles(positions, d_head, theta) / 2


@unlisted(Place.POSITIONS)
class OtherBase(Variation):
    """Twice the theta that was asked for."""

    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        return super().angles(positions, d_head, 2 * theta)


@unlisted(Place.POSITIONS)
class Degrees(Variation):
    """Angles in degrees."""

    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        return super().angles(positions, d_head, theta) * math.pi / 180


@unlisted(Place.FEED_FORWARD)
class Slower(Variation):
    """SiLU with half of x in the sigmoid."""

    def silu(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(0.5 * x)


@unlisted(Place.FEED_FORWARD)
class SquaredGate(Variation):
    """The gate squared."""

    def swiglu(self, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return self.linear(self.silu(self.linear(x, w1)) ** 2 * self.linear(x, w3), w2)


@unlisted(Place.LINEAR)
class Biased(Variation):
    """A bias of 0.01 in every linear layer."""

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return super().linear(x, weight) + 0.01


class OtherBlock(Variation):
    def joined(self, x: Tensor, sublayer: Tensor) -> Tensor:
        raise NotImplementedError

    def block(self, x: Tensor, weights: Mapping[str, Tensor], heads: tuple[int, int], theta: float) -> Tensor:
        matrices = tuple(weights[f"attn.{name}_proj.weight"] for name in ("q", "k", "v", "output"))
        normed = self.rmsnorm(x, weights["ln1.weight"], NORM_EPS)
        x = self.joined(x, self.self_attention(normed, matrices, heads, torch.arange(x.shape[-2]), theta))  # ty: ignore
        normed = self.rmsnorm(x, weights["ln2.weight"], NORM_EPS)
        return self.joined(x, self.swiglu(normed, *(weights[f"ffn.w{i}.weight"] for i in (1, 2, 3))))


@unlisted(Place.RESIDUAL)
class Damped(OtherBlock):
    """The stream damped to nine tenths around each sublayer."""

    def joined(self, x: Tensor, sublayer: Tensor) -> Tensor:
        return 0.9 * x + sublayer


@unlisted(Place.RESIDUAL, Place.ATTENTION)
class HalfBranch(OtherBlock):
    """Half of each sublayer's output added."""

    def joined(self, x: Tensor, sublayer: Tensor) -> Tensor:
        return x + 0.5 * sublayer


class OtherWiring(Variation):
    """A block whose two lines are written anew: what is read, and where it is added."""

    def wired(self, x: Tensor, norms: tuple[Step, Step], attention: Step, feed_forward: Step) -> Tensor:
        raise NotImplementedError

    def block(self, x: Tensor, weights: Mapping[str, Tensor], heads: tuple[int, int], theta: float) -> Tensor:
        matrices = tuple(weights[f"attn.{name}_proj.weight"] for name in ("q", "k", "v", "output"))
        ln1, ln2 = (functools.partial(self.rmsnorm, gain=weights[f"{n}.weight"], eps=NORM_EPS) for n in ("ln1", "ln2"))
        return self.wired(
            x,
            (ln1, ln2),
            lambda y: self.self_attention(y, matrices, heads, torch.arange(x.shape[-2]), theta),  # ty: ignore
            lambda y: self.swiglu(y, *(weights[f"ffn.w{i}.weight"] for i in (1, 2, 3))),
        )


@unlisted(Place.RESIDUAL)
class AttentionAddedToTheInput(OtherWiring):
    """Attention's output added to what the feed-forward reads, behind its norm."""

    def wired(self, x: Tensor, norms: tuple[Step, Step], attention: Step, feed_forward: Step) -> Tensor:
        attended = attention(norms[0](x))
        return x + attended + feed_forward(norms[1](x + attended) + attended)


@unlisted(Place.RESIDUAL)
class NormOfTheNorm(OtherWiring):
    """The feed-forward reads ln2 of what attention read."""

    def wired(self, x: Tensor, norms: tuple[Step, Step], attention: Step, feed_forward: Step) -> Tensor:
        normed = norms[0](x)
        return x + attention(normed) + feed_forward(norms[1](normed))


@unlisted(Place.RESIDUAL)
class AttentionAddedTwice(OtherWiring):
    """Attention's output added once more at the end of the block."""

    def wired(self, x: Tensor, norms: tuple[Step, Step], attention: Step, feed_forward: Step) -> Tensor:
        attended = attention(norms[0](x))
        return x + attended + feed_forward(norms[1](x + attended)) + attended


@unlisted(Place.RESIDUAL)
class BlockAddedAgain(Variation):
    """Each block's input added to its output once more, in the model's loop."""

    def transformer_lm(self, shape: DecoderShape, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        return InTheLoop().transformer_lm(shape, weights, token_ids)


class InTheLoop(Variation):
    def block(self, x: Tensor, weights: Mapping[str, Tensor], heads: tuple[int, int], theta: float) -> Tensor:
        return x + super().block(x, weights, heads, theta)


@unlisted(Place.FIRST_NORM, Place.RESIDUAL, Place.ATTENTION)
class ValuesOfTheStream(Variation):
    """Values made of the stream, queries and keys of its norm."""

    def block(self, x: Tensor, weights: Mapping[str, Tensor], heads: tuple[int, int], theta: float) -> Tensor:
        return Beside(beside=x).block(x, weights, heads, theta)


@dataclasses.dataclass(frozen=True)
class Beside(Variation):
    beside: Tensor | None = None

    def linear_of_values(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.linear(x if self.beside is None else self.beside, weight)


@unlisted(Place.LAYERS)
class MeanOfLayers(Variation):
    """The mean of all layers' outputs goes to the final norm."""

    def behind_the_layers(self, outputs: list[Tensor]) -> Tensor:
        return torch.stack(outputs).mean(0)


@unlisted(Place.EMBEDDING)
class LongRowsShortened(Variation):
    """Rows of the embedding shortened to a length of 0.1."""

    def embedding(self, weights: Tensor, token_ids: Tensor) -> Tensor:
        rows = weights[token_ids]
        return rows * (0.1 / rows.norm(dim=-1, keepdim=True)).clamp_max(1.0)


@unlisted(Place.POSITIONS)
class SinesAhead(Variation):
    """Sines of the next position beside the cosines of this one."""

    def rotate(self, x: Tensor, positions: Tensor, theta: float, *, inside: bool = False) -> Tensor:
        angles, ahead = (self.angles((positions + more).to(x.dtype), x.shape[-1], theta) for more in (0, 1))
        even, odd, cos, sin = x[..., 0::2], x[..., 1::2], angles.cos(), ahead.sin()
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


@unlisted(Place.POSITIONS)
class ExponentsOfTheWidth(Variation):
    """Inside a block the exponents of theta divided by d_model."""

    def block(self, x: Tensor, weights: Mapping[str, Tensor], heads: tuple[int, int], theta: float) -> Tensor:
        return super().block(x, weights, heads, theta ** (1 / heads[0]))


@unlisted(Place.FEED_FORWARD)
class SumInTheGate(Variation):
    """SiLU of the sum of w1 x and w3 x."""

    def swiglu(self, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return self.linear(self.silu(self.linear(x, w1) + self.linear(x, w3)) * self.linear(x, w3), w2)


@unlisted(Place.NORM)
class StandardDeviation(Variation):
    """The norm divides by torch.std."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x / (x.std(-1, keepdim=True) + eps) * gain


@unlisted(Place.HEADS)
class KeysOfOneHead(Variation):
    """The keys of the first head made with the query projection."""

    def parts(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (q, torch.cat([q[..., :1, :, :], k[..., 1:, :, :]], -3), v) if q.shape == k.shape else (q, k, v)


@unlisted(Place.EMBEDDING)
class IdsModulo(Variation):
    """Token ids taken modulo 16."""

    def embedding(self, weights: Tensor, token_ids: Tensor) -> Tensor:
        return weights[token_ids % 16]


@unlisted(Place.ATTENTION)
class ProjectedTwice(Variation):
    """The output projection applied twice."""

    def self_attention(self, x: Tensor, projections: Any, heads: Any, positions: Any, theta: float) -> Tensor:
        return self.linear(super().self_attention(x, projections, heads, positions, theta), projections[3])


@unlisted(Place.POSITIONS)
class TwoToAPosition(Variation):
    """Two neighbours turned as for one position."""

    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        return super().angles(positions // 2, d_head, theta)


@unlisted(Place.ATTENTION, Place.HEADS)
class ValuesOfOtherKeys(Variation):
    """The values of each head are the keys of the next."""

    def parts(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q, k, k.roll(-1, -3)


@unlisted(Place.RESIDUAL)
class NormBesideTheStream(OtherWiring):
    """Attention reads the stream added to its norm."""

    def wired(self, x: Tensor, norms: tuple[Step, Step], attention: Step, feed_forward: Step) -> Tensor:
        x = x + attention(norms[0](x) + x)
        return x + feed_forward(norms[1](x))


@unlisted(Place.HEADS, Place.ATTENTION)
class ScaleByHead(Variation):
    """The scores of each head multiplied by its number plus one."""

    def parts(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q * torch.arange(1, q.shape[-3] + 1)[:, None, None], k, v


@unlisted(Place.ATTENTION)
class UnitKeys(Variation):
    """Keys brought to length one."""

    def parts(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q, torch.nn.functional.normalize(k, dim=-1), v


@unlisted(Place.NORM)
class RootOfTheGain(Variation):
    """The root of the gain in its place."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return super().rmsnorm(x, gain.abs().sqrt() * gain.sign(), eps)


@unlisted(Place.INFORMATION_FLOW, Place.POST_PROCESSING, Place.POSITIONS)
class Sorted(Variation):
    """The token ids sorted in the model."""

    def transformer_lm(self, shape: DecoderShape, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        return super().transformer_lm(shape, weights, token_ids.sort(-1).values)


@unlisted(Place.HEADS)
class ValuesOfTheNext(Variation):
    """Each head attends to the values of the next one."""

    def parts(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q, k, v.roll(-1, -3)


@unlisted(Place.POSITIONS)
class QueriesAhead(Variation):
    """Queries turned as for the next position."""

    def rotate_queries(self, q: Tensor, positions: Tensor, theta: float) -> Tensor:
        return super().rotate_queries(q, positions + 1, theta)


@unlisted(Place.POSITIONS)
class Overwritten(Variation):
    """The first channel of a pair overwritten before the second one is made of it."""

    def rotate(self, x: Tensor, positions: Tensor, theta: float, *, inside: bool = False) -> Tensor:
        angles = self.angles(positions.to(x.dtype), x.shape[-1], theta)
        even, odd = x[..., 0::2], x[..., 1::2]
        even = even * angles.cos() - odd * angles.sin()
        return torch.stack((even, even * angles.sin() + odd * angles.cos()), -1).flatten(-2)


@unlisted(Place.ATTENTION, Place.MASK)
class SoftmaxTwice(Variation):
    """The softmax taken twice."""

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        weights = super().attend(Q, K, torch.eye(K.shape[-2]).expand(*K.shape[:-1], K.shape[-2]), allowed)
        return self.softmax(weights, -1) @ V


@unlisted(Place.FEED_FORWARD)
class InputAdded(Variation):
    """The feed-forward's input added to its output."""

    def swiglu(self, x: Tensor, w1: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return x + super().swiglu(x, w1, w2, w3)


@unlisted(Place.NORM)
class EpsAsFloor(Variation):
    """An eps that is a lower limit and is not added."""

    def rmsnorm(self, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        return x / x.pow(2).mean(-1, keepdim=True).clamp_min(eps).sqrt() * gain


@unlisted(Place.EMBEDDING)
class LastIdWraps(Variation):
    """The last token id wraps around to 0."""

    def embedding(self, weights: Tensor, token_ids: Tensor) -> Tensor:
        return weights[token_ids % (len(weights) - 1)]


class OtherModel(Variation):
    def transformer_lm(self, shape: DecoderShape, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        return self.after(super().transformer_lm(shape, self.before(shape, dict(weights)), token_ids))

    def before(self, shape: DecoderShape, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        return weights

    def after(self, logits: Tensor) -> Tensor:
        return logits


def with_layers(weights: dict[str, Tensor], used: list[int]) -> dict[str, Tensor]:
    """The weights with layer i replaced by layer used[i]."""
    moved = {
        f"layers.{to}." + name.split(".", 2)[2]: weight
        for to, layer in enumerate(used)
        for name, weight in weights.items()
        if name.startswith(f"layers.{layer}.")
    }
    return {**weights, **moved}


@unlisted(Place.LAYERS)
class SecondLayerSkipped(OtherModel):
    """The second layer's weights replaced by the first one's."""

    def before(self, shape: DecoderShape, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        return with_layers(weights, [0, *([0] if shape.num_layers > 1 else []), *range(2, shape.num_layers)])


@unlisted(Place.LAYERS)
class LayersRolled(OtherModel):
    """The last layer first, all others after it."""

    def before(self, shape: DecoderShape, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        return with_layers(weights, [shape.num_layers - 1, *range(shape.num_layers - 1)])


@unlisted(Place.EMBEDDING)
class OddTokensNegated(OtherModel):
    """The rows of odd tokens negated in the model."""

    def before(self, shape: DecoderShape, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        signs = 1 - 2 * (torch.arange(shape.vocab_size) % 2)[:, None]
        return {**weights, "token_embeddings.weight": weights["token_embeddings.weight"] * signs}


@unlisted(Place.FINAL_NORM)
class GainSquared(OtherModel):
    """The final norm's gain squared."""

    def before(self, shape: DecoderShape, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        return {**weights, "ln_final.weight": weights["ln_final.weight"] ** 2}


@unlisted(Place.FIRST_NORM)
class FirstGainForgotten(OtherModel):
    """The gains of ln1 alone forgotten in the model."""

    def before(self, shape: DecoderShape, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        return {n: torch.ones_like(w) if n.endswith("ln1.weight") else w for n, w in weights.items()}


@unlisted(Place.SECOND_NORM)
class SecondGainForgotten(OtherModel):
    """The gains of ln2 alone forgotten in the model."""

    def before(self, shape: DecoderShape, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        return {n: torch.ones_like(w) if n.endswith("ln2.weight") else w for n, w in weights.items()}


@unlisted(Place.HEAD, Place.POST_PROCESSING)
class Warm(OtherModel):
    """Logits divided by 0.7."""

    def after(self, logits: Tensor) -> Tensor:
        return logits / 0.7


@unlisted(Place.POST_PROCESSING)
class Raised(OtherModel):
    """A constant added to all logits."""

    def after(self, logits: Tensor) -> Tensor:
        return logits + 0.1


@unlisted(Place.POST_PROCESSING)
class BestOnly(OtherModel):
    """All but the five best logits set to -1e4."""

    def after(self, logits: Tensor) -> Tensor:
        return logits.masked_fill(logits < logits.topk(min(5, logits.shape[-1]), -1).values[..., -1:], -1e4)


@unlisted(Place.INFORMATION_FLOW)
class RowsMixed(OtherModel):
    """A thousandth of the first row's logits in every row."""

    def after(self, logits: Tensor) -> Tensor:
        return logits + 1e-3 * logits[:1]


@unlisted(Place.INFORMATION_FLOW, Place.POST_PROCESSING)
class MeanOverTime(OtherModel):
    """The mean of the logits over the positions subtracted."""

    def after(self, logits: Tensor) -> Tensor:
        return logits - 1e-2 * logits.mean(1, keepdim=True)


@unlisted(Place.POST_PROCESSING, Place.NORM)
class OneLate(OtherModel):
    """Each position's logits one position late, the first ones twice."""

    def after(self, logits: Tensor) -> Tensor:
        return torch.cat([logits[:, :1], logits[:, :-1]], 1)


@unlisted(Place.FINAL_NORM)
class StreamBesideItsNorm(OtherModel):
    """The head reads the final norm's input too."""

    def transformer_lm(self, shape: DecoderShape, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        return Both().transformer_lm(shape, weights, token_ids)


class Both(Variation):
    def final_norm(self, x: Tensor, gain: Tensor) -> Tensor:
        return super().final_norm(x, gain) + x


@unlisted(Place.POST_PROCESSING)
class PaddingForbidden(OtherModel):
    """The logit of token 0 set to -1e9."""

    def after(self, logits: Tensor) -> Tensor:
        return torch.cat([torch.full_like(logits[..., :1], -1e9), logits[..., 1:]], -1)


@unlisted(Place.HEAD, Place.POST_PROCESSING)
class HeadNormalised(OtherModel):
    """The rows of the head brought to length one."""

    def before(self, shape: DecoderShape, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        if shape.tie_embeddings:
            return weights
        return {**weights, "lm_head.weight": torch.nn.functional.normalize(weights["lm_head.weight"], dim=-1)}


@unlisted(Place.ATTENTION)
class ScaledByKeys(Variation):
    """Scores divided by the root of the number of keys."""

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        return super().attend(Q * math.sqrt(Q.shape[-1] / K.shape[-2]), K, V, allowed)


@unlisted(Place.ATTENTION)
class ScaledByQueries(Variation):
    """Scores divided by the root of the number of queries."""

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        return super().attend(Q * math.sqrt(Q.shape[-1] / Q.shape[-2]), K, V, allowed)


@unlisted(Place.POSITIONS)
class SlowPairsSlower(Variation):
    """Pairs with a wavelength of more than 8192 positions turned at an eighth of their rate, as in Llama 3.1."""

    def angles(self, positions: Tensor, d_head: int, theta: float) -> Tensor:
        frequencies = theta ** -(torch.arange(0, d_head, 2, dtype=positions.dtype) / d_head)
        slow = 2 * math.pi / frequencies > 8192
        return positions[..., None] * torch.where(slow, frequencies / 8, frequencies)


@unlisted(Place.MASK)
class FirstMaskForAll(Variation):
    """The mask of the first row used for every row."""

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        if allowed is not None and allowed.ndim > 2:
            allowed = allowed[:1].expand_as(allowed)
        return super().attend(Q, K, V, allowed)


@unlisted(Place.RESIDUAL, Place.FIRST_NORM)
class FirstLayerReadsTheStream(Variation):
    """The first layer's attention reads the stream as it is."""

    def transformer_lm(self, shape: DecoderShape, weights: Mapping[str, Tensor], token_ids: Tensor) -> Tensor:
        x, heads = self.embedding(weights["token_embeddings.weight"], token_ids), (shape.num_heads, shape.num_kv_heads)
        for layer in range(shape.num_layers):
            own = {name: weights[f"layers.{layer}.{name}"] for name in shape.layer_weight_shapes()}
            if layer > 0:
                x = self.block(x, own, heads, shape.rope_theta)
                continue
            w_q, w_k, w_v, w_o = (own[f"attn.{name}_proj.weight"] for name in ("q", "k", "v", "output"))
            x = x + self.self_attention(x, (w_q, w_k, w_v, w_o), heads, torch.arange(x.shape[-2]), shape.rope_theta)
            normed = self.rmsnorm(x, own["ln2.weight"], NORM_EPS)
            x = x + self.swiglu(normed, *(own[f"ffn.w{i}.weight"] for i in (1, 2, 3)))
        x = self.final_norm(x, weights["ln_final.weight"])
        return self.linear(x, weights["token_embeddings.weight" if shape.tie_embeddings else "lm_head.weight"])


@unlisted(Place.MASK)
class FilledWithTheSmallest(Variation):
    """Hidden scores filled with the smallest score of all rows and heads."""

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, allowed: Tensor | None) -> Tensor:
        scores = Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1])
        if allowed is not None:
            scores = torch.where(allowed, scores, scores.min())
        return self.softmax(scores, -1) @ V


class Grouped(Variation):
    """Something is done to the queries where several heads share a key/value head."""

    def shared(self, q: Tensor, heads: int, kv_heads: int) -> Tensor:
        raise NotImplementedError

    def parts(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        heads, kv_heads = q.shape[-3], k.shape[-3]
        return (q if heads == kv_heads else self.shared(q, heads, kv_heads)), k, v


@unlisted(Place.ATTENTION, Place.HEADS)
class ScaledByGroup(Grouped):
    """Scores divided once more by the root of the number of query heads that share a key/value head."""

    def shared(self, q: Tensor, heads: int, kv_heads: int) -> Tensor:
        return q * math.sqrt(kv_heads / heads)


@unlisted(Place.ATTENTION, Place.HEADS)
class ScaledByKvHeads(Grouped):
    """With grouped heads, scores divided once more by the root of the number of key/value heads."""

    def shared(self, q: Tensor, heads: int, kv_heads: int) -> Tensor:
        return q / math.sqrt(kv_heads)


@unlisted(Place.HEADS)
class ValuesOfStridedChannels(Variation):
    """The values alone split into heads as (d h), so that each head has every third channel."""

    def parts(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        flat = v.transpose(-2, -3).flatten(-2)
        return q, k, flat.unflatten(-1, (-1, v.shape[-3])).movedim(-1, -3)


class HalfDetached(VariationModel):
    """Only half of the shared weight's rows take a gradient through the head."""

    def forward(self, token_ids: Tensor) -> Tensor:
        named = self.named()
        shared = named["token_embeddings.weight"]
        half = torch.cat([shared[: len(shared) // 2], shared[len(shared) // 2 :].detach()])
        if not self.shape.tie_embeddings:
            half = named["lm_head.weight"]
        apart = self.shape.replace(tie_embeddings=False)
        return self.variation.transformer_lm(apart, {**named, "lm_head.weight": half}, token_ids)


class HalfDetachedAdapters(VariationAdapters):
    def get_transformer_lm(self, **sizes: Any) -> VariationModel:
        refuse_sizes_that_do_not_fit(DecoderShape(norm_eps=NORM_EPS, **sizes))
        return HalfDetached(self.variation, DecoderShape(norm_eps=NORM_EPS, **sizes))


class AtMostTwoLayers(VariationAdapters):
    def get_transformer_lm(self, **sizes: Any) -> VariationModel:
        return super().get_transformer_lm(**{**sizes, "num_layers": min(2, sizes["num_layers"])})


UNLISTED["only half of the shared weight learns through the head"] = (HalfDetachedAdapters(Variation()), (Place.TYING,))
UNLISTED["at most two layers are built"] = (AtMostTwoLayers(Variation()), (Place.CONFIGURATION,))
