"""Numbers however they are typeset, closed forms by what they evaluate to, and files of every format."""

import io
import json
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

pytest.importorskip("hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st
from written import HANDOUTS, answer, configuration, verdict, wrong_numbers

from cs336_harness.cost.presets import preset
from cs336_harness.cost.quantities import Case
from cs336_harness.writeup.formulas import values_of
from cs336_harness.writeup.numbers import find_numbers
from cs336_harness.writeup.plain import plain
from cs336_harness.writeup.questions import judge_files, judge_text
from cs336_harness.writeup.summary import findings_by_cause, judgement_json

XL = HANDOUTS["2026"]
CASE = Case("", XL, 1, 1024)

EXACT = {
    "commas": lambda n: f"{n:,}",
    "bare": str,
    "spaces": lambda n: f"{n:,}".replace(",", " "),
    "underscores": lambda n: f"{n:_}",
    "apostrophes": lambda n: f"{n:,}".replace(",", "'"),
    "points": lambda n: f"{n:,}".replace(",", "."),
    "LaTeX groups": lambda n: f"${n:,}$".replace(",", "{,}"),
    "LaTeX thin spaces": lambda n: f"${n:,}$".replace(",", "\\,"),
    "full width": lambda n: "参数" + str(n).translate(str.maketrans("0123456789", "０１２３４５６７８９")),
    "between Han": lambda n: f"共{n:,}个参数",
    "bold": lambda n: f"**{n:,}**",
    "code": lambda n: f"`{n}`",
}
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
ROUNDED = {
    "e": lambda digits, exponent: f"{digits}e{exponent}",
    "E+": lambda digits, exponent: f"{digits}E+{exponent}",
    "times": lambda digits, exponent: f"{digits} × 10^{exponent}",
    "superscript": lambda digits, exponent: f"{digits}×10" + str(exponent).translate(SUPERSCRIPTS),
    "LaTeX": lambda digits, exponent: f"${digits} \\times 10^{{{exponent}}}$",
    "LaTeX dot": lambda digits, exponent: f"${digits}\\cdot10^{{{exponent}}}$",
    "python": lambda digits, exponent: f"{digits} * 10**{exponent}",
    "HTML": lambda digits, exponent: f"{digits} × 10<sup>{exponent}</sup>",
}


@given(st.integers(10**6, 10**15), st.sampled_from(sorted(EXACT)))
@settings(max_examples=150, deadline=None)
def test_a_number_written_out_is_that_number_and_no_other(number: int, notation: str):
    (found,) = find_numbers(plain(EXACT[notation](number)).text)
    assert (found.value, found.step) == (number, 0)


@given(st.integers(10**6, 10**15), st.integers(1, 9), st.sampled_from(sorted(ROUNDED)))
@settings(max_examples=150, deadline=None)
def test_a_rounded_number_is_held_to_its_last_digit(number: int, digits: int, notation: str):
    exponent = len(str(number)) - 1
    mantissa = round(Decimal(number).scaleb(-exponent), digits)
    (found,) = find_numbers(plain(ROUNDED[notation](f"{mantissa:f}", exponent)).text)
    assert found.step == Fraction(10) ** (exponent - digits)
    assert found.matches(number)
    assert not found.matches(number - int(found.step) - 1)
    assert not found.matches(number + int(found.step) + 1)


@given(st.text("0123456789()+-*/^ VDLFHTB²×·xN._", max_size=60))
@settings(max_examples=200, deadline=None)
def test_whatever_stands_in_a_formula_is_evaluated_or_left(form: str):
    values_of(form, CASE)


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("2VD + L(4D² + 3DF + 2D) + D", 1640452800),
        ("2*V*D + L*(4*D**2 + 3*D*F + 2*D) + D", 1640452800),
        ("L(8BTD^2 + 4BT^2D + 6BTDF) + 2BTDV", 3516769894400),
        ("6 * context_length * d_model * d_ff", 42152755200),
        ("2 · 1024 · 1600 · 50257", 164682137600),
    ],
)
def test_closed_forms_are_evaluated(form: str, value: int):
    assert value in values_of(form, CASE)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "form", ["9^6^6^6^6^6", "((((9^6)^6)^6)^6)^6", "(" * 200 + "V" + ")" * 200, "V/0", "__import__"]
)
def test_a_form_that_is_none_costs_nothing(form: str):
    assert all(value < 10**100 for value in values_of(form, CASE))


