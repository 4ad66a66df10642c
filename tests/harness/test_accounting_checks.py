"""Every accounting check has a subject that it must fail, and names the mistake that this subject makes."""

from typing import Any

import pytest
import torch
from torch import nn
from vectorised import Vectorised, replaced, result_of, subject_of

from cs336_harness.checks import all_checks, find
from cs336_harness.cost import laws
from cs336_harness.cost.laws import SHAPES, size_arguments
from cs336_harness.cost.matmuls import count_parameters, flops_by_term, list_matmuls, list_weights
from cs336_harness.diagnosis import diagnose_check
from cs336_harness.reference.oracle import Oracle
from cs336_harness.reference.oracle_adapters import OracleModel
from cs336_harness.shapes import DecoderShape
from cs336_harness.subject.calling import Subject
from cs336_harness.subject.failures import CheckFailure

COUNTS = [item.id for item in find("accounting") if "run_parameter_count" in item.needs]
FLOPS = [item.id for item in find("accounting") if "run_forward_flops" in item.needs]


def shape_of(sizes: dict[str, Any]) -> DecoderShape:
    return DecoderShape(context_length=64, **sizes)


def right_count(**sizes: Any) -> int:
    return count_parameters(list_weights(shape_of(sizes)))


def right_flops(batch_size: int, sequence_length: int, **sizes: Any) -> dict[str, int]:
    return flops_by_term(list_matmuls(shape_of(sizes), batch_size, sequence_length))


def counting(function: Any):
    return replaced(subject_of(Vectorised), run_parameter_count=function)


def costing(function: Any):
    return replaced(subject_of(Vectorised), run_forward_flops=function)


def changed_term(term: str, change: Any):
    def flops(**arguments: Any) -> dict[str, int]:
        terms = right_flops(**arguments)
        return terms | {term: change(terms[term], arguments)}

    return costing(flops)


@pytest.mark.parametrize("check_id", COUNTS + FLOPS)
def test_a_right_subject_passes(check_id: str):
    subject = replaced(subject_of(Vectorised), run_parameter_count=right_count, run_forward_flops=right_flops)
    assert result_of(check_id, subject).outcome == "passed"


def grouped_as_full(**sizes: Any) -> int:
    return right_count(**sizes | {"num_kv_heads": sizes["num_heads"]})


def two_matrices(d_model: int, d_ff: int, num_layers: int, **sizes: Any) -> int:
    return right_count(d_model=d_model, d_ff=d_ff, num_layers=num_layers, **sizes) - num_layers * d_model * d_ff


def diagnosed(check_id: str, subject: Subject) -> tuple[str, list[str]]:
    """The message of a failed check, and the known mistakes that the diagnosis names."""
    result = result_of(check_id, subject)
    assert result.failure is not None
    found = diagnose_check(subject, result.check, result.failure)
    return result.message, [defect.name for defect in found.defects] if found else []


@pytest.mark.parametrize(
    ("count", "case", "names"),
    [
        (grouped_as_full, "gqa", ["parameters-grouped-heads-counted-in-full"]),
        (grouped_as_full, "llama_3_8b", ["parameters-grouped-heads-counted-in-full"]),
        (two_matrices, "gpt2_xl", ["parameters-two-matrix-feed-forward"]),
        (
            lambda **sizes: right_count(**sizes) - sizes["num_layers"] * sizes["d_model"] ** 2,
            "mha",
            ["parameters-output-projection-forgotten"],
        ),
        (lambda **sizes: right_count(**sizes) - sizes["d_model"], "mqa", ["parameters-final-norm-forgotten"]),
        (
            lambda **sizes: two_matrices(**sizes) - sizes["d_model"],
            "mha",
            ["parameters-final-norm-forgotten", "parameters-two-matrix-feed-forward"],
        ),
        (lambda **sizes: right_count(**sizes) + 12345, "mha", []),
    ],
)
def test_a_wrong_count_is_told_its_mistake_once(count: Any, case: str, names: list[str]):
    message, named = diagnosed(f"accounting.parameter_count[{case}]", counting(count))
    assert sorted(named) == names
    assert "This is" not in message


