"""What a constructor leaves behind: weights that were drawn, each layer its own, and the caller's random numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from cs336_harness.checks.configuration import hidden_shape
from cs336_harness.checks.registry import check
from cs336_harness.reference.hidden_inputs import more
from cs336_harness.reference.weights import make_token_ids, make_weights
from cs336_harness.subject.built_models import ASSEMBLY, BuiltModel, build
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, ConclusiveFailure


@check(
    "configuration.fresh_weights",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=["configuration.model_builds"],
)
def fresh_weights(subject: Subject) -> None:
    """The weights of a new model are numbers that were chosen: none is what the memory held, and no norm starts at 0.

    Every other check loads weights of its own, so only training would show it. Usually broken by ``torch.empty``
    without an initialisation after it, or by gains made with ``torch.zeros``.
    """
    with subject.unwritten_is(math.nan):
        model = build(subject, hidden_shape())
    for name, weight in model.weights().items():
        if not bool(weight.isfinite().all()):
            raise ConclusiveFailure(
                f"{name} of a new model is never initialised: it holds whatever was in the memory (torch.empty, and no"
                " torch.nn.init after it); in a correct decoder a constructor gives every weight its first value",
                model.evidence(),
            )
        if weight.ndim == 1 and not weight.any():
            raise ConclusiveFailure(
                f"{name} of a new model is all zeros: the norm's output is zero, and so is every gradient before it; in"
                " a correct decoder a norm's gain starts at 1",
                model.evidence(),
            )


@check(
    "configuration.fresh_layers",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=["configuration.model_builds", "configuration.fresh_weights"],
)
def fresh_layers(subject: Subject) -> None:
    """Two layers of a new model differ, and so do two new models: no constructor sets the seed.

    Usually broken by ``torch.manual_seed`` in a constructor: layers start equal, and whatever the caller draws next has
    been drawn before.
    """
    one, two = (_seeded_model(subject, seed) for seed in (1, 2))
    weights = one.weights()
    first = {name: weight for name, weight in weights.items() if name.startswith("layers.0.") and _drawn(weight)}
    if first and all(torch.equal(weight, weights[name.replace(".0.", ".1.")]) for name, weight in first.items()):
        raise ConclusiveFailure(
            "layers 0 and 1 of a new model start with the same numbers: a constructor sets the seed (torch.manual_seed)"
            " before it draws; in a correct decoder every weight is drawn anew, and the seed is the caller's",
            one.evidence(),
        )
    again = two.weights()
    drawn = [name for name, weight in weights.items() if _drawn(weight)]
    if drawn and all(torch.equal(weights[name], again[name]) for name in drawn):
        raise ConclusiveFailure(
            "two new models have the same weights whatever the seed is, so the constructor sets it (torch.manual_seed),"
            " and the random numbers that its caller draws afterwards repeat; in a correct decoder the seed is the"
            " caller's",
            one.evidence(),
        )


def _seeded_model(subject: Subject, seed: int) -> BuiltModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build(subject, hidden_shape())


def _drawn(weight: Tensor) -> bool:
    """Whether it looks drawn: not one number throughout."""
    return bool((weight != weight.flatten()[0]).any())


@check(
    "configuration.ids_of_any_layout",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=["configuration.model_builds", "information_flow.repeated_calls_of_a_model"],
)
def ids_of_any_layout(subject: Subject) -> None:
    """Token ids that are a transposed view give the logits of the same ids lying in order.

    Usually broken by ``.view``, which needs its numbers in order; ``.reshape`` does not. A batch that was collated the
    other way round and transposed is such a view.
    """
    shape = hidden_shape()
    model = build(subject, shape, make_weights(shape, seed=76))
    token_ids = make_token_ids(shape, batch=3, time=5 + more("time", 2), seed=77)
    in_order = model.logits(token_ids)
    try:
        transposed = model.logits(token_ids.T.contiguous().T)
    except CheckFailure as failure:
        raise ConclusiveFailure(
            f"{failure.message}, for token ids that are a transposed view and are taken when they lie in order;"
            " .reshape takes both, .view does not",
            failure.evidence,
        ) from failure.__cause__
    if not torch.allclose(in_order, transposed, rtol=0, atol=1e-5 * float(in_order.abs().max())):
        raise ConclusiveFailure(
            "the built model gives other logits for token ids that are a transposed view than for the same ids lying in"
            " order: something reads the memory as it lies (as_strided, a flat view); .reshape reads it as it is meant",
            model.evidence(token_ids),
        )
