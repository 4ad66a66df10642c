"""What a closed form must agree with: the listed count at many shapes, exactly, and the laws that hold between shapes.

Pure functions of numbers; each returns None, or one line that says what is wrong. Imports no torch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from cs336_harness.contract import FLOP_TERMS
from cs336_harness.cost.ledger import EVERYTHING, FLOPS, PARAMETERS, TERM_COMPONENTS, Ledger, true_ledger
from cs336_harness.cost.matmuls import count_flops, count_parameters, flops_by_term, list_matmuls, list_weights
from cs336_harness.cost.measure import Measure, explanations, sentence
from cs336_harness.cost.mistake import Mistake
from cs336_harness.cost.mistakes import MISTAKES, mistakes_in
from cs336_harness.cost.units import grouped
from cs336_harness.shapes import DecoderShape

SHAPES = {
    "mha": DecoderShape(
        vocab_size=211, context_length=64, d_model=48, num_layers=3, num_heads=6, num_kv_heads=6, d_ff=128
    ),
    "gqa": DecoderShape(
        vocab_size=211, context_length=64, d_model=48, num_layers=3, num_heads=6, num_kv_heads=2, d_ff=128
    ),
    "mqa": DecoderShape(
        vocab_size=97, context_length=32, d_model=48, num_layers=5, num_heads=8, num_kv_heads=1, d_ff=107
    ),
    "gpt2_xl": DecoderShape(
        vocab_size=50257, context_length=1024, d_model=1600, num_layers=48, num_heads=25, num_kv_heads=25, d_ff=4288
    ),
    "llama_3_8b": DecoderShape(
        vocab_size=128256, context_length=8192, d_model=4096, num_layers=32, num_heads=32, num_kv_heads=8, d_ff=14336
    ),
}
"""Shapes whose sizes all differ, so that no size can stand in for another: MHA, GQA and MQA, small and real."""


_ONE_MISTAKE = Fraction(1, 100)
"""A precision at which :func:`explanations` tries single mistakes alone."""


def size_arguments(shape: DecoderShape) -> dict[str, int]:
    """The six sizes that both accounting entry points take."""
    names = ("vocab_size", "d_model", "num_layers", "num_heads", "num_kv_heads", "d_ff")
    return {name: getattr(shape, name) for name in names}


def parameter_count_fault(shape: DecoderShape, given: Any) -> str | None:
    """What is wrong with a parameter count of a shape."""
    true = count_parameters(list_weights(shape))
    if (fault := _not_an_integer("run_parameter_count", given)) or given == true:
        return fault
    tied = "tied" if shape.tie_embeddings else "untied"
    ledger = true_ledger(shape, 1, shape.context_length)
    return (
        f"run_parameter_count gives {grouped(given)} for {_sizes(shape)}, {tied}; its weights hold {grouped(true)}"
        + (
            _named("the count", Measure(PARAMETERS, EVERYTHING), given, given, ledger)
            or _too_many(given - true, _letters(shape))
        )
    )


def _letters(shape: DecoderShape) -> dict[str, int]:
    """The sizes by the letters of the closed forms."""
    return {
        "V": shape.vocab_size,
        "D": shape.d_model,
        "L": shape.num_layers,
        "H": shape.num_heads,
        "KV": shape.num_kv_heads,
        "F": shape.d_ff,
        "d_head": shape.d_head,
    }


_SMALL = (1, 2, 3, 4)


def _by_the_batch(ratio: Fraction, batch_size: int) -> str:
    """A term with the batch in it twice, or not at all: no mistake of a decoder's parts, nor two of them, says that."""
    if batch_size > 4 and ratio in (batch_size, Fraction(1, batch_size)):
        share = f"B = {batch_size}" if ratio > 1 else f"1 / B = 1 / {batch_size}"
        return f". That is {share} times what it must be: the batch counts once"
    return ""


def _wrapped(too_much: list[int]) -> str:
    """Counts that are off by whole multiples of 2^32, as a product of 32-bit integers is."""
    if any(difference % 2**32 for difference in too_much):
        return ""
    too = "few" if too_much[0] < 0 else "many"
    return (
        f". That is {abs(too_much[0]) // 2**32} times 2^32 too {too}: a product of 32-bit integers wraps, as in"
        " NumPy's or PyTorch's int32; an int of Python does not"
    )