def test_a_mistake_that_is_not_in_the_dictionary_is_told_in_the_message():
    count = counting(lambda **sizes: right_count(**sizes) - 2 * sizes["num_layers"] * sizes["d_model"])
    message, named = diagnosed("accounting.parameter_count[mha]", count)
    assert message.endswith(
        "This is the count without the two norms of each block. Which weights of the decoder are vectors?"
    )
    assert named == []


@pytest.mark.parametrize("given", [None, 1.5, "1", True])
def test_a_count_that_is_no_integer_is_failed(given: object):
    result = result_of("accounting.parameter_count[mha]", counting(lambda **sizes: given))
    assert result.outcome == "failed"
    assert "int" in result.message


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (lambda tie_embeddings, **sizes: right_count(tie_embeddings=False, **sizes), "tying removes nothing"),
        (
            lambda tie_embeddings, **sizes: (
                right_count(tie_embeddings=tie_embeddings, **sizes)
                - tie_embeddings * sizes["vocab_size"] * sizes["d_model"]
            ),
            "removes both vocabulary matrices",
        ),
    ],
)
def test_tying_counted_wrong(count: Any, said: str):
    result = result_of("accounting.tying", counting(count))
    assert result.outcome == "failed"
    assert said in result.message


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "returned nothing"),
        (7, "returned a int"),
        ({"lm_head": 1}, "lacks attention_projections"),
        (
            {
                **dict.fromkeys(("attention_projections", "attention_scores", "attention_values", "feed_forward"), 1),
                "lm_head": 2.0,
            },
            "is a float",
        ),
        (
            {
                **dict.fromkeys(
                    ("attention_projections", "attention_scores", "attention_values", "feed_forward", "lm_head"), 1
                ),
                "total": 5,
            },
            "has total",
        ),
    ],
)
def test_terms_of_another_form_are_failed(given: object, said: str):
    result = result_of("accounting.flop_terms", costing(lambda **arguments: given))
    assert result.outcome == "failed"
    assert said in result.message


