"""Tying: one Parameter under two names, with both gradients in it, whatever happens to the model. Or two Parameters.

Press and Wolf 2017: the logits are h @ E^T with the embedding E itself. Logits agree whether or not the two are one, so
these checks ask for what one Parameter does: written under one name it shows under the other, each name has the whole
gradient, a step moves it once, a copy or a load keeps all that. Identity is asked for too, and tells which way it came
apart; but it is what the subject's process says of itself, so no check here passes on it alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import torch
from torch import Tensor

from cs336_harness.checks.comparing import same, same_numbers
from cs336_harness.checks.configuration import MODEL_WORKS
from cs336_harness.checks.registry import check
from cs336_harness.reference.figures import plain, rms
from cs336_harness.reference.hidden_inputs import more, size
from cs336_harness.reference.weights import make_token_ids, make_weights, normal
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import ASSEMBLY, EMBEDDING, HEAD, BuiltModel, build
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, Evidence

TIED = DecoderShape(
    vocab_size=29,
    context_length=8,
    d_model=24,
    num_layers=1,
    num_heads=3,
    num_kv_heads=3,
    d_ff=64,
    tie_embeddings=True,
)


def tied_shape() -> DecoderShape:
    """The tied shape, at a vocabulary and a width that nobody knows where a secret hides the inputs."""
    return TIED.replace(vocab_size=TIED.vocab_size + more("vocab_size", 9), d_model=size("d_model", TIED.d_model, 30))


def untied_shape() -> DecoderShape:
    """The same, untied."""
    return tied_shape().replace(tie_embeddings=False)


def ids() -> Tensor:
    """Token ids (2, 5) for either shape; a secret makes it more positions."""
    return make_token_ids(tied_shape(), batch=2, time=5 + more("time", 2), seed=71)


def tied_weights(seed: int = 72) -> dict[str, Tensor]:
    """Weights of the tied shape: one tensor under both vocabulary names, large enough for its gradient to matter."""
    weights = make_weights(tied_shape(), seed)
    weights[EMBEDDING] = weights[HEAD] = normal(tied_shape().vocab_size, tied_shape().d_model, seed=seed, std=0.3)
    return weights


def build_tied(subject: Subject) -> BuiltModel:
    """The subject's tied model with :func:`tied_weights`, its two names found to be one Parameter."""
    model = build(subject, tied_shape(), tied_weights())
    require_one(model, "")
    return model


APART = {
    "one storage": "two Parameters over one storage: an optimiser moves it twice, and the next load or copy parts them",
    "equal values": "two Parameters of equal values: a copy, which the first optimiser step makes differ",
    "other values": "two Parameters with values of their own",
}
"""What two vocabulary names are that are not one Parameter."""


def require_one(model: BuiltModel, after: str) -> None:
    """Both vocabulary names give one Parameter; otherwise says how they differ. ``after`` is what was done before."""
    tied = model.inventory().tied
    if tied == "one":
        return
    lead = f"{after}, {EMBEDDING} and {HEAD}" if after else f"the tied model's {EMBEDDING} and {HEAD}"
    raise CheckFailure(f"{lead} are {APART[tied]}; in a correct tied model they are one Parameter", model.evidence())


def require_both_uses(model: BuiltModel, after: str) -> None:
    """Look-up and head both use the Parameter's present value: numbers are written into it, and the logits follow."""
    old = model.weights()[EMBEDDING]
    model.logits(ids())  # what a model keeps from its first forward is then kept from the old values
    written = normal(*old.shape, seed=73, std=0.3).to(old)
    model.load({EMBEDDING: written})
    _require_shown(model, written, f"{after}, the shared weight was changed")
    _require_value(model, old, f"{after}, the shared weight was changed")


def _require_shown(model: BuiltModel, written: Tensor, after: str) -> None:
    """What was written under one vocabulary name is there under both."""
    weights = model.weights()
    for name in (EMBEDDING, HEAD):
        if not torch.equal(weights[name], written):
            raise CheckFailure(
                f"{after} under the name {EMBEDDING}, and {name} does not have the new values; in a correct tied model"
                " both names give one Parameter",
                model.evidence(),
            )


