"""Configuration: every size has its effect, and sizes that do not fit are refused before any weight is made."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

from torch import Tensor

from cs336_harness.checks.comparing import attempt, refused, same_numbers
from cs336_harness.checks.registry import Param, check
from cs336_harness.reference.hidden_inputs import more
from cs336_harness.reference.precision import dtype_judged
from cs336_harness.reference.sample_calls import transformer_lm_of
from cs336_harness.reference.weights import make_token_ids, make_weights
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import ASSEMBLY, build, weight_sizes
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, Evidence

SHAPE = DecoderShape(
    vocab_size=23,
    context_length=13,
    d_model=24,
    num_layers=2,
    num_heads=6,
    num_kv_heads=2,
    d_ff=64,
    rope_theta=100.0,
)
"""A small model, grouped as 6 over 2, that each check changes in one place."""

MHA = SHAPE.replace(num_kv_heads=6)
"""The same without groups, for ``run_transformer_lm``, which knows none."""

RUN = "run_transformer_lm"


def hidden_shape(**changes: Any) -> DecoderShape:
    """:data:`SHAPE` with changes, at a vocabulary and a context that nobody knows where a secret hides the inputs."""
    hidden = {
        "vocab_size": SHAPE.vocab_size + more("vocab_size", 5),
        "context_length": SHAPE.context_length + more("context_length", 4),
    }
    return SHAPE.replace(**{**hidden, **changes})


def ungrouped_shape() -> DecoderShape:
    """:func:`hidden_shape` without groups, for ``run_transformer_lm``."""
    return hidden_shape(num_kv_heads=MHA.num_kv_heads)


MODEL_WORKS = (
    "configuration.model_builds",
    "assembly.transformer_lm",
    "information_flow.repeated_calls",
    "information_flow.repeated_calls_of_a_model",
    "information_flow.models_apart",
)
"""What a question about an assembled model's numbers builds on."""


def run_arguments(shape: DecoderShape, token_ids: Tensor, **changes: Any) -> dict[str, Any]:
    """Arguments of ``run_transformer_lm`` for a shape without groups."""
    return {**transformer_lm_of(shape, make_weights(shape, seed=76), token_ids), **changes}


SIZES: dict[str, int] = {"vocab_size": 29, "d_model": 48, "num_layers": 3, "num_kv_heads": 3, "d_ff": 100}
"""Another value of each size that the shapes of the weights depend on."""

ALONG: dict[str, dict[str, int]] = {"d_model": {"d_ff": 128}}
"""What changes along with a size, where a decoder may refuse one without the other: d_ff is 2 to 3 times d_model."""


@check(
    "configuration.{}_counts",
    task="transformer_lm",
    needs=ASSEMBLY,
    cases={field: {field: other} for field, other in SIZES.items()},
)
def size_counts(subject: Subject, case: dict[str, int]) -> None:
    """Another value of one size gives a model with other weights.

    Usually broken by a size that is written into the code, derived from another one, or not passed on.
    """
    ((field, other),) = case.items()
    shape = hidden_shape(**case)
    before, after = weight_sizes(subject, hidden_shape()), weight_sizes(subject, shape)
    within_a_layer = field not in ("vocab_size", "d_model")
    if before and within_a_layer and not any(name.startswith("layers.") for name in before):
        return  # the model names no weight of a layer: configuration.model_builds says which it lacks
    if before and before == after:
        raise CheckFailure(
            f"get_transformer_lm ignores {field}: {getattr(SHAPE, field)} and {other} give the same weights;"
            " a correct model has the size that it is given",
            Evidence(entry_point="get_transformer_lm", arguments=shape.model_arguments()),
        )


@check(
    "configuration.model_builds",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=["assembly.transformer_lm", *(f"configuration.{field}_counts" for field in SIZES)],
)
def model_builds(subject: Subject) -> None:
    """A model is built, names all its weights, takes weights of ours, and gives logits of shape (batch, time, vocab).

    Everything else that is asked of an assembled model builds on this.
    """
    shape = hidden_shape()
    model = build(subject, shape, make_weights(shape, seed=76))
    inventory = model.inventory()
    for name in shape.weight_shapes():
        if not inventory.times(name):
            raise CheckFailure(
                f"get_transformer_lm_weights gives a Parameter for {name} that is not in model.parameters();"
                " it must give the model's own",
                model.evidence(),
            )
    logits = model.logits(make_token_ids(shape, batch=3, time=5, seed=77))
    got, own = str(logits.dtype).removeprefix("torch."), dtype_judged()
    if got != own:
        raise CheckFailure(f"the logits of a {own} model are {got}; they must be {own} too", model.evidence())