@pytest.mark.parametrize(
    ("term", "change", "case", "told"),
    [
        ("feed_forward", lambda count, _: count // 2, "mha", "multiply-adds (MACs)"),
        ("attention_projections", lambda count, _: count // 2, "mha", "without the key and value projections"),
        ("attention_scores", lambda count, _: count // 2, "mqa", "halved"),
        ("attention_values", lambda count, a: count // a["num_heads"] * a["num_kv_heads"], "gqa", "key/value heads"),
        ("lm_head", lambda count, a: count // a["sequence_length"], "llama_3_8b", "last position only"),
        ("lm_head", lambda count, a: count // a["sequence_length"], "gpt2_xl", "last position only. At how many"),
        ("lm_head", lambda count, _: count + 7, "mha", None),
    ],
)
def test_a_mistake_in_one_term_alone_is_told_in_the_message(term: str, change: Any, case: str, told: str | None):
    message, named = diagnosed(f"accounting.forward_flops[{case}]", changed_term(term, change))
    assert term in message
    assert (told in message) if told else "This is" not in message
    assert named == []


def rows(arguments: dict[str, Any]) -> int:
    return arguments["batch_size"] * arguments["sequence_length"]


@pytest.mark.parametrize(
    ("term", "change", "case", "name"),
    [
        (
            "attention_projections",
            lambda count, a: count - 2 * rows(a) * a["d_model"] ** 2 * a["num_layers"],
            "mha",
            "flops-output-projection-forgotten",
        ),
        ("feed_forward", lambda count, _: count // 3 * 2, "gpt2_xl", "flops-two-matrix-feed-forward"),
        ("lm_head", lambda count, _: 2 * count, "gqa", "flops-embedding-counted"),
    ],
)
def test_a_mistake_of_the_dictionary_is_told_by_the_diagnosis_alone(term: str, change: Any, case: str, name: str):
    message, named = diagnosed(f"accounting.forward_flops[{case}]", changed_term(term, change))
    assert named == [name]
    assert "This is" not in message


def test_counts_that_wrap_are_told_as_such():
    def wrapped(**arguments: Any) -> dict[str, int]:
        return {term: count % 2**32 for term, count in right_flops(**arguments).items()}

    message, named = diagnosed("accounting.forward_flops[gpt2_xl]", costing(wrapped))
    assert "That is 234 times 2^32 too few: a product of 32-bit integers wraps" in message
    assert named == []


def test_a_batch_that_is_ignored_breaks_the_batch_law():
    once = right_flops(2, 10, **size_arguments(SHAPES["gqa"]))
    assert "7 times the batch" in (laws.batch_fault(once, 7, once) or "")
    assert laws.batch_fault(once, 7, {term: 7 * count for term, count in once.items()}) is None


def test_a_length_that_counts_otherwise_breaks_the_length_law():
    once = right_flops(2, 10, **size_arguments(SHAPES["gqa"]))
    assert "must take 4 times the FLOPs of attention_scores" in (
        laws.length_fault(once, {term: 2 * count for term, count in once.items()}) or ""
    )
    assert "must take 2 times" in (laws.length_fault(once, {term: 4 * count for term, count in once.items()}) or "")


def only_at(lengths: tuple[int, ...], batches: tuple[int, ...]):
    """Right where the exact check looks, wrong elsewhere: what only a law sees."""

    def flops(batch_size: int, sequence_length: int, **sizes: Any) -> dict[str, int]:
        terms = right_flops(batch_size, sequence_length, **sizes)
        known = sequence_length in lengths and batch_size in batches
        return terms if known else terms | {"lm_head": terms["lm_head"] + 2}

    return costing(flops)


def test_the_laws_see_what_the_exact_cases_do_not():
    seen = {check_id: result_of(check_id, only_at((20,), (7,))).outcome for check_id in FLOPS}
    assert seen["accounting.forward_flops[mha]"] == "passed"
    assert seen["accounting.batch_law"] == seen["accounting.length_law"] == "failed"


class KeepsItsHead(OracleModel):
    def __init__(self, oracle: Oracle) -> None:
        super().__init__(oracle)
        self.spare = nn.Parameter(torch.zeros(oracle.shape.vocab_size, oracle.shape.d_model))


class InFloat64(OracleModel):
    def __init__(self, oracle: Oracle) -> None:
        super().__init__(oracle)
        self.double()


class LooksUpByMultiplying(OracleModel):
    def forward(self, token_ids: torch.Tensor) -> torch.Tensor:
        vocab_size = self.oracle.shape.vocab_size
        torch.nn.functional.one_hot(token_ids, vocab_size).float() @ self.weights()["token_embeddings.weight"].float()
        return super().forward(token_ids)


@pytest.mark.parametrize("tied", ["tied", "untied"])
@pytest.mark.parametrize(
    ("model", "check", "said"),
    [
        (KeepsItsHead, "unique_parameters", "parameters; the weights of these sizes are"),
        (InFloat64, "unique_parameters", "in float32 they take"),
        (LooksUpByMultiplying, "counted_flops", "more than the multiplies of these sizes take"),
    ],
)
def test_a_model_that_holds_or_does_more_is_failed(model: type[OracleModel], check: str, said: str, tied: str):
    function = all_checks()[f"accounting.{check}[{tied}]"]
    assert function(subject_of(Vectorised)) is None
    with pytest.raises(CheckFailure, match=said):
        function(subject_of(Vectorised, model))


def test_a_wrong_count_without_a_name_is_told_in_the_letters_of_the_closed_form() -> None:
    shape = SHAPES["mha"]
    flops = flops_by_term(list_matmuls(shape, 3, 20))
    half = flops["attention_scores"] * 21 // 40
    said = laws.forward_flops_fault(shape, 3, 20, {**flops, "attention_scores": half, "attention_values": half}) or ""
    assert said.endswith("That is (T + 1) / 2T of it: the scores of the causal triangle, where all T² count")
    said = (
        laws.forward_flops_fault(shape, 3, 20, {**flops, "attention_projections": flops["attention_projections"] * 11})
        or ""
    )
    assert said.endswith("That is 11 times what it must be")
    said = laws.parameter_count_fault(shape, count_parameters(list_weights(shape)) + 48 * 128) or ""
    assert said.endswith("That is 6,144 = D · F too many")
