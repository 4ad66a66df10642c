"""Information flow: which tokens may reach which logits, and which must. Judged on logits, not on attention matrices.

What reaches which leak. *Every cut*: one inside aligned blocks of any size, and one that starts past some length.
*The full context*: one that exists there only. *A shorter input*: one of a table sliced from the wrong end.
*Positions past 256*: one past any length that a short input has. *Four rows*, each judged: one in some rows only.
*Ids 0 and V - 1* before the cut, after it, and as replacements: one that comes with a padding or an end token. *Loud
tokens*: one too small to see otherwise. *Two layers*, and logits at the end of them: one in the last layer only.
*Gradients*: one that the forward pass hides.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cs336_harness.checks.registry import Param, check
from cs336_harness.reference import precision
from cs336_harness.reference.hidden_inputs import more
from cs336_harness.reference.influence import InfluenceMap
from cs336_harness.reference.interventions import (
    CALLS_WORK,
    LONG_ROWS,
    SEED,
    base_ids,
    flow_evidence,
    flow_logits,
    flow_noise,
    flow_shape,
    influence,
    long_shape,
    replacement_ids,
)
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE
from cs336_harness.reference.weights import generator, make_weights, normal
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import ASSEMBLY, build
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure

SHORT = 7
TABLE = "token_embeddings.weight"

LONG_CUTS = ((1, 64, 257), (33, 128, 200))
"""Cuts of the long input, one per row and call: inside and at the edges of blocks of every usual size."""
PICTURED = 12
"""Most tokens that the picture of a long input changes."""


@check(
    "information_flow.prefix_equivalence",
    task="transformer_lm",
    needs=["run_transformer_lm"],
    cases={
        "short": Param("short", after=["information_flow.repeated_calls"]),
        "full": Param("full", after=["information_flow.prefix_equivalence[short]"]),
    },
)
def prefix_equivalence(subject: Subject, case: str) -> float:
    """The first tokens alone give the logits that they give inside the whole input, cut at every position.

    Usually broken by a causal mask that is missing, off by one or read the other way, by a softmax or a norm over the
    time axis, or by heads merged without the transpose.
    """
    shape = flow_shape()
    time = shape.context_length if case == "full" else SHORT + more("time", 2)
    token_ids = base_ids(shape, time)
    whole = flow_logits(subject, shape, token_ids)
    worst = 0.0
    for cut in range(1, time):
        alone = flow_logits(subject, shape, token_ids[:, :cut])
        error = _error(alone, whole[:, :cut])
        worst = max(worst, error)
        if error > TOLERANCE_IN_NOISE:
            picture = influence(subject, shape, token_ids, "ordinary", range(time))
            raise _failure(
                shape,
                token_ids,
                alone,
                whole[:, :cut],
                picture,
                f"cut after {cut} of {time} tokens",
                LENGTH_MATTERS,
                after=CALLS_WORK,
            )
    return worst


@check(
    "information_flow.changed_suffix",
    task="transformer_lm",
    needs=["run_transformer_lm"],
    cases={
        "ordinary": Param("ordinary", after=["information_flow.prefix_equivalence[full]"]),
        "loud": Param("loud", after=["information_flow.changed_suffix[ordinary]"]),
    },
)
def changed_suffix(subject: Subject, case: str) -> float:
    """Other tokens after a position leave every logit up to it where it was, at every cut of a full context.

    The replacements are ordinary ones (random, all 0, all V - 1, both in turns), then loud ones: tokens whose
    embedding and whose values are so large that an attention weight of 1e-9 on them moves the logits. Usually broken
    by masked scores that are filled with a small number, by a mask applied after the softmax, or by a leak in one
    layer or one row alone.
    """
    shape = flow_shape()
    full = shape.context_length
    token_ids = base_ids(shape, full)
    base = flow_logits(subject, shape, token_ids)
    worst = 0.0
    for cut in range(1, full):
        replaced = replacement_ids(shape, token_ids, case, cut)
        changed = flow_logits(subject, shape, torch.cat([token_ids[:, :cut], replaced[:, cut:]], dim=1))
        error = _error(changed[:, :cut], base[:, :cut])
        worst = max(worst, error)
        if error > TOLERANCE_IN_NOISE:
            picture = influence(subject, shape, token_ids, case, range(full))
            raise _failure(
                shape,
                token_ids,
                changed[:, :cut],
                base[:, :cut],
                picture,
                f"{case} tokens from position {cut} on",
                TOGETHER,
            )
    return worst


@check(
    "information_flow.changed_suffix_past_256",
    task="transformer_lm",
    needs=["run_transformer_lm"],
    after=["information_flow.changed_suffix[loud]", "information_flow.batch_rows"],
)
def changed_suffix_past_256(subject: Subject) -> float:
    """Loud tokens after a position leave every logit up to it where it was, in an input of 260 tokens.

    Usually broken by a mask made for a shorter length, or by attention in blocks that are not causal inside.
    """
    shape = long_shape()
    time = shape.context_length
    token_ids = base_ids(shape, time, LONG_ROWS)
    base = flow_logits(subject, shape, token_ids)
    worst = 0.0
    for turn, cuts in enumerate(LONG_CUTS):
        replaced = replacement_ids(shape, token_ids, "loud", turn)
        later = torch.arange(time) >= torch.tensor(cuts)[:, None]
        changed = flow_logits(subject, shape, torch.where(later, replaced, token_ids))
        for row, cut in enumerate(cuts):
            error = _error(changed[row, :cut], base[row, :cut])
            worst = max(worst, error)
            if error > TOLERANCE_IN_NOISE:
                nearby = [cut + step for step in (-1, 0, 1) if cut + step < time]
                tokens = sorted({*range(0, time, -(-time // (PICTURED - len(nearby)))), *nearby})
                picture = influence(subject, shape, token_ids, "loud", tokens)
                moved, expected = changed.clone(), base.clone()
                moved[later] = expected[later] = 0
                raise _failure(
                    shape,
                    token_ids,
                    moved,
                    expected,
                    picture,
                    f"loud tokens from position {cut} on",
                    TOGETHER,
                )
    return worst


@check(
    "information_flow.single_token",
    task="transformer_lm",
    needs=["run_transformer_lm"],
    after=["information_flow.changed_suffix[ordinary]"],
)
def single_token(subject: Subject) -> float:
    """One token that changes alone moves nothing before it: the influence map holds nothing above its diagonal.

    Usually broken by a mask that is off by one at some length, or by later tokens whose parts cancel when all change
    at once.
    """
    shape = flow_shape()
    full = shape.context_length
    token_ids = base_ids(shape, full)
    picture = influence(subject, shape, token_ids, "ordinary", range(full), judged=("above",))
    if picture.leaks():
        raise CheckFailure(_leak_message(picture), flow_evidence(shape, token_ids, picture))
    return float(picture.moved.triu(1).max())


@check(
    "information_flow.gradient_leak",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=[
        "information_flow.prefix_equivalence[full]",
        "information_flow.changed_suffix[loud]",
        "information_flow.ids_untouched_by_a_model",
        "components.embedding",  # a row that two ids share has the gradient of both
    ],
)
def gradient_leak(subject: Subject) -> None:
    """No gradient of a position's logits reaches the embedding of a token that comes later: through a built GQA
    model.

    Every token of the input is another one, so each embedding row is used at one place. The gradient must be zero;
    rounding of the gradients that should be there is all that is allowed. Usually broken by a leak that the forward
    pass cancels.
    """
    shape = flow_shape(num_heads=6, num_kv_heads=2)
    full = shape.context_length
    rows = 2
    order = torch.randperm(shape.vocab_size, generator=generator(SEED))
    order = order[(order != 0) & (order != shape.vocab_size - 1)]
    token_ids = torch.stack([order[:full], order[full : 2 * full]])
    token_ids[0, 0], token_ids[0, -1] = 0, shape.vocab_size - 1
    model = build(subject, shape, make_weights(shape, SEED))
    direction = normal(rows, full, shape.vocab_size, seed=SEED)
    at = torch.eye(full)[:, None, :, None]  # the direction of one position, for each position
    gradients = model.gradients(token_ids, list(at * direction), [TABLE])
    evidence = model.evidence(token_ids)
    if gradients is None:
        message = "the logits of the model that get_transformer_lm built carry no gradient: it cannot be trained"
        raise CheckFailure(f"{message}; nothing in a decoder's forward pass is detached or run under no_grad", evidence)
    moved = torch.zeros(full, full, dtype=torch.float64)
    for position, found in enumerate(gradients):
        gradient = found[TABLE]
        if gradient is not None:
            moved[position] = gradient[token_ids].abs().amax(dim=(0, 2))
    if not bool(moved.isfinite().all()):
        position, token = moved.isfinite().logical_not().nonzero()[0].tolist()
        raise CheckFailure(
            f"the gradient of the logits at position {position} is {float(moved[position, token])} at the token at"
            f" position {token}: something divides by zero, or takes a root of it, on the way back; in"
            " a correct decoder every gradient is finite",
            evidence,
        )
    picture = InfluenceMap(moved / (precision.half_unit() * moved.max()), tuple(range(full)), ("above",))
    if picture.leaks():
        position, token = picture.leaks()[0]
        evidence.influence, evidence.details = picture, picture.picture()
        raise CheckFailure(
            f"the gradient of the logits at position {position} reaches the token at position {token}, which comes"
            f" later ({float(moved[position, token]):.2g} where it must be 0): training would learn from the future; in"
            " a correct decoder nothing that a position computes, not even a part that cancels, reads a later token",
            evidence,
        )


def _error(actual: Tensor, expected: Tensor) -> float:
    return float((actual - expected).abs().max()) / flow_noise()


def _leak_message(picture: InfluenceMap) -> str:
    leaks = picture.leaks()
    position, token = leaks[0]
    sees = "token 0 alone" if position == 0 else f"the tokens 0 to {position} alone"
    more = f" ({len(leaks)} such pairs in the picture)" if len(leaks) > 1 else ""
    return (
        f"the logits at position {position} move when the token at position {token}, which comes later, is"
        f" changed{more}; a correct decoder's position {position} sees {sees}"
    )


def _failure(
    shape: DecoderShape,
    token_ids: Tensor,
    actual: Tensor,
    expected: Tensor,
    picture: InfluenceMap,
    intervention: str,
    otherwise: str,
    after: tuple[str, ...] = (),
) -> CheckFailure:
    """A prefix whose logits moved under an intervention: named by the token that moves them, or by ``otherwise``.

    Without such a token, it says nothing new when a check of ``after`` fails: wrong numbers may be so large that their
    rounding alone moves them.
    """
    errors = (actual - expected).abs().amax(dim=2)
    wrong = errors > TOLERANCE_IN_NOISE * flow_noise()
    row, position = (int(index) for index in wrong.nonzero()[0])
    largest, rows = float(errors.max()), wrong.any(dim=1).nonzero().flatten().tolist()
    evidence = flow_evidence(shape, token_ids, picture)
    evidence.actual, evidence.expected = actual, expected
    evidence.error_in_noise = largest / flow_noise()
    where = "every row" if len(rows) == len(errors) else f"row {', '.join(map(str, rows))} of 0 to {len(errors) - 1}"
    evidence.details.insert(0, f"{intervention}: earlier logits move by up to {largest:.3g}, in {where}")
    if picture.leaks():
        return CheckFailure(_leak_message(picture), evidence)
    return CheckFailure(f"the logits at row {row}, position {position} move {otherwise}", evidence, after)


LENGTH_MATTERS = (
    "with the number of tokens that follow, though not with which they are: something depends on how long the input is"
    " (a scale, a table, positions counted from the end); in a correct decoder the first logits are the same however"
    " many tokens follow"
)
TOGETHER = (
    "when all later tokens are replaced, though no single one of them moves them; in a correct decoder no later token"
    " has a part in them"
)
