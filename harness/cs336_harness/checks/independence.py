"""What logits do not depend on, and what a call leaves alone: other rows, earlier calls, the mode, the caller's own
state."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from cs336_harness.checks.call_conventions import OWN_TENSORS, changed, require_untouched
from cs336_harness.checks.comparing import apart, same_numbers
from cs336_harness.checks.earlier_calls import NEAR
from cs336_harness.checks.registry import check
from cs336_harness.reference.interventions import (
    CALLS_WORK,
    ROWS,
    base_ids,
    flow_logits,
    flow_noise,
    flow_shape,
    flow_weights,
    model_call,
    replacement_ids,
)
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.tolerance import TOLERANCE_IN_NOISE
from cs336_harness.reference.weights import make_weights
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import ASSEMBLY, BuiltModel, build
from cs336_harness.subject.calling import Subject, own_copy
from cs336_harness.subject.failures import CheckFailure, ConclusiveFailure, Evidence, explained_by

TIME = 7
MODES: tuple[Literal["train", "eval"], ...] = ("train", "eval")


@contextmanager
def _seeded(seed: int) -> Generator[None]:
    """The global generator at ``seed``, and back where it was: a subject that is random shows it."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():  # otherwise torch.manual_seed, which asks for every GPU there could be
            torch.cuda.manual_seed_all(seed)
        yield


@check(
    "information_flow.batch_rows",
    task="transformer_lm",
    needs=["run_transformer_lm"],
    after=[
        "information_flow.repeated_calls",
        "components.batch_and_heads[multihead_self_attention_with_rope]",
        "components.batch_and_heads[transformer_block]",
        "components.batch_and_heads[transformer_lm]",
    ],
)
def batch_rows(subject: Subject) -> float:
    """Rows of a batch do not see one another: other rows, another place in the batch, or no other rows change
    nothing.

    The other rows are replaced by loud tokens, so that a leak of 1e-9 shows. Usually broken by a softmax, a norm or a
    mean over the batch axis, by a batch axis that is broadcast against the heads, or by a reshape that mixes the two.
    """
    token_ids = base_ids(flow_shape(), TIME)
    base = flow_logits(subject, flow_shape(), token_ids)
    loud = replacement_ids(flow_shape(), token_ids, "loud", 0)
    worst = 0.0
    for row in range(ROWS):
        alone = torch.arange(ROWS)[:, None] == row
        among_others = flow_logits(subject, flow_shape(), torch.where(alone, token_ids, loud))[row]
        worst = max(worst, _require_row(token_ids, base, row, among_others, "when the other rows hold other tokens"))
    moved = flow_logits(subject, flow_shape(), token_ids.roll(1, dims=0)).roll(-1, dims=0)
    for row in range(ROWS):
        worst = max(worst, _require_row(token_ids, base, row, moved[row], f"as row {(row + 1) % ROWS} of the batch"))
    for row in range(ROWS):
        alone = flow_logits(subject, flow_shape(), token_ids[row : row + 1])[0]
        worst = max(worst, _require_row(token_ids, base, row, alone, "in a batch of its own"))
    return worst


def _require_row(token_ids: Tensor, base: Tensor, row: int, actual: Tensor, where: str) -> float:
    errors = (actual - base[row]).abs().amax(dim=1)
    error = float(errors.max()) / flow_noise()
    if error > TOLERANCE_IN_NOISE:
        position = int((errors > TOLERANCE_IN_NOISE * flow_noise()).nonzero()[0])
        raise CheckFailure(
            f"row {row} gets different logits {where}, first at position {position} (they move by up to"
            f" {float(errors.max()):.3g}); in a correct decoder a row's logits depend on that row's tokens alone",
            _evidence(token_ids, actual, base[row], error),
        )
    return error


@check(
    "information_flow.repeated_calls",
    task="transformer_lm",
    needs=["run_transformer_lm"],
)
def repeated_calls(subject: Subject) -> None:
    """The same arguments give the same logits, bit for bit, however often and after whatever other input.

    PyTorch's generator is seeded differently before each call. Usually broken by dropout that is left on, by a weight
    that keeps its random initial value, or by a cache or table that an earlier call fills.
    """
    token_ids = base_ids(flow_shape(), TIME)
    with _seeded(1):
        first = flow_logits(subject, flow_shape(), token_ids)
    with _seeded(2):
        second = flow_logits(subject, flow_shape(), token_ids)
    lesson = "in a correct decoder the weights and the token ids decide every logit"
    _require_same(
        token_ids,
        first,
        second,
        "a second call with the same arguments gives different logits{}: something is drawn at random (dropout, or a"
        " weight that keeps its initial value) or is kept from the first call; " + lesson,
    )
    flow_logits(subject, flow_shape(), base_ids(flow_shape(), flow_shape().context_length, ROWS - 1))
    with _seeded(1):
        third = flow_logits(subject, flow_shape(), token_ids)
    _require_same(
        token_ids,
        first,
        third,
        "after a call with a longer input and fewer rows, the same arguments give different logits{}: something is kept"
        " from one call to the next (a mask, a table, a cache); " + lesson,
    )