def _times(ratio: Fraction, sizes: Mapping[str, int]) -> str:
    """What a term is a multiple of, in letters where one or two of the sizes say it."""
    if ratio <= 0:
        return f". That is {float(ratio):.3g} times what it must be" if ratio else ""
    time = sizes["T"]
    if ratio == Fraction(time + 1, 2 * time):
        return ". That is (T + 1) / 2T of it: the scores of the causal triangle, where all T² count"
    if ratio == Fraction(time - 1, 2 * time):
        return ". That is (T - 1) / 2T of it: the scores below the diagonal, where all T² count"
    if ratio.numerator in _SMALL and ratio.denominator in _SMALL:
        return f". That is {ratio} times what it must be"
    letters = {"": 1, **sizes}
    for (above, over), (below, under), (times, by) in itertools.product(
        letters.items(), letters.items(), itertools.product(_SMALL, _SMALL)
    ):
        if (above or below) and ratio == Fraction(times * over, by * under):
            first = " ".join(filter(None, [str(times) * (times > 1), above])) or "1"
            second = " ".join(filter(None, [str(by) * (by > 1), below]))
            return f". That is {first}{f' / {second}' if second else ''} times what it must be"
    return f". That is {float(ratio):.4g} times what it must be"


def _too_many(difference: int, sizes: Mapping[str, int]) -> str:
    """A difference of parameters, as a product of up to three sizes where one says it."""
    many = "too many" if difference > 0 else "too few"
    for length in (1, 2, 3):
        for times, names in itertools.product(_SMALL, itertools.combinations_with_replacement(sizes, length)):
            if abs(difference) == times * math.prod(sizes[name] for name in names):
                product = " · ".join([str(times)] * (times > 1) + list(names))
                return f". That is {grouped(abs(difference))} = {product} {many}"
    return f". That is {grouped(abs(difference))} {many}"


def forward_flops_fault(shape: DecoderShape, batch_size: int, sequence_length: int, given: Any) -> str | None:
    """What is wrong with the FLOPs by term of a shape: the first term that is not exact, and the mistake it is."""
    if fault := flops_form_fault(given):
        return fault
    multiplies = list_matmuls(shape, batch_size, sequence_length)
    true = flops_by_term(multiplies)
    wrong = [term for term in FLOP_TERMS if given[term] != true[term]]
    if not wrong:
        return None
    term = wrong[0]
    others = f" (and {', '.join(wrong[1:])} wrong too)" if len(wrong) > 1 else ""
    ledger = true_ledger(shape, batch_size, sequence_length)
    measure = Measure(FLOPS, TERM_COMPONENTS[term])
    return (
        f"run_forward_flops gives {grouped(given[term])} for {term}{others} at batch {batch_size}, length "
        f"{sequence_length}, {_sizes(shape)}; its multiplies take {grouped(true[term])}, of "
        f"{grouped(count_flops(multiplies))} in all"
        + (
            _wrapped([given[term] - true[term] for term in wrong])
            or _by_the_batch(Fraction(given[term], true[term]), batch_size)
            or _named("the FLOP count", measure, given[term], given, ledger)
            or _times(Fraction(given[term], true[term]), _letters(shape) | {"B": batch_size, "T": sequence_length})
        )
    )


def flops_form_fault(given: Any) -> str | None:
    """Whether this is a dict of exactly the five terms, all of them integers."""
    if not isinstance(given, Mapping):
        kind = "nothing (is a return statement missing?)" if given is None else f"a {type(given).__name__}"
        return f"run_forward_flops returned {kind}; it must return a dict of {', '.join(FLOP_TERMS)}"
    missing = [term for term in FLOP_TERMS if term not in given]
    unknown = [str(term) for term in given if term not in FLOP_TERMS]
    if missing or unknown:
        said = [f"lacks {', '.join(missing)}"] if missing else []
        said += [f"has {', '.join(unknown)}, which is no term"] if unknown else []
        return f"the dict of run_forward_flops {' and '.join(said)}; its keys are {', '.join(FLOP_TERMS)}"
    faults = (_not_an_integer(f"run_forward_flops[{term!r}]", given[term]) for term in FLOP_TERMS)
    return next((fault for fault in faults if fault), None)


