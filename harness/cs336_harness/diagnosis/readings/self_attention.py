"""Readings of self-attention inside any entry point that has it: one-hot tokens and weights by surgery.

Token t is a one-hot vector, the value matrices carry it into channel t of every head and the output matrix hands all
heads on as they are, so that what attention adds at position t, head h, channel s is the attention weight itself. In a
block or a model, one further channel is the same for every token and written by nobody: it undoes the final norm.

Shapes: T positions, H heads, d channels of a head, D = H d; weights of attention (H, T, T).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from cs336_harness.defects import Place
from cs336_harness.diagnosis.readings.attention import SOFTMAX_TWICE, mask_reading, score_reading
from cs336_harness.diagnosis.readings.reading import (
    ROUNDING,
    Reading,
    ask,
    attempt,
    differ,
    factor,
    number,
    radians,
    reference,
    span,
    table,
)
from cs336_harness.reference.weights import normal
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import build
from cs336_harness.subject.calling import Subject

SHAPE = DecoderShape(
    vocab_size=60,
    context_length=16,
    d_model=60,
    num_layers=1,
    num_heads=3,
    num_kv_heads=3,
    d_ff=128,
    rope_theta=100.0,
)
TIME = 16
SIZE = 100.0
"""Of the tokens' vectors, so large that eps counts for nothing."""


def normed(shape: DecoderShape) -> float:
    """What the two channels of a token are after a norm."""
    return (shape.d_model / 2) ** 0.5


NORMED = normed(SHAPE)

SEEN = 1e-4
"""An attention weight above this is no zero; float32 behind a norm and a large stream leaves less."""


def one_hot(time: int, shape: DecoderShape = SHAPE) -> Tensor:
    """The tokens: (T, D), one channel each and the last one for all."""
    tokens = torch.eye(shape.d_model)[:time]
    tokens[:, -1] = 1
    return tokens


def layer_weights(shape: DecoderShape, **given: Tensor) -> dict[str, Tensor]:
    """A layer of zeros with gains of one, but for what is given, dots written as ``__``."""
    sizes = shape.layer_weight_shapes()
    weights = {name: torch.ones(size) if len(size) == 1 else torch.zeros(size) for name, size in sizes.items()}
    return {**weights, **{name.replace("__", ".") + ".weight": weight for name, weight in given.items()}}


def model_weights(shape: DecoderShape, layers: list[dict[str, Tensor]], tokens: Tensor) -> dict[str, Tensor]:
    """A whole model around layers, whose logits are the normed stream: the head is the identity."""
    table_of_tokens = torch.zeros(shape.vocab_size, shape.d_model)
    table_of_tokens[:, -1] = SIZE
    table_of_tokens[: len(tokens)] = tokens
    weights = {f"layers.{i}.{name}": weight for i, layer in enumerate(layers) for name, weight in layer.items()}
    return {
        "token_embeddings.weight": table_of_tokens,
        **weights,
        "ln_final.weight": torch.ones(shape.d_model),
        "lm_head.weight": torch.eye(shape.vocab_size, shape.d_model),
    }


def logits_of(
    subject: Subject, name: str, shape: DecoderShape, weights: dict[str, Tensor], ids: Tensor
) -> Tensor | None:
    """Logits (B, T, V) of ``run_transformer_lm`` or of a model that is built."""
    size = (*ids.shape, shape.vocab_size)
    if name == "run_transformer_lm":
        return ask(subject, name, size, **shape.call_arguments(), weights=weights, in_indices=ids)
    return attempt(lambda: build(subject, shape, weights).forward(ids), size)


def block_of(subject: Subject, shape: DecoderShape, layer: Mapping[str, Tensor], tokens: Tensor) -> Tensor | None:
    """What ``run_transformer_block`` makes of tokens, (T, D) both."""
    sizes: dict[str, Any] = {"d_model": shape.d_model, "num_heads": shape.num_heads, "d_ff": shape.d_ff}
    sizes |= {"max_seq_len": shape.context_length, "theta": shape.rope_theta}
    given = tokens[None].repeat(2, 1, 1)
    out = ask(subject, "run_transformer_block", given.shape, **sizes, weights=dict(layer), in_features=given)
    return None if out is None else out[0]