@check(
    "configuration.no_other_parameters",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=["configuration.model_builds", "configuration.num_layers_counts"],
)
def no_other_parameters(subject: Subject) -> None:
    """The model trains the weights of the contract and no others.

    Usually broken by biases, learned positions, or a norm too many.
    """
    model = build(subject, hidden_shape())
    for held in model.inventory().held:
        if held.trained and not held.names:
            raise CheckFailure(
                f"the model trains {held.own_name} of shape {held.shape}, which is none of the contract's weights;"
                " a correct decoder has no biases, no learned positions and no other norms; a table that is not trained"
                " belongs in register_buffer",
                model.evidence(),
            )


def _other_size(**sizes: int) -> Param:
    counted = [f"configuration.{field}_counts" for field in sizes]
    return Param(sizes, after=[*counted, "components.swiglu_d_ff"])


@check(
    "configuration.other_size",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=["configuration.model_builds"],
    cases={field: _other_size(**{field: other}, **ALONG.get(field, {})) for field, other in SIZES.items()},
)
def other_size(subject: Subject, case: dict[str, int]) -> None:
    """With another size, every weight has the shape that the contract lists, and the model runs.

    Usually broken by a size that is rounded: d_ff to a multiple of 64, the vocabulary to one of 128.
    """
    shape = hidden_shape(**case)
    given = ", ".join(f"{field} {size}" for field, size in case.items())
    try:
        model = build(subject, shape, make_weights(shape, seed=76))
        model.logits(make_token_ids(shape, batch=2, time=5, seed=77))
    except CheckFailure as failure:
        if case == {"d_ff": SIZES["d_ff"]} and refused(failure):
            return  # refusing a d_ff that is no multiple of 64 is not rounding it silently
        raise CheckFailure(f"with {given}: {failure.message}", failure.evidence) from failure.__cause__


@check(
    "configuration.num_heads_counts",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=[*MODEL_WORKS, "configuration.num_kv_heads_counts"],
)
def num_heads_counts(subject: Subject) -> None:
    """Another number of heads leaves the weights' shapes alone and changes the logits.

    Usually broken by a head size that is written into the code.
    """
    shape = hidden_shape(num_heads=3, num_kv_heads=1)
    _require_other_logits(subject, "num_heads", hidden_shape(), shape)


@check(
    "configuration.rope_theta_counts",
    task="transformer_lm",
    needs=ASSEMBLY,
    after=[*MODEL_WORKS, "configuration.run_rope_theta"],
)
def rope_theta_counts(subject: Subject) -> None:
    """Another theta changes the logits of the same weights.

    Usually broken by a theta that is not passed on to the rotation.
    """
    _require_other_logits(subject, "rope_theta", hidden_shape(), hidden_shape(rope_theta=10000.0))


def _require_other_logits(subject: Subject, field: str, shape: DecoderShape, other: DecoderShape) -> None:
    token_ids = make_token_ids(shape, batch=2, time=9, seed=77)
    one, two = (
        # k and v keep their shape, 2 heads of 4 channels or 1 of 8, so that both models take the same weights
        build(subject, each, make_weights(each, seed=76)).logits(token_ids)
        for each in (shape, other)
    )
    if same_numbers(one, two):
        raise CheckFailure(
            f"get_transformer_lm ignores {field}: {getattr(shape, field):g} and {getattr(other, field):g} give the same"
            " logits",
            Evidence(entry_point="get_transformer_lm", arguments=other.model_arguments()),
        )


@check(
    "configuration.run_rope_theta",
    task="transformer_lm",
    needs=[RUN],
    after=["components.transformer_block", "components.block_theta"],
)
def run_rope_theta(subject: Subject) -> None:
    """The theta that ``run_transformer_lm`` is given reaches the rotation.

    Usually broken by a model that does not pass theta on to its blocks.
    """
    shape = hidden_shape(num_kv_heads=MHA.num_kv_heads)
    arguments = run_arguments(shape, make_token_ids(shape, batch=2, time=9, seed=77))
    size = (2, 9, shape.vocab_size)
    one, two = (attempt(subject, RUN, size, **{**arguments, "rope_theta": theta}) for theta in (10000.0, 10.0))
    if one is None or two is None:
        return
    if all(itertools.starmap(same_numbers, zip(one.unbind(-1), two.unbind(-1), strict=True))):  # one may be -1e9
        raise CheckFailure(
            f"{RUN} does not pass rope_theta on: 10000 and 10 give the same logits;"
            " a correct decoder turns queries and keys with the theta it is given",
            Evidence(entry_point=RUN, arguments={**arguments, "rope_theta": 10.0}),
        )


