"""Inputs at and beyond the limits: the full context, one token more, ids outside the vocabulary, no tokens at all."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from cs336_harness.checks.configuration import RUN, hidden_shape, run_arguments, ungrouped_shape
from cs336_harness.checks.registry import check
from cs336_harness.reference.weights import make_token_ids, make_weights
from cs336_harness.subject.built_models import ASSEMBLY, build
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure


@check(
    "configuration.full_context",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=["configuration.model_builds"],
)
def full_context(subject: Subject) -> None:
    """As many tokens as ``context_length`` are taken.

    Usually broken by >= in place of > in the refusal, or by a table that is one row short.
    """
    shape = hidden_shape()
    model = build(subject, shape, make_weights(shape, seed=76))
    limit = shape.context_length
    try:
        model.logits(make_token_ids(shape, batch=2, time=limit, seed=77))
    except CheckFailure as failure:
        raise CheckFailure(
            f"a model with context_length {limit} must take {limit} tokens: {failure.message}", failure.evidence
        ) from failure.__cause__


def require_refusal_of_longer(failure: CheckFailure | None, what: str, time: int, limit: int) -> None:
    """:class:`CheckFailure` unless so many tokens were refused by a ``ValueError`` that says both numbers."""
    lesson = f"a correct decoder raises a ValueError that says {time} and {limit}"
    if failure is None:
        raise CheckFailure(f"{what} takes {time} tokens, more than its context_length {limit}; {lesson}")
    error = failure.__cause__
    if not isinstance(error, ValueError):
        got = type(error).__name__ if error else "a wrong result"
        raise CheckFailure(f"{what} meets {time} tokens, with context_length {limit}, with {got}; {lesson}")
    missing = [number for number in (time, limit) if not re.search(rf"(?<!\d){number}(?!\d)", str(error))]
    if missing:
        said = str(error).splitlines()[0] if str(error) else "it is empty"
        raise CheckFailure(
            f"{what} refuses {time} tokens with context_length {limit}, and its message does not say"
            f" {' and '.join(map(str, missing))}: {said}; {lesson}"
        )


@check(
    "configuration.longer_than_context",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=["configuration.model_builds", "configuration.full_context"],
)
def longer_than_context(subject: Subject) -> None:
    """One token more than ``context_length`` raises a ``ValueError`` that names both numbers.

    Usually broken by a table that is silently cut, or by a shape error deep inside.
    """
    shape = hidden_shape()
    model = build(subject, shape, make_weights(shape, seed=76))
    time = shape.context_length + 1
    failure = None
    try:
        model.logits(make_token_ids(shape, batch=2, time=time, seed=77))
    except CheckFailure as caught:
        failure = caught
    what = "the model that get_transformer_lm built"
    require_refusal_of_longer(failure, what, time, shape.context_length)


@check(
    "configuration.run_longer_than_context",
    task="transformer_lm",
    needs=[RUN],
    after=["assembly.transformer_lm"],
    advisory=True,
)
def run_longer_than_context(subject: Subject) -> None:
    """The same through ``run_transformer_lm``, of which the course does not say what happens then."""
    shape, failure = ungrouped_shape(), None
    time = shape.context_length + 1
    arguments = run_arguments(shape, make_token_ids(shape, batch=2, time=time, seed=77))
    try:
        subject.call(RUN, shape=(2, time, shape.vocab_size), **arguments)
    except CheckFailure as caught:
        failure = caught
    require_refusal_of_longer(failure, RUN, time, shape.context_length)


def _logits_of(subject: Subject, token_ids: Tensor) -> Tensor:
    shape = ungrouped_shape()
    return subject.call(
        RUN,
        shape=(*token_ids.shape, shape.vocab_size),
        **run_arguments(shape, token_ids),
    )


@check(
    "configuration.token_ids_outside",
    task="transformer_lm",
    needs=[RUN],
    after=["assembly.transformer_lm"],
    advisory=True,
)
def token_ids_outside(subject: Subject) -> None:
    """Token ids below 0 or from vocab_size on are an error.

    A negative id indexes the embedding from its end without a word.
    """
    vocab_size = ungrouped_shape().vocab_size
    for outside in (-1, vocab_size):
        try:
            _logits_of(subject, torch.tensor([[3, outside, 5]]))
        except CheckFailure:
            continue
        raise CheckFailure(
            f"{RUN} takes the token id {outside} with vocab_size {vocab_size} without a word;"
            f" the ids are 0 to {vocab_size - 1}, and a decoder that says so finds a broken tokenizer early"
        )


@check(
    "configuration.no_tokens",
    task="transformer_lm",
    needs=[RUN],
    after=["assembly.transformer_lm"],
    advisory=True,
)
def no_tokens(subject: Subject) -> None:
    """An input without tokens gives logits without positions, or a ``ValueError``."""
    try:
        _logits_of(subject, torch.zeros(2, 0, dtype=torch.int64))
    except CheckFailure as failure:
        if isinstance(failure.__cause__, ValueError):
            return
        raise CheckFailure(
            f"{failure.message}, when there are no tokens; an empty result or a ValueError that says so is clearer",
            failure.evidence,
        ) from failure.__cause__