def stream_of(
    subject: Subject, name: str, shape: DecoderShape, layers: list[dict[str, Tensor]], tokens: Tensor
) -> Tensor | None:
    """The stream (T, D) behind the layers of a block or a model, whose tokens have ``SIZE`` in the last channel."""
    time = len(tokens)
    if name == "run_transformer_block":
        return block_of(subject, shape, layers[0], tokens)
    ids = torch.arange(time)[None].repeat(2, 1)
    logits = logits_of(subject, name, shape, model_weights(shape, layers, tokens), ids)
    if logits is None or not bool((logits[0, :, shape.d_model - 1].abs() > 1e-6).all()):
        return None
    stream = logits[0, :, : shape.d_model]
    return SIZE * stream / stream[:, -1:]


def added_by_attention(
    subject: Subject,
    name: str,
    shape: DecoderShape,
    q: Tensor,
    k: Tensor,
    time: int,
    positions: Tensor | None = None,
    without: int | None = None,
) -> Tensor | None:
    """Attention weights (H, T, T) for query and key matrices; None when they cannot be read.

    The value of the token ``without`` is zero.
    """
    d = shape.d_head
    value = torch.zeros(shape.d_kv, shape.d_model)
    for head in range(shape.num_kv_heads):
        value[head * d : head * d + time, :time] = torch.eye(time) / normed(shape)
    if without is not None:
        value[:, without] = 0
    added = attention_of(subject, name, shape, {"q_proj": q, "k_proj": k, "v_proj": value}, time, positions)
    return None if added is None else added[..., :time]


def attention_of(
    subject: Subject,
    name: str,
    shape: DecoderShape,
    projections: Mapping[str, Tensor],
    time: int,
    positions: Tensor | None = None,
) -> Tensor | None:
    """What each head gives, (H, T, d), off an output projection that hands it on; None when it cannot be read.

    The last channel of all is not handed on: there the stream keeps its size.
    """
    q, k, value = (projections[f"{part}_proj"] for part in "qkv")
    output = torch.eye(shape.d_model)
    output[-1] = 0
    if name.startswith("run_multihead"):
        given = normed(shape) * one_hot(time, shape)[None].repeat(2, 1, 1)
        extra: dict[str, Any] = {}
        if name.endswith("rope"):
            places = torch.arange(time) if positions is None else positions
            extra = {"max_seq_len": 64, "theta": shape.rope_theta, "token_positions": places[None]}
        matrices = {"q_proj_weight": q, "k_proj_weight": k, "v_proj_weight": value, "o_proj_weight": output}
        sizes = {"d_model": shape.d_model, "num_heads": shape.num_heads}
        out = ask(subject, name, given.shape, **sizes, **matrices, in_features=given, **extra)
        added = None if out is None else out[0]
    else:
        tokens = SIZE * one_hot(time, shape)
        layer = layer_weights(shape, attn__q_proj=q, attn__k_proj=k, attn__v_proj=value, attn__output_proj=output)
        stream = stream_of(subject, name, shape, [layer], tokens)
        added = None if stream is None else stream - tokens
    return None if added is None else added.unflatten(-1, (shape.num_heads, shape.d_head)).transpose(0, 1)


def _visible(subject: Subject, name: str, q: Tensor, k: Tensor) -> Tensor | None:
    """Which queries notice that a key's value is gone, (H, T, T): what lies in channel s need not come from token s."""
    whole = added_by_attention(subject, name, SHAPE, q, k, TIME)
    columns = [added_by_attention(subject, name, SHAPE, q, k, TIME, without=token) for token in range(TIME)]
    if whole is None:
        return None
    kept = [column for column in columns if column is not None]
    if len(kept) < TIME:
        return None
    return torch.stack([(whole - column).abs().amax(-1) > SEEN for column in kept], -1)