def _with_derivation(text: str) -> str:
    return answer(XL).replace("## (a)", f"## Derivation\n\n{text}\n\n## (a)")


@pytest.mark.parametrize(
    ("derivation", "expected"),
    [
        ("$$2VD + L(4D^2 + 3DF + 2D) + D$$\n\n$$L(8TD^2 + 4T^2D + 6TDF) + 2TDV$$", "right"),
        ("Parameters: 2VD + L(4D² + 3DF + 2D) + D. FLOPs: L(8TD² + 4T²D + 6TDF) + 2TDV.", "right"),
        ("$$2VD + L(4D^2 + 2DF + 2D) + D$$\n\n$$L(8TD^2 + 4T^2D + 6TDF) + 2TDV$$", "wrong"),
        ("$$2VD + L(4D^2 + 3DF + 2D) + D$$\n\n$$L(8TD^2 + 2T^2D + 6TDF) + 2TDV$$", "wrong"),
        ("$$2VD + L(4D^2 + 3DF + 2D) + D$$", "missing"),
        ("It follows from the definitions, as is well known.", "missing"),
        ("$$V^7 + 3 L$$", "missing"),
        ("____", "missing"),
    ],
)
def test_a_derivation_is_judged_by_what_it_evaluates_to(derivation: str, expected: str):
    assert verdict(judge_text(_with_derivation(derivation)), "derivation") == expected


SELF_TEST = """

## Self-test

**Does tying remove the compute of the output projection?** {}

**Which terms quadruple when the sequence length doubles?** {}
"""


@pytest.mark.parametrize(
    ("tying", "quadruple", "expected"),
    [
        ("No, the logits are still a multiply.", "The attention scores and the weighted sum.", "right"),
        ("Yes, it does.", "The attention scores and the weighted sum.", "wrong"),
        ("No.", "The feed-forward network.", "wrong"),
        ("No.", "____", "missing"),
        ("\n\n____", "\n\n____", "missing"),
    ],
)
def test_the_self_test_is_a_question_of_its_own(tying: str, quadruple: str, expected: str):
    assert verdict(judge_text(answer(XL) + SELF_TEST.format(tying, quadruple)), "self_test") == expected


@pytest.mark.parametrize(
    ("sentence", "wrong"),
    [
        ("As the model grows, the share of the FFN rises and the share of the LM head falls.", []),
        ("The FFN share grows with model size.", []),
        ("The FFN share falls with model size.", ["falls"]),
        ("As the model grows, the proportion of the LM head increases.", ["increases"]),
        ("The proportion of attention increases.", []),  # it rises to large and falls to XL: nobody is told off for it
        ("随着模型变大，前馈网络的占比下降。", ["下降"]),
    ],
)
def test_trends_are_judged(sentence: str, wrong: list[str]):
    text = f"{answer(XL)}\n\n## (d)\n\n{sentence}\n"
    assert [finding.claim.number.text for finding in wrong_numbers(text)] == wrong


@pytest.mark.parametrize(
    ("sentence", "wrong"),
    [
        ("The total is 38 times as large.", []),
        ("The total FLOPs become 16 times as large.", ["16 times"]),
        ("The total FLOPs become 256 times as large.", ["256 times"]),
        ("The T² terms grow 256 times, everything else 16 times.", []),
        ("The FFN needs 16 times as many FLOPs.", []),
        ("The context length becomes 16 times as large.", []),
    ],
)
def test_ratios_are_judged(sentence: str, wrong: list[str]):
    text = f"{answer(XL)}\n\n## (e)\n\nThe context is 16,384.\n\n{sentence}\n"
    assert [finding.claim.number.text for finding in wrong_numbers(text)] == wrong


@pytest.mark.parametrize(
    ("sentence", "wrong"),
    [
        ("The head's share rises with model size.", ["rises"]),
        ("The head's share falls with model size.", []),
        ("The LM head grows from 27.1 % in GPT-2 small to 4.7 % in GPT-2 XL.", ["grows"]),
        ("The LM head fell from 27.1 % in GPT-2 small to 4.7 % in GPT-2 XL.", []),
        ("For larger models the LM head takes a larger share.", ["larger share"]),
        ("As models get larger, the LM head becomes less important.", []),
        ("The FFN's FLOPs increase, and the LM head becomes more important.", ["more important"]),
        ("The head's FLOPs increase 2 times, while its share falls.", []),
    ],
)
def test_a_trend_is_judged_however_it_is_said(sentence: str, wrong: list[str]):
    text = f"{answer(XL)}\n\n## (d)\n\n{sentence}\n"
    assert [finding.claim.number.text for finding in wrong_numbers(text)] == wrong


