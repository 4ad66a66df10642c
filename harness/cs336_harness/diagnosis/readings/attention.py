"""Readings of ``run_scaled_dot_product_attention``: the identity for the values, so that the weights come out.

Shapes: Q queries, K keys, d channels of queries and keys; attention weights and scores (Q, K).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

from cs336_harness.defects import Place
from cs336_harness.diagnosis.readings.reading import (
    ROUNDING,
    Reading,
    ask,
    differ,
    factor,
    number,
    numbers,
    span,
    table,
)
from cs336_harness.reference.weights import normal
from cs336_harness.subject.calling import Subject

QUERIES, KEYS, WIDTH = 6, 9, 8
FEWER = 5
"""Keys of a second call, where it counts how many there are."""
SCALE = WIDTH**-0.5
SEEN = 1e-7
"""An attention weight above this is no zero."""


def weights_of(subject: Subject, mask: Tensor | None, values: Tensor | None = None, keys: int = KEYS) -> Tensor | None:
    """The attention weights (Q, K) under a mask, or what they make of ``values``; None when they cannot be read."""
    values = torch.eye(keys) if values is None else values
    q, k = _queries_and_keys()
    k = k[:keys]
    arguments = {"Q": q[None], "K": k[None], "V": values[None], "mask": None if mask is None else mask[None]}
    read = ask(subject, "run_scaled_dot_product_attention", (1, QUERIES, values.shape[-1]), **arguments)
    return None if read is None else read[0]


def _queries_and_keys() -> tuple[Tensor, Tensor]:
    return normal(QUERIES, WIDTH, seed=7), normal(KEYS, WIDTH, seed=8)


def _scores() -> Tensor:
    q, k = (tensor.to(torch.float64) for tensor in _queries_and_keys())
    return q @ k.T * SCALE


def read_attention(subject: Subject) -> Reading | None:
    """What becomes of a value, which keys a query sees, and how scores come about."""
    everything = torch.ones(QUERIES, KEYS, dtype=torch.bool)
    for mask in (everything, None):
        read = weights_of(subject, mask)
        if read is not None:
            found = _values(subject, mask) or _count_for_scale(subject, mask, read)
            found = found or score_reading(read, _scores(), SCALE, unmasked=mask is None)
            if found is not None:
                return found
    causal, scattered = everything.tril(), normal(QUERIES, KEYS, seed=9) < 0.3
    scattered[:, 0] = True
    for mask in (causal, scattered):
        read = weights_of(subject, mask)
        found = None if read is None else mask_reading(read, mask, _scores())
        if found is not None:
            return found
    return _mask_of_rows(subject, causal, scattered)


def _mask_of_rows(subject: Subject, *masks: Tensor) -> Reading | None:
    """Which row's mask each row of a batch is given: every row has the same queries and keys, and a mask of its own."""
    given = torch.stack(masks)
    rows = len(given)
    q, k = (tensor.expand(rows, *tensor.shape).contiguous() for tensor in _queries_and_keys())
    values = torch.eye(KEYS).expand(rows, KEYS, KEYS).contiguous()
    read = ask(subject, "run_scaled_dot_product_attention", (rows, QUERIES, KEYS), Q=q, K=k, V=values, mask=given)
    if read is None:
        return None
    seen = read.abs() > SEEN
    for row, other in itertools.permutations(range(rows), 2):
        if not torch.equal(seen[row], given[row]) and torch.equal(seen[row], given[other]):
            text = f"row {row} of a batch is masked by row {other}'s mask, must be by its own"
            return Reading(f"{text}: the mask has a batch axis too", Place.MASK)
    return None


def _count_for_scale(subject: Subject, mask: Tensor | None, read: Tensor) -> Reading | None:
    """Scores that are divided by the root of the number of keys, or of queries: two numbers of keys tell."""
    fewer = weights_of(subject, None if mask is None else mask[:, :FEWER], keys=FEWER)
    if fewer is None:
        return None
    scales = []
    for weights, keys in ((read, KEYS), (fewer, FEWER)):
        if not bool((weights > 0).all()):
            return None
        visible = torch.ones_like(weights, dtype=torch.bool)
        times = factor(_centred(weights.log(), visible), _centred(_scores()[:, :keys], visible))
        if times is None:
            return None
        scales.append(times * SCALE)
    for what, counts in {"keys": (KEYS, FEWER), "queries": (QUERIES, QUERIES)}.items():
        if all(abs(scale * count**0.5 - 1) <= ROUNDING for scale, count in zip(scales, counts, strict=True)):
            return Reading(
                f"scores are divided by the root of the number of {what}, sqrt({counts[0]}) here, must be divided by"
                f" sqrt({WIDTH}), the root of d_k",
                Place.ATTENTION,
            )
    return None


