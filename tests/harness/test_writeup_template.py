"""The shipped template, filled in with no more than it asks for: its own sentences say nothing about the numbers."""

import pytest
from written import HANDOUTS, Sizes, hints, wrong_numbers

from cs336_harness.cost.ledger import MATMULS
from cs336_harness.places import TEMPLATES
from cs336_harness.shapes import DecoderShape
from cs336_harness.writeup.questions import Judgement, judge_text

TEMPLATE = (TEMPLATES / "WRITEUP.md").read_text(encoding="utf-8")
ROWS = "| q_proj | ____ | ____ |\n| ____ | ____ | ____ |\n| total | | ____ |"
XL = HANDOUTS["2026"]

both_handouts = pytest.mark.parametrize("shape", HANDOUTS.values(), ids=list(HANDOUTS))


def _filled(
    shape: DecoderShape,
    *,
    what: str = "",
    label: str = "{}",
    divisor: int = 1,
    lines: dict[str, int] | None = None,
    total: int | None = None,
    memory: str | None = None,
) -> str:
    """The template with every blank of (a), (b) and (c) filled; ``lines`` replaces rows, 0 leaves one out."""
    sizes = Sizes(shape)
    given = {name: sizes.lines[name] // (1 if name == "lm_head" else divisor) for name in MATMULS} | (lines or {})
    own = {name: ("{}", "") if name == "lm_head" else (label, what) for name in MATMULS}
    rows = [f"| {own[name][0].format(name)} | {own[name][1]} | {flops:,} |" for name, flops in given.items() if flops]
    rows.append(f"| total | | {total or sizes.flops:,} |")
    text = TEMPLATE.replace("| F | 4,288 |", f"| F | {shape.d_ff:,} |").replace(ROWS, "\n".join(rows))
    memory = memory or f"{4 * sizes.parameters:,} bytes"
    for question, given_answer in (
        ("take in float32? One or two sentences.", f"{sizes.parameters:,} parameters, {memory}."),
        ("take the most FLOPs? One or two sentences.", "The feed-forward networks."),
    ):
        assert f"{question}\n\n____" in text
        text = text.replace(f"{question}\n\n____", f"{question}\n\n{given_answer}")
    return text


def _not_right(judgement: Judgement) -> dict[str, str]:
    """The questions of (a) to (c) that are not right; the template's derivation and self-test are left blank here."""
    blank = ("derivation", "self_test", "d", "e")
    return {
        name: given.verdict
        for name, given in judgement.answers.items()
        if given.verdict != "right" and name not in blank
    }


@both_handouts
@pytest.mark.parametrize("what", ["", "all layers", "all 48 blocks", "____", "a multiply of each block"])
def test_the_template_filled_with_whole_model_rows_is_right(shape: DecoderShape, what: str):
    assert _not_right(judge_text(_filled(shape, what=what))) == {}
    assert _not_right(judge_text(_filled(shape, label="{} (all layers)", what=what))) == {}


@both_handouts
@pytest.mark.parametrize(
    ("label", "what"), [("{}", "per block"), ("{}", "in one block"), ("{}, one block", ""), ("{} (per layer)", "")]
)
def test_the_template_filled_with_rows_that_say_one_block_is_right(shape: DecoderShape, label: str, what: str):
    text = _filled(shape, label=label, what=what, divisor=shape.num_layers)
    assert _not_right(judge_text(text)) == {}
    whole = judge_text(_filled(shape, label=label, what=what))
    assert {name for name, verdict in _not_right(whole).items() if verdict == "wrong"} >= {"b.q_proj", "b.values"}


@pytest.mark.parametrize("name", MATMULS)
def test_a_halved_row_is_the_one_mistake(name: str):
    halved = Sizes(XL).lines[name] // 2
    text = _filled(XL, lines={name: halved}, what="all layers")
    (wrong,) = wrong_numbers(text)
    assert wrong.quantity is not None
    assert (wrong.claim.label, wrong.components) == (name, {name})
    assert _not_right(judge_text(text)) == {f"b.{name}": "wrong", "b.sum": "wrong"}
    assert "multiply-add" in hints(text) or "half" in hints(text)


def test_an_output_projection_that_is_left_out_is_the_one_mistake():
    sizes = Sizes(XL)
    missing = {"b.output_proj": "missing", "b.sum": "missing"}
    text = _filled(XL, lines={"output_proj": 0})
    assert _not_right(judge_text(text)) == missing
    assert wrong_numbers(text) == []
    short = _filled(XL, lines={"output_proj": 0}, total=sizes.flops - sizes.lines["output_proj"])
    assert _not_right(judge_text(short)) == missing | {"b.total": "wrong"}
    assert "output projection" in hints(short)


def test_a_total_of_wrong_lines_says_what_they_leave_out():
    sizes = Sizes(XL)
    half = sizes.lines["w1"] // 2
    text = _filled(XL, lines={"w1": half, "output_proj": 0}, total=sizes.flops - sizes.lines["output_proj"] - half)
    assert "It is what the lines add up to; the mistake is in a line, and they leave out output_proj." in hints(text)


def test_gib_for_gb_is_the_one_mistake():
    text = _filled(XL, memory="6.56 GiB")
    assert _not_right(judge_text(text)) == {"a.memory": "wrong"}
    assert "in GB but written as GiB" in hints(text)


@pytest.mark.parametrize(
    "instruction",
    [
        "> Fill in the FLOPs of one block, or of all.",
        "<!-- one row per block -->",
        "Give the numbers, each row for one block. <!-- per layer\nor for all -->",
        "Is it per block?",
        "Every row may be per layer.",
    ],
)
def test_an_instruction_above_a_table_says_nothing_of_its_rows(instruction: str):
    text = _filled(XL).replace("| multiply | what", f"{instruction}\n\n| multiply | what")
    assert _not_right(judge_text(text)) == {}


def test_a_caption_that_states_one_block_is_held_to_it():
    def captioned(text: str) -> str:
        return text.replace("| multiply | what", "The rows are FLOPs of one block.\n\n| multiply | what")

    assert "b.q_proj" in _not_right(judge_text(captioned(_filled(XL))))
    assert _not_right(judge_text(captioned(_filled(XL, divisor=XL.num_layers)))) == {}
    assert _not_right(judge_text(captioned(_filled(XL, what="all 48 blocks")))) == {}


@pytest.mark.parametrize("wrong", ["wide", "narrow"])
def test_values_is_the_multiply_by_the_values_and_not_their_projection(wrong: str):
    times = {"wide": 2 * Sizes(XL).lines["values"], "narrow": Sizes(XL).lines["v_proj"]}[wrong]
    (finding,) = wrong_numbers(_filled(XL, lines={"values": times}))
    assert finding.quantity is not None
    assert finding.components == {"values"}


def test_values_beside_queries_and_keys_is_a_projection():
    text = _filled(XL)
    for name, word in {"values": "weighted sum", "q_proj": "queries", "k_proj": "keys", "v_proj": "values"}.items():
        text = text.replace(f"\n| {name} |", f"\n| {word} |")
    assert _not_right(judge_text(text)) == {}