@pytest.mark.parametrize(
    ("sentence", "wrong"),
    [
        ("It takes about 6.5 GB of memory.", 0),
        ("It takes about 6.6 GB of memory.", 0),
        ("The feed-forward takes 57 % of the FLOPs.", 0),
        ("The feed-forward takes 56 % of the FLOPs.", 1),
        ("It takes about 6.4 GB of memory.", 1),
        ("It takes 6.5 GB of memory.", 1),
        ("It takes 6.51 GB of memory.", 1),
        ("In total 3.51 TFLOPs.", 1),
        ("In total about 3.51 TFLOPs.", 0),
    ],
)
def test_a_share_and_what_is_said_to_be_about_may_be_cut_off(sentence: str, wrong: int):
    part = "c" if "%" in sentence else "a" if "GB" in sentence else "b"
    assert len(wrong_numbers(f"{configuration(XL)}\n\n## ({part})\n\n{sentence}\n")) == wrong


def test_one_cause_is_one_finding():
    other = XL.replace(d_ff=6400)
    text = answer(other).replace("| d_ff | 6,400 |", "| d_ff | 4,288 |")
    judgement = judge_text(text, handout=2026)
    causes = findings_by_cause(judgement)
    assert len([finding for finding in judgement.findings if finding.verdict == "wrong"]) >= 6
    assert any(len(findings) >= 5 and "with d_ff 6400" in findings[0].hints[0] for findings in causes)


def test_several_files_are_read_as_one_and_each_line_knows_its_file(tmp_path: Path):
    text = answer(XL, memory="6.56 GiB")
    first, second = tmp_path / "configuration.md", tmp_path / "answer.md"
    at = text.index("## (a)")
    first.write_text(text[:at])
    second.write_text(text[at:])
    judgement = judge_files([first, second])
    (wrong,) = [finding for finding in judgement.findings if finding.verdict == "wrong"]
    assert judgement.source.place(wrong.line) == "answer.md line 4"


def test_a_notebook_names_its_cells(tmp_path: Path):
    cells = [
        {"cell_type": "markdown", "source": ["## (a)\n", "\n", "The model has 1,640,452,801 parameters.\n"]},
        {
            "cell_type": "code",
            "source": ["f()"],
            "outputs": [{"data": {"text/plain": ["total FLOPs = 3516769894401"]}}],
        },
    ]
    path = tmp_path / "answer.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4}))
    judgement = judge_files([path])
    places = [judgement.source.place(finding.line) for finding in judgement.findings if finding.verdict == "wrong"]
    assert places == ["cell 1, line 3", "cell 2, output line 1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '{"cells": [{"cell_type": "markdown", "source": ["# x"',
            r"no notebook \(Expecting .*, line 1\); save it again",
        ),
        ('{"cells": 3}', "it has no list of cells"),
        ('{"nbformat": 4}', "it has no list of cells"),
    ],
)
def test_a_broken_notebook_is_refused_in_one_line(tmp_path: Path, text: str, message: str):
    path = tmp_path / "answer.ipynb"
    path.write_text(text)
    with pytest.raises(ValueError, match=message) as refused:
        judge_files([path])
    assert len(str(refused.value).splitlines()) == 1


def test_a_program_is_told_the_line_of_the_file_whatever_its_format(tmp_path: Path):
    path = tmp_path / "answer.tex"
    path.write_text("\\section{(a)}\n\\begin{itemize}\n\\item $1{,}640{,}452{,}801$ parameters\n\\end{itemize}\n")
    (number,) = judgement_json(judge_files([path]), path.name)["numbers"]
    assert (number["line"], number["text"]) == (3, "1,640,452,801 parameters")


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(answer(XL).encode())))
    assert judge_files([Path("-")]).passed


def _pdf(lines: list[str]) -> bytes:
    """The smallest PDF with these lines of text."""
    shown = " T* ".join(f"({line.replace('(', chr(92) + '(').replace(')', chr(92) + ')')}) Tj" for line in lines)
    stream = f"BT /F1 12 Tf 14 TL 40 780 Td {shown} ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
        b" /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        b"<< /Length " + str(len(stream)).encode() + b" >>\nstream\n" + stream + b"\nendstream",
    ]
    content = b"%PDF-1.4\n"
    places = []
    for number, item in enumerate(objects, 1):
        places.append(len(content))
        content += f"{number} 0 obj\n".encode() + item + b"\nendobj\n"
    table = b"".join(f"{place:010} 00000 n \n".encode() for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    tail = f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(content)}\n%%EOF".encode()
    return content + head + table + tail