def _require_value(model: BuiltModel, old: Tensor, after: str) -> None:
    """The logits are the untied model's with the present values in both uses; otherwise says which use has the old."""
    logits = model.logits(ids())
    weights = model.weights()
    reference = build(model.subject, untied_shape(), weights)
    if same_numbers(reference.logits(ids()), logits):
        return
    lesson = "in a correct tied model look-up and head use one Parameter"
    for use, stale in (("head", HEAD), ("look-up", EMBEDDING)):
        reference.load({**weights, stale: old})
        if same_numbers(reference.logits(ids()), logits):
            raise CheckFailure(
                f"{after}, and the {use} still computes with the old values: it has a copy; {lesson}",
                model.evidence(ids()),
            )
    raise CheckFailure(f"{after}, and the logits are not those of its present values; {lesson}", model.evidence(ids()))


@check("tying.one_parameter", task="transformer_lm", needs=ASSEMBLY, after=["configuration.model_builds"])
def one_parameter(subject: Subject) -> None:
    """A tied model has one vocabulary Parameter, under both names, and ``parameters()`` gives it once.

    Usually broken by copying the embedding into the head, or by a second Parameter over the same storage.
    """
    model = build(subject, tied_shape())
    with _uses_drawn(subject):
        require_one(model, "")
    times = model.inventory().times(EMBEDDING)
    if times != 1:
        raise CheckFailure(
            f"the tied weight that get_transformer_lm_weights gives is {times} times in model.parameters();"
            " an optimiser must find it there, once",
            model.evidence(),
        )
    written = normal(tied_shape().vocab_size, tied_shape().d_model, seed=72)
    model.load({HEAD: written})
    weights = model.weights()
    if not torch.equal(weights[EMBEDDING], written) or not torch.equal(weights[HEAD], written):
        raise CheckFailure(
            f"what is written into the tied model's {HEAD} does not show in its {EMBEDDING}; in a correct tied model"
            " both names give one Parameter",
            model.evidence(),
        )


@check("tying.counted_once", task="transformer_lm", needs=ASSEMBLY, after=["tying.one_parameter"])
def counted_once(subject: Subject) -> None:
    """The tied vocabulary matrix is counted once: no other Parameter of its size is in the model.

    Usually broken by a head that keeps its own matrix beside the shared one.
    """
    model = build(subject, tied_shape())
    held = model.inventory().held
    for other in held:
        if not other.names and other.elements == tied_shape().vocab_size * tied_shape().d_model:
            count = sum(each.elements for each in held)
            raise CheckFailure(
                f"the tied model has a second vocabulary matrix, {other.own_name} of shape {other.shape}, and so"
                f" {count} parameters; a correct one has {count - other.elements}, the shared matrix counted once",
                model.evidence(),
            )


@check(
    "tying.both_uses",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=[*MODEL_WORKS, "tying.one_parameter", "tying.counted_once", "tying.no_scale"],
)
def both_uses(subject: Subject) -> None:
    """Change the one Parameter, and look-up and head both change.

    Usually broken by a head that was filled once, from values that the embedding had then.
    """
    with _uses_drawn(subject):
        require_both_uses(build_tied(subject), "the tied model was built")


@check(
    "tying.no_scale",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=["tying.one_parameter", "tying.untied_uses"],
)
def no_scale(subject: Subject) -> None:
    """With equal weights, tied and untied give equal logits: no scale belongs to one mode.

    Usually broken by sqrt(d_model) on the embedding or the logits when tied, as some papers have it.
    """
    tied, untied = build_tied(subject), build(subject, untied_shape(), tied_weights())
    first, second = tied.logits(ids()), untied.logits(ids())
    if same_numbers(first, second):
        return
    ratio = (first / second).flatten()
    scale = float(ratio.median())
    if float((ratio - scale).abs().max()) < 1e-3 * abs(scale):
        what = f"the tied model's logits are the untied model's times {scale:.4g}"
    else:
        position = tuple((first - second).abs().amax(-1).flatten().argmax().unsqueeze(0).tolist())
        row, column = divmod(position[0], ids().shape[1])
        what = f"the tied model's logits differ from the untied model's, most in row {row}, position {column}"
    raise CheckFailure(
        f"at equal weights {what}; a correct decoder computes the same in both modes, without a scale of its own",
        tied.evidence(ids()),
    )