def _require_same(token_ids: Tensor, first: Tensor, other: Tensor, message: str) -> None:
    if not torch.equal(first, other):
        errors = (first - other).abs()
        row, position, _ = (int(index) for index in errors.nonzero()[0])
        where = f" (first at row {row}, position {position}; up to {float(errors.max()):.3g} apart)"
        evidence = _evidence(token_ids, other, first, float(errors.max()) / flow_noise())
        raise CheckFailure(message.format(where), evidence)


@check(
    "information_flow.repeated_calls_of_a_model",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=["information_flow.repeated_calls"],
)
def repeated_calls_of_a_model(subject: Subject) -> None:
    """A built model's logits depend on nothing that it has seen before: in both modes, with autograd and without.

    Between two calls with the same tokens, which must agree bit for bit, it sees others: of the same shape, then longer
    ones in fewer rows. For these it must give what a model that has seen nothing gives. Usually broken by a cache of
    keys and values, a result kept under the shape of its input, a counter or a running average in a buffer, which a
    model built anew for each call hides.
    """
    model, token_ids = _built(subject), base_ids(_grouped(), TIME)
    others = (
        token_ids.flip(-1),
        base_ids(_grouped(), _grouped().context_length, ROWS - 1),
    )
    for mode in ("eval", "train"):
        model.set_mode(mode)
        for grad in (False, True):
            how = f"in {mode} mode, {'with' if grad else 'without'} autograd"
            with _seeded(1):
                first = model.logits(token_ids, grad=grad)
            for other in others:
                fresh = _built(subject)
                fresh.set_mode(mode)
                with _seeded(3):
                    alone = fresh.logits(other, grad=grad)
                with _seeded(3):
                    after = model.logits(other, grad=grad)
                if not same_numbers(alone, after):
                    what = "it gives these token ids other logits after it has seen others than a model that has not"
                    raise _remembers(model, other, how, what, alone, after)
            with _seeded(2 if mode == "eval" else 1):  # dropout is for the check of the two modes to find
                second = model.logits(token_ids, grad=grad)
            if not torch.equal(first, second):
                what = "the same token ids give other logits after it has seen others"
                raise _remembers(model, token_ids, how, what, first, second)


def _remembers(model: BuiltModel, token_ids: Tensor, how: str, what: str, right: Tensor, given: Tensor) -> CheckFailure:
    furthest = float((right - given).abs().max())
    evidence = model.evidence(token_ids)
    evidence.error_in_noise = furthest / flow_noise()
    return CheckFailure(
        f"the result of the built model depends on earlier calls: {how}, {what}, up to {furthest:.3g} apart; its"
        " forward pass keeps something (or draws something), and in a correct decoder a forward pass changes nothing",
        evidence,
    )


@check(
    "information_flow.models_apart",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=["components.earlier_calls[transformer_lm]", "information_flow.repeated_calls_of_a_model"],
)
def models_apart(subject: Subject) -> None:
    """Two models know nothing of each other: what the first one computed changes nothing in the second, nor back.

    They have the same shapes, and other weights and another theta. At two lengths that no other check has, once the one
    is asked first and once the other. Usually broken by a table or a cache that belongs to the class.
    """
    for time, d_model, turn in ((9, 36, 1), (11, 60, -1)):
        shape = _grouped().replace(num_layers=1, d_model=d_model, context_length=30 + time)
        shapes = [shape, shape.replace(rope_theta=10.0)][::turn]
        token_ids = base_ids(shape, time, 2)
        one, two = (build(subject, each, make_weights(each, seed=131 + i)) for i, each in enumerate(shapes))
        before, second, after = one.logits(token_ids), two.logits(token_ids), one.logits(token_ids)
        if not torch.equal(before, after):
            raise _not_apart("a model gives other logits after another model was called", one.evidence(token_ids))
        right = [
            apart(Oracle(each).transformer_lm(_wide(make_weights(each, seed=131 + i)), token_ids), logits) < NEAR
            for i, (each, logits) in enumerate(zip(shapes, (before, second), strict=True))
        ]
        if right != [True, False]:
            return
    raise _not_apart(
        "of two models the one that is called first is right and the other is wrong, whichever comes first",
        two.evidence(token_ids),
    )


def _wide(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: weight.to(torch.float64) for name, weight in weights.items()}


def _not_apart(what: str, evidence: Evidence) -> ConclusiveFailure:
    return ConclusiveFailure(
        f"the result of the built model depends on earlier calls: {what}; something belongs to the class that should"
        " belong to the instance (a table, a mask, a cache); in a correct decoder two models share nothing",
        evidence,
    )


