"""Weights and token ids made for interventions: change a token, see which logits move.

Two channels of the residual stream belong to the embedding alone: no block writes to them, and queries, keys and the
feed-forward do not read them.

- The **twin** channel. Token ids 2k and 2k + 1 have the same embedding but for the sign of this channel, so their
  norms, queries and keys agree. Only values read it. Exchanging a token for its twin therefore reaches logits through
  the attention alone, the token's own position included: the residual connection cannot stand in for it.
- The **loud** channel. It is zero for every token but the four of :data:`LOUD`, where it is huge, and the gains of the
  norms before the attention and before the head make it huger. It reaches values and logits, so that a weight of 1e-9
  on a token that should have none is seen. In a correct decoder it moves nothing before the token's own position.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from cs336_harness.reference.answers import from_run_to_run
from cs336_harness.reference.hidden_inputs import cached, more
from cs336_harness.reference.influence import InfluenceMap, map_from_calls
from cs336_harness.reference.oracle_adapters import OracleAdapters
from cs336_harness.reference.sample_calls import transformer_lm_of
from cs336_harness.reference.tolerance import rounding_noise
from cs336_harness.reference.weights import generator, make_weights
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import Evidence, explained_by

FLOW_SHAPE = DecoderShape(
    vocab_size=62,
    context_length=20,
    d_model=24,
    num_layers=2,
    num_heads=3,
    num_kv_heads=3,
    d_ff=64,
    rope_theta=1000.0,
)


def flow_shape(**changes: Any) -> DecoderShape:
    """:data:`FLOW_SHAPE` with changes, at a vocabulary and a context that nobody knows where a secret hides the inputs.

    The vocabulary stays even: tokens come in pairs of twins.
    """
    hidden = {
        "vocab_size": FLOW_SHAPE.vocab_size + 2 * more("vocab_size", 6),
        "context_length": FLOW_SHAPE.context_length + more("context_length", 3),
    }
    return FLOW_SHAPE.replace(**{**hidden, **changes})


def long_shape() -> DecoderShape:
    """A context in which positions pass 256."""
    return flow_shape(context_length=260 + more("long context", 6), num_layers=1)


ROWS, LONG_ROWS = 4, 3
LOUD = (20, 21, 22, 23)
"""The ids of the loud tokens. No base input holds one."""

LOUDNESS = 2.0**30
TWIN_CHANNEL, LOUD_CHANNEL = -1, -2
TWIN_SIZE, TWIN_GAIN = 0.04, 4.0
CALM = 0.5
"""Queries and keys are scaled by this, so that every weight of the attention is far above the noise."""

SEED = 11
NOISE_ROWS = 2

CALLS_WORK = (
    "assembly.transformer_lm",
    "assembly.transformer_lm_truncated_input",
    "assembly.transformer_lm_full_context",
)
"""The checks that fail, and say it first, when a call raises or does not give finite logits of the right shape."""


def twins(token_ids: Tensor) -> Tensor:
    """Each token's twin."""
    return token_ids ^ 1


@cached
def flow_weights(shape: DecoderShape) -> dict[str, Tensor]:
    """The weights described above for a shape: canonical name -> float32. Shared: hand out copies only."""
    weights = make_weights(shape, SEED)
    private = [LOUD_CHANNEL, TWIN_CHANNEL]
    for name, weight in weights.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            weight.mul_(CALM)
        if name.endswith(("q_proj.weight", "k_proj.weight", "w1.weight", "w3.weight")):
            weight[:, private] = 0
        if name.endswith(("output_proj.weight", "w2.weight")):
            weight[private] = 0
        if name.endswith("ln1.weight"):
            weight[LOUD_CHANNEL], weight[TWIN_CHANNEL] = LOUDNESS, TWIN_GAIN
    table = weights["token_embeddings.weight"]
    table[1::2] = table[::2]
    table[::2, TWIN_CHANNEL], table[1::2, TWIN_CHANNEL] = TWIN_SIZE, -TWIN_SIZE
    table[:, LOUD_CHANNEL] = 0
    table[list(LOUD), LOUD_CHANNEL] = LOUDNESS
    weights["ln_final.weight"][LOUD_CHANNEL] = LOUDNESS
    weights["lm_head.weight"][:, TWIN_CHANNEL] = 0
    return weights