def test_a_pdf_is_read(tmp_path: Path):
    pytest.importorskip("pypdf")
    path = tmp_path / "answer.pdf"
    path.write_bytes(_pdf(["(a) The model has 1,640,452,801 parameters.", "(b) Total: 3,516,769,894,400 FLOPs"]))
    judgement = judge_files([path])
    assert [(f.claim.number.text, f.verdict) for f in judgement.findings] == [
        ("1,640,452,801 parameters", "wrong"),
        ("3,516,769,894,400 FLOPs", "right"),
    ]
    assert judgement.source.place(judgement.findings[0].line) == "page 1"


def test_a_pdf_without_its_reader_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pypdf", None)
    path = tmp_path / "answer.pdf"
    path.write_bytes(_pdf(["x"]))
    with pytest.raises(ValueError, match="needs pypdf"):
        judge_files([path])


@pytest.mark.parametrize(
    ("config", "d_ff"), [(preset("gpt2-xl", 2025), 6400), (preset("gpt2-small"), 2048), (preset("gpt2-xl"), 4288)]
)
def test_a_given_configuration_is_the_one(config, d_ff: int):
    judgement = judge_text(answer(config).partition("## (a)")[2].replace("# Transformer", ""), config)
    assert judgement.configuration.shape.d_ff == d_ff
    assert [finding for finding in judgement.findings if finding.verdict == "wrong"] == []


@pytest.mark.parametrize(
    "sentence",
    [
        "Per layer I get QKVO 20.97 GF, scores 3.36 GF, AV 3.36 GF, SwiGLU 42.15 GF → 69.84 GF. ×48 = 3352 GF.",
        "2 T F D for each, so SwiGLU needs 6 T F D FLOPs and 4P bytes hold it.",
        "Attn output (scores @ V): one matmul, 3,355,443,200 FLOPs per block.",
        "An A100 at 312 TFLOP/s needs 11 ms; the backward pass takes 7.03 TFLOPs more.",
        "Without the head the total would be 3.352 TFLOPs.",
        "RMSNorm before attention: 6.55 MFLOPs.",
        "Output projection: 1,600² = 2,560,000 parameters.",
        "2 · 1600 · 1600 · 1024 = 5,242,880,000",
    ],
)
def test_working_and_remarks_convict_nothing(sentence: str):
    assert wrong_numbers(f"{answer(XL)}\n\n## (b)\n\n{sentence}\n") == []


def test_a_configuration_of_another_problem_is_not_taken_for_this_one_s():
    other = "Training run: vocab_size = 10000, context_length = 256, num_layers = 4, d_model = 512, num_heads = 16."
    text = f"{answer(XL).partition('## (a)')[2].replace('# ', '')}\n\n{other}\n\nvocab_size = 50257, d_model = 1600\n"
    assert wrong_numbers(text) == []


TERSE = """
a. ~1.64B params / 6.56e9 bytes
b. total = 3.52e12 FLOPs
c. mlp 57.5%, attn 37.8%, lm_head 4.7%
d. small: mlp 39.8%, lm_head 27.1%; medium: mlp 50.1%, lm_head 12.7%
e. 1.34e14 FLOPs in total; mlp 24.2%, lm_head 2.0%
"""


def test_parts_that_follow_line_on_line_are_parts():
    judgement = judge_text(TERSE)
    assert [finding.claim.number.text for finding in judgement.findings if finding.verdict == "wrong"] == []
    assert [verdict(judgement, name) for name in ("a.parameters", "a.memory", "b.total", "c.largest")] == ["right"] * 4
    assert [verdict(judgement, name) for name in ("d", "e")] == ["right", "right"]
    assert {finding.line for finding in wrong_numbers(TERSE.replace("3.52e12", "3.51e12"))} == {3}


def test_typst_formulas_are_read(tmp_path: Path):
    path = tmp_path / "answer.typ"
    path.write_text(
        '= (a)\nWe count $1.64 times 10^9$ parameters, or $6.56 "GB"$.\n= (b)\nTotal: $3.52 times 10^12$ FLOPs.\n'
    )
    judgement = judge_files([path])
    assert [verdict(judgement, name) for name in ("a.parameters", "a.memory", "b.total")] == ["right"] * 3
