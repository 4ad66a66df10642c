"""A write-up in running text, and what is left of it when it is damaged."""

import contextlib

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st
from written import HANDOUTS, configuration, wrong_numbers

from cs336_harness.writeup.questions import judge_text

XL = HANDOUTS["2026"]

PROSE = """
# Accounting

Our model: vocab_size=50257, context_length=1024, num_layers=48, d_model=1600, num_heads=25, d_ff=4288.

(a) Embedding and head hold 2 × 50257 × 1600 = 160,822,400 parameters. Each layer has 4D² + 3DF + 2D = 30,825,600
parameters, and 48 layers have 1,479,628,800. With the final norm (1,600) this makes 1,640,452,800 parameters. In
float32 (4 bytes each) this is 6.56 GB. In bf16 it would be 3.28 GB, and training with Adam needs 26.2 GB.

(b) One after the other:

1. Q projection: (1024 × 1600) @ (1600 × 1600), 5.24 GFLOPs per layer
2. K projection: 5.24 GFLOPs per layer
3. V: 5.24 GFLOPs per layer
4. Attention scores (QK^T), 25 heads of (1024 × 64) @ (64 × 1024): 3.36 GFLOPs per layer
5. softmax(QK^T)V: 3.36 GFLOPs per layer
6. O: 5.24 GFLOPs per layer
7. SwiGLU: three matmuls with 14.05 GFLOPs each per layer, so 42.15 GFLOPs
8. LM head: 164.7 GFLOPs, once

That is 69.84 GFLOPs per layer, times 48 = 3.352 TFLOPs. Adding the LM head (2 × 1024 × 1600 × 50257 = 165 GFLOPs) we
get 3,517 GFLOPs in total. Softmax and norms add less than 1%.

(c) The feed-forward layers need the most FLOPs (57.5%), then the attention projections (28.6%); the quadratic attention
part is only 9.2% and the LM head 4.7%.

(d) Small: FFN 39.8%, projections 19.9%, attention 13.3%, head 27.1%. Medium: FFN 50.1%, projections 24.8%, attention
12.4%, head 12.7%. Large: FFN 54.3%, projections 27.3%, attention 10.9%, head 7.4%.

(e) With a context length of 16,384 the total rises from 3.52 TFLOPs to 133.6 TFLOPs (38x), and the quadratic attention
terms go from 9.2% to 61.7%, while FFN drops to 24.2%.
"""


def test_a_page_of_prose_is_read_throughout():
    judgement = judge_text(PROSE)
    assert judgement.passed
    unread = [finding.claim.number.text for finding in judgement.findings if finding.verdict != "right"]
    assert unread == ["26.2 GB", "1%"]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("30,825,600", "30,822,400"),
        ("this makes 1,640,452,800", "this makes 1,560,041,600"),
        ("6.56 GB", "6.46 GB"),
        ("6. O: 5.24", "6. O: 5.25"),
        ("14.05 GFLOPs each", "14.5 GFLOPs each"),
        ("69.84 GFLOPs", "64.59 GFLOPs"),
        ("3.352 TFLOPs", "3.1 TFLOPs"),
        ("(57.5%)", "(67.5%)"),
        ("Medium: FFN 50.1%", "Medium: FFN 49.1%"),
        ("133.6 TFLOPs", "56.3 TFLOPs"),
        ("to 61.7%", "to 55.2%"),
    ],
)
def test_each_number_of_a_page_of_prose_is_judged(right: str, wrong: str):
    assert PROSE.count(right) == 1
    (finding,) = wrong_numbers(PROSE.replace(right, wrong))
    assert finding.claim.number.text.split()[0] in wrong


@pytest.mark.parametrize(
    "said",
    [
        "(b) Summing over all matrix multiplies, we end up at 3.682 TFLOPs in total.",
        "(b) Adding everything, we land on 3.682 TFLOPs.",
        "(b) So the forward pass comes out at 3.682 TFLOPs.",
        "(a)\n\nNumber of trainable parameters: 1,560,041,600",
        "(a)\n\nTrainable parameters: 1,560,041,600",
        "(a)\n\n- 可训练参数总数：1,560,041,600",
    ],
)
def test_a_wrong_total_is_wrong_however_it_is_introduced(said: str):
    (finding,) = wrong_numbers(f"{configuration(XL)}\n\n{said}\n")
    assert finding.quantity is not None
    assert finding.quantity.is_of_all


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_a_damaged_file_is_judged_or_refused(data: st.DataObject):
    text = PROSE
    for _ in range(data.draw(st.integers(1, 12))):
        start = data.draw(st.integers(0, len(text)))
        end = start + data.draw(st.integers(0, 30))
        text = text[:start] + data.draw(st.text("0123456789,.%()|$\\{}*_`#\n =+×^QVTBG²₁ᵀ", max_size=8)) + text[end:]
    with contextlib.suppress(ValueError):
        judge_text(text)


@pytest.mark.parametrize(
    ("addition", "message"),
    [
        ("(a) " + "1 " * 5000, "has a sentence of"),
        ("```\n" + " " * 5000 + "x\n```", "has a line of"),
        ("(a)\n\n" + "3 GB\n" * 2000, "holds more than 1,000 numbers"),
        ("|a|b|\n|-|-|\n" + "| total | 3 GFLOPs |\n" * 2000, "holds more than 1,000 numbers"),
    ],
)
def test_what_no_person_writes_is_refused_quickly(addition: str, message: str):
    with pytest.raises(ValueError, match=message):
        judge_text(f"{configuration(XL)}\n\n{addition}\n")