def ordinary_ids(shape: DecoderShape, rows: int, time: int, seed: int) -> Tensor:
    """Random token ids (rows, time) without a loud one."""
    ordinary = torch.tensor([token for token in range(shape.vocab_size) if token not in LOUD])
    return ordinary[torch.randint(len(ordinary), (rows, time), generator=generator(seed))]


def base_ids(shape: DecoderShape, time: int, rows: int = ROWS) -> Tensor:
    """The input that is intervened on: (rows, time), ids 0 and V - 1 early, late and in the middle of different
    rows."""
    token_ids = ordinary_ids(shape, rows, time, SEED)
    last = shape.vocab_size - 1
    for row in range(rows):
        special = (0, last) if row % 2 == 0 else (last, 0)
        for place, token in zip((row // 2, time // 2 + row), special, strict=True):
            token_ids[row, min(place, time - 1)] = token
    return token_ids


def replacement_ids(shape: DecoderShape, token_ids: Tensor, kind: str, turn: int) -> Tensor:
    """What tokens are replaced with: (rows, time), everywhere other than ``token_ids``.

    ``ordinary``: one row random, one all 0, one all V - 1, one of both in turns; ``turn`` rotates which row has
    which. ``loud``: loud tokens. ``twin``: each token's twin.
    """
    rows, time = token_ids.shape
    if kind == "twin":
        return twins(token_ids)
    if kind == "loud":
        return torch.tensor(LOUD)[(torch.arange(time) + torch.arange(rows)[:, None] + turn) % len(LOUD)]
    last = shape.vocab_size - 1
    choices = (
        ordinary_ids(shape, 1, time, SEED + 1)[0],
        torch.zeros(time, dtype=torch.int64),
        torch.full((time,), last),
        last * (torch.arange(time) % 2),
    )
    replaced = torch.stack([choices[(row + turn) % len(choices)] for row in range(rows)])
    return torch.where(replaced == token_ids, (token_ids + 2) % LOUD[0], replaced)


def model_call(shape: DecoderShape, token_ids: Tensor, weights: dict[str, Tensor] | None = None) -> dict[str, Any]:
    """The arguments of ``run_transformer_lm`` for a shape, with the flow weights unless others are given."""
    return transformer_lm_of(shape, weights or flow_weights(shape), token_ids)


def flow_logits(
    subject: Subject, shape: DecoderShape, token_ids: Tensor, weights: dict[str, Tensor] | None = None
) -> Tensor:
    """The subject's logits (rows, time, V) with the flow weights or others, through ``run_transformer_lm``."""
    size = (*token_ids.shape, shape.vocab_size)
    with explained_by(*CALLS_WORK):
        return subject.call("run_transformer_lm", shape=size, **model_call(shape, token_ids, weights)).detach()


@cached
@from_run_to_run
def flow_noise() -> float:
    """The rounding noise of logits under the flow weights.

    Measured once, on two rows of the full context. The subject is compared with itself at the same positions, so a
    longer context adds no noise of its own.
    """
    arguments = model_call(flow_shape(), base_ids(flow_shape(), flow_shape().context_length)[:NOISE_ROWS])
    reference = OracleAdapters().run_transformer_lm
    return rounding_noise(reference, arguments, reference(**arguments))


def influence(
    subject: Subject,
    shape: DecoderShape,
    token_ids: Tensor,
    kind: str,
    tokens: Iterable[int],
    judged: tuple[str, ...] = ("above", "below"),
    weights: dict[str, Tensor] | None = None,
) -> InfluenceMap:
    """The influence map of the subject: each of ``tokens`` is replaced alone, in every row, by the ``kind`` of
    token."""
    tokens = list(tokens)
    base = flow_logits(subject, shape, token_ids, weights)
    calls = []
    for token in tokens:
        changed = token_ids.clone()
        changed[:, token] = replacement_ids(shape, token_ids, kind, token)[:, token]
        calls.append(flow_logits(subject, shape, changed, weights))
    return map_from_calls(base, calls, tokens, flow_noise(), judged)


def flow_evidence(shape: DecoderShape, token_ids: Tensor, picture: InfluenceMap | None) -> Evidence:
    """Evidence of the call that a map starts from, with its picture."""
    return Evidence(
        details=picture.picture() if picture is not None else [],
        entry_point="run_transformer_lm",
        arguments=model_call(shape, token_ids),
        influence=picture,
    )
