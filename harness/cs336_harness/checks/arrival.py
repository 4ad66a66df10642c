"""What must arrive: every token reaches every later position through the attention.

Twin tokens reach the *diagonal*, which the residual connection hides otherwise: a token that does not see itself.
*Every token* of a full context: a first token that is dropped, a short window. *260 tokens*: a window or blocks longer
than a short input. One layer: two would carry a token past a window in two steps.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cs336_harness.checks.registry import check
from cs336_harness.reference.influence import InfluenceMap
from cs336_harness.reference.interventions import (
    CALLS_WORK,
    LONG_ROWS,
    base_ids,
    flow_evidence,
    flow_logits,
    flow_noise,
    flow_shape,
    flow_weights,
    influence,
    long_shape,
    replacement_ids,
)
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure

LONG_TOKENS = ((0, 1, 130), (13, 70, 258))
"""Tokens changed in the long input, one per row and call: a window of up to 256 does not reach from its end to 0."""

MOST_ASKED = 6
"""How many tokens that do not arrive are asked once more with equal scores."""


TOO_SMALL = {"bfloat16": "a token is exchanged for one so like it that bfloat16 rounds the difference away"}


@check(
    "information_flow.every_token_arrives",
    task="transformer_lm",
    needs=["run_transformer_lm"],
    after=["information_flow.prefix_equivalence[full]"],
    not_in=TOO_SMALL,
)
def every_token_arrives(subject: Subject) -> None:
    """Through the attention, every token reaches its own logits and all later ones: nothing is missing below the
    diagonal.

    A token is exchanged for its twin, which differs in nothing but its values, so the residual connection cannot
    carry the change. Usually broken by a diagonal that is masked as well, by a first token that is dropped, or by a
    window.
    """
    shape = flow_shape(num_layers=1)
    token_ids = base_ids(shape, shape.context_length)
    picture = influence(subject, shape, token_ids, "twin", range(flow_shape().context_length), judged=("below",))
    _require_arrival(subject, shape, token_ids, picture)


@check(
    "information_flow.every_token_arrives_past_256",
    task="transformer_lm",
    needs=["run_transformer_lm"],
    after=["information_flow.every_token_arrives", "information_flow.batch_rows"],
    not_in=TOO_SMALL,
)
def every_token_arrives_past_256(subject: Subject) -> None:
    """In an input of 260 tokens, the first tokens still reach the last logits through the attention.

    Usually broken by a window or by blocks that do not see one another: no short input shows either.
    """
    time = long_shape().context_length
    token_ids = base_ids(long_shape(), time, LONG_ROWS)
    base = flow_logits(subject, long_shape(), token_ids)
    columns: dict[int, Tensor] = {}
    for tokens in LONG_TOKENS:
        replaced = replacement_ids(long_shape(), token_ids, "twin", 0)
        only = torch.arange(time) == torch.tensor(tokens)[:, None]
        changed = flow_logits(subject, long_shape(), torch.where(only, replaced, token_ids))
        moved = (changed - base).abs().amax(dim=2).to(torch.float64) / flow_noise()
        columns.update(zip(tokens, moved, strict=True))
    ordered = sorted(columns)
    picture = InfluenceMap(torch.stack([columns[token] for token in ordered], dim=1), tuple(ordered), ("below",))
    _require_arrival(subject, long_shape(), token_ids, picture)


def _require_arrival(subject: Subject, shape: DecoderShape, token_ids: Tensor, picture: InfluenceMap) -> None:
    """Fails for what is missing; without a word of its own where wrong numbers keep a token from arriving."""
    missing = picture.missing()
    if not missing:
        return
    after = CALLS_WORK if _seen_by_equal_scores(subject, shape, token_ids, missing) else ()
    position, token = missing[0]
    evidence = flow_evidence(shape, token_ids, picture)
    if position == token:
        message = f"the token at position {token} does not reach its own logits through the attention"
    else:
        message = (
            f"the token at position {token} does not reach the logits at position {position} through the attention"
        )
    more = f" ({len(missing)} such pairs)" if len(missing) > 1 else ""
    raise CheckFailure(
        f"{message}{more}; a correct decoder's position {position} attends to every token from 0 to {position}, itself"
        " included",
        evidence,
        after,
    )


def _seen_by_equal_scores(
    subject: Subject, shape: DecoderShape, token_ids: Tensor, missing: list[tuple[int, int]]
) -> bool:
    """Whether the earlier tokens that are missing arrive when all scores are equal and the whole token is another: then
    the mask is open, and it is the scores or the values that are wrong.

    The residual connection carries a token to its own position, which is therefore not asked here.
    """
    earlier = [(position, token) for position, token in missing if token < position]
    if not earlier:
        return False
    equal = {
        name: torch.zeros_like(w) if name.endswith("q_proj.weight") else w for name, w in flow_weights(shape).items()
    }
    tokens = sorted({token for _, token in earlier})[:MOST_ASKED]
    seen = influence(subject, shape, token_ids, "ordinary", tokens, judged=("below",), weights=equal)
    return not set(earlier) & set(seen.missing())
