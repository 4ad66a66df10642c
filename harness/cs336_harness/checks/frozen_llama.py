"""The whole model against numbers that nobody here computed: those of transformers' Llama, frozen in a fixture."""

from __future__ import annotations

import functools
import json

import torch
from torch import Tensor

from cs336_harness.checks.comparing import LOGITS, taught
from cs336_harness.checks.registry import check, float32_alone
from cs336_harness.checks.slow_oracle import judge_gradients
from cs336_harness.checks.whole_model import Case
from cs336_harness.reference import snapshots
from cs336_harness.reference.hidden_inputs import hidden
from cs336_harness.reference.tolerance import require_close
from cs336_harness.reference.weights import generator
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import ASSEMBLY, EMBEDDING, HEAD, build
from cs336_harness.subject.calling import Subject

HUGGINGFACE_LLAMA = "huggingface_llama"
"""The fixture. ``tests/references/freeze.py`` wrote it; no recipe can, because the numbers are not the oracle's."""


@functools.cache
def frozen() -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of the fixture and its provenance. Shared: nobody may change them.

    ``logits`` and ``direction`` (rows, time, V) are float64; ``gradients.NAME`` is the gradient of the weight of that
    name, of ``(logits * direction).sum()``, float32; ``weights.NAME`` is bfloat16, and stands for itself exactly. The
    provenance says the rounding noise of both results as well.
    """
    return snapshots.load(HUGGINGFACE_LLAMA)


class FrozenCase(Case):
    """The model and input of the fixture: weights and ids come from the file, whatever the seed.

    Where inputs are hidden, every token has another id (:func:`relabelled`), and the numbers are those of the same
    model of the same text.
    """

    def weights(self) -> dict[str, Tensor]:
        """Every weight by its canonical name, float32."""
        return {name: weight.to(torch.float32) for name, weight in part("weights").items()}

    def token_ids(self) -> Tensor:
        """Token ids (rows, time)."""
        return relabelled(self.shape.vocab_size).argsort()[frozen()[0]["token_ids"]]

    def direction(self) -> Tensor:
        """The weight of each logit in the scalar that is differentiated: (rows, time, V), float64."""
        return frozen()[0]["direction"][..., relabelled(self.shape.vocab_size)]

    def logits(self) -> Tensor:
        """What transformers' Llama gives: (rows, time, V), float64."""
        return frozen()[0]["logits"][..., relabelled(self.shape.vocab_size)]


def relabelled(vocab_size: int) -> Tensor:
    """For each id that a check uses, the id that the same token has in the fixture: itself, unless inputs are
    hidden."""
    if not hidden():
        return torch.arange(vocab_size)
    return torch.randperm(vocab_size, generator=generator(0))


def part(kind: str) -> dict[str, Tensor]:
    """``weights`` or ``gradients`` of the fixture by canonical name."""
    found = {
        name.removeprefix(f"{kind}."): tensor for name, tensor in frozen()[0].items() if name.startswith(f"{kind}.")
    }
    for name in (EMBEDDING, HEAD):
        if name in found:
            found[name] = found[name][relabelled(len(found[name]))]
    return found


@functools.cache
def frozen_case() -> FrozenCase:
    """The case that the fixture answers."""
    tensors, metadata = frozen()
    rows, time = tensors["token_ids"].shape
    lesson = (
        f"these are the numbers of transformers {metadata['transformers']}, with the rows of its query and key"
        " projections put in the order of pairs (2i, 2i + 1)"
    )
    return FrozenCase(DecoderShape(**json.loads(metadata["shape"])), rows, time, lesson)


@check(
    "slow_oracle.huggingface_llama",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=[
        "slow_oracle.built_logits[gqa-6-over-2]",
        "slow_oracle.gradient_of_repeated_ids",
        "slow_oracle.gradients[mha]",
        "components.rope_positions",  # a table that is kept for other positions of the same shape
    ],
    not_in=float32_alone("its numbers are those of a float32 run"),
)
def huggingface_llama(subject: Subject) -> float:
    """Logits and gradients of a small Llama, GQA 6 over 2, as Hugging Face's transformers computed them.

    The one comparison in which neither the reference nor its weights' layout is this course's own.
    """
    case = frozen_case()
    _, metadata = frozen()
    model = build(subject, case.shape, case.weights())
    actual = model.logits(case.token_ids())
    what = f"the logits of transformers' Llama ({case})"
    noise, evidence = float(metadata["noise"]), model.evidence(case.token_ids())
    with taught(case.lesson):
        worst = require_close(what, actual, case.logits(), noise, LOGITS, evidence)
    return max(worst, judge_gradients(subject, case, part("gradients"), float(metadata["gradients_noise"])))