def _values(subject: Subject, mask: Tensor | None) -> Reading | None:
    """A value in one channel must stay in that channel."""
    values = torch.zeros(KEYS, 5)
    values[:, 1] = 1
    read = weights_of(subject, mask, values)
    right = values[:QUERIES].to(torch.float64)
    if read is None or not differ(read, right):
        return None
    spilled = read.clone()
    spilled[:, 1] = 0
    if float(spilled.abs().max()) <= ROUNDING:
        return _sums(read[:, 1], mask is None)
    return Reading(f"when every value is (0, 1, 0, 0, 0), query 0 gets {numbers(read[0])}", Place.ATTENTION)


def _sums(sums: Tensor, unmasked: bool = False) -> Reading | None:
    """What the weights of each query add up to, (Q)."""
    if not differ(sums, torch.ones_like(sums)):
        return None
    query = int((sums - 1).abs().argmax())
    where = " without a mask" if unmasked else ""
    if not differ(sums, sums[:1].expand_as(sums)):
        share = float(sums[0])
        root = f" = 1 / sqrt({round(share**-2)})" if share < 1 and abs(share**-2 - round(share**-2)) < 0.02 else ""
        text = f"the weights of every query add up to {number(share)}{root}{where}, must add up to 1: the result is"
        return Reading(f"{text} multiplied once more behind the softmax", Place.ATTENTION)
    text = f"the weights of query {query} add up to {number(float(sums[query]))}{where}, must add up to 1"
    return Reading(text, Place.ATTENTION)


def mask_reading(read: Tensor, mask: Tensor, scores: Tensor, least: float = SEEN) -> Reading | None:
    """Which keys each query sees, both (Q, K); a hidden key with a little weight is read as a finite score."""
    seen = read.abs() > least
    if bool((seen == mask).all()):
        return _sums(read.sum(-1))
    if bool((seen | ~mask).all()):
        leaked = read.masked_fill(mask, 0)
        query, key = divmod(int(leaked.argmax()), mask.shape[1])
        first = int(mask[query].nonzero()[0])
        score = float((read[query, key] / read[query, first]).log() + scores[query, first])
        if seen[~mask].all() and score < float(scores[query, key]) - 0.5:
            own = float(scores[query, key])
            others = [
                float((read[q, k] / read[q, int(mask[q].nonzero()[0])]).log() + scores[q, int(mask[q].nonzero()[0])])
                for q, k in (~mask).nonzero().tolist()[:4]
            ]
            even = max(others) - min(others) < 0.05 * max(1.0, abs(score))
            smallest = even and abs(score - float(scores.min())) < 0.01 * max(1.0, abs(score))
            what = (
                f"its score is {number(score)}{', the smallest score of all' if smallest else ''}"
                if even
                else f"its score is lowered from {number(own)} to {number(score)}"
            )
            return Reading(
                f"hidden keys still get weight ({100 * float(read[query, key]):.2g} % for key {key} at query {query}):"
                f" {what}, must be minus infinity",
                Place.MASK,
            )
    query = int((seen != mask).any(-1).nonzero()[-1])
    return Reading(
        f"query {query} sees the keys {span(seen[query].nonzero().flatten().tolist())},"
        f" must see {span(mask[query].nonzero().flatten().tolist())}",
        Place.MASK,
        picture(seen, mask),
    )


MASK_SIGNS = {
    "■": "the query sees the key, rightly",
    "·": "it does not see it, rightly",
    "X": "it sees the key and must not",
    "o": "it does not see the key and must",
}
MOST_ROWS = 6


def picture(seen: Tensor, mask: Tensor) -> tuple[str, ...]:
    """Queries down, keys across: (Q, K) twice. Only what is wrong makes lines."""
    signs = {(True, True): "■", (False, False): "·", (True, False): "X", (False, True): "o"}
    rows = [
        f"query {query:>2}  "
        + "".join(signs[(bool(s), bool(m))] for s, m in zip(seen[query], mask[query], strict=True))
        for query in range(len(mask))
        if bool((seen[query] != mask[query]).any())
    ]
    more = (f"… and {len(rows) - MOST_ROWS} more queries",) if len(rows) > MOST_ROWS else ()
    shown = "".join(row.split(maxsplit=2)[2] for row in rows[:MOST_ROWS])
    legend = [f"{sign} {meaning}" for sign, meaning in MASK_SIGNS.items() if sign in shown]
    return (*rows[:MOST_ROWS], *more, "rows: queries; columns: keys", *legend)