def _direction() -> Tensor:
    """The weight of each logit in the scalar that is differentiated."""
    return normal(*ids().shape, tied_shape().vocab_size, seed=74)


def _gradients(model: BuiltModel) -> dict[str, Tensor]:
    """Of every weight, zero where none arrives."""
    found = model.gradients(ids(), [_direction()])
    gradients = {name: torch.zeros(size) for name, size in model.shape.weight_shapes().items()}
    if found is not None:
        gradients |= {name: gradient for name, gradient in found[0].items() if gradient is not None}
    return gradients


@check(
    "tying.gradients",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=[
        "tying.one_parameter",
        "tying.counted_once",
        "tying.both_uses",
        "tying.no_scale",
        "tying.untied",
        "tying.untied_uses",
        "information_flow.arguments_untouched",
    ],
)
def gradients(subject: Subject) -> None:
    """The gradient of the shared weight is the sum of what look-up and head each send to it.

    Both parts are measured on the untied model at equal weights. Usually broken by a look-up or a head that works on a
    detached weight, or on a copy that is made anew in each forward.
    """
    tied, untied = build_tied(subject), build(subject, untied_shape(), tied_weights())
    of_tied, of_untied = _gradients(tied), _gradients(untied)
    shared, look_up, head = of_tied[EMBEDDING], of_untied[EMBEDDING], of_untied[HEAD]
    if not torch.equal(shared, of_tied[HEAD]):
        raise CheckFailure(
            f"the tied model's {EMBEDDING} and {HEAD} have gradients of their own, as two Parameters have; in a correct"
            " tied model they are one, with the sum of both",
            _both_uses_drawn(tied, of_tied, look_up, head),
        )
    if bool(shared.any()) and same_numbers(look_up + head, shared):
        return
    if not shared.any():
        what = "it is zero: neither look-up nor head is connected to it"
    elif same_numbers(head, shared):
        what = f"the look-up's part is missing: it works on {_detached_or_copied(tied)}"
    elif same_numbers(look_up, shared):
        what = f"the head's part is missing: it works on {_detached_or_copied(tied)}"
    else:
        what = _by_row(shared, look_up, head)
    raise CheckFailure(
        f"the gradient of the tied weight must be the sum of the look-up's and the head's, and {what};"
        " in a correct tied model both use the Parameter itself",
        _both_uses_drawn(tied, of_tied, look_up, head),
    )


def _by_row(shared: Tensor, look_up: Tensor, head: Tensor) -> str:
    """Which part is missing in the rows that are wrong, where it is one part in all of them."""
    least = same() * float((look_up + head).abs().max())
    wrong = ((shared - look_up - head).abs().amax(-1) > least).nonzero().flatten().tolist()
    parts = {"the head's part is missing": look_up, "the look-up's part is missing": head, "it is zero": 0 * head}
    for what, part in parts.items():
        if wrong and float((shared - part)[wrong].abs().max()) <= least:
            rows = f"{len(wrong)} of {len(shared)} rows ({wrong[0]} is the first, {wrong[-1]} the last)"
            return f"in {rows} {what}; in all others it is right"
    token = int((shared - look_up - head).abs().amax(-1).argmax())
    return f"it is another one, furthest off in the row of token id {token}"


def _both_uses_drawn(tied: BuiltModel, found: dict[str, Tensor], look_up: Tensor, head: Tensor) -> Evidence:
    """Evidence with the size of what each use sends, root mean square, and of what arrives under each name."""
    evidence = tied.evidence(ids())
    evidence.figures["tied"] = _uses(found, look_up, head)
    return evidence


def _uses(found: dict[str, Tensor], look_up: Tensor, head: Tensor) -> list[dict[str, Any]]:
    return [
        {"name": name, "got": plain(rms(found[name])), "must": plain(rms(look_up + head)), "parts": parts}
        for parts in [{"look-up": plain(rms(look_up)), "head": plain(rms(head))}]
        for name in (EMBEDDING, HEAD)
    ]


