"""The owned closed forms: known totals, the laws they obey, and sizes they refuse."""

import random
import subprocess
import sys
from types import SimpleNamespace

import pytest

from cs336_basics import accounting

GPT2_XL = {
    "vocab_size": 50257,
    "d_model": 1600,
    "num_layers": 48,
    "num_heads": 25,
    "num_kv_heads": 25,
    "d_ff": 4288,
}


def _sizes(seed: int) -> dict[str, int]:
    draw = random.Random(seed).randint
    num_kv_heads = draw(1, 5)
    num_heads = num_kv_heads * draw(1, 4)
    return {
        "vocab_size": draw(1, 300),
        "d_model": num_heads * draw(1, 9),
        "num_layers": draw(0, 6),
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "d_ff": draw(1, 400),
    }


ANY_SIZES = [_sizes(seed) for seed in range(40)]


@pytest.mark.parametrize(
    ("d_ff", "parameters", "flops"),
    [(4288, 1_640_452_800, 3_516_769_894_400), (6400, 2_127_057_600, 4_513_336_524_800)],
    ids=["2026", "2025"],
)
def test_gpt2_xl_of_both_handouts(d_ff: int, parameters: int, flops: int):
    sizes = GPT2_XL | {"d_ff": d_ff}
    assert accounting.parameter_count(**sizes, tie_embeddings=False) == parameters
    assert accounting.parameter_bytes(parameters) == 4 * parameters
    assert sum(accounting.forward_flops(1, 1024, **sizes).values()) == flops


def test_the_docstring_s_formulas_for_grouped_heads():
    for sizes in ANY_SIZES:
        V, D, L, F = (sizes[name] for name in ("vocab_size", "d_model", "num_layers", "d_ff"))
        E = sizes["num_kv_heads"] * D // sizes["num_heads"]
        count = accounting.parameter_count(**sizes, tie_embeddings=False)
        assert count == 2 * V * D + L * (2 * D * D + 2 * D * E + 3 * D * F + 2 * D) + D, sizes


def test_tying_removes_one_vocabulary_matrix_and_no_flops():
    for sizes in ANY_SIZES:
        untied, tied = (accounting.parameter_count(**sizes, tie_embeddings=tied) for tied in (False, True))
        assert untied - tied == sizes["vocab_size"] * sizes["d_model"], sizes


def test_flops_are_linear_in_the_batch_and_quadratic_in_length_only_where_positions_meet():
    for length, sizes in enumerate(ANY_SIZES, 1):
        batch = 1 + length % 4
        once = accounting.forward_flops(batch, length, **sizes)
        assert accounting.forward_flops(3 * batch, length, **sizes) == {term: 3 * count for term, count in once.items()}
        doubled = accounting.forward_flops(batch, 2 * length, **sizes)
        for term, count in once.items():
            factor = 4 if term in ("attention_scores", "attention_values") else 2
            assert doubled[term] == factor * count, sizes


def test_grouped_queries_shrink_two_projections_and_no_position_pairs():
    grouped = accounting.forward_flops(1, 16, **GPT2_XL | {"num_kv_heads": 5})
    full = accounting.forward_flops(1, 16, **GPT2_XL)
    assert grouped["attention_scores"] == full["attention_scores"]
    assert full["attention_projections"] - grouped["attention_projections"] == 48 * 4 * 16 * 1600 * (1600 - 320)


def test_a_config_is_taken_for_its_attributes():
    config = SimpleNamespace(**GPT2_XL, context_length=1024)
    assert accounting.parameter_count_of(config, tie_embeddings=False) == 1_640_452_800
    assert accounting.forward_flops_of(config, 1, 1024) == accounting.forward_flops(1, 1024, **GPT2_XL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 24}, "d_model 1600 does not divide into num_heads 24"),
        ({"num_kv_heads": 3}, "num_heads 25 do not share num_kv_heads 3 evenly"),
        ({"num_kv_heads": 0}, "num_kv_heads is 0; it must be at least 1"),
        ({"d_ff": 0}, "d_ff is 0"),
        ({"num_layers": -1}, "num_layers is -1; it must not be negative"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_with_their_numbers(change: dict[str, int], message: str):
    with pytest.raises(ValueError, match=message):
        accounting.parameter_count(**GPT2_XL | change, tie_embeddings=False)
    with pytest.raises(ValueError, match=message):
        accounting.forward_flops(1, 1024, **GPT2_XL | change)


def test_an_empty_sequence_and_an_unknown_dtype_are_refused():
    with pytest.raises(ValueError, match="sequence_length is 0"):
        accounting.forward_flops(1, 0, **GPT2_XL)
    with pytest.raises(ValueError, match="dtype 'float12' is not known; choose one of float64, float32"):
        accounting.parameter_bytes(1, "float12")


def test_the_module_imports_no_torch():
    code = "import sys, cs336_basics.accounting; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