def score_reading(
    read: Tensor, scores: Tensor, scale: float, *, unmasked: bool = False, seen: Tensor | None = None
) -> Reading | None:
    """How scores (Q, K) come out in attention weights (Q, K): the factor, a share of the distance, or the first one."""
    visible = torch.ones_like(read, dtype=torch.bool) if seen is None else seen
    found = _sums(read.sum(-1), unmasked)
    if found is not None:
        return found
    if not bool((read[visible] > 0).all()):
        if unmasked:
            query = int(((read <= 0) & visible).any(-1).nonzero()[0])
            own = (read[query] > SEEN).nonzero().flatten().tolist()
            return Reading(f"without a mask, query {query} sees the keys {span(own)}, must see every key", Place.MASK)
        return None
    logs, must = _centred(read.clamp_min(1e-30).log(), visible), _centred(scores, visible)
    times = factor(logs, must)
    if times is not None:
        if abs(times - 1) <= ROUNDING:
            return None
        if abs(times) <= ROUNDING:
            return Reading("scores have no effect: every key gets the same weight", Place.ATTENTION)
        of_this = "" if abs(times * scale - 1) > ROUNDING else ": they are not scaled at all"
        return Reading(
            f"scores are multiplied by {number(times * scale)}, must be by {number(scale)}"
            f" = 1 / sqrt({round(scale**-2)}){of_this}",
            Place.ATTENTION,
        )
    distance = (torch.arange(read.shape[0])[:, None] - torch.arange(read.shape[1])).abs().to(torch.float64)
    slope = factor(logs - must, _centred(distance, visible))
    if slope is not None and float((logs - must).abs().max()) > ROUNDING:
        lower = "lowers" if slope < 0 else "raises"
        text = f"each step of distance between query and key {lower} the score by {number(abs(slope))}; nothing must"
        return Reading(text, Place.ATTENTION)
    bent = _bent(logs, scores, visible)
    if bent is not None:
        return bent
    cut = _same_scores(logs, must, visible)
    if cut is not None:
        return cut
    query = int((logs - must).abs().amax(-1).argmax())
    own = visible[query].nonzero().flatten()
    first = own[0]
    lines = table(
        "key",
        own.tolist(),
        (scores[query, own] - scores[query, first]).tolist(),
        (logs[query, own] - logs[query, first]).tolist(),
    )
    return Reading(
        f"the scores of query {query} are other than Q Kᵀ · {number(scale)} (below: relative to key {int(first)})",
        Place.ATTENTION,
        lines,
        vague=True,
    )


SOFTMAX_TWICE = "the softmax is taken twice: what it takes is softmax(s), must be the scores s themselves"
BENT: dict[str, Callable[[Tensor], Tensor]] = {
    SOFTMAX_TWICE: lambda s: s.softmax(-1),
    "the softmax is taken of tanh(s), must be taken of the scores s": torch.tanh,
    "the softmax is taken of sigmoid(s), must be taken of the scores s": torch.sigmoid,
    "the softmax is taken of relu(s), must be taken of the scores s": torch.relu,
    "the softmax is taken of |s|, must be taken of the scores s": torch.abs,
    "the softmax is taken of s², must be taken of the scores s": torch.square,
    "the softmax is taken of exp(s), must be taken of the scores s": torch.exp,
}
"""What may become of scores s before the softmax that makes the weights."""


def _bent(logs: Tensor, scores: Tensor, visible: Tensor) -> Reading | None:
    """A curve that scores go through, all (Q, K)."""
    kept = scores.masked_fill(~visible, -torch.inf)
    for text, curve in BENT.items():
        bent = _centred(curve(kept).masked_fill(~visible, 0), visible)
        if not differ(logs, bent):
            return Reading(text, Place.ATTENTION)
    return None


def _same_scores(logs: Tensor, must: Tensor, visible: Tensor) -> Reading | None:
    """Keys that get one score where they must get several, as when scores are cut off."""
    for query in range(len(logs)):
        own = visible[query].nonzero().flatten().tolist()
        top = float(logs[query, own].max())
        alike = [key for key in own if top - float(logs[query, key]) < 1e-4]
        right = must[query, alike]
        if len(alike) > 1 and float(right.max() - right.min()) > 0.1:
            return Reading(
                f"query {query} gives the keys {span(alike)} the same score, must give them scores that differ by"
                f" {number(float(right.max() - right.min()))}: large scores are cut off",
                Place.ATTENTION,
                table("key", own, (must[query, own] - must[query].max()).tolist(), (logs[query, own] - top).tolist()),
            )
    return None


def _centred(scores: Tensor, visible: Tensor) -> Tensor:
    """Each row minus its mean over what is visible; zero elsewhere."""
    kept = scores.masked_fill(~visible, 0)
    means = kept.sum(-1, keepdim=True) / visible.sum(-1, keepdim=True)
    return (scores - means).masked_fill(~visible, 0)