@contextlib.contextmanager
def _uses_drawn(subject: Subject) -> Generator[None]:
    """Leaves with a failure of the tied model what each use sends and what arrives, as far as gradients can be had."""
    try:
        yield
    except CheckFailure as failure:
        with contextlib.suppress(CheckFailure):
            tied, untied = build(subject, tied_shape(), tied_weights()), build(subject, untied_shape(), tied_weights())
            parts = _gradients(untied)
            failure.evidence.figures["tied"] = _uses(_gradients(tied), parts[EMBEDDING], parts[HEAD])
        raise


def _detached_or_copied(model: BuiltModel) -> str:
    """Which of the two: a forward that copies the weight makes a second tensor of its values, however it does so."""
    copied = model.copies_weight(ids(), EMBEDDING)
    return "a copy that each forward makes" if copied else "the weight's values, detached from its gradient"


RATE = 0.01


@check("tying.optimiser_step", task="transformer_lm", needs=ASSEMBLY, after=[*MODEL_WORKS, "tying.gradients"])
def optimiser_step(subject: Subject) -> None:
    """One step of gradient descent over ``model.parameters()`` moves every weight once, look-up and head alike.

    Usually broken by a head that is a copy: after the step it still has the old values. A weight that is twice among
    the parameters moves twice, one that is absent not at all.
    """
    model = build_tied(subject)
    before, gradient = model.weights(), _gradients(model)
    model.step(ids(), _direction(), RATE)
    require_one(model, "after an optimiser step")
    after = model.weights()
    if torch.equal(before[EMBEDDING], after[EMBEDDING]):
        raise CheckFailure(
            "an optimiser step over model.parameters() does not move the tied weight; it must be among them and have a"
            " gradient",
            model.evidence(),
        )
    _require_value(model, before[EMBEDDING], "an optimiser step was taken")
    for name, old in before.items():
        step = -RATE * gradient[name]
        if not same_numbers(old + step, after[name]):
            times = float(((after[name] - old) * step).sum() / (step * step).sum())
            raise CheckFailure(
                f"an optimiser step over model.parameters() moves {name} by {times:.3g} times its gradient's step; each"
                " weight must be there once, and no more",
                model.evidence(),
            )


@check("tying.untied", task="transformer_lm", needs=ASSEMBLY, after=["configuration.model_builds"])
def untied(subject: Subject) -> None:
    """An untied model has two vocabulary Parameters, and what is written into one does not show in the other.

    Usually broken by tying whatever the flag says, or by two Parameters over one storage.
    """
    model = build(subject, untied_shape())
    lesson = "with tie_embeddings False a correct model has two matrices that know nothing of each other"
    if model.inventory().tied == "one":
        raise CheckFailure(f"the untied model's {EMBEDDING} and {HEAD} are one Parameter; {lesson}", model.evidence())
    before = model.weights()
    model.load({EMBEDDING: before[EMBEDDING] + 1})
    if not torch.equal(model.weights()[HEAD], before[HEAD]):
        raise CheckFailure(f"changing the untied model's {EMBEDDING} changes its {HEAD}; {lesson}", model.evidence())


@check(
    "tying.untied_uses",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=[*MODEL_WORKS, "tying.untied", "configuration.raw_logits[get_transformer_lm]"],
)
def untied_uses(subject: Subject) -> None:
    """Changing the untied head moves the head's use alone: twice the head, twice the logits; no head, no logits.

    Usually broken by a head that computes with the embedding whatever the flag says.
    """
    weights = make_weights(untied_shape(), seed=75)
    model = build(subject, untied_shape(), weights)
    plain = model.logits(ids())
    lesson = "with tie_embeddings False a correct head computes with its own matrix, and the look-up does not"
    model.load({HEAD: 2 * weights[HEAD]})
    if not same_numbers(2 * plain, model.logits(ids())):
        raise CheckFailure(
            f"doubling the untied model's {HEAD} does not double its logits; {lesson}", model.evidence(ids())
        )
    model.load({HEAD: torch.zeros_like(weights[HEAD])})
    if model.logits(ids()).any():
        raise CheckFailure(f"the untied model has logits when its {HEAD} is zero; {lesson}", model.evidence(ids()))