def _keeps_the_value(subject: Subject, name: str, q: Tensor, k: Tensor) -> bool:
    """Whether a single token, which sees itself alone whatever the mask is, gets its own value in every head."""
    alone = added_by_attention(subject, name, SHAPE, q, k, 1)
    return alone is not None and not differ(alone, torch.ones_like(alone))


def _random_matrices() -> tuple[Tensor, Tensor]:
    q, k = (normal(SHAPE.d_model, SHAPE.d_model, seed=seed, std=SHAPE.d_head**-0.25 / NORMED**0.9) for seed in (12, 13))
    q[:, -1] = k[:, -1] = 0
    return q, k


@functools.cache
def _right(name: str) -> Tensor:
    q, k = _random_matrices()
    right = added_by_attention(reference(), name, SHAPE, q, k, TIME)
    assert right is not None
    return right


def weights_of(subject: Subject, name: str) -> Tensor | None:
    """Attention weights (H, T, T) at scores of every size; None when they cannot be read."""
    return added_by_attention(subject, name, SHAPE, *_random_matrices(), TIME)


def read_heads(subject: Subject, name: str) -> Reading | None:
    """Which head's weights lie where, which keys each query sees, and how scores come about."""
    q, k = _random_matrices()
    read, right = added_by_attention(subject, name, SHAPE, q, k, TIME), _right(name)
    if read is None or not differ(read, right):
        return None
    causal = torch.ones(TIME, TIME, dtype=torch.bool).tril()
    if not differ(read, right.softmax(-1)):
        return Reading(SOFTMAX_TWICE, Place.ATTENTION)
    found = _heads(read, right)
    if found is not None:
        return found
    scores = right.clamp_min(1e-30).log()
    wrong = [head for head in range(SHAPE.num_heads) if differ(read[head], right[head])]
    for head in wrong:
        found = None
        if not bool(((read[head].abs() > SEEN) == causal).all()):
            seen = _visible(subject, name, q, k)
            seen_wrongly = seen is not None and not bool((seen[head] == causal).all())
            if seen is None or not seen_wrongly or not bool(seen.any()):  # nothing is seen where values are lost
                return None
            if not _keeps_the_value(subject, name, q, k):  # what looks hidden lies in another channel
                return None
            found = mask_reading(read[head] * seen[head], causal, scores[head], SEEN)
        found = found or score_reading(read[head], scores[head], SHAPE.d_head**-0.5, seen=causal)
        if found is not None:
            others = [h for h in wrong if h != head]
            same = all(_text_of(read[h], scores[h], causal) == found.text for h in others)
            if len(wrong) == SHAPE.num_heads and (same or found.place is not Place.ATTENTION or found.vague):
                return found
            rest = [h for h in range(SHAPE.num_heads) if h not in wrong]
            right_ones = f"; head{'s' * (len(rest) > 1)} {span(rest)} of {SHAPE.num_heads}"
            right_ones += f" {'are' if len(rest) > 1 else 'is'} right"
            other = "" if same or not others else f"; head {others[0]} is wrong in another way or by another number"
            text = f"in head {head}, {found.text}{other}{right_ones if rest else ''}"
            return dataclasses.replace(found, text=text)
    return None


def _text_of(read: Tensor, scores: Tensor, causal: Tensor) -> str:
    found = score_reading(read, scores, SHAPE.d_head**-0.5, seen=causal)
    return "" if found is None else found.text


def read_score_degrees(subject: Subject, name: str) -> Reading | None:
    """How scores grow with the queries and with the keys: each twice as large must double them."""
    q, k = _random_matrices()
    once = added_by_attention(subject, name, SHAPE, q, k, TIME)
    causal = torch.ones(TIME, TIME, dtype=torch.bool).tril()
    for what, other in {"queries": (2 * q, k), "keys": (q, 2 * k)}.items():
        twice = added_by_attention(subject, name, SHAPE, *other, TIME)
        if once is None or twice is None or not bool((once[:, causal] > 0).all() and (twice[:, causal] > 0).all()):
            return None
        logs, more = (each[0].clamp_min(1e-30).log().masked_fill(~causal, 0) for each in (once, twice))
        logs, more = (each - each[:, :1] * causal for each in (logs, more))
        times = factor(more, logs)
        if times is not None and abs(times - 2) > 0.02:
            if abs(times - 1) < 0.02:
                text = f"{what} twice as large leave the scores as they are, must double them"
                return Reading(f"{text}: the {what} are brought to one length first", Place.ATTENTION)
            text = f"{what} twice as large make the scores {number(times)} times as large, must double them"
            return Reading(text, Place.ATTENTION)
    return None