# Huge, so that making any matrix before the sizes are checked fails at once instead of using memory: the smallest has
# 1.92e14 bytes, more than a process can address. The heads are many and the context short, so that a table of rotations
# made before it costs nothing.
HUGE = DecoderShape(
    vocab_size=10**8,
    context_length=16,
    d_model=12 * 10**6,
    num_layers=2,
    num_heads=600,
    num_kv_heads=200,
    d_ff=10**8,
)


def _refusal_of(subject: Subject, changes: dict[str, int]) -> CheckFailure | None:
    """Nothing when the sizes are refused with a ``ValueError``; otherwise what happened in its place."""
    arguments = HUGE.replace(**changes).model_arguments()
    given = ", ".join(f"{name} {value}" for name, value in changes.items())
    evidence = Evidence(entry_point="get_transformer_lm", arguments=arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns of tensors without elements, which were our idea
            subject.invoke("get_transformer_lm", copy=False, **arguments)
    except CheckFailure as failure:
        if isinstance(failure.__cause__, ValueError):
            return None
        if failure.__cause__ is None:
            return failure
        if _out_of_memory(failure.__cause__):
            return CheckFailure(
                f"get_transformer_lm makes weights for {given}; a correct one raises ValueError before any weight"
                " exists",
                evidence,
            )
        got = type(failure.__cause__).__name__
        return CheckFailure(
            f"get_transformer_lm raised {got} for {given} where it must raise ValueError before making any weight",
            evidence,
        )
    return CheckFailure(f"get_transformer_lm takes {given}; a correct one raises ValueError", evidence)


def _out_of_memory(error: BaseException) -> bool:
    """Whether it is what comes of making a weight of :data:`HUGE`, which says nothing of the learner's own sizes."""
    words = ("allocate", "storage size calculation overflowed")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)
    )


_HEADS_FIRST = "configuration.refuses[heads_that_do_not_divide]"
_SIZE_NAMES = ("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "num_kv_heads", "d_ff")
_MAY_BE_ZERO = ("num_layers",)


@check(
    "configuration.refuses",
    task="transformer_lm",
    needs=["get_transformer_lm"],
    after=["configuration.model_builds"],
    cases={
        "heads_that_do_not_divide": (
            "d_model must be a multiple of num_heads",
            [{"d_model": HUGE.d_model + 1}, {"num_heads": 7, "num_kv_heads": 7}],
        ),
        "kv_heads_that_do_not_divide": Param(
            ("num_heads must be a multiple of num_kv_heads", [{"num_kv_heads": 400}, {"num_kv_heads": 1200}]),
            after=[_HEADS_FIRST],
        ),
        "odd_head_size": Param(
            ("rotary positions need an even head size", [{"d_model": 600 * 19999}]), after=[_HEADS_FIRST]
        ),
        "zero": Param(
            ("every size must be positive", [{name: 0} for name in _SIZE_NAMES if name not in _MAY_BE_ZERO]),
            after=[_HEADS_FIRST],
        ),
        "negative": Param(
            ("every size must be positive", [{name: -2} for name in _SIZE_NAMES]),
            after=[_HEADS_FIRST, "configuration.refuses[zero]"],
        ),
    },
)
def refuses(subject: Subject, case: tuple[str, list[dict[str, int]]]) -> None:
    """Sizes that do not fit raise ``ValueError`` before any weight is made.

    The other sizes are huge: a model that makes its weights first fails to, at once. Usually broken by a bare
    ``assert``, by integer division that silently drops channels, or by finding out in the forward pass.
    """
    rule, all_changes = case
    for changes in all_changes:
        failure = _refusal_of(subject, changes)
        if failure is not None:
            raise CheckFailure(f"{failure.message}; {rule}", failure.evidence)


@check(
    "configuration.refuses_theta",
    task="transformer_lm",
    needs=["get_transformer_lm"],
    after=["configuration.model_builds"],
    advisory=True,
)
def refuses_theta(subject: Subject) -> None:
    """A theta of zero, or below, raises ``ValueError``: its powers are no frequencies."""
    for theta in (0, -100):
        failure = _refusal_of(subject, {"rope_theta": theta})
        if failure is not None:
            raise CheckFailure(f"{failure.message}; rope_theta must be positive", failure.evidence)
