"""Where a fault is when no known mistake explains it: the first rung that differs, and a few questions to the subject there.

A question changes one thing in a call and asks what follows: does a head of zeros give zeros, do earlier positions notice a
later token, does the fault vanish with one head. The answers are the evidence.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cs336_harness.assembly import build
from cs336_harness.defects import Place
from cs336_harness.diagnosis import calls
from cs336_harness.diagnosis.calls import SMALL
from cs336_harness.diagnosis.matching import Probe
from cs336_harness.diagnosis.observing import RAISED, Experiment, apart, expected_of, observe, same
from cs336_harness.diagnosis.programs import program
from cs336_harness.oracle_adapters import NORM_EPS
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject import Subject

Edit = Callable[[dict[str, Any]], None]
LADDERS: dict[str, Callable[..., dict[str, Any]]] = {
    "run_multihead_self_attention": calls.attention_call,
    "run_multihead_self_attention_with_rope": calls.rotary_attention_call,
    "run_transformer_block": calls.block_call,
    "run_transformer_lm": calls.model_call,
    "built": calls.model_call,
}
NEGLIGIBLE = 1e-5


@dataclasses.dataclass(slots=True)
class Located:
    """A place, how sure it is, and why."""

    place: Place
    confidence: str
    evidence: list[str]


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
            )
        shape = SMALL.replace(num_layers=arguments["num_layers"], num_heads=arguments["num_heads"])
        shape = shape.replace(num_kv_heads=arguments["num_heads"], rope_theta=arguments["rope_theta"])
        run = functools.partial(_built, shape, arguments)
        return Experiment("question", "", run, Place.CONFIGURATION, arguments=lambda: arguments, shape=shape)

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
    model = build(subject, shape, arguments["weights"])
    return subject.run("the model", lambda: model.module(arguments["in_indices"].clone()))


def locate(probe: Probe, name: str) -> Located | None:
    """Where the fault is that a program shows; None when it shows none."""
    differing = probe.differing(name)
    if not differing:
        return None
    facts_first = [e for e in differing if e.decisive and probe.see(e).text != RAISED]
    first = next((e for e in (*facts_first, *differing) if not e.decisive or e in facts_first), differing[0])
    seen = probe.see(first)
    before = [e for e in itertools.takewhile(lambda e: e is not first, program(name)) if not e.decisive]
    evidence = [f"agrees {e.what}" for e in before if not probe.see(e).absent][-2:]
    evidence.append(f"differs {first.what}" if seen.text != RAISED else f"raises {first.what}: {seen.message}")
    if name not in LADDERS or first.decisive:
        return Located(first.place, "likely", evidence)
    rung = first.name.partition(": ")[2]
    place, answer = _ask(Bench(probe, name), rung, first, seen.value, raises=seen.text == RAISED)
    return Located(place, "likely", [*evidence, *([answer] if answer else [])])


def _ask(bench: Bench, rung: str, first: Experiment, seen: Tensor | None, *, raises: bool) -> tuple[Place, str]:
    if raises:
        return (Place.CONFIGURATION if bench.name == "built" else first.place), ""
    mixed = _mixed_rows(bench)
    if mixed:
        return Place.INFORMATION_FLOW, mixed
    if rung == "silent":
        return (
            _silent_model(bench, first, seen) if bench.name in ("run_transformer_lm", "built") else _silent_block(bench)
        )
    if rung in ("one token", "equal scores", "no rotation", "attention"):
        return _attention(bench, rung, first.place)
    if rung == "feed-forward":
        return _feed_forward(bench)
    if rung.startswith(("more", "full", "as many", "three", "one layer", "both")):
        time = 12 if "full" in rung else 11 if rung.startswith("more") else 5
        leak = _leak(bench, time)
        if leak:
            return Place.INFORMATION_FLOW, leak
        unseen = _unseen(bench, time) if time > 5 else ""
        if unseen:
            return Place.MASK, unseen
    return first.place, ""


def _changed(position: int) -> Edit:
    """Another token, or another vector, at one position of every row."""

    def edit(arguments: dict[str, Any]) -> None:
        for key in ("in_indices", "in_features"):
            if key in arguments:
                changed = arguments[key].clone()
                changed[:, position] += 1
                arguments[key] = changed % SMALL.vocab_size if key == "in_indices" else changed

    return edit


def _moved(bench: Bench, time: int, surgery: calls.Surgery) -> Tensor | None:
    """Which position (first axis) moves when another (second axis) is changed; None when there is nothing to compare."""
    before = bench.output(time=time, surgery=surgery)
    moved = torch.zeros(time, time, dtype=torch.bool)
    for position in range(time):
        after = bench.output(_changed(position), time=time, surgery=surgery)
        if before is None or after is None or before.shape != after.shape or before.ndim != 3:
            return None
        moved[:, position] = (before - after).abs().amax((0, 2)) > NEGLIGIBLE * before.abs().max()
    return moved


def _leak(bench: Bench, time: int = 5, surgery: calls.Surgery = calls.nothing) -> str:
    """A position that notices a later one, in words; nothing when there is none."""
    moved = _moved(bench, time, surgery)
    if moved is None or not bool(moved.triu(1).any()):
        return ""
    seer, seen = moved.triu(1).nonzero()[0].tolist()
    return f"position {seer} notices a change at position {seen}, which comes later"


def _unseen(bench: Bench, time: int = 5) -> str:
    """A position that does not notice an earlier one, in words; nothing when there is none."""
    moved = _moved(bench, time, calls.uniform)
    if moved is None or bool(moved[torch.ones_like(moved).tril()].all()):
        return ""
    blind, unseen = (~moved).tril().nonzero()[0].tolist()
    return f"position {blind} does not notice a change at position {unseen}"


def _mixed_rows(bench: Bench, surgery: calls.Surgery = calls.nothing) -> str:
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


def _attention(bench: Bench, rung: str, place: Place) -> tuple[Place, str]:
    attention_only = calls.nothing if "attention" in bench.name else calls.only_attention
    surgery = {"equal scores": calls.uniform, "no rotation": calls.unrotated}.get(rung, attention_only)
    time = 1 if rung == "one token" else 5
    theta = "rope_theta" if "rope_theta" in bench.arguments() else "theta"

    def huge(arguments: dict[str, Any]) -> None:
        if rung == "no rotation":
            arguments[theta] = calls.HUGE_THETA

    if rung == "no rotation":
        first, second = (
            bench.output(surgery=attention_only),
            bench.output(lambda arguments: arguments.update({theta: 7.0}), surgery=attention_only),
        )
        if first is not None and second is not None and apart(first, second) == 0.0:
            return Place.POSITIONS, "theta has no effect"
    one_head = SMALL.replace(num_heads=1, num_kv_heads=1)
    if rung != "attention" or bench.name == "run_multihead_self_attention":
        if bench.agrees(huge, shape=one_head, time=time, surgery=surgery):
            return Place.HEADS, "with a single head it agrees"
    leak = _leak(bench, surgery=surgery) if time > 1 else ""
    if leak:
        return Place.MASK, leak
    if rung == "one token":
        return _one_token(bench, surgery)
    if rung == "equal scores":
        unseen = _unseen(bench)
        return (Place.MASK, unseen) if unseen else (Place.ATTENTION, "every position sees exactly what it may see")
    if rung == "attention" and bench.name == "run_multihead_self_attention":
        return Place.ATTENTION, ""
    return place, ""


def _one_token(bench: Bench, surgery: calls.Surgery) -> tuple[Place, str]:
    if bench.name.startswith("run_multihead"):
        return Place.ATTENTION, ""
    layers = _layers(bench)
    if layers:
        return Place.LAYERS, layers
    if not bench.agrees(time=1, surgery=_zeroed(surgery, "q_proj.weight", "k_proj.weight", "v_proj.weight")):
        return Place.RESIDUAL, "it differs even when queries, keys and values are zero"
    if bench.agrees(_normed, time=1, surgery=_unit_gains(surgery)):
        return Place.FIRST_NORM, "with an input that is normed already and gains of one it agrees"
    heard, unheard = bench.output(time=1, surgery=surgery), bench.output(time=1, surgery=calls.silence)
    if heard is not None and unheard is not None and apart(heard, unheard) == 0.0:
        return Place.RESIDUAL, "attention has no effect at all"
    return Place.ATTENTION, ""


def _layers(bench: Bench) -> str:
    """Whether, of three layers, some speak as they must and others do not."""
    if bench.name == "run_transformer_block":
        return ""
    three = SMALL.replace(num_layers=3)
    right = [bench.agrees(shape=three, time=3, surgery=calls.only_layer(layer)) for layer in range(3)]
    if not any(right):
        return ""
    return f"of three layers, layer {right.index(True)} alone is right" + (
        "" if all(right) else f", layer {right.index(False)} is not"
    )


def _zeroed(surgery: calls.Surgery, *endings: str) -> calls.Surgery:
    def operate(weights: dict[str, Tensor]) -> None:
        surgery(weights)
        for name in weights:
            if name.endswith(endings):
                weights[name] = torch.zeros_like(weights[name])

    return operate


def _normed(arguments: dict[str, Any]) -> None:
    """Makes the first norm an identity: every row of the input has a root mean square of one, eps included."""

    def unit(x: Tensor) -> Tensor:
        return x / (x * x).mean(-1, keepdim=True).sqrt() * (1 - NORM_EPS) ** 0.5

    if "in_features" in arguments:
        arguments["in_features"] = unit(arguments["in_features"])
    else:
        table = "token_embeddings.weight"
        arguments["weights"] = {**arguments["weights"], table: unit(arguments["weights"][table])}


def _unit_gains(surgery: calls.Surgery) -> calls.Surgery:
    def operate(weights: dict[str, Tensor]) -> None:
        surgery(weights)
        for name in weights:
            if name.endswith(("ln1.weight", "ln2.weight")):
                weights[name] = torch.ones_like(weights[name])

    return operate


def _feed_forward(bench: Bench) -> tuple[Place, str]:
    leak = _leak(bench, surgery=calls.only_feed_forward)
    if leak:
        return Place.INFORMATION_FLOW, leak
    if bench.agrees(_normed, time=3, surgery=_unit_gains(calls.only_feed_forward)):
        return Place.SECOND_NORM, "with an input that is normed already and gains of one it agrees"
    heard, unheard = bench.output(surgery=calls.only_feed_forward), bench.output(surgery=calls.silence)
    if heard is not None and unheard is not None and apart(heard, unheard) == 0.0:
        return Place.RESIDUAL, "the feed-forward has no effect at all"
    return Place.FEED_FORWARD, ""


def _silent_block(bench: Bench) -> tuple[Place, str]:
    leak = _leak(bench, surgery=calls.silence)
    if leak:
        return Place.INFORMATION_FLOW, leak
    return Place.RESIDUAL, "with both sublayers silenced, a block must hand its input through unchanged"


def _head(arguments: dict[str, Any], change: Callable[[Tensor], Tensor]) -> None:
    weights = dict(arguments["weights"])
    weights["lm_head.weight"] = change(weights["lm_head.weight"])
    arguments["weights"] = weights


def _silent_model(bench: Bench, first: Experiment, seen: Tensor | None) -> tuple[Place, str]:
    """Embedding, final norm, head and what follows it: all that speaks when every sublayer is silent."""
    right = expected_of(first).value
    if seen is None or right is None or seen.shape != right.shape:
        return Place.POST_PROCESSING, "" if seen is None else f"the logits have the shape {tuple(seen.shape)}"
    if not bool(seen.any()):
        return Place.RESIDUAL, "with every sublayer silenced nothing is left of the stream"
    leak = _leak(bench, surgery=calls.silence)
    if leak:
        return Place.INFORMATION_FLOW, leak
    return _still_heard(bench) or _after_the_head(bench) or _by_position(bench) or _before_the_head(bench)


def _still_heard(bench: Bench) -> tuple[Place, str] | None:
    """A weight within a silenced layer that still has an effect."""
    inside = {
        ("q_proj.weight", "k_proj.weight", "v_proj.weight"): Place.ATTENTION,
        ("w1.weight", "w3.weight"): Place.FEED_FORWARD,
        ("ln1.weight", "ln2.weight"): Place.RESIDUAL,
    }
    before = bench.output(surgery=calls.silence)
    gainless = bench.output(surgery=_zeroed(calls.silence, "ln_final.weight"))
    if before is not None and gainless is not None and apart(before, gainless) == 0.0:
        return Place.FINAL_NORM, "ln_final.weight has no effect"
    for endings, place in inside.items():

        def halved(weights: dict[str, Tensor], endings: tuple[str, ...] = endings) -> None:
            calls.silence(weights)
            for name in weights:
                if name.endswith(endings):
                    weights[name] = weights[name] * torch.linspace(0.5, 1.5, weights[name].shape[-1])

        after = bench.output(surgery=halved)
        if before is not None and after is not None and apart(before, after) > NEGLIGIBLE * float(before.abs().max()):
            return (
                place,
                f"although every sublayer is silenced, {endings[0].removesuffix('.weight')} still has an effect",
            )
    return None


def _by_position(bench: Bench) -> tuple[Place, str] | None:
    def one_token(arguments: dict[str, Any]) -> None:
        arguments["in_indices"] = torch.full_like(arguments["in_indices"], 5)

    logits = bench.output(one_token, surgery=calls.silence)
    if logits is None or float((logits - logits[:, :1]).abs().max()) <= NEGLIGIBLE * float(logits.abs().max()):
        return None
    return Place.POSITIONS, "although every sublayer is silenced, the same token gives other logits at other positions"


def _after_the_head(bench: Bench) -> tuple[Place, str] | None:
    def logits(change: Callable[[Tensor], Tensor]) -> Tensor | None:
        return bench.output(lambda arguments: _head(arguments, change), surgery=calls.silence, time=3)

    zeros, plain, doubled = logits(torch.zeros_like), logits(lambda w: w), logits(lambda w: 2 * w)
    if zeros is None or plain is None or doubled is None:
        return None
    small = NEGLIGIBLE * float(plain.abs().max())
    if apart(plain, _other_table(bench)) == 0.0:
        return Place.EMBEDDING, "token_embeddings.weight has no effect"
    if apart(zeros, plain) == 0.0:
        return Place.HEAD, "lm_head.weight has no effect"
    if float(zeros.abs().max()) > small:
        return Place.POST_PROCESSING, f"a head of zeros gives logits up to {float(zeros.abs().max()):.3g}"
    if apart(doubled, 2 * plain) > small:
        return Place.POST_PROCESSING, "twice the head does not give twice the logits"
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
        silent = float(alone[..., 3].abs().max()) <= small
        place = Place.HEAD if silent else Place.POST_PROCESSING
        return (
            place,
            f"a head of zeros but for row 3 gives logit {row} too"
            if not silent
            else f"row 3 of the head makes logit {row}",
        )
    return None


def _other_table(bench: Bench) -> Tensor:
    def edit(arguments: dict[str, Any]) -> None:
        table = "token_embeddings.weight"
        arguments["weights"] = {**arguments["weights"], table: arguments["weights"][table].flip(-1)}

    value = bench.output(edit, surgery=calls.silence, time=3)
    return torch.empty(0) if value is None else value


def _before_the_head(bench: Bench) -> tuple[Place, str]:
    """Reads the final norm's output off the logits: the head's first rows are made the identity."""

    def read(arguments: dict[str, Any], loud: float) -> None:
        _head(arguments, lambda w: torch.eye(*w.shape))
        weights = dict(arguments["weights"])
        weights["token_embeddings.weight"] = loud * weights["token_embeddings.weight"]
        arguments["weights"] = weights
        arguments["in_indices"] = torch.arange(SMALL.vocab_size)[:, None]

    def stream(loud: float, right: bool = False) -> Tensor:
        function = bench.expected if right else bench.output
        value = function(lambda arguments: read(arguments, loud), surgery=calls.silence)
        return torch.zeros(1, 1, 1) if value is None else value[..., : SMALL.d_model].flatten(0, 1)

    seen, right = stream(1000.0), stream(1000.0, right=True)
    if seen.shape != right.shape:
        return Place.EMBEDDING, ""
    wrong = (seen - right).abs().amax(-1) > 1e-4 * right.abs().max()
    if not bool(wrong.any()):
        return _small_inputs_only(bench)
    if not bool(wrong.all()):
        return Place.EMBEDDING, f"only some tokens are wrong, token {int(wrong.nonzero()[0])} first"
    louder = stream(10000.0)
    if apart(louder, seen) > 1e-2 * float(seen.abs().max()):
        return Place.FINAL_NORM, "a louder embedding gives louder logits, which a final norm prevents"
    nearest = torch.cdist(seen, right).min(1)
    if float(nearest.values.max()) <= 1e-3 * float(right.norm(dim=-1).max()):
        return Place.EMBEDDING, f"token 1 gets the vector of token {int(nearest.indices[1])}"
    ratio = seen / right
    if float((ratio - ratio[0, 0]).abs().max()) <= 1e-3 * float(ratio[0, 0].abs()):
        factor = float(ratio[0, 0])
        heard = bench.output(time=1, surgery=calls.only_attention)
        right = factor * bench.expected(time=1, surgery=calls.only_attention)
        if heard is not None and apart(heard, right) <= NEGLIGIBLE * float(right.abs().max()):
            return Place.HEAD, f"every logit is {factor:.4g} times what it must be"
        return (
            Place.NORM,
            f"behind the final norm the stream is {factor:.4g} times what it must be, and not there alone",
        )
    return Place.FINAL_NORM, "the stream is right up to the final norm's input, and wrong behind it"


def _small_inputs_only(bench: Bench) -> tuple[Place, str]:
    def loud(arguments: dict[str, Any]) -> None:
        weights = dict(arguments["weights"])
        weights["token_embeddings.weight"] = 2000 * weights["token_embeddings.weight"]
        arguments["weights"] = weights

    if bench.agrees(loud, time=1, surgery=calls.only_attention):
        return Place.NORM, "only small embeddings are wrong, as with another eps"
    return Place.EMBEDDING, "the final norm hides it, the first sublayer shows it: the embedding has another scale"