def _heads(read: Tensor, right: Tensor) -> Reading | None:
    heads = len(right)
    wrong = [head for head in range(heads) if differ(read[head], right[head])]
    if len(wrong) == heads and not any(not differ(read[a], right[b]) for a in range(heads) for b in range(heads)):
        shares = [factor(read[head], right[head]) for head in range(heads)]
        if all(share is not None and abs(share - 1) > ROUNDING for share in shares) and float(read.abs().max()) > SEEN:
            return Reading(f"attention's output is {number(shares[0] or 0.0)} times what it must be", Place.ATTENTION)
        return None
    for head in wrong:
        if float(read[head].abs().max()) < SEEN:
            return Reading(f"head {head} of {heads} gives zeros", Place.HEADS)
        for other in range(heads):
            if not differ(read[head], right[other]):
                return Reading(f"where head {head}'s output belongs lies head {other}'s", Place.HEADS)
    head = wrong[0]
    share = factor(read[head], right[head])
    if share is not None:
        return Reading(f"head {head} of {heads} gives {number(share)} times its output", Place.HEADS)
    return None


ROTARY = SHAPE.replace(d_model=48, num_heads=3, num_kv_heads=3, vocab_size=48)
"""Eight pairs a head; read at few positions."""


def _pair_angle(subject: Subject, name: str, pair: int, positions: Tensor | None = None) -> Tensor | None:
    """Radians between neighbouring tokens in one pair: (T - 1); cos is read in head 0 and sin in head 1."""
    time, d = 6, ROTARY.d_head
    q, k = torch.zeros(ROTARY.d_model, ROTARY.d_model), torch.zeros(ROTARY.d_model, ROTARY.d_model)
    for head in range(2):
        q[head * d + 2 * pair, :time] = d**0.5 / normed(ROTARY)
        k[head * d + 2 * pair + head, :time] = 1 / normed(ROTARY)
    read = added_by_attention(subject, name, ROTARY, q, k, time, positions)
    if read is None or not bool((read[:2].tril() + torch.ones(time, time).triu(1) > 0).all()):
        return None
    logs = read[:2].clamp_min(1e-30).log()
    steps = logs.diagonal(-1, 1, 2) - logs.diagonal(0, 1, 2)[:, 1:]
    return torch.atan2(steps[1], steps[0] + 1)


