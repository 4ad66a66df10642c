"""Accounting: parameters and FLOPs of the subject against an independent count, exactly, and the laws between them."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import Any

from cs336_harness.checks.registry import check
from cs336_harness.contract import FLOP_TERMS
from cs336_harness.cost.laws import (
    SHAPES,
    batch_fault,
    flops_form_fault,
    forward_flops_fault,
    length_fault,
    parameter_count_fault,
    size_arguments,
    tying_fault,
)
from cs336_harness.cost.matmuls import count_flops, count_parameters, list_matmuls, list_weights
from cs336_harness.cost.units import grouped
from cs336_harness.reference.hidden_inputs import other_sizes
from cs336_harness.reference.precision import BYTES, dtype_judged
from cs336_harness.reference.weights import make_token_ids
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.built_models import ASSEMBLY, build
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure, Evidence

TASK = "transformer_accounting"
COUNT, FLOPS = "run_parameter_count", "run_forward_flops"
TYING = {"untied": False, "tied": True}


@check("accounting.parameter_count", task=TASK, needs=[COUNT], cases=SHAPES)
def parameter_count(subject: Subject, case: DecoderShape) -> None:
    """The number of trainable parameters, exactly: 2VD + L(4D² + 3DF + 2D) + D for MHA, untied.

    Usually broken by a forgotten projection or norm, by a feed-forward of two matrices, by learned positions or biases
    that this decoder does not have, or by K and V projections as wide as Q in a grouped model.
    """
    case = other_sizes(case)
    given = _count(subject, case)
    with _weights_drawn(case, given):
        _require(parameter_count_fault(case, given), COUNT, {**size_arguments(case), "tie_embeddings": False})


@check("accounting.tying", task=TASK, needs=[COUNT], after=["accounting.parameter_count[mha]"])
def tying(subject: Subject) -> None:
    """Tying removes one vocabulary matrix, V·D parameters, and nothing else.

    Usually broken by ignoring the flag, or by subtracting the embedding again from a count that holds it once.
    """
    shape = other_sizes(SHAPES["gqa"])
    untied, tied = _count(subject, shape), _count(subject, shape.replace(tie_embeddings=True))
    with _weights_drawn(shape.replace(tie_embeddings=True), tied):
        _require(tying_fault(shape, untied, tied), COUNT, {**size_arguments(shape), "tie_embeddings": True})


@check("accounting.flop_terms", task=TASK, needs=[FLOPS])
def flop_terms(subject: Subject) -> None:
    """The forward FLOPs come as a dict of the contract's five terms, all of them integers."""
    shape = other_sizes(SHAPES["mha"])
    arguments: dict[str, Any] = {"batch_size": 2, "sequence_length": 10, **size_arguments(shape)}
    _require(flops_form_fault(subject.invoke(FLOPS, **arguments)), FLOPS, arguments)


@check("accounting.forward_flops", task=TASK, needs=[FLOPS], after=["accounting.flop_terms"], cases=SHAPES)
def forward_flops(subject: Subject, case: DecoderShape) -> None:
    """The FLOPs of every term, exactly: per layer 8BTD² + 4BT²D + 6BTDF for MHA, and 2BTDV for the head.

    Usually broken by multiply-adds counted as one, by a forgotten output projection or T² term, by a feed-forward of
    two matrices, by T² terms at the number of key/value heads, or by halving the score matrix for the causal mask.
    """
    case = other_sizes(case)
    batch_size, sequence_length = (1, case.context_length) if case.vocab_size > 1000 else (7, 20)
    terms = _terms(subject, case, batch_size, sequence_length)
    arguments = {"batch_size": batch_size, "sequence_length": sequence_length, **size_arguments(case)}
    with _drawn(case, batch_size, sequence_length, terms):
        _require(forward_flops_fault(case, batch_size, sequence_length, terms), FLOPS, arguments)


@check("accounting.batch_law", task=TASK, needs=[FLOPS], after=["accounting.forward_flops[mha]"])
def batch_law(subject: Subject) -> None:
    """Every term grows with the batch, and no faster."""
    shape = other_sizes(SHAPES["gqa"])
    larger = _terms(subject, shape, 14, 10)
    fault = batch_fault(_terms(subject, shape, 2, 10), 7, larger)
    with _drawn(shape, 14, 10, larger):
        _require(fault, FLOPS, {"batch_size": 14, "sequence_length": 10, **size_arguments(shape)})


@check("accounting.length_law", task=TASK, needs=[FLOPS], after=["accounting.forward_flops[mha]"])
def length_law(subject: Subject) -> None:
    """Twice the length quadruples the two T² terms and doubles the others, at any length.

    Usually broken by the context length where the sequence length belongs.
    """
    shape = other_sizes(SHAPES["gqa"])
    for length in (1, 10, 4096):
        longer = _terms(subject, shape, 2, 2 * length)
        fault = length_fault(_terms(subject, shape, 2, length), longer)
        with _drawn(shape, 2, 2 * length, longer):
            _require(fault, FLOPS, {"batch_size": 2, "sequence_length": 2 * length, **size_arguments(shape)})


