"""Right answers in the notations and layouts that people use; rounding held to the digits that were written."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st
from written import HANDOUTS, LABELS, Sizes, answer, configuration, verdict, wrong_numbers

from cs336_harness.cost.ledger import RATIO
from cs336_harness.cost.quantities import COMPONENT_GROUPS
from cs336_harness.shapes import DecoderShape
from cs336_harness.writeup import words
from cs336_harness.writeup.lexicon import readings_of_label
from cs336_harness.writeup.numbers import find_numbers
from cs336_harness.writeup.plain import plain
from cs336_harness.writeup.questions import judge_text

XL = HANDOUTS["2026"]


@pytest.mark.parametrize("shape", HANDOUTS.values(), ids=list(HANDOUTS))
def test_the_right_answer_is_right_and_told_nothing(shape: DecoderShape):
    judgement = judge_text(answer(shape))
    assert judgement.passed
    assert [finding for finding in judgement.findings if finding.hints] == []


@pytest.mark.parametrize(
    "written",
    [
        "1,640,452,800 trainable parameters",
        "1640452800 parameters",
        "1 640 452 800 parameters",
        "1_640_452_800 params",
        "1'640'452'800 parameters",
        "1.640.452.800 parameters",
        "**1,640,452,800** parameters",
        "`1,640,452,800` parameters",
        "$1{,}640{,}452{,}800$ parameters",
        "$2VD + L(4D^2 + 3DF + 2D) + D = 1{,}640{,}452{,}800$ parameters",
        "about 1.64 billion parameters",
        "1.64B parameters",
        "1.6 B trainable parameters",
        "1640.5M parameters",
        "1.640 × 10⁹ parameters",
        "$1.64 \\times 10^9$ parameters",
        "$\\boxed{1.6405\\times10^{9}}$ parameters",
        "1.64e9 parameters",
        "1.64 * 10**9 parameters",
        "1,64 billion parameters",
        "roughly 1,640,000,000 parameters",
    ],
)
def test_a_count_is_right_however_it_is_written(written: str):
    judgement = judge_text(answer(XL, parameters=written))
    assert verdict(judgement, "a.parameters") == "right"
    assert wrong_numbers(answer(XL, parameters=written)) == []


@pytest.mark.parametrize(
    "written",
    [
        "1.637 B parameters",
        "1.65 B parameters",
        "1.641 billion parameters",
        "1,640,452,801 parameters",
        "1,640,000,000 parameters",
        "1.640 × 10⁸ parameters",
        "1640.4M parameters",
    ],
)
def test_rounding_is_accepted_to_the_digits_that_were_written_and_no_further(written: str):
    assert verdict(judge_text(answer(XL, parameters=written)), "a.parameters") == "wrong"


@pytest.mark.parametrize(
    "written",
    [
        "6,561,811,200 bytes",
        "6561811200 B",
        "6.56 GB",
        "6.6 GB",
        "6.562 gigabytes",
        "6.11 GiB",
        "6.11 GB",
        "6.1 gibibytes",
        "6561.8 MB",
        "6257.8 MiB",
        "6.56e9 bytes",
        "$1{,}640{,}452{,}800 \\times 4 = 6{,}561{,}811{,}200$ bytes, or 6.56 GB (6.11 GiB)",
        "4 bytes × 1,640,452,800 = 6,561,811,200 bytes",
    ],
)
def test_memory_is_right_however_it_is_written(written: str):
    assert verdict(judge_text(answer(XL, memory=written)), "a.memory") == "right"


@pytest.mark.parametrize("written", ["6.56 GiB", "6.5 GB", "6.57 GB", "6.56 MB", "6.56"])
def test_a_memory_with_another_unit_is_wrong_and_without_one_missing(written: str):
    assert verdict(judge_text(answer(XL, memory=written)), "a.memory") == ("missing" if written == "6.56" else "wrong")


@pytest.mark.parametrize(
    "written",
    [
        "3,516,769,894,400",
        "3,516,769,894,400 FLOPs",
        "3.5 TFLOPs",
        "3.52 TFLOPs",
        "3.517e12",
        "3.517 × 10^12 FLOPs",
        "3.517 trillion",
        "3516.77 GFLOPs",
        "3,517 GFLOP",
        "3.517 TF",
        "1.758 TMACs",
        "$3.517\\times10^{12}$",
        "48 × 69,835,161,600 + 164,682,137,600 = 3,516,769,894,400",
        "3.52T",
    ],
)
def test_a_total_is_right_however_it_is_written(written: str):
    assert verdict(judge_text(answer(XL, total=written)), "b.total") == "right"


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_written_number_is_right_exactly_when_it_is_the_truth_rounded(data: st.DataObject):
    true = data.draw(st.integers(10**6, 10**15))
    digits = data.draw(st.integers(1, 9))
    exponent, scale, unit = data.draw(
        st.sampled_from([(9, 10**9, "GFLOPs"), (12, 10**12, "TFLOPs"), (6, 10**6, "MFLOPs")])
    )
    rounded = round(Decimal(true).scaleb(-exponent), digits)
    step = Fraction(scale, 10**digits)
    (number,) = find_numbers(f"{rounded:f} {unit}")
    assert number.step == step
    assert number.matches(true)
    assert not number.matches(true + int(step) + 1)
    assert not number.matches(true - int(step) - 1)


WRITERS = (
    "{:,}".format,
    str,
    lambda count: f"{count / 1e9:.4f} B",
    lambda count: f"{count:.3e}",
    lambda count: f"${count / 10 ** (len(str(count)) - 1):.3f}\\times10^{{{len(str(count)) - 1}}}$",
)


@given(st.data())
@settings(max_examples=25, deadline=None)
def test_the_right_answer_for_any_shape_is_right(data: st.DataObject):
    num_kv_heads = data.draw(st.integers(1, 8))
    num_heads = num_kv_heads * data.draw(st.integers(1, 4))
    shape = DecoderShape(
        vocab_size=data.draw(st.integers(20_000, 200_000)),
        context_length=data.draw(st.integers(200, 40_000)),
        d_model=num_heads * data.draw(st.integers(16, 128)),
        num_layers=data.draw(st.integers(2, 90)),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        d_ff=data.draw(st.integers(500, 20_000)),
        tie_embeddings=data.draw(st.booleans()),
    )
    judgement = judge_text(answer(shape, write=data.draw(st.sampled_from(WRITERS))))
    assert {
        answer.question: answer.verdict
        for answer in judgement.answers.values()
        if answer.verdict not in ("right", "left out")
    } == {}


def _lines_as_list(per_block: bool) -> str:
    sizes = Sizes(XL)
    divisor = {name: 1 if name == "lm_head" or not per_block else sizes.L for name in LABELS}
    items = [f"- {LABELS[name]}: {sizes.lines[name] // divisor[name]:,} FLOPs" for name in LABELS]
    where = "Per transformer block (×48), and once for the head:" if per_block else "In all blocks together:"
    return "\n".join([where, "", *items])


LAYOUTS = {
    "list, all blocks": _lines_as_list(per_block=False),
    "list, one block": _lines_as_list(per_block=True),
    "groups in a table, one block": """
