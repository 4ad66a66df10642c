"""Incremental decoding: a text fed in pieces to a model that keeps keys and values gives the logits of the whole text.

The law is that of the information flow, read the other way round. No later token has a part in the logits of an earlier
one, so what was computed for a prefix stays right, and a cache may keep it. Whatever a cache does wrong breaks the law:
the pieces are held against the oracle's full pass, in which there is no cache.

One piece alone, then other texts, then texts cut in every way: what fails first says most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from cs336_harness.checks.comparing import LOGITS, taught
from cs336_harness.checks.input_limits import require_refusal_of_longer
from cs336_harness.checks.registry import check
from cs336_harness.checks.slow_oracle import BUILT, UNTIED_MHA
from cs336_harness.checks.whole_model import Case, reference_logits
from cs336_harness.reference.answers import from_run_to_run
from cs336_harness.reference.hidden_inputs import cached
from cs336_harness.reference.interventions import base_ids, flow_shape, flow_weights, replacement_ids
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE, require_close, rounding_noise
from cs336_harness.reference.weights import make_token_ids, make_weights
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import ASSEMBLY, IN_PIECES, BuiltModel, build
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure

NEEDS = (*ASSEMBLY, IN_PIECES)
TASK = "incremental_decoding"

Mode = Literal["eval", "train"]

LENGTH = 10
SHAPE = DecoderShape(
    vocab_size=37,
    context_length=LENGTH,
    d_model=24,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    d_ff=64,
    rope_theta=100.0,
)
GQA = Case(SHAPE, 2, LENGTH)
LONG = UNTIED_MHA["past-256"]
KINDS = {kind: BUILT[kind] for kind in ("mha", "mha-tied", "mqa", "gqa-6-over-2-tied")}
"""Cases of the slow oracle, whose logits are there already."""

UNEQUAL = (3, 1, 4, 2)

ONE_PIECE = "incremental.one_piece"
ANOTHER_MODEL = "incremental.another_model"
SECOND_TEXT = "incremental.second_text"
TOKEN_BY_TOKEN = "incremental.token_by_token"
TWO_PIECES = "incremental.two_pieces"
FULL_MODEL = "incremental.full_model"
STATE = (ONE_PIECE, ANOTHER_MODEL, SECOND_TEXT)
NUMBERS = (*STATE, TOKEN_BY_TOKEN, TWO_PIECES)


def judge_pieces(model: BuiltModel, case: Case, sizes: Sequence[int], what: str) -> float:
    """The error in noise of a case's text, fed in pieces of these sizes, against the oracle's full pass."""
    token_ids = case.token_ids()[:, : sum(sizes)]
    logits, noise = reference_logits(case)
    actual = torch.cat(model.logits_in_pieces(token_ids, sizes), dim=1)
    evidence = model.evidence(token_ids, sizes)
    try:
        return require_close(f"{IN_PIECES} ({what})", actual, logits[:, : sum(sizes)], noise, LOGITS, evidence)
    except CheckFailure as failure:
        failure.evidence.details.insert(0, _which_pieces(actual, logits, noise, sizes))
        raise


def _which_pieces(actual: Tensor, expected: Tensor, noise: float, sizes: Sequence[int]) -> str:
    """Which pieces are right and which are wrong, each with its positions."""
    wrong = ((actual - expected[:, : sum(sizes)]).abs() > TOLERANCE_IN_NOISE * noise).any(dim=-1).any(dim=0)
    said, start = list[str](), 0
    for number, size in enumerate(sizes):
        state = "wrong" if bool(wrong[start : start + size].any()) else "right"
        where = f"position {start}" if size == 1 else f"positions {start} to {start + size - 1}"
        said.append(f"piece {number} ({where}): {state}")
        start += size
    return "; ".join(said[:4] + (["…"] if len(said) > 4 else []))


@check(
    ONE_PIECE,
    task=TASK,
    needs=NEEDS,
    after=["slow_oracle.built_logits[mha]", "slow_oracle.built_logits[gqa-6-over-2]"],
)
def one_piece(subject: Subject) -> float:
    """A text that is fed as one piece, to an empty cache, gives the logits of a plain call.

    Usually broken by key/value heads that are repeated in another order on their way into the cache, or by a mask that
    only the plain call makes.
    """
    with taught("in a correct decoder a cache that is empty changes nothing"):
        return judge_pieces(build(subject, SHAPE, GQA.weights()), GQA, [LENGTH], "one piece, an empty cache")


@check(ANOTHER_MODEL, task=TASK, needs=NEEDS, after=[ONE_PIECE])
def another_model(subject: Subject) -> float:
    """What one model decodes leaves another model's cache alone.

    Usually broken by a cache that belongs to the class, to the module or to a default argument: one for all models.
    """
    other = build(subject, SHAPE, make_weights(SHAPE, seed=6))
    other.logits_in_pieces(make_token_ids(SHAPE, 2, LENGTH // 2, seed=6), [LENGTH // 2])
    with taught("in a correct decoder each model begins with an empty cache, whatever another one has decoded"):
        model = build(subject, SHAPE, GQA.weights())
        return judge_pieces(model, GQA, [LENGTH // 2], "one piece, after another model has decoded a text")


@check(SECOND_TEXT, task=TASK, needs=NEEDS, after=[ONE_PIECE, ANOTHER_MODEL])
def second_text(subject: Subject) -> float:
    """A second text of the same size is not touched by the first, and the first gives the same again: in eval mode and
    in train mode.

    Usually broken by a cache that is never emptied, or whose count is set back while its keys stay.
    """
    lesson = "a correct decoder begins each text with an empty cache: its logits depend on nothing decoded before"
    first, worst = make_token_ids(SHAPE, 2, 5, seed=8), 0.0
    for mode in get_args(Mode):
        model = build(subject, SHAPE, GQA.weights())
        model.set_mode(mode)
        before = model.logits_in_pieces(first, [5])[0]
        with taught(lesson):
            worst = max(worst, judge_pieces(model, GQA, [5], f"the second text of a model in {mode} mode"))
            if not torch.equal(again := model.logits_in_pieces(first, [5])[0], before):
                furthest = float((again - before).abs().max())
                raise CheckFailure(
                    f"{IN_PIECES} gives other logits, by up to {furthest:.3g}, when the first text comes again after a"
                    f" second one ({mode} mode)",
                    model.evidence(first, [5]),
                )
    return worst


@check(TOKEN_BY_TOKEN, task=TASK, needs=NEEDS, after=[*STATE, "components.rope_positions"])
def token_by_token(subject: Subject) -> float:
    """One token after another, up to the last position of the context, gives the logits of the whole text.

    Usually broken by positions that restart at 0 or are one off, by keys that are rotated twice or not at all, by a
    token that is lost or kept twice, or by one cache for all layers or rows.
    """
    lesson = (
        "in a correct decoder token t is rotated by position t and sees the keys of positions 0 to t, in each layer"
    )
    with taught(lesson):
        return judge_pieces(build(subject, SHAPE, GQA.weights()), GQA, [1] * LENGTH, "token by token")


@check(TWO_PIECES, task=TASK, needs=NEEDS, after=[*STATE, TOKEN_BY_TOKEN])
def two_pieces(subject: Subject) -> float:
    """Every cut of a text in two pieces gives the logits of the whole text.

    Usually broken by a mask that begins at the top left of queries × keys, by no mask at all in the second piece, or by
    positions that count pieces in place of tokens.
    """
    model = build(subject, SHAPE, GQA.weights())
    lesson = "in a correct decoder query i of a piece that follows n tokens sees the keys of positions 0 to n + i"
    with taught(lesson):
        return max(
            judge_pieces(model, GQA, (cut, LENGTH - cut), f"pieces of {cut} and {LENGTH - cut} tokens")
            for cut in range(1, LENGTH)
        )


@check("incremental.prefill_then_steps", task=TASK, needs=NEEDS, after=NUMBERS)
def prefill_then_steps(subject: Subject) -> float:
    """A prompt in one piece, then single tokens: how text is generated.

    Usually broken by a prompt whose keys are kept in another layout than those of single tokens.
    """
    model = build(subject, SHAPE, GQA.weights())
    return judge_pieces(model, GQA, (5, *[1] * (LENGTH - 5)), f"a prompt of 5 tokens, then {LENGTH - 5} single ones")


@check("incremental.unequal_pieces", task=TASK, needs=NEEDS, after=NUMBERS)
def unequal_pieces(subject: Subject) -> float:
    """Pieces of unequal sizes, a single token among larger ones.

    Usually broken by a mask or a place in the cache that is worked out from the size of the last piece.
    """
    return judge_pieces(build(subject, SHAPE, GQA.weights()), GQA, UNEQUAL, f"pieces of {_listed(UNEQUAL)} tokens")


def _listed(sizes: Sequence[int]) -> str:
    return f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]}"


@check(
    "incremental.kinds",
    task=TASK,
    needs=NEEDS,
    after=[*NUMBERS, "slow_oracle.built_logits[mha-tied]", "slow_oracle.built_logits[mqa]"],
    cases=KINDS,
)
def kinds(subject: Subject, case: Case) -> float:
    """MHA, MQA and tied models in pieces.

    Usually broken by a cache that has num_heads heads where the model has num_kv_heads.
    """
    sizes = (case.time - 2, 1, 1)
    what = f"pieces of {_listed(sizes)} tokens; {case}"
    return judge_pieces(build(subject, case.shape, case.weights()), case, sizes, what)


@check(FULL_MODEL, task=TASK, needs=NEEDS, after=NUMBERS)
def full_model(subject: Subject) -> None:
    """Decoding in pieces leaves the model as it was: the logits of a plain call, its weights, the names of its state.

    Usually broken by a cache that stays switched on, or by one that is registered as a buffer of the model.
    """
    model = build(subject, SHAPE, GQA.weights())
    token_ids = GQA.token_ids()[:, :6]
    before, names = model.logits(token_ids), model.state_names()
    model.logits_in_pieces(token_ids, [4, 2])
    after = model.logits(token_ids)
    if not torch.equal(before, after):
        moved = float((before - after).abs().max())
        raise CheckFailure(
            f"a plain call of the model gives other logits, by up to {moved:.3g}, after {IN_PIECES}; a correct"
            " decoder's plain call knows nothing of a cache",
            model.evidence(token_ids, [4, 2]),
        )
    if (left := model.state_names()) != names:
        added = ", ".join(sorted(set(left) ^ set(names))[:3])
        raise CheckFailure(
            f"the model's state_dict has other names after {IN_PIECES} ({added}); a correct cache is no part of the"
            " model, so that nobody saves it",
            model.evidence(),
        )


LONG_SIZES = (253, *[1] * 7)


@check("incremental.past_256", task=TASK, needs=NEEDS, after=[*NUMBERS, FULL_MODEL, "slow_oracle.logits[past-256]"])
def past_256(subject: Subject) -> float:
    """Positions past 256 in pieces, for a float32 model and for one that was cast to bfloat16.

    Usually broken by a position that is counted in the model's dtype: bfloat16 has no 257.
    """
    model, token_ids = build(subject, LONG.shape, LONG.weights()), LONG.token_ids()
    what = f"253 tokens, then single ones up to position {LONG.time - 1}"
    with taught("in a correct decoder positions and angles are float32 at least, whatever the dtype of the weights"):
        error = judge_pieces(model, LONG, LONG_SIZES, what)
        model = model.cast(torch.bfloat16)
        try:
            whole = model.logits(token_ids).double()
        except CheckFailure:  # a model that does not compute in bfloat16 has no cache that could go wrong there
            return error
        pieces = torch.cat(model.logits_in_pieces(token_ids, LONG_SIZES), dim=1)
        evidence = model.evidence(token_ids, LONG_SIZES)
        what, noise = f"{IN_PIECES} ({what}, in bfloat16)", _apart_in(torch.bfloat16)
        return max(error, require_close(what, pieces, whole, noise, LOGITS, evidence))


@cached
@from_run_to_run
def _apart_in(dtype: torch.dtype) -> float:
    """The yardstick for two passes of one model in half precision: a quarter of the noise, so that four are allowed.

    A pass lies within about two noises of the exact result, so two passes lie within four of each other; a position
    that is off by one moves the logits by nine, which the usual sixteen would hide. Angles stay float32, so the noise
    is that of the weights alone; a prefix shows it as well as the whole text.
    """
    token_ids = LONG.token_ids()[:, :64]

    def logits_of(**weights: Tensor) -> Tensor:
        exact = {name: weight.to(torch.float64) for name, weight in weights.items()}
        return Oracle(LONG.shape).transformer_lm(exact, token_ids)

    return rounding_noise(logits_of, LONG.weights(), logits_of(**LONG.weights()), dtype) / 4


@check("incremental.past_the_context", task=TASK, needs=NEEDS, after=NUMBERS)
def past_the_context(subject: Subject) -> None:
    """One token more than ``context_length`` in all is refused with a ``ValueError`` that names both numbers.

    Usually broken by a full cache that is written over from its beginning: the text goes on and no longer makes sense.
    """
    model = build(subject, SHAPE, GQA.weights())
    token_ids = make_token_ids(SHAPE, 2, LENGTH + 1, seed=5)
    failure = None
    try:
        model.logits_in_pieces(token_ids, [LENGTH, 1])
    except CheckFailure as caught:
        failure = caught
    require_refusal_of_longer(failure, f"{IN_PIECES}, fed {LENGTH} tokens and then one,", LENGTH + 1, LENGTH)


@check("incremental.another_batch_size", task=TASK, needs=NEEDS, after=NUMBERS)
def another_batch_size(subject: Subject) -> float:
    """A text of another batch size between two others leaves both as they must be.

    Usually broken by memory that is taken for the first batch and kept for all.
    """
    model = build(subject, SHAPE, GQA.weights())
    worst = 0.0
    for rows in (1, 3):
        model.logits_in_pieces(make_token_ids(SHAPE, rows, 7, seed=rows), [4, 3])
        what = f"2 rows, after a text of {rows} {'row' if rows == 1 else 'rows'}"
        worst = max(worst, judge_pieces(model, GQA, (6, 4), what))
    return worst


@check("incremental.rows", task=TASK, needs=NEEDS, after=NUMBERS)
def rows(subject: Subject) -> None:
    """Other tokens in the other rows leave every logit of a row where it was.

    Usually broken by a cache without a batch axis of its own.
    """
    model = build(subject, SHAPE, GQA.weights())
    token_ids = GQA.token_ids()
    sizes = (5, 3, 2)
    before = torch.cat(model.logits_in_pieces(token_ids, sizes), dim=1)
    others = (token_ids + 1 + torch.arange(LENGTH)) % SHAPE.vocab_size
    for row in range(len(token_ids)):
        replaced = others.clone()
        replaced[row] = token_ids[row]
        after = torch.cat(model.logits_in_pieces(replaced, sizes), dim=1)
        moved = float((after[row] - before[row]).abs().max())
        if moved > 0:
            raise CheckFailure(
                f"{IN_PIECES}: the logits of row {row} move by up to {moved:.3g} when the other rows'"
                " tokens change; in a correct decoder each row has keys and values of its own",
                model.evidence(token_ids, sizes),
            )


@check("incremental.later_pieces", task=TASK, needs=NEEDS, after=NUMBERS)
def later_pieces(subject: Subject) -> None:
    """The last piece, loud or not, leaves the logits of the pieces before it as they were.

    Usually broken by logits that are handed out as a view of memory which the next piece writes over.
    """
    shape = flow_shape(num_heads=6, num_kv_heads=2)
    model = build(subject, shape, flow_weights(shape))
    token_ids = base_ids(shape, 12)
    loud = torch.cat([token_ids[:, :9], replacement_ids(shape, token_ids, "loud", 0)[:, 9:]], dim=1)
    alone = torch.cat(model.logits_in_pieces(token_ids[:, :9], [5, 4]), dim=1)
    for ids, what in ((token_ids, "follows"), (loud, "of huge embeddings follows")):
        parts = model.logits_in_pieces(ids, [5, 4, 3])
        moved = float((torch.cat(parts[:2], dim=1) - alone).abs().max())
        if moved > 0:
            raise CheckFailure(
                f"{IN_PIECES}: the logits of the first two pieces move by up to {moved:.3g} when a third piece {what};"
                " in a correct decoder what was handed out stays, and no later token has a part in it",
                model.evidence(ids, [5, 4, 3]),
            )


@check("incremental.pieces_unchanged", task=TASK, needs=NEEDS, after=[ONE_PIECE])
def pieces_unchanged(subject: Subject) -> None:
    """The caller's token ids and list of pieces stay as they were.

    Usually broken by a list that is emptied with ``pop``.
    """
    model = build(subject, SHAPE, GQA.weights())
    token_ids, sizes = GQA.token_ids(), (6, 4)
    pieces, left = token_ids.split(sizes, dim=1), model.pieces_after_call(token_ids, sizes)
    same = len(left) == len(pieces) and all(torch.equal(*pair) for pair in zip(left, pieces, strict=True))
    if not same:
        raise CheckFailure(f"{IN_PIECES} changes the pieces that it is given; a correct one leaves its arguments alone")


@check("incremental.gradients_on", task=TASK, needs=NEEDS, after=NUMBERS, advisory=True)
def gradients_on(subject: Subject) -> None:
    """With autograd on, the logits are the same; whether they carry a gradient is the decoder's choice."""
    model = build(subject, SHAPE, GQA.weights())
    off = torch.cat(model.logits_in_pieces(GQA.token_ids(), (6, 4)), dim=1)
    on = torch.cat(model.logits_in_pieces(GQA.token_ids(), (6, 4), grad=True), dim=1)
    if not torch.equal(on, off):
        moved = float((on - off).abs().max())
        raise CheckFailure(f"{IN_PIECES} gives other logits, by up to {moved:.3g}, with autograd on than under no_grad")