@check(
    "accounting.unique_parameters",
    task=TASK,
    needs=ASSEMBLY,
    after=["configuration.no_other_parameters", "tying.one_parameter"],
    cases=TYING,
)
def unique_parameters(subject: Subject, case: bool) -> None:
    """A model that the subject builds holds the listed parameters, each once, in four bytes each (of float32).

    Usually broken by a head that stays a weight of its own when tied, or by one block that stands in for all.
    """
    shape = SHAPES["gqa"].replace(tie_embeddings=case)
    model = build(subject, shape)
    unique = {each.number: each for each in model.inventory().held}.values()
    held = sum(each.elements for each in unique)
    listed = count_parameters(list_weights(shape))
    tied = "tied" if case else "untied"
    if held != listed:
        raise CheckFailure(
            f"the {tied} model holds {grouped(held)} parameters; the weights of these sizes are {grouped(listed)}",
            model.evidence(),
        )
    bytes_held = sum(each.elements * each.bytes_per_element for each in unique)
    expected = listed * BYTES[dtype_judged()]
    if bytes_held != expected:
        raise CheckFailure(
            f"the {tied} model takes {grouped(bytes_held)} bytes for {grouped(listed)} parameters; in {dtype_judged()} "
            f"they take {grouped(expected)}",
            model.evidence(),
        )


@check(
    "accounting.counted_flops",
    task=TASK,
    needs=ASSEMBLY,
    after=["configuration.model_builds", "tying.one_parameter"],
    advisory=True,
    cases=TYING,
)
def counted_flops(subject: Subject, case: bool) -> None:
    """PyTorch's own profiler finds the listed FLOPs in a forward pass of the subject's model, tied or not.

    Advisory: a model may do more than it must and still be right. Usually more by rotations or embeddings written as
    matrix multiplies, or by logits computed for positions nobody asked for.
    """
    shape = SHAPES["gqa"].replace(tie_embeddings=case)
    batch_size, sequence_length = 2, 24
    model = build(subject, shape)
    token_ids = make_token_ids(shape, batch=batch_size, time=sequence_length, seed=78)
    counted = model.counted_flops(token_ids)
    listed = count_flops(list_matmuls(shape, batch_size, sequence_length))
    if counted != listed:
        more = "more" if counted > listed else "fewer"
        raise CheckFailure(
            f"PyTorch counts {grouped(counted)} FLOPs in a forward pass, {grouped(abs(counted - listed))} {more} than "
            f"the multiplies of these sizes take ({grouped(listed)})",
            model.evidence(token_ids),
        )


def _count(subject: Subject, shape: DecoderShape) -> int:
    arguments: dict[str, Any] = {**size_arguments(shape), "tie_embeddings": shape.tie_embeddings}
    given = subject.invoke(COUNT, **arguments)
    if isinstance(given, bool) or not isinstance(given, int):
        _require(parameter_count_fault(shape, given), COUNT, arguments)
    return given


def _terms(subject: Subject, shape: DecoderShape, batch_size: int, sequence_length: int) -> dict[str, int]:
    arguments: dict[str, Any] = {
        "batch_size": batch_size,
        "sequence_length": sequence_length,
        **size_arguments(shape),
    }
    given = subject.invoke(FLOPS, **arguments)
    _require(flops_form_fault(given), FLOPS, arguments)
    return given


@contextlib.contextmanager
def _drawn(shape: DecoderShape, batch_size: int, sequence_length: int, given: Mapping[str, int]) -> Generator[None]:
    """Leaves with a failure what was given for each term, and the multiplies that it must hold."""
    try:
        yield
    except CheckFailure as failure:
        multiplies = list_matmuls(shape, batch_size, sequence_length)
        failure.evidence.figures["flops"] = [
            {
                "term": term,
                "got": given[term],
                "multiplies": [{"name": each.name, "flops": each.flops} for each in multiplies if each.term == term],
            }
            for term in FLOP_TERMS
        ]
        raise


PARTS_OF_A_COUNT = {"token_embeddings": "embedding", "attn": "attention", "ffn": "feed-forward", "lm_head": "head"}


@contextlib.contextmanager
def _weights_drawn(shape: DecoderShape, given: int) -> Generator[None]:
    """Leaves with a failure what was given, and the weights that it must hold, by part."""
    try:
        yield
    except CheckFailure as failure:
        parts: dict[str, int] = dict.fromkeys([*PARTS_OF_A_COUNT.values(), "norms"], 0)
        for weight in list_weights(shape):
            parts[PARTS_OF_A_COUNT.get(weight.name.split(".")[0], "norms")] += weight.parameters
        weights = [{"name": name, "parameters": number} for name, number in parts.items() if number]
        failure.evidence.figures["parameters"] = {"got": given, "weights": weights}
        raise


def _require(fault: str | None, entry_point: str, arguments: dict[str, Any]) -> None:
    if fault is not None:
        raise CheckFailure(fault, Evidence(entry_point=entry_point, arguments=arguments))