| matmul | dimensions | FLOPs per layer |
| --- | --- | --- |
| Q, K, V projections | $(S,d)(d,d)$ three times | $6Sd^2=15{,}728{,}640{,}000$ |
| $QK^\\top$ | per head $(S,d_k)(d_k,S)$ | $2S^2d=3{,}355{,}443{,}200$ |
| Attention weights times V | per head | $3{,}355{,}443{,}200$ |
| Attention output projection | $(S,d)(d,d)$ | 5.243 GFLOPs |
| SwiGLU `w1`, `w3` | two products | 28,101,836,800 |
| SwiGLU `w2` | back | 14,050,918,400 |
| Block subtotal | | 69.835 GFLOPs |

| matmul | FLOPs |
| --- | --- |
| LM head (output embedding) | 164.68B |
""",
    "four terms with shares": """
- LM Head: `2 * context_length * d_model * vocab_size` = 164,682,137,600 FLOPs (4.7%)
- Attention Mechanism: `4 * num_layers * context_length ** 2 * d_model` = 322,122,547,200 FLOPs (9.2%)
- Attention Projections: `8 * num_layers * context_length * d_model ** 2` = 1,006,632,960,000 FLOPs (28.6%)
- Position-wise Feed Forward: `6 * num_layers * context_length * d_model * d_ff` = 2,023,332,249,600 FLOPs (57.5%)
""",
    "a unit in the header": """
| part | FLOPs (GFLOPs) | share (%) |
| --- | --- | --- |
| projections (q, k, v, o) | 1,006.6 | 28.6 |
| scores | 161.06 | 4.58 |
| weighted sum of values | 161.06 | 4.58 |
| FFN | 2,023.3 | 57.5 |
| head | 164.7 | 4.7 |
""",
    "columns are the parts": """
| model | attention projections | scores and weighted sum | SwiGLU | LM head | total |
| --- | --- | --- | --- | --- | --- |
| GPT-2 XL | 1.007 TF (28.6%) | 0.322 TF (9.2%) | 2.023 TF (57.5%) | 0.165 TF (4.7%) | 3.517 TF |
""",
    "a code block": """
```
qkv proj:       754,974,720,000 FLOPs
attn scores:    161,061,273,600 FLOPs
attn weighted:  161,061,273,600 FLOPs
output proj:    251,658,240,000 FLOPs
ffn:          2,023,332,249,600 FLOPs
lm head:        164,682,137,600 FLOPs
```
""",
}


@pytest.mark.parametrize("lines", LAYOUTS.values(), ids=list(LAYOUTS))
def test_a_layout_of_the_learner_s_own(lines: str):
    text = f"""
{configuration(XL)}

