"""Raw logits: what leaves the model is the head's product with the normed stream, and nothing is done to it after."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cs336_harness.checks.comparing import attempt, same_numbers
from cs336_harness.checks.configuration import MODEL_WORKS, RUN, hidden_shape, run_arguments, ungrouped_shape
from cs336_harness.checks.registry import check
from cs336_harness.reference import precision
from cs336_harness.reference.hidden_inputs import more
from cs336_harness.reference.tolerance import HALF_UNIT
from cs336_harness.reference.weights import make_token_ids, make_weights
from cs336_harness.subject.built_models import ASSEMBLY, build
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, Evidence

HEAD = "lm_head.weight"
LOUDER = 64.0
"""What the head is multiplied by, a power of two: raw logits grow by exactly that, in every format."""


def not_raw(logits: Tensor, louder: Tensor) -> str | None:
    """What was done to logits (batch, time, vocab) after the head, in words; ``louder`` are those of a louder head."""
    scale = float(logits.abs().max())
    if float((logits.sum(-1) - 1).abs().max()) < 1e-4 and float(logits.min()) >= 0:
        return "each row sums to one: they are probabilities, a softmax was applied; the loss applies its own"
    if float(logits.logsumexp(-1).abs().max()) < 1e-4:
        return "the log-sum-exp of each row is zero: they are log-probabilities, a log-softmax was applied"
    if same_numbers(logits * LOUDER, louder):
        return _linear_but_not_raw(logits, scale)
    added = (LOUDER * logits - louder).flatten(0, -2) / (LOUDER - 1)  # the same in every row, if anything was added
    if same_numbers(added + logits.flatten(0, -2), added[0] + logits.flatten(0, -2)):
        return f"a head {LOUDER:g} times louder leaves a part of them as it was: a bias is added to them"
    grown = float(louder.abs().max()) / scale
    if grown < 0.9 * LOUDER:
        most = float(louder.abs().max())
        return f"a head {LOUDER:g} times louder makes them {grown:.3g} times larger: they are capped, near {most:.3g}"
    return f"a head {LOUDER:g} times louder makes them {grown:.3g} times larger: they are no product with the head"


def _linear_but_not_raw(logits: Tensor, scale: float) -> str | None:
    if float(logits.mean(-1).abs().max()) < 1e-5 * scale:
        return "the mean of each row is zero: they were centred"
    for dtype in (torch.bfloat16, torch.float16):
        if HALF_UNIT[dtype] > precision.half_unit() and torch.equal(logits.to(dtype).to(logits.dtype), logits):
            return f"each is a {str(dtype).removeprefix('torch.')} number: they were rounded on the way"
    return None


def _judge(run: Callable[[float], Tensor | None], what: str, evidence: Evidence) -> None:
    logits, louder = run(1.0), run(LOUDER)
    if logits is None or louder is None or not logits.any() or same_numbers(logits, louder):
        return  # that the head has no part in them is said by the checks of their numbers
    problem = not_raw(logits.to(torch.float32), louder.to(torch.float32))
    if problem is not None:
        raise CheckFailure(f"{what} does not return raw logits: {problem}", evidence)


@check(
    "configuration.raw_logits[get_transformer_lm]",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=[*MODEL_WORKS, "tying.untied", "configuration.raw_logits[run_transformer_lm]"],
)
def raw_logits_of_model(subject: Subject) -> None:
    """The model returns raw logits: no softmax, no log-softmax, no cap, not centred, not rounded.

    Usually broken by a softmax that belongs to sampling or to the loss.
    """
    shape = hidden_shape()
    weights = make_weights(shape, seed=76)
    token_ids = make_token_ids(shape, batch=2, time=5 + more("time", 2), seed=77)
    model = build(subject, shape)

    def run(factor: float) -> Tensor:
        model.load({**weights, HEAD: weights[HEAD] * factor})
        return model.logits(token_ids)

    _judge(run, "the model that get_transformer_lm built", model.evidence(token_ids))


@check("configuration.raw_logits[run_transformer_lm]", task="transformer_lm", needs=[RUN], after=["components.linear"])
def raw_logits_of_run(subject: Subject) -> None:
    """``run_transformer_lm`` returns raw logits: no softmax, no log-softmax, no cap, not centred, not rounded.

    Usually broken by a softmax that belongs to sampling or to the loss.
    """
    shape, time = ungrouped_shape(), 5 + more("time", 2)
    arguments = run_arguments(shape, make_token_ids(shape, batch=2, time=time, seed=77))
    weights = arguments["weights"]

    def run(factor: float) -> Tensor | None:
        scaled = {**arguments, "weights": {**weights, HEAD: weights[HEAD] * factor}}
        return attempt(subject, RUN, (2, time, shape.vocab_size), **scaled)

    _judge(run, RUN, Evidence(entry_point=RUN, arguments=arguments))
