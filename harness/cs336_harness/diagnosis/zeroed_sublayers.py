"""Where a fault is in a model whose sublayers all give zeros: embedding, final norm, head, or behind it.

Shapes: B rows of a batch, T positions, D = d_model, V = vocab_size; token ids (B, T), logits (B, T, V).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cs336_harness.defects import Place
from cs336_harness.diagnosis import small_calls
from cs336_harness.diagnosis.observing import Experiment, apart, expected_of
from cs336_harness.diagnosis.questions import NEGLIGIBLE, Bench, leak_of, zeroed
from cs336_harness.diagnosis.small_calls import SMALL


def _head(arguments: dict[str, Any], change: Callable[[Tensor], Tensor]) -> None:
    weights = dict(arguments["weights"])
    weights["lm_head.weight"] = change(weights["lm_head.weight"])
    arguments["weights"] = weights


def questions_of_a_model(bench: Bench, first: Experiment, seen: Tensor | None) -> tuple[Place, str]:
    """Embedding, final norm, head and what follows it: all that is left when every sublayer gives zeros."""
    right = expected_of(first).value
    if seen is None or right is None or seen.shape != right.shape:
        return Place.POST_PROCESSING, "" if seen is None else f"the logits have the shape {tuple(seen.shape)}"
    if not bool(seen.any()):
        return Place.RESIDUAL, "with every sublayer at zero nothing is left of the stream"
    leak = leak_of(bench, surgery=small_calls.zero_sublayers)
    if leak:
        return Place.INFORMATION_FLOW, leak
    return _still_used(bench) or _after_the_head(bench) or _by_position(bench) or _before_the_head(bench)


def _still_used(bench: Bench) -> tuple[Place, str] | None:
    """A weight within a sublayer of zeros that still has an effect."""
    inside = {
        ("q_proj.weight", "k_proj.weight", "v_proj.weight"): Place.ATTENTION,
        ("w1.weight", "w3.weight"): Place.FEED_FORWARD,
        ("ln1.weight", "ln2.weight"): Place.RESIDUAL,
    }
    before = bench.output(surgery=small_calls.zero_sublayers)
    gainless = bench.output(surgery=zeroed(small_calls.zero_sublayers, "ln_final.weight"))
    if before is not None and gainless is not None and apart(before, gainless) == 0.0:
        return Place.FINAL_NORM, "ln_final.weight has no effect"
    for endings, place in inside.items():

        def halved(weights: dict[str, Tensor], endings: tuple[str, ...] = endings) -> None:
            small_calls.zero_sublayers(weights)
            for name in weights:
                if name.endswith(endings):
                    weights[name] = weights[name] * torch.linspace(0.5, 1.5, weights[name].shape[-1])

        after = bench.output(surgery=halved)
        if before is not None and after is not None and apart(before, after) > NEGLIGIBLE * float(before.abs().max()):
            return (
                place,
                f"although every sublayer gives zeros, {endings[0].removesuffix('.weight')} still has an effect",
            )
    return None


def _by_position(bench: Bench) -> tuple[Place, str] | None:
    def one_token(arguments: dict[str, Any]) -> None:
        arguments["in_indices"] = torch.full_like(arguments["in_indices"], 5)

    logits = bench.output(one_token, surgery=small_calls.zero_sublayers)
    if logits is None or float((logits - logits[:, :1]).abs().max()) <= NEGLIGIBLE * float(logits.abs().max()):
        return None
    return Place.POSITIONS, "although every sublayer gives zeros, the same token gives other logits at other positions"


def _after_the_head(bench: Bench) -> tuple[Place, str] | None:
    def logits(change: Callable[[Tensor], Tensor]) -> Tensor | None:
        return bench.output(lambda arguments: _head(arguments, change), surgery=small_calls.zero_sublayers, time=3)

    zeros, plain, doubled = logits(torch.zeros_like), logits(lambda w: w), logits(lambda w: 2 * w)
    if zeros is None or plain is None or doubled is None:
        return None
    small = NEGLIGIBLE * float(plain.abs().max())
    if apart(plain, _other_table(bench)) == 0.0:
        return Place.EMBEDDING, "token_embeddings.weight has no effect"
    if apart(zeros, plain) == 0.0:
        return Place.HEAD, "lm_head.weight has no effect"
    if float(zeros.abs().max()) > small:
        return Place.POST_PROCESSING, f"with lm_head.weight all zero, logits still reach {float(zeros.abs().max()):.3g}"
    if apart(doubled, 2 * plain) > small:
        return Place.POST_PROCESSING, "twice lm_head.weight does not give twice the logits"
    for dtype in (torch.bfloat16, torch.float16):
        if torch.equal(plain, plain.to(dtype).to(torch.float64)):
            return Place.POST_PROCESSING, f"every logit is a number of {str(dtype).removeprefix('torch.')}"
    alone = logits(lambda w: w * (torch.arange(len(w)) == 3)[:, None])
    if alone is None or alone.shape != plain.shape:
        return None
    others = alone.clone()
    others[..., 3] = 0
    if float(others.abs().max()) > small:
        row = int(others.abs().amax((0, 1)).argmax())
        zero = float(alone[..., 3].abs().max()) <= small
        place = Place.HEAD if zero else Place.POST_PROCESSING
        return (
            place,
            f"with lm_head.weight zero in every row but row 3, logit {row} is not zero"
            if not zero
            else f"row 3 of lm_head.weight makes logit {row}, must make logit 3",
        )
    return None


def _other_table(bench: Bench) -> Tensor:
    def edit(arguments: dict[str, Any]) -> None:
        table = "token_embeddings.weight"
        arguments["weights"] = {**arguments["weights"], table: arguments["weights"][table].flip(-1)}

    value = bench.output(edit, surgery=small_calls.zero_sublayers, time=3)
    return torch.empty(0) if value is None else value


def _before_the_head(bench: Bench) -> tuple[Place, str]:
    """Reads the final norm's output off the logits: the head's first rows are made the identity."""

    def read(arguments: dict[str, Any], scale: float) -> None:
        _head(arguments, lambda w: torch.eye(*w.shape))
        weights = dict(arguments["weights"])
        weights["token_embeddings.weight"] = scale * weights["token_embeddings.weight"]
        arguments["weights"] = weights
        arguments["in_indices"] = torch.arange(SMALL.vocab_size)[:, None]

    def stream(scale: float, right: bool = False) -> Tensor:
        function = bench.expected if right else bench.output
        value = function(lambda arguments: read(arguments, scale), surgery=small_calls.zero_sublayers)
        return torch.zeros(1, 1, 1) if value is None else value[..., : SMALL.d_model].flatten(0, 1)

    seen, right = stream(1000.0), stream(1000.0, right=True)
    if seen.shape != right.shape:
        return Place.EMBEDDING, ""
    wrong = (seen - right).abs().amax(-1) > 1e-4 * right.abs().max()
    if not bool(wrong.any()):
        return _small_inputs_only(bench)
    if not bool(wrong.all()):
        return Place.EMBEDDING, f"only some tokens are wrong, token {int(wrong.nonzero()[0])} first"
    larger = stream(10000.0)
    if apart(larger, seen) > 1e-2 * float(seen.abs().max()):
        return Place.FINAL_NORM, "a larger embedding gives larger logits, which a final norm prevents"
    nearest = torch.cdist(seen, right).min(1)
    if float(nearest.values.max()) <= 1e-3 * float(right.norm(dim=-1).max()):
        return Place.EMBEDDING, f"token 1 gets the vector of token {int(nearest.indices[1])}"
    ratio = seen / right
    if float((ratio - ratio[0, 0]).abs().max()) <= 1e-3 * float(ratio[0, 0].abs()):
        factor = float(ratio[0, 0])
        measured = bench.output(time=1, surgery=small_calls.only_attention)
        right = factor * bench.expected(time=1, surgery=small_calls.only_attention)
        if measured is not None and apart(measured, right) <= NEGLIGIBLE * float(right.abs().max()):
            return Place.HEAD, f"every logit is {factor:.4g} times what it must be"
        return (
            Place.NORM,
            f"behind the final norm the stream is {factor:.4g} times what it must be, and not there alone",
        )
    return Place.FINAL_NORM, "the stream is right up to the final norm's input, and wrong behind it"


def _small_inputs_only(bench: Bench) -> tuple[Place, str]:
    def large(arguments: dict[str, Any]) -> None:
        weights = dict(arguments["weights"])
        weights["token_embeddings.weight"] = 2000 * weights["token_embeddings.weight"]
        arguments["weights"] = weights

    if bench.agrees(large, time=1, surgery=small_calls.only_attention):
        return Place.NORM, "only small embeddings are wrong, as with another eps"
    return Place.EMBEDDING, "the final norm hides it, the first sublayer shows it: the embedding has another scale"