**(a)** The model has 1,640,452,800 parameters and takes 6.56 GB in float32.

**(b)** The matrix multiplies are these.

{lines}

**Total: $3.517 \\times 10^{{12}}$ FLOPs.**

**(c)** The FFN takes the most, about 57.5% of the total; next are the attention projections with 28.6 %.
"""
    judgement = judge_text(text)
    assert {
        question: a.message for question, a in judgement.answers.items() if a.verdict not in ("right", "left out")
    } == {}


def test_sentences_that_give_the_number_first_and_lists_that_give_them_together():
    text = answer(XL).rpartition("## (c)")[0] + (
        "## (c)\n\nOf the FLOPs 57.5 % are spent in the feed-forward, 28.6 % in the attention projections and 4.7 % "
        "in the head.\nThe shares of the attention projections, SwiGLU and the LM head are 28.6 %, 57.5 % and 4.7 %; "
        "SwiGLU is the largest.\n"
    )
    assert judge_text(text).passed
    swapped = text.replace("57.5 % are", "28.6 % are").replace(" 28.6 % in", " 57.5 % in")
    assert [finding.claim.number.text for finding in wrong_numbers(swapped)] == ["28.6 %", "57.5 %"]
    assert len(wrong_numbers(text.replace("are 28.6 %, 57.5 %", "are 57.5 %, 28.6 %"))) == 2


def test_the_section_about_accounting_of_a_longer_report_is_read():
    text = (
        "# Assignment 1\n\n## Problem (unicode1)\n\n(a) 3 GB and 7 billion parameters\n\n"
        + answer(XL)
        .replace("# Transformer accounting", "## Problem (transformer_accounting)")
        .replace("\n## ", "\n### ")
        + "\n\n## Problem (adamw_accounting)\n\n(a) 26.2 GB in total\n"
    )
    assert judge_text(text).passed


def test_the_tied_count_beside_the_untied_one():
    text = (
        answer(XL)
        + "\n\n## Self-test\n\nTying removes 80,411,200 parameters and leaves 1,560,041,600 tied parameters.\n"
    )
    assert judge_text(text).passed
    assert (
        wrong_numbers(text.replace("1,560,041,600", "1,560,041,601"))
        or not judge_text(text.replace("1,560,041,600", "1,560,041,601")).findings[-1].quantity
    )


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "opening", ["\\(", "\\[", "[", "![", "[a](", "`", "`` ` ", "$", "<a", "<sup>", "<sup> ", "\\text{"]
)
def test_marks_that_nothing_closes_are_searched_once(opening: str):
    for unclosed in (opening * (100_000 // len(opening)), opening + " " * 100_000):  # half a minute, if not
        assert plain(f"{unclosed} 123").text.endswith("123")


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (r"\(1\) and \(2\)", " 1  and  2 "),
        (r"\[ a \\[2pt] 3 \]", "  a \u2028[2pt] 3  "),
        ("`1` ``2`3`` [4](u) 10<sup> 5 </sup>", " 1   2`3  4 10^5"),
    ],
)
def test_marks_that_are_closed_are_read(raw: str, text: str):
    assert plain(raw).text == text


@pytest.mark.parametrize(
    ("label", "components"),
    [
        ("SwiGLU $W_1$", {"w1"}),
        ("attention output projection", {"output_proj"}),
        ("output embedding", {"lm_head"}),
        ("token embedding", {"token_embeddings"}),
        ("attention scores × V", {"values"}),
        ("softmax(QKᵀ) · V", {"values"}),
        ("$QK^\\top$", {"scores"}),
        ("QKV + O", {"q_proj", "k_proj", "v_proj", "output_proj"}),
        ("K and V projections", {"k_proj", "v_proj"}),
        ("`w1`, `w3`", {"w1", "w3"}),
        ("T² terms", {"scores", "values"}),
        ("up / gate", {"w1", "w3"}),
        ("Nothing of the kind", set()),
    ],
)
def test_labels_are_read_in_the_words_that_people_use(label: str, components: set[str]):
    readings = readings_of_label(plain(label).text)
    assert (set(readings[0]) if readings else set()) == components


def test_every_list_of_words_is_read_and_names_what_there_is():
    code = "".join(path.read_text(encoding="utf-8") for path in Path(words.__file__).parent.glob("*.py"))
    for name, listed in words.table()["signs"].items():
        assert words.phrases(listed)
        assert f'"{name}"' in code or name.startswith("topic_") or name == RATIO, name
    for entry in words.table()["components"]:
        assert words.phrases(entry["names"])
        assert set(entry["means"]) <= set(COMPONENT_GROUPS)


@pytest.mark.parametrize(
    ("text", "said"), [("an unassuming total", False), ("we assumed it", True), ("假设参数", True)]
)
def test_a_word_is_found_whole_in_either_script(text: str, said: bool):
    assert words.says("aside", text) is said