@check(
    "information_flow.train_and_eval",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=["information_flow.repeated_calls", "information_flow.repeated_calls_of_a_model"],
)
def train_and_eval(subject: Subject) -> float:
    """A built model gives the same logits in train mode and in eval mode, up to rounding: this contract has no
    dropout.

    Usually broken by dropout, or by a path that is taken in one mode only.
    """
    model, token_ids = _built(subject), base_ids(_grouped(), TIME)
    logits: dict[str, Tensor] = {}
    for seed, mode in enumerate(MODES):
        model.set_mode(mode)
        with _seeded(seed):
            logits[mode] = model.logits(token_ids)
    errors = (logits["train"] - logits["eval"]).abs()
    error = float(errors.max()) / flow_noise()
    if error > TOLERANCE_IN_NOISE:
        evidence = model.evidence(token_ids)
        evidence.error_in_noise = error
        raise CheckFailure(
            f"the built model gives different logits after model.train() than after model.eval(), up to"
            f" {float(errors.max()):.3g} apart; this contract has no dropout, so the mode changes nothing in a correct"
            " decoder",
            evidence,
        )
    return error


@check(
    "information_flow.no_random_numbers",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=["information_flow.repeated_calls", "information_flow.train_and_eval"],
)
def no_random_numbers(subject: Subject) -> None:
    """The forward pass of a built model draws no random numbers, in train mode or in eval mode.

    Usually broken by dropout with a rate of zero that draws all the same, or by weights that are made in forward: the
    numbers that everything after it draws then change. The CPU's generator is watched, and that of the GPU, where the
    model is on one.
    """
    model, token_ids = _built(subject), base_ids(_grouped(), TIME)
    for mode in MODES:
        model.set_mode(mode)
        if model.draws_random_numbers(token_ids):
            raise CheckFailure(
                f"the forward pass of the built model draws random numbers after model.{mode}(); in a correct decoder"
                " only the initial weights are random, and they are drawn when the model is built",
                model.evidence(token_ids),
            )


def _grouped() -> DecoderShape:
    return flow_shape(num_heads=6, num_kv_heads=2)


def _built(subject: Subject) -> BuiltModel:
    return build(subject, _grouped(), flow_weights(_grouped()))


@check(
    "information_flow.arguments_untouched",
    task="transformer_lm",
    needs=["run_transformer_lm"],
    after=["components.arguments_untouched[transformer_block]"],
    not_in=OWN_TENSORS,
)
def arguments_untouched(subject: Subject) -> None:
    """The caller's weights, their dict and the token ids are after the call what they were before it.

    Usually broken by ``pop`` on the dict of weights, or by arithmetic in place on the embedding's rows.
    """
    given = own_copy(model_call(flow_shape(), base_ids(flow_shape(), TIME)))
    before = own_copy(given)
    with explained_by(*CALLS_WORK):
        logits = subject.invoke("run_transformer_lm", copy=False, **given)
    require_untouched(subject, "run_transformer_lm", before, given, logits)


@check(
    "information_flow.ids_untouched_by_a_model",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=["information_flow.arguments_untouched"],
)
def ids_untouched_by_a_model(subject: Subject) -> None:
    """The token ids that a built model is called with, and its weights, are after the call what they were before it.

    Usually broken by ``clamp_``, ``+=`` or a mask that is written into the ids: the next use of the batch then differs.
    """
    model = _built(subject)
    before = {"token_ids": base_ids(_grouped(), TIME), "weights": model.weights()}
    with explained_by("configuration.model_builds"):
        after = {"token_ids": model.ids_after_forward(before["token_ids"]), "weights": model.weights()}
    what = changed(before, after)
    if what is not None:
        evidence = model.evidence(before["token_ids"])
        raise CheckFailure(f"the built model {what}; a correct decoder's forward pass only reads them", evidence)


@check("information_flow.global_state", task="transformer_lm", needs=["run_transformer_lm"])
def global_state(subject: Subject) -> None:
    """A call leaves PyTorch's default dtype and its grad mode as it found them, whichever they were.

    Usually broken by ``torch.set_default_dtype`` or ``torch.set_grad_enabled`` outside of a ``with`` statement.
    """
    arguments = model_call(flow_shape(), base_ids(flow_shape(), TIME))
    for grad in (True, False):
        with explained_by(*CALLS_WORK):
            subject.invoke("run_transformer_lm", grad=grad, **arguments)
        visit = subject.last_visit
        if visit is None:
            continue
        evidence = Evidence(entry_point="run_transformer_lm", arguments=arguments)
        for setting, (before, after), remedy in (
            ("torch.get_default_dtype()", visit.default_dtype, "pass dtype= where a tensor is made"),
            ("torch.is_grad_enabled()", visit.grad_enabled, "use `with torch.no_grad():` where it is needed"),
        ):
            if before != after:
                raise CheckFailure(
                    f"{setting} is {before} before run_transformer_lm and {after} after it; a correct decoder leaves"
                    f" the caller's PyTorch as it was: {remedy}",
                    evidence,
                )


def _evidence(token_ids: Tensor, actual: Tensor, expected: Tensor, error_in_noise: float) -> Evidence:
    return Evidence(
        entry_point="run_transformer_lm",
        arguments=model_call(flow_shape(), token_ids),
        actual=actual,
        expected=expected,
        error_in_noise=error_in_noise,
    )
