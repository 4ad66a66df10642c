"""``cs336 writeup``: what is missing, what does not add up, and files that cannot be judged."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner
from written import HANDOUTS, LABELS, Sizes, answer, configuration, hints, verdict, wrong_numbers

from cs336_harness.commands.writeup import writeup
from cs336_harness.cost.presets import preset
from cs336_harness.places import TEMPLATES
from cs336_harness.writeup.questions import QUESTIONS, judge_text
from cs336_harness.writeup.summary import findings_by_cause

XL = HANDOUTS["2026"]
SIZES = {"vocab_size": 50257, "context_length": 1024, "num_layers": 48, "d_model": 1600, "num_heads": 25, "d_ff": 4288}
OPTIONAL = ("d", "e")
WITHOUT_A_PLACE = ("derivation", "self_test", *OPTIONAL)  # in the answers of written.py
ROOT = Path(__file__).parents[2]
TEMPLATE = TEMPLATES / "WRITEUP.md"

_app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
_app.command()(writeup)


def _run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(_app, [str(argument) for argument in arguments], env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def file(tmp_path: Path):
    def write(content: str | bytes) -> Path:
        path = tmp_path / "WRITEUP.md"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_the_blank_template_is_all_missing(file):
    text = TEMPLATE.read_text(encoding="utf-8")
    verdicts = {name: answer.verdict for name, answer in judge_text(text).answers.items()}
    assert {name for name, verdict in verdicts.items() if verdict == "left out"} == set(OPTIONAL)
    assert {verdict for name, verdict in verdicts.items() if name not in OPTIONAL} == {"missing"}
    assert judge_text(text).findings == ()
    code, out, err = _run(file(text))
    assert (code, err) == (1, "")
    assert f"0 right, 0 wrong, {len(QUESTIONS) - len(OPTIONAL)} missing (2 left out)" in " ".join(out.split())


def test_the_template_states_the_2026_configuration():
    assert judge_text(TEMPLATE.read_text(encoding="utf-8")).configuration.shape == XL


@pytest.mark.parametrize("question", [name for name in QUESTIONS if name not in ("numbers", *WITHOUT_A_PLACE)])
def test_an_answer_that_is_left_out_is_missing_and_the_others_are_not(question: str):
    text = answer(XL)
    part, _, name = question.partition(".")
    if name in LABELS:
        text = "\n".join(line for line in text.splitlines() if not line.startswith(f"| {LABELS[name]} |"))
    elif question == "a.parameters":
        text = text.replace(f"{Sizes(XL).parameters:,} parameters", "____")
    elif question == "a.memory":
        text = text.replace(f"{4 * Sizes(XL).parameters:,} bytes", "____")
    elif question == "c.largest":
        text = text.rpartition("## (c)")[0]
    else:
        text = text.replace(f"| total | {Sizes(XL).flops:,} |", "| total | ____ |")
    missing = {name for name, given in judge_text(text).answers.items() if given.verdict == "missing"}
    follows = {"b.sum"} if part == "b" else set()
    assert missing == ({"b.total", "b.sum"} if question == "b.sum" else {question} | follows)


def test_lines_that_do_not_add_up_to_the_total_are_told_by_how_much():
    sizes = Sizes(XL)
    without = judge_text(answer(XL, total=f"{sizes.flops - sizes.lines['lm_head']:,}")).answers["b.sum"]
    assert without.verdict == "wrong"
    assert "it leaves out line" in without.message
    assert "(LM head)" in without.message
    twice = judge_text(answer(XL, total=f"{sizes.flops + sizes.lines['w1']:,}")).answers["b.sum"]
    assert "it counts twice line" in twice.message
    odd = judge_text(answer(XL, total=f"{sizes.flops + 14:,}")).answers["b.sum"]
    assert "14 too much" in odd.message


def test_rounded_lines_add_up_within_their_rounding():
    def in_billions(count: int) -> str:
        return f"{count / 1e9:.1f} GFLOPs"

    assert verdict(judge_text(answer(XL, write=in_billions, total="3.517 TFLOPs")), "b.sum") == "right"
    assert verdict(judge_text(answer(XL, write=in_billions, total="3.52 TFLOPs")), "b.sum") == "right"
    assert verdict(judge_text(answer(XL, write=in_billions, total="3.6 TFLOPs")), "b.sum") == "wrong"


def test_shares_that_follow_from_wrong_lines_say_so():
    sizes = Sizes(XL)
    lines = {name: f"{sizes.lines[name] // 2:,}" for name in ("w1", "w2", "w3")}
    halved = sum(sizes.lines[name] for name in ("w1", "w2", "w3")) // 2
    share = 100 * halved / (sizes.flops - halved)
    text = answer(XL, lines=lines).replace("57.5 %", f"{share:.1f} %")
    assert "It follows from the lines of (b)" in hints(text)
    assert "It follows" not in hints(text.replace(f"{share:.1f} %", "12.3 %"))


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("The feed-forward networks take the most FLOPs.", "right"),
        ("SwiGLU.", "right"),
        ("Mostly the MLP, it dominates.", "right"),
        ("The attention scores take the most FLOPs.", "wrong"),
        ("The LM head dominates.", "wrong"),
        ("The transformer blocks take the most.", "missing"),
        ("____", "missing"),
    ],
)
def test_what_costs_most_must_be_named(sentence: str, expected: str):
    text = f"{answer(XL).rpartition('## (c)')[0]}## (c)\n\nWhich parts take the most FLOPs?\n\n{sentence}\n"
    assert verdict(judge_text(text), "c.largest") == expected


def test_what_costs_most_keeps_the_right_share_to_itself_and_asks_for_it():
    text = f"{answer(XL).rpartition('## (c)')[0]}## (c)\n\nThe feed-forward costs most, 47.5 %.\n"
    judgement = judge_text(text)
    assert verdict(judgement, "c.largest") == "wrong"
    assert "57.5" not in judgement.answers["c.largest"].message
    assert verdict(judge_text(text.replace("47.5", "57.5")), "c.largest") == "right"


def test_what_costs_most_is_not_held_against_lines_that_are_not_there(file):
    out = " ".join(_run(file("## (c)\n\nAttention costs most.\n"))[1].split())
    assert "(c) what costs most (line 3): Another part costs more than the one that is named." in out


@pytest.mark.parametrize(
    ("sentence", "counts"),
    [
        ("The model has 1,640,452,800 parameters.", "1 number read: 1 right, 0 wrong, 0 not recognised"),
        ("Hello.", "no numbers read Held against"),
    ],
)
def test_counts_are_said_as_people_say_them(file, sentence: str, counts: str):
    out = " ".join(_run(file(f"## (a)\n\n{sentence}\n"))[1].split())
    assert counts in out
    assert "right every other number" not in out


def test_a_configuration_that_is_given_decides(file):
    right, small = answer(XL), answer(preset("gpt2-small"))
    code, out, _ = _run(file(right), "--config", "gpt2-small")
    out = " ".join(out.split())
    assert code == 1
    assert "as --config says" in out
    assert "The write-up itself states num_layers 48 (line 9), d_model 1,600 (line 10)" in out
    assert "It is the number of GPT-2 XL." in out
    for question in ("a.parameters", "a.memory", "b.w1", "b.total"):
        assert verdict(judge_text(right, given=preset("gpt2-small")), question) == "wrong"
    assert judge_text(small, given=preset("gpt2-small")).passed
    assert judge_text(right, given=XL).configuration.notices == ()


def test_a_handout_that_is_given_decides(file):
    code, out, _ = _run(file(answer(XL)), "--handout", "2025")
    out = " ".join(out.split())
    assert code == 1
    assert "d_ff 6400, untied, batch 1, float32, as --handout 2025 says" in out
    assert "The write-up itself states d_ff 4,288 (line 13): not used." in out
    assert _run(file(answer(HANDOUTS["2025"])), "--handout", "2025")[0] == 0
    assert "as the write-up states it" in " ".join(_run(file(answer(XL)))[1].split())


def test_the_products_of_m_k_n_and_count_are_checked():
    table = "| multiply | m | k | n | count |\n| --- | --- | --- | --- | --- |\n| q_proj | 1024 | 1600 | {} | 48 |\n"
    text = f"{answer(XL).replace('## (c)', '{table}')}\n\n## (c)\n\nSwiGLU.\n"
    assert wrong_numbers(text.replace("{table}", table.format(1600))) == []
    (wrong,) = wrong_numbers(text.replace("{table}", table.format(4288)))
    assert wrong.claim.number.text == "m 1024, k 1600, n 4288, count 48"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("  \n\n", "is empty"),
        (b"\x00\x01\x02", "is binary"),
        (b"# caf\xff\xff \xff", "is no UTF-8 text"),
    ],
)
def test_a_file_that_cannot_be_judged_gets_one_clear_line(file, content: str | bytes, message: str):
    path = file(content)
    code, out, err = _run(path)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith(f"cs336 writeup: {path} ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "notice"),
    [
        ("# Hello\n\nThe model has 1,640,452,800 parameters.\n", "states no configuration: held against the 2026"),
        ("The model has 2,127,057,600 parameters.\n", "states no configuration: held against the 2025"),
        ("vocab_size: 50257, d_model: 1600\n", "lacks context_length, num_layers, num_heads, d_ff"),
        (
            answer(XL) + "\n\nd_ff: 6400\n",
            "states d_ff twice, 4,288 (line 13) and 6,400 (line 41): held against 4,288",
        ),
        (
            answer(XL).replace("| num_heads | 25 |", "| num_heads | 24 |"),
            "d_model 1600 does not divide into num_heads 24",
        ),
        (answer(XL).replace("| num_layers | 48 |", "| num_layers | 0 |"), "lacks num_layers"),
    ],
)
def test_what_a_person_can_read_is_judged_with_a_notice(file, content: str, notice: str):
    code, out, err = _run(file(content))
    assert code != 2
    assert err == ""
    assert notice in " ".join(out.split())
    judgement = judge_text(content)
    assert [finding for finding in judgement.findings if finding.verdict == "wrong"] == []


def test_a_file_that_is_not_there_gets_one_clear_line(tmp_path: Path):
    for path in (tmp_path / "absent.md", tmp_path):
        code, out, err = _run(path)
        assert (code, out) == (2, "")
        assert "cannot be read" in err
        assert err.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "V = 50,257, T = 1,024, L = 48, D = 1,600, H = 25 and F = 4,288",
        "```\n{}\n```".format("\n".join(f"{name} : {size:,}" for name, size in SIZES.items())),
        "\n".join(f"- `{name}`: {size:,}" for name, size in SIZES.items()),
        "$V{=}50257,\\,T{=}1024,\\,L{=}48,\\,D{=}1600,\\,H{=}25,\\,d_{ff}{=}4288$",
        "A decoder with 48 layers, 25 heads, d_model 1600, d_ff 4288, a vocabulary of 50257 and a context of 1024.",
        f"| {' | '.join(SIZES)} |\n|{'-|' * len(SIZES)}\n| {' | '.join(map(str, SIZES.values()))} |",
    ],
)
def test_a_configuration_is_read_however_it_is_stated(text: str):
    assert judge_text(text).configuration.shape == XL


def test_another_configuration_is_judged_by_itself():
    small = HANDOUTS["2025"].replace(num_layers=12, d_model=768, num_heads=12, num_kv_heads=12, d_ff=3072)
    assert judge_text(answer(small)).passed
    assert not judge_text(answer(small).replace(configuration(small), configuration(XL))).passed


def test_bytes_follow_the_stated_dtype():
    text = answer(XL, memory="3.28 GB").replace(
        "| tie_embeddings | no |", "| tie_embeddings | no |\n| dtype | bfloat16 |"
    )
    assert judge_text(text).passed


def test_appendix_questions_are_judged_and_may_be_left_out():
    appendix = (
        "\n\n## (d)\n\n| share | small | medium | large |\n| --- | --- | --- | --- |\n"
        "| feed-forward | 39.8 % | 50.1 % | 54.3 % |\n\n"
        "## (e)\n\nAt 16,384 positions the total is 133.58 TFLOPs, 38 times as much; the T² terms take 61.7 %.\n"
    )
    text = answer(XL) + appendix
    assert judge_text(text).passed
    assert [f.claim.number.text for f in wrong_numbers(text.replace("50.1 %", "51.1 %"))] == ["51.1 %"]
    assert [f.claim.number.text for f in wrong_numbers(text.replace("133.58", "56.27"))] == ["56.27 TFLOPs"]


def test_the_report_names_lines_and_keeps_the_answers_to_itself(file):
    path = file(answer(XL, memory="6.56 GiB"))
    code, out, _ = _run(path)
    said = " ".join(out.split())
    assert code == 1
    assert "the 2026 handout's GPT-2 XL" in said
    assert (
        "line 19: 6.56 GiB is not right for the memory in total. This is the memory in GB but written as GiB." in said
    )
    assert "6,561,811,200" not in said
    assert "6,561,811,200 bytes = 6.562 GB (6.111 GiB)" in " ".join(_run(path, "--show-answers")[1].split())


def test_the_report_remarks_upon_a_unit(file):
    code, out, _ = _run(file(answer(XL, memory="6.11 GB")))
    assert code == 0
    assert "remark line 19: 6.11 GB. It is right in GiB (1024³ bytes each); a GB is 1000³ bytes." in " ".join(
        out.split()
    )


def test_an_answer_of_another_handout_has_one_cause():
    judgement = judge_text((ROOT / "WRITEUP.md").read_text(encoding="utf-8"), None, 2025)
    (cause,) = findings_by_cause(judgement)
    assert "d_ff 4288" in cause[0].hints[0]


def test_json_for_a_program(file, tmp_path: Path):
    report = tmp_path / "report.json"
    code, out, _ = _run(file(answer(XL, total="3.507 TFLOPs")), "--json", report)
    said = json.loads(report.read_text())
    assert code == 1
    assert "3.507 TFLOPs is not right for the FLOPs in total" in " ".join(out.split())
    left_out = len(WITHOUT_A_PLACE)
    assert said["summary"] == {"right": len(QUESTIONS) - 2 - left_out, "wrong": 2, "missing": 0, "left_out": left_out}
    assert [question["id"] for question in said["questions"]] == list(QUESTIONS)
    assert said["configuration"]["d_ff"] == 4288
    (wrong,) = [number for number in said["numbers"] if number["verdict"] == "wrong"]
    assert (wrong["text"], wrong["stands_for"], wrong["expected"]) == (
        "3.507 TFLOPs",
        "the FLOPs in total",
        3516769894400,
    )
    assert "GPT-2" in wrong["hints"][0]


def test_the_right_answer_exits_with_0(file):
    code, out, err = _run(file(answer(XL)))
    assert (code, err) == (0, "")
    assert "0 wrong, 0 missing" in out


def test_the_checker_needs_neither_torch_nor_the_learner_s_code(file):
    code = (
        "import sys; from cs336_harness.writeup.questions import judge_file; from pathlib import Path;"
        f"judge_file(Path({str(file(answer(XL)))!r}));"
        "sys.exit(any(name in sys.modules for name in ('torch', 'cs336_basics')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