def tying_fault(shape: DecoderShape, untied: int, tied: int) -> str | None:
    """Tying removes one vocabulary matrix, V·D parameters, and nothing else."""
    matrix = shape.vocab_size * shape.d_model
    removed = untied - tied
    if removed == matrix:
        return None
    times = {0: "removes nothing", 2 * matrix: "removes both vocabulary matrices; the shared one still counts once"}
    what = times.get(removed, f"removes {grouped(removed)} parameters")
    return f"tying {what} at {_sizes(shape)}: it must remove one matrix of V·D = {grouped(matrix)}"


def batch_fault(once: Mapping[str, int], times: int, batched: Mapping[str, int]) -> str | None:
    """Every term grows with the batch, and no faster."""
    for term in FLOP_TERMS:
        if batched[term] != times * once[term]:
            change = _change(once, batched, term)
            return f"{times} times the batch must take {times} times the FLOPs; {term} goes from {change}"
    return None


def length_fault(once: Mapping[str, int], doubled: Mapping[str, int]) -> str | None:
    """Twice the length quadruples the two T² terms and doubles the others."""
    for term in FLOP_TERMS:
        factor = 4 if term in ("attention_scores", "attention_values") else 2
        if doubled[term] != factor * once[term]:
            why = "every position meets every position" if factor == 4 else "it works on one position at a time"
            return (
                f"twice the length must take {factor} times the FLOPs of {term}, since {why}; it goes from "
                f"{_change(once, doubled, term)}"
            )
    return None


def _change(before: Mapping[str, int], after: Mapping[str, int], term: str) -> str:
    ratio = f", {after[term] / before[term]:.4g} times" if before[term] else ""
    return f"{grouped(before[term])} to {grouped(after[term])}{ratio}"


def _not_an_integer(what: str, given: Any) -> str | None:
    if isinstance(given, int) and not isinstance(given, bool):
        return None
    if given is None:
        return f"{what} returned nothing (is a return statement missing?); it must be an int"
    return f"{what} is a {type(given).__name__}, {given!r:.60}; it must be an int, exactly (divide with //)"


def _sizes(shape: DecoderShape) -> str:
    return (
        f"V {shape.vocab_size}, D {shape.d_model}, L {shape.num_layers}, H {shape.num_heads}, "
        f"KV {shape.num_kv_heads}, F {shape.d_ff}"
    )


def _in_the_dictionary(ledger: Ledger, given: Mapping[str, int] | int) -> bool:
    """Whether a mistake of the fault dictionary, or two, give the whole answer: the diagnosis names these."""
    dimension = PARAMETERS if isinstance(given, int) else FLOPS

    def answer(changed: Ledger) -> Mapping[str, int] | int:
        return changed.amount(PARAMETERS, EVERYTHING) if dimension == PARAMETERS else changed.flops_by_term()

    changes = [mistake.change for mistake in MISTAKES.values() if dimension in mistake.code]
    after_one = [ledger, *(change(ledger) for change in changes)]
    return any(answer(change(changed)) == given for changed, change in itertools.product(after_one, changes))


def _named(noun: str, measure: Measure, number: int, given: Mapping[str, int] | int, ledger: Ledger) -> str:
    """The mistake in one number of an answer, where the answer as a whole is not for the diagnosis to name."""
    if _in_the_dictionary(ledger, given):
        return ""
    mistakes = mistakes_in(measure.dimension)
    # A mistake that would also change a term that is right is named only where no other gives the number.
    sparing = [mistake for mistake in mistakes if _leaves_what_is_right(mistake, ledger, given)]
    for precision, candidates in itertools.product((_ONE_MISTAKE, Fraction(0)), (sparing, mistakes)):
        found = explanations(measure, ledger, candidates, lambda value: value == number, precision)
        if found:
            hint = f" {found[0][0].hint}" if len(found) == len(found[0]) == 1 else ""
            return f". {sentence(noun, found, ledger)}{hint}"
    return ""


def _leaves_what_is_right(mistake: Mistake, ledger: Ledger, given: Mapping[str, int] | int) -> bool:
    if isinstance(given, int):
        return True
    changed = mistake.change(ledger).flops_by_term()
    return all(changed[term] == flops for term, flops in ledger.flops_by_term().items() if given[term] == flops)
