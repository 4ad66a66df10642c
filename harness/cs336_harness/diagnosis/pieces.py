"""Experiments on a model that is fed in pieces: one piece, a second text, single tokens, larger pieces, the limits."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from cs336_harness.defects import Place
from cs336_harness.diagnosis import small_calls
from cs336_harness.diagnosis.facts import BUILD, FILL, SIZES, fact
from cs336_harness.diagnosis.observing import Experiment, Program
from cs336_harness.diagnosis.small_calls import GROUPED, SMALL
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import IN_PIECES, build
from cs336_harness.subject.calling import Subject

TWO_LAYERS = SMALL.replace(num_layers=2)
LONG = SMALL.replace(context_length=272, num_heads=1, num_kv_heads=1)

TEXT = (
    *(line.format(tied=False) for line in BUILD),
    *FILL,
    "tokens = torch.tensor([[1, 7, 4, 0], [2, 2, 9, 5]])",
)
"""A model and a text of two rows."""

ANOTHER_MODEL = (
    *SIZES,
    "sizes |= dict(rope_theta=100.0, tie_embeddings=False)",
    "other, model = get_transformer_lm(**sizes), get_transformer_lm(**sizes)",
    "weights = get_transformer_lm_weights(model)",
    *FILL,
    "tokens = torch.tensor([[1, 7, 4, 0]])",
    "whole = model(tokens)",
    "run_transformer_lm_in_pieces(other, [tokens])",
    "logits = run_transformer_lm_in_pieces(model, [tokens])[0]",
    "bool((logits - whole).abs().max() < 1e-3)",
)
"""A fact and no numbers: what another model left behind may be anything."""


@functools.cache
def program() -> Program:
    """From an empty cache to a full one."""
    return (
        dataclasses.replace(
            _fact("another model", "in whether another model's text leaves no trace", *ANOTHER_MODEL), decisive=True
        ),
        _pieces("one piece", "for one piece, with an empty cache", GROUPED, (5,)),
        _fact(
            "second text",
            "for a second text",
            *TEXT,
            "run_transformer_lm_in_pieces(model, [tokens.flip(1)])",
            "logits = run_transformer_lm_in_pieces(model, [tokens])[0]",
            "logits",
        ),
        _pieces("single tokens", "token by token, in one layer", SMALL, (1, 1, 1, 1)),
        _pieces("two pieces", "for a second piece of several tokens, in one layer", SMALL, (3, 3)),
        _pieces("unequal pieces", "for pieces of several sizes, in two layers", TWO_LAYERS, (2, 1, 3, 1)),
        _pieces("grouped heads", "with six query heads over two key/value heads", GROUPED, (2, 3)),
        _fact(
            "two rows",
            "with two texts at once",
            *TEXT,
            "pieces = list(tokens.split([2, 2], dim=1))",
            "logits = torch.cat(run_transformer_lm_in_pieces(model, pieces), dim=1)",
            "logits",
        ),
        _fact(
            "plain call",
            "in a plain call that follows the pieces",
            *TEXT,
            "run_transformer_lm_in_pieces(model, list(tokens.split([2, 2], dim=1)))",
            "logits = model(tokens)",
            "logits",
        ),
        _fact(
            "past the context",
            "with a full context and one token more",
            *TEXT,
            "pieces = [torch.arange(6)[None], torch.tensor([[6]])]",
            "run_transformer_lm_in_pieces(model, pieces)[-1].shape",
        ),
        _pieces("past 256", "past position 256", LONG, (254, *[1] * 6), rows=1),
    )


def _fact(name: str, what: str, *code: str) -> Experiment:
    return fact(f"{IN_PIECES}: {name}", what, Place.CACHE, *code)


def _pieces(name: str, what: str, shape: DecoderShape, sizes: Sequence[int], rows: int = 2) -> Experiment:
    """The logits (rows, T, V) of one text, fed in pieces of these sizes to a model that is built for it."""
    arguments = functools.cache(functools.partial(small_calls.model_call, shape, rows, sum(sizes)))

    def run(subject: Subject) -> Tensor:
        model = build(subject, shape, arguments()["weights"])
        return torch.cat(model.logits_in_pieces(arguments()["in_indices"], sizes), dim=1)

    return Experiment(f"{IN_PIECES}: {name}", what, run, Place.CACHE, arguments=arguments, shape=shape)
