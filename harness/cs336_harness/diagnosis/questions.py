"""Questions to a subject: one call, varied, and what follows from the change.

Shapes: B rows of a batch, T positions, D = d_model, V = vocab_size. A call gives (B, T, D) or logits (B, T, V).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cs336_harness.defects import Place
from cs336_harness.diagnosis import small_calls
from cs336_harness.diagnosis.matching import Probe
from cs336_harness.diagnosis.observing import Experiment, expected_of, observe, same
from cs336_harness.diagnosis.small_calls import SMALL
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import build
from cs336_harness.subject.calling import Subject

Edit = Callable[[dict[str, Any]], None]
LADDERS: dict[str, Callable[..., dict[str, Any]]] = {
    "run_multihead_self_attention": small_calls.attention_call,
    "run_multihead_self_attention_with_rope": small_calls.rotary_attention_call,
    "run_transformer_block": small_calls.block_call,
    "run_transformer_lm": small_calls.model_call,
    "built": small_calls.model_call,
}


class Bench:
    """Calls of one entry point, varied."""

    def __init__(self, probe: Probe, name: str) -> None:
        self.subject = probe.subject
        self.name = name
        self.make = LADDERS[name]

    def arguments(self, edit: Edit | None = None, **options: Any) -> dict[str, Any]:
        """The call after an edit; ``options`` are those of :mod:`calls`."""
        arguments = dict(self.make(**options))
        if edit is not None:
            edit(arguments)
        return arguments

    def _experiment(self, arguments: dict[str, Any]) -> Experiment:
        if self.name != "built":
            return Experiment(
                "question",
                "",
                lambda subject: subject.invoke(self.name, **arguments),
                Place.CONFIGURATION,
                entry_point=self.name,
                arguments=lambda: arguments,
                kept=False,
            )
        shape = SMALL.replace(num_layers=arguments["num_layers"], num_heads=arguments["num_heads"])
        shape = shape.replace(num_kv_heads=arguments["num_heads"], rope_theta=arguments["rope_theta"])
        run = functools.partial(_built, shape, arguments)
        return Experiment(
            "question", "", run, Place.CONFIGURATION, arguments=lambda: arguments, shape=shape, kept=False
        )

    def output(self, edit: Edit | None = None, **options: Any) -> Tensor | None:
        """What the subject gives; None when it raises."""
        return observe(self.subject, self._experiment(self.arguments(edit, **options))).value

    def agrees(self, edit: Edit | None = None, **options: Any) -> bool:
        """Whether the subject gives what the oracle gives."""
        experiment = self._experiment(self.arguments(edit, **options))
        return same(observe(self.subject, experiment), experiment)

    def expected(self, edit: Edit | None = None, **options: Any) -> Tensor:
        """What the oracle gives."""
        value = expected_of(self._experiment(self.arguments(edit, **options))).value
        assert value is not None
        return value


def _built(shape: DecoderShape, arguments: dict[str, Any], subject: Subject) -> Tensor:
    return build(subject, shape, arguments["weights"]).forward(arguments["in_indices"])


NEGLIGIBLE = 1e-5


def changed_at(position: int) -> Edit:
    """Another token, or another vector, at one position of every row."""

    def edit(arguments: dict[str, Any]) -> None:
        for key in ("in_indices", "in_features"):
            if key in arguments:
                changed = arguments[key].clone()
                changed[:, position] += 1
                arguments[key] = changed % SMALL.vocab_size if key == "in_indices" else changed

    return edit


def moved(bench: Bench, time: int, surgery: small_calls.Surgery) -> Tensor | None:
    """Which position (first axis) seen when another (second axis) is changed; None when nothing can be compared."""
    before = bench.output(time=time, surgery=surgery)
    seen = torch.zeros(time, time, dtype=torch.bool)
    for position in range(time):
        after = bench.output(changed_at(position), time=time, surgery=surgery)
        if before is None or after is None or before.shape != after.shape or before.ndim != 3:
            return None
        seen[:, position] = (before - after).abs().amax((0, 2)) > NEGLIGIBLE * before.abs().max()
    return seen


def leak_of(bench: Bench, time: int = 5, surgery: small_calls.Surgery = small_calls.nothing) -> str:
    """A position that notices a later one, in words; nothing when there is none."""
    pairs = moved(bench, time, surgery)
    if pairs is None or not bool(pairs.triu(1).any()):
        return ""
    seer, seen = pairs.triu(1).nonzero()[0].tolist()
    return f"position {seer} notices a change at position {seen}, which comes later"


def unseen_by(bench: Bench, time: int = 5) -> str:
    """A position that does not notice an earlier one, in words; nothing when there is none."""
    pairs = moved(bench, time, small_calls.uniform)
    if pairs is None or bool(pairs[torch.ones_like(pairs).tril()].all()):
        return ""
    blind, unseen = (~pairs).tril().nonzero()[0].tolist()
    return f"position {blind} does not notice a change at position {unseen}"


def mixed_rows(bench: Bench, surgery: small_calls.Surgery = small_calls.nothing) -> str:
    """Rows of a batch that notice each other, in words."""

    def first_row_only(arguments: dict[str, Any]) -> None:
        for key in ("in_indices", "in_features"):
            if key in arguments:
                changed = arguments[key].clone()
                changed[0] += 1
                arguments[key] = changed % SMALL.vocab_size if key == "in_indices" else changed

    before, after = bench.output(surgery=surgery), bench.output(first_row_only, surgery=surgery)
    if before is None or after is None or before.shape != after.shape or before.ndim != 3:
        return ""
    moved = float((before - after)[1:].abs().max()) > NEGLIGIBLE * float(before.abs().max())
    return "the second row of the batch notices a change in the first" if moved else ""


def zeroed(surgery: small_calls.Surgery, *endings: str) -> small_calls.Surgery:
    def operate(weights: dict[str, Tensor]) -> None:
        surgery(weights)
        for name in weights:
            if name.endswith(endings):
                weights[name] = torch.zeros_like(weights[name])

    return operate
