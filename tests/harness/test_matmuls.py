"""The list that closed forms are checked against: it is counted out by hand here, at a size small enough to follow."""

import subprocess
import sys

import pytest

from cs336_harness.contract import FLOP_TERMS
from cs336_harness.cost.matmuls import count_flops, count_parameters, flops_by_term, list_matmuls, list_weights
from cs336_harness.shapes import DecoderShape

SHAPE = DecoderShape(
    vocab_size=11, context_length=8, d_model=6, num_layers=2, num_heads=3, num_kv_heads=1, d_ff=5, tie_embeddings=False
)


def test_every_weight_is_listed_once_and_counted_by_hand():
    listed = {weight.name: weight.parameters for weight in list_weights(SHAPE)}
    assert listed == {
        "token_embeddings.weight": 66,
        "attn.q_proj.weight": 72,
        "attn.k_proj.weight": 24,
        "attn.v_proj.weight": 24,
        "attn.output_proj.weight": 72,
        "ln1.weight": 12,
        "ffn.w1.weight": 60,
        "ffn.w2.weight": 60,
        "ffn.w3.weight": 60,
        "ln2.weight": 12,
        "ln_final.weight": 6,
        "lm_head.weight": 66,
    }
    assert count_parameters(list_weights(SHAPE)) == sum(listed.values()) == 534


def test_a_tied_head_owns_no_weight_and_does_the_same_work():
    tied = SHAPE.replace(tie_embeddings=True)
    assert count_parameters(list_weights(tied)) == 534 - 66
    assert list_matmuls(tied, 2, 4) == list_matmuls(SHAPE, 2, 4)


def test_every_multiply_is_listed_with_its_sizes():
    listed = {
        multiply.name: (multiply.m, multiply.k, multiply.n, multiply.count) for multiply in list_matmuls(SHAPE, 2, 4)
    }
    assert listed == {
        "q_proj": (8, 6, 6, 2),
        "k_proj": (8, 6, 2, 2),
        "v_proj": (8, 6, 2, 2),
        "scores": (4, 2, 4, 12),
        "values": (4, 4, 2, 12),
        "output_proj": (8, 6, 6, 2),
        "w1": (8, 6, 5, 2),
        "w3": (8, 6, 5, 2),
        "w2": (8, 5, 6, 2),
        "lm_head": (8, 6, 11, 1),
    }


def test_terms_hold_every_multiply_and_sum_to_the_total():
    terms = flops_by_term(list_matmuls(SHAPE, 2, 4))
    assert tuple(terms) == FLOP_TERMS
    assert terms == {
        "attention_projections": 2 * 2 * 8 * 6 * (6 + 2 + 2 + 6),
        "attention_scores": 2 * 4 * 2 * 4 * 12,
        "attention_values": 2 * 4 * 4 * 2 * 12,
        "feed_forward": 2 * 2 * 3 * 8 * 6 * 5,
        "lm_head": 2 * 8 * 6 * 11,
    }
    assert sum(terms.values()) == count_flops(list_matmuls(SHAPE, 2, 4))


@pytest.mark.parametrize(
    ("d_ff", "parameters", "flops"),
    [(4288, 1_640_452_800, 3_516_769_894_400), (6400, 2_127_057_600, 4_513_336_524_800)],
    ids=["2026", "2025"],
)
def test_gpt2_xl_of_both_handouts(d_ff: int, parameters: int, flops: int):
    shape = DecoderShape(
        vocab_size=50257, context_length=1024, d_model=1600, num_layers=48, num_heads=25, num_kv_heads=25, d_ff=d_ff
    )
    assert count_parameters(list_weights(shape)) == parameters
    assert count_flops(list_matmuls(shape, 1, 1024)) == flops


def test_the_list_needs_neither_torch_nor_the_learner_s_code():
    code = """
import sys, cs336_harness.cost.matmuls
sys.exit(any(name in sys.modules for name in ('torch', 'cs336_basics')))
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