def relative_angles(subject: Subject, name: str) -> Tensor | None:
    """Radians between each token and the one before it, (P, T - 1) at positions from 1 on; None where not readable."""
    read = [_pair_angle(subject, name, pair) for pair in range(ROTARY.d_head // 2)]
    known = [each for each in read if each is not None]
    return torch.stack(known) if len(known) == len(read) else None


@functools.cache
def right_angles(name: str) -> Tensor:
    """What :func:`relative_angles` must be."""
    right = relative_angles(reference(), name)
    assert right is not None
    return right


def read_relative_angles(subject: Subject, name: str) -> Reading | None:
    """By how much neighbouring tokens are turned against each other, pair by pair."""
    pairs = range(ROTARY.d_head // 2)
    got, must = relative_angles(subject, name), right_angles(name)
    if got is None:
        return None
    wrong = ((got - must).abs() > 1e-2).any(-1)
    if bool(wrong.any()):
        pair = int(wrong.nonzero()[0])
        lines = table("pair", pairs, must[:, 0].tolist(), got[:, 0].tolist())
        if bool((got.abs() < 1e-2).all()):
            return Reading("inside attention no pair turns with the position", Place.POSITIONS, lines)
        text = f"inside attention, pair {pair} turns by {radians(float(got[pair, 0]))}"
        cause = _exponent(got[:, 0], must[:, 0])
        return Reading(f"{text}, must be {number(float(must[pair, 0]))}{cause}", Place.POSITIONS, lines)
    return _given_positions(subject, name) if name.endswith("rope") else None


def _exponent(got: Tensor, must: Tensor) -> str:
    """By what the exponents are divided, where the angles are powers of theta all the same; both (P,)."""
    exponents = -got.clamp_min(1e-12).log() / math.log(ROTARY.rope_theta)
    right = -must.log() / math.log(ROTARY.rope_theta)
    share = factor(exponents[1:], right[1:])
    if share is None or abs(float(got[0]) - 1) > 1e-2 or abs(share) < ROUNDING or not bool((got > 0).all()):
        return ""
    divisor = ROTARY.d_head / share
    names = {ROTARY.d_model: "d_model", 2 * ROTARY.d_head: "2 d_head", ROTARY.d_head / 2: "d_head / 2"}
    name = next((name for size, name in names.items() if abs(size / divisor - 1) < 0.02), None)
    return "" if name is None else f": the exponent of theta is -2i / {name}, must be -2i / d_head"


def _given_positions(subject: Subject, name: str) -> Reading | None:
    given = torch.tensor([0, 3, 4, 9, 11, 12])
    pair = ROTARY.d_head // 2 - 1
    read, right = (_pair_angle(who, name, pair, given) for who in (subject, reference()))
    if read is None or right is None or float((read - right).abs().max()) <= 1e-2:
        return None
    frequency = float(right[-1])
    steps = [round(float(angle) / frequency) for angle in read]
    return Reading(
        f"at the positions {tuple(given.tolist())} neighbours are turned as if {', '.join(map(str, steps))} apart,"
        f" must be {', '.join(str(int(step)) for step in given.diff())}",
        Place.POSITIONS,
    )


KV_SHAPE = SHAPE.replace(d_model=24, num_heads=6, vocab_size=24, d_ff=64)


RULES: dict[str, Callable[[int, int], int]] = {
    "h % num_kv_heads": lambda head, kv_heads: head % kv_heads,
    "h // num_kv_heads, as if the number of KV heads were the size of a group": lambda head, kv_heads: (
        head // kv_heads % kv_heads
    ),
    "0": lambda head, kv_heads: 0,
    "counted from the last": lambda head, kv_heads: kv_heads - 1 - head // (6 // kv_heads),
}
"""What may stand in place of h // (num_heads / num_kv_heads), by how it is told."""


def read_kv_heads(subject: Subject, name: str) -> Reading | None:
    """Which key/value head each query head reads, and the one rule that fits every number of them."""
    counts = (2, 3, 1, 6)
    for what, keys in (("values", False), ("keys", True)):
        if keys and read_score_degrees(subject, name) is not None:  # a key's length, by which it is known, is lost
            return None
        read = {kv: _kv_heads_read(subject, KV_SHAPE.replace(num_kv_heads=kv), keys=keys) for kv in counts}
        known = {kv: heads for kv, heads in read.items() if heads is not None}
        if any(
            heads != [int(head) for head in heads] or not set(heads) <= set(range(kv)) for kv, heads in known.items()
        ):
            continue
        for kv, heads in known.items():
            must = [head // (6 // kv) for head in range(6)]
            if heads != must:
                rule = next((rule for rule, of in RULES.items() if _fits(of, known)), None)
                text = f"query heads 0 to 5 read the {what} of the KV heads {', '.join(map(number, heads))}"
                text += f", must read {', '.join(map(str, must))}"
                text += f": query head h reads KV head {rule}" if rule else ""
                return Reading(text, Place.HEADS, table("query head", range(6), must, heads))
    return None


def _fits(rule: Callable[[int, int], int], read: dict[int, list[float]]) -> bool:
    return all(heads == [rule(head, kv) for head in range(6)] for kv, heads in read.items())


def _kv_heads_read(subject: Subject, shape: DecoderShape, *, keys: bool) -> list[float] | None:
    """By query head: the number of the KV head that it reads, where it reads one."""
    code = _kv_codes(subject, shape, keys=keys)
    return None if code is None else [round(float(value) - 1, 1) + 0.0 for value in code]


def _kv_codes(subject: Subject, shape: DecoderShape, *, keys: bool) -> Tensor | None:
    """By query head, (H,): one more than the number of the KV head whose values it reads. With ``keys`` the score that
    it gives the second token above the first, which is one more than the number of the KV head times half of the scale
    over the right scale: that score twice.
    """
    d, normed = shape.d_head, (shape.d_model / 2) ** 0.5
    q, k = torch.zeros(shape.d_model, shape.d_model), torch.zeros(shape.d_kv, shape.d_model)
    value, output = torch.zeros(shape.d_kv, shape.d_model), torch.eye(shape.d_model)
    output[-1] = 0
    last = d - 2  # the pair of a head that rotation turns least
    for head in range(shape.num_kv_heads):
        value[head * d, 0] = (1.0 if keys else head + 1.0) / normed
        k[head * d + last, 0] = (head + 1.0) / normed
    if keys:
        q[last::d, 1] = d**0.5 / 2 / normed
    tokens = SIZE * one_hot(2 if keys else 1, shape)
    weights = {"attn__q_proj": q, "attn__k_proj": k, "attn__v_proj": value, "attn__output_proj": output}
    huge = shape.replace(rope_theta=1e12)
    stream = stream_of(subject, "built", huge, [layer_weights(huge, **weights)], tokens)
    if stream is None:
        return None
    code = (stream - tokens)[-1, ::d].clone()
    return code if not keys else 2 * torch.logit(code.clamp(1e-9, 1 - 1e-9))


OF_HEADS: dict[str, Callable[[int, int], float]] = {
    "1 / sqrt(heads per KV head)": lambda heads, kv_heads: (kv_heads / heads) ** 0.5,
    "1 / (heads per KV head)": lambda heads, kv_heads: kv_heads / heads,
    "sqrt(heads per KV head)": lambda heads, kv_heads: (heads / kv_heads) ** 0.5,
    "heads per KV head": lambda heads, kv_heads: heads / kv_heads,
    "1 / sqrt(KV heads)": lambda _, kv_heads: kv_heads**-0.5,
    "1 / (KV heads)": lambda _, kv_heads: 1 / kv_heads,
    "sqrt(KV heads)": lambda _, kv_heads: kv_heads**0.5,
}
"""Factors that a number of heads, taken for the size of one, leaves on the scores."""


def read_grouped_scale(subject: Subject, name: str) -> Reading | None:
    """What scores are multiplied with where query heads share a KV head, and the one formula that fits every count."""
    shape = KV_SHAPE
    times: dict[int, float] = {}
    for kv in (6, 3, 2, 1):
        codes = _kv_codes(subject, shape.replace(num_kv_heads=kv), keys=True)
        if codes is None:
            continue
        right = torch.tensor([head // (shape.num_heads // kv) + 1.0 for head in range(shape.num_heads)])
        ratio = factor(codes, right.to(codes))
        if ratio is None:
            return None
        times[kv] = ratio
    wrong = {kv: ratio for kv, ratio in times.items() if abs(ratio - 1) > ROUNDING}
    if not wrong or len(wrong) == len(times):  # wrong in every model: the readings of one head say it
        return None
    kv, ratio = next(iter(wrong.items()))
    scale = shape.d_head**-0.5
    formula = next(
        (
            text
            for text, of in OF_HEADS.items()
            if all(abs(ratio / of(shape.num_heads, kv) - 1) < 2 * ROUNDING for kv, ratio in wrong.items())
        ),
        None,
    )
    others = ", ".join(f"{number(other * scale)} over {kv}" for kv, other in list(wrong.items())[1:])
    return Reading(
        f"with {shape.num_heads} query heads over {kv} KV heads scores are multiplied by {number(ratio * scale)},"
        f" must be by {number(scale)} = 1 / sqrt({shape.d_head}), the size of one head"
        + (f" ({others})" if others else "")
        + (f": there is a factor {formula} too much" if formula else ""),
        Place.ATTENTION,
    )
