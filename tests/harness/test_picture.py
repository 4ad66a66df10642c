"""``cs336 check --html`` and the page that it writes: what it shows, what it escapes, what it does not overwrite."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from broken import RIGHT, broken, results
from test_slow_oracle import DoubledGradient
from torch import Tensor
from vectorised import result_of
from vectorised import subject_of as vectorised

from cs336_harness import cli
from cs336_harness.checks import all_checks
from cs336_harness.contract import ENTRY_POINTS
from cs336_harness.defects import Place, adapters_of, all_defects, subject_of
from cs336_harness.diagnosis.readings.figures import measured
from cs336_harness.isolation.job import result_of as of_wire
from cs336_harness.isolation.job import wire
from cs336_harness.picture import charts, drawing, page
from cs336_harness.picture.parts import BY_ENTRY_POINT, BY_PLACE, PARTS, parts_of, states
from cs336_harness.picture.tally import tallies
from cs336_harness.reference.influence import InfluenceMap
from cs336_harness.subject.failures import Evidence
from cs336_harness.verdict.figures import MOST_CELLS, figures_of, pattern_of
from cs336_harness.verdict.suite import Suite

WRONG_LINEAR = """
import torch
def run_linear(d_in, d_out, weights, in_features):
    return in_features @ weights.T + 1
"""


def judged(check_id: str = "components.linear", outcome: str = "failed", **more: Any) -> dict[str, Any]:
    """One entry of the JSON result's ``checks``."""
    empty = {"seconds": 0.0, "details": [], "blocked_by": None, "error_in_noise": None, "diagnosis": None}
    return {"id": check_id, "task": "linear", "outcome": outcome, "message": "it differs", **empty, **more}


def diagnosis(where: str, **more: Any) -> dict[str, Any]:
    """A diagnosis as it stands in the JSON result."""
    empty = {"together": False, "told_before": None, "defects": [], "reading": "", "table": [], "evidence": []}
    return {"where": where, "confidence": "certain", **empty, "reproducer": "", **more}


def verdict(*checks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A JSON result."""
    return {"subject": "adapters.py", "provenance": "", "summary": {}, "checks": list(checks), **more}


class Text(HTMLParser):
    """What a page's elements are, and what a person reads on it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._in_code = False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._in_code = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._in_code = False

    def handle_data(self, data: str) -> None:
        if not self._in_code:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_every_part_has_a_place_in_the_drawing_and_every_box_lies_in_it() -> None:
    assert {box.part for box in drawing.BOXES} == set(PARTS)
    for box in drawing.BOXES:
        assert box.x >= 0
        assert box.x + box.width <= drawing.WIDTH
        assert box.y >= 0
        assert box.y + box.height <= drawing.HEIGHT


def test_boxes_do_not_cover_each_other() -> None:
    boxes = [box for box in drawing.BOXES if not box.frame]
    for one in boxes:
        for other in boxes:
            apart = one.x + one.width <= other.x or other.x + other.width <= one.x
            assert one is other or apart or one.y + one.height <= other.y or other.y + other.height <= one.y, (
                one,
                other,
            )


def test_every_check_is_about_parts_that_are_drawn_and_every_place_is_one() -> None:
    assert {key for check_id in all_checks() for key in parts_of(check_id)} <= set(PARTS)
    assert set(BY_PLACE) == set(Place)
    assert set(BY_ENTRY_POINT) <= set(ENTRY_POINTS)
    assert {key for keys in BY_PLACE.values() for key in keys} <= set(PARTS)


def test_a_part_of_no_check_lies_in_one_that_has_checks() -> None:
    own = {key for check_id in all_checks() for key in parts_of(check_id)}
    assert all(part.key in own or part.inside in own for part in PARTS.values())


def test_the_part_that_the_diagnosis_names_is_wrong_and_no_other_of_its_kind() -> None:
    failing = judged("assembly.transformer_lm", diagnosis=diagnosis("final norm"))
    drawn = states([failing, judged("components.rmsnorm", "passed")], failing)
    assert drawn["ln_final"].outcome == "failed"
    assert drawn["ln_final"].culprit
    assert drawn["ln1"].outcome == drawn["ln2"].outcome == "passed"
    assert drawn["decoder"].outcome == "failed"
    assert not drawn["decoder"].culprit


def test_a_fault_elsewhere_in_a_part_leaves_its_inside_waiting() -> None:
    failing = judged("components.scaled_dot_product_attention", diagnosis=diagnosis("mask"))
    drawn = states([failing], failing)
    assert drawn["mask"].outcome == "failed"
    assert drawn["scores"].outcome == "blocked"


def test_a_smaller_part_is_meant_where_its_own_check_fails() -> None:
    failing = judged("components.softmax", diagnosis=diagnosis("attention"))
    drawn = states([failing], failing)
    assert drawn["softmax"].culprit
    assert not drawn["attention"].culprit


@pytest.mark.parametrize(
    ("outcomes", "shown"),
    [
        (["passed", "skipped"], "passed"),
        (["passed", "advisory"], "advisory"),
        (["advisory", "blocked"], "blocked"),
        (["blocked", "blank"], "blank"),
        (["skipped"], "skipped"),
        ([], "unasked"),
    ],
)
def test_a_part_is_coloured_by_the_worst_that_became_of_it(outcomes: list[str], shown: str) -> None:
    assert states([judged("components.rope", outcome) for outcome in outcomes])["rope"].outcome == shown


def test_the_page_of_a_wrong_decoder_opens_with_what_is_wrong() -> None:
    def with_bias(d_in: int, d_out: int, weights: Any, in_features: Any) -> Any:
        return in_features @ weights.T + 1

    found = results(broken(run_linear=with_bias), "components.linear")
    html = page.render(verdict(*(result.to_json() for result in found.values())))
    read = Text(html)
    opened = [attrs["id"] for tag, attrs in read.elements if tag == "details" and "open" in attrs]
    assert opened == ["failure-1"]
    assert "run_linear differs from the reference" in read.text
    linear = [box for box in drawing.BOXES if box.part in parts_of("components.linear")]
    assert html.count('class="box failed culprit found"') == len(linear)


def test_every_box_is_a_link_with_its_state_in_words() -> None:
    read = Text(page.render(verdict(judged("components.rope", "blocked", blocked_by="components.linear"))))
    boxes = [
        attrs for tag, attrs in read.elements if tag == "a" and (attrs.get("class") or "").startswith(("box", "frame"))
    ]
    assert len(boxes) == len(drawing.BOXES)
    assert all(attrs["aria-label"] for attrs in boxes)
    assert "RoPE, rotary positions: blocked (1 blocked)" in {attrs["aria-label"] for attrs in boxes}


def test_the_page_loads_nothing_and_runs_its_own_script_only() -> None:
    html = page.render(verdict(judged()))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy is not None
    assert policy[1].startswith("default-src &#39;none&#39;; style-src &#39;sha256-")
    assert "unsafe" not in policy[1]
    assert "http" not in policy[1]
    read = Text(html)
    loads = [attrs for _, attrs in read.elements for name in ("src", "href") if (attrs.get(name) or "#")[0] not in "#d"]
    assert not loads
    assert not [attrs for _, attrs in read.elements if "style" in attrs or any(name.startswith("on") for name in attrs)]


HOSTILE = (
    "</pre></script><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\x00\u202egnp.exe\u2066 '\"&\ud800"
)


def hostile_verdict() -> dict[str, Any]:
    """A result all of whose texts are somebody's attempt at the reader."""
    defect = {"name": HOSTILE, "hint": HOSTILE, "explanation": HOSTILE, "steps": [HOSTILE]}
    told = diagnosis(HOSTILE, confidence=HOSTILE, defects=[defect, defect], reading=HOSTILE, table=[HOSTILE])
    told |= {"evidence": [HOSTILE], "reproducer": HOSTILE}
    return verdict(
        judged(message=HOSTILE, details=[HOSTILE], diagnosis=told),
        judged("components.rope", message=HOSTILE, diagnosis=told | {"told_before": HOSTILE}),
        judged(HOSTILE, "blank", message=HOSTILE),
        judged("components.silu", "blocked", message=HOSTILE, blocked_by=HOSTILE),
        subject=HOSTILE,
        provenance=HOSTILE,
        not_run=[HOSTILE],
        cut_short=HOSTILE,
    )


@pytest.mark.parametrize("data", [hostile_verdict(), {"subject": HOSTILE, "error": HOSTILE}], ids=["verdict", "error"])
def test_what_comes_from_a_subject_is_text_and_nothing_else(data: dict[str, Any], tmp_path: Path) -> None:
    html, plain = page.render(data), page.render(verdict(judged()))
    assert html.count("<script") == plain.count("<script")
    assert "<img" not in html
    assert not set(html) & set("\x00\x1b\u202e\u2066\ud800")
    assert "\\u202e" in html
    assert "\\u001b" in html
    page.write(data, tmp_path / "page.html")


@pytest.mark.parametrize("name", ["verdict.html", "pieces.html", "page.html", "framed.html"])
def test_no_template_passes_a_text_on_as_it_is(name: str) -> None:
    """What is marked safe is HTML that a template of ours has written, or a style sheet and a script of ours."""
    marked = re.findall(r"{{ ?([\w.]+)\|safe ?}}", page.file_text(name))
    assert set(marked) <= {"content", "before", "style", "script"}
    assert page.file_text(name).count("safe") == len(marked)


def test_a_class_is_counted_part_by_part() -> None:
    wrong = judged("components.multihead_self_attention", diagnosis=diagnosis("mask"))
    right = judged("components.multihead_self_attention", "passed")
    counted = tallies([("ann", [wrong]), ("bob", [right]), ("cho", [judged("components.rope", "blank")])])
    assert counted["mask"].wrong == ("ann",)
    assert counted["mask"].text == "Causal mask: wrong in 1 of 3"
    assert counted["attention"].right == ("bob",)
    assert (counted["rope"].blank, counted["rope"].sign) == (("cho",), "○")
    assert not counted["softmax"].asked


def test_every_box_that_is_a_link_leads_somewhere() -> None:
    failing = judged("components.scaled_dot_product_attention", diagnosis=diagnosis("mask"))
    read = Text(page.render(verdict(failing, judged("components.rope", "passed"))))
    there = {attrs.get("id") for _, attrs in read.elements}
    links = [attrs["href"] for tag, attrs in read.elements if tag == "a" and (attrs.get("href") or "").startswith("#")]
    assert "#part-sdpa" in links
    assert {str(link)[1:] for link in links} <= there


def test_every_outcome_has_a_word_and_a_mark() -> None:
    html = page.render(verdict(*(judged("components.rope", outcome) for outcome in page.MARKS)))
    for outcome, mark in page.MARKS.items():
        assert f'class="mark {outcome}"' in html
        assert mark in html


def test_a_blocker_that_was_not_asked_for_is_shown_and_not_counted() -> None:
    waiting = judged("components.transformer_block", "blocked", blocked_by="components.rmsnorm", message="it differs")
    blocker = judged("components.rmsnorm", diagnosis=diagnosis("norm"))
    read = Text(page.render(verdict(waiting, blockers=[blocker])))
    assert "1 of 1 required checks are blocked by one that fails and was not asked for" in read.text
    assert "-k does not select this check; it is shown because it fails and blocks 1 check that -k selects" in read.text
    assert any("box failed culprit" in (attrs.get("class") or "") for _, attrs in read.elements)


def test_a_right_decoder_is_said_to_be_right() -> None:
    html = page.render(verdict(*(judged(check_id, "passed") for check_id in all_checks())))
    assert "All required checks passed" in html
    assert "Nothing is wrong" in html


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ([], "No check has run"),
        (["passed"], "All required checks that were asked passed"),
        (["passed", "blank"], "1 of 2 required checks wait for blank entry points"),
        (["failed", "blocked"], "1 of 2 required checks failed, 1 more is blocked by it"),
    ],
)
def test_no_more_is_said_than_was_run(outcomes: list[str], said: str) -> None:
    html = page.render(verdict(*(judged("components.rope", outcome) for outcome in outcomes)))
    assert said in Text(html).text
    assert ("Nothing is wrong" in html) == (outcomes == ["passed"])


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """``cs336 check`` in this process: its exit status and what it says, the lines joined."""

    def told(*arguments: str | Path) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["cs336", "check", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        said = capsys.readouterr()
        return int(caught.value.code or 0), (said.out + said.err).replace("\n", "")

    return told


Run = Callable[..., tuple[int, str]]


def test_check_writes_the_page_of_a_failure_too(run: Run, tmp_path: Path) -> None:
    subject, file = tmp_path / "adapters.py", tmp_path / "verdict.html"
    subject.write_text(WRONG_LINEAR)
    for _ in range(2):  # the second time in place of the first page
        status, said = run(subject, "-k", "components.linear", "--html", file)
        assert status == 1
        assert f"wrote {file}" in said
        assert "run_linear differs from the reference" in file.read_text()
    assert [each.name for each in tmp_path.glob("*.html*")] == ["verdict.html"]


def test_a_file_of_somebody_else_is_not_overwritten(run: Run, tmp_path: Path) -> None:
    subject, file = tmp_path / "adapters.py", tmp_path / "notes.html"
    subject.write_text(WRONG_LINEAR)
    file.write_text("<p>mine</p>")
    status, said = run(subject, "-k", "components.linear", "--html", file)
    assert status == 2
    assert "a file that is no report of cs336 is there; give another name" in said
    assert file.read_text() == "<p>mine</p>"


def test_a_place_where_no_page_can_stand_is_said_before_the_work(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    for file, said in {
        tmp_path / "folder": "that is a folder; give the name of a file",
        tmp_path / "no" / "page.html": "there is no folder",
        tmp_path / "file" / "page.html": "there is no folder",
        tmp_path / "pipe": "that is no plain file; give the name of one",
        Path("/dev/null"): "that is no plain file; give the name of one",
    }.items():
        for option in ("--html", "--json"):
            status, line = run("nowhere", option, file)
            assert status == 2
            assert line.startswith(f"cs336: {option} {file}: {said}")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    assert "it may not be written" in run("nowhere", "--html", tmp_path / "page.html")[1]


def test_a_page_that_cannot_be_written_after_all_costs_no_verdict(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "adapters.py").write_text(WRONG_LINEAR)
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: (_ for _ in ()).throw(full))
    status, said = run(tmp_path / "adapters.py", "-k", "components.linear", "--html", tmp_path / "page.html")
    assert status == 1
    assert "run_linear differs from the reference" in said
    assert "page.html: it could not be written: No space left on device" in said
    assert "wrote" not in said


def test_a_link_to_a_page_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "page.html")
    page.write(verdict(judged()), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert "it differs" in (tmp_path / "page.html").read_text()


def test_a_subject_that_cannot_be_judged_has_a_page_that_says_so(run: Run, tmp_path: Path) -> None:
    subject, file = tmp_path / "adapters.py", tmp_path / "verdict.html"
    subject.write_text("def run_linear(:\n")
    assert run(subject, "--html", file)[0] == 2
    assert "Nothing could be judged" in file.read_text()


def test_a_checkpoint_has_no_picture(run: Run, tmp_path: Path) -> None:
    status, said = run("--huggingface", tmp_path, "--html", tmp_path / "verdict.html")
    assert status == 2
    assert "--html draws the verdict on a decoder" in said


def figures(module: Any, check_id: str) -> dict[str, Any]:
    """The figures that the failure of one check leaves in the JSON result."""
    found = results(module, check_id)[check_id]
    assert found.outcome == "failed"
    return json.loads(json.dumps(found.to_json()["figures"], allow_nan=False))


def defective(name: str) -> Any:
    """The adapters module of a known mistake."""
    return adapters_of(all_defects()[name])


def texts(kind: str, figure: Any) -> list[str]:
    """What the cells of a chart say."""
    return [cell.text for cell in charts.KINDS[kind](figure).cells]


def test_one_wrong_number_is_one_wrong_cell_and_says_so() -> None:
    def one_off(**arguments: Any) -> Any:
        result = RIGHT.run_rope(**arguments)
        if result.shape[0] > 1 and result.ndim == 3:
            result[1, 2, 3] += 1
        return result

    drawn = figures(broken(run_rope=one_off), "components.rope")["errors"]
    assert drawn["pattern"] == "wrong only at row 1, position 2, channel 3"
    assert drawn["worst"]["place"] == "row 1, position 2, channel 3"
    assert drawn["worst"]["got"] == pytest.approx(drawn["worst"]["must"] + 1, abs=1e-4)
    wrong = [text for text in texts("errors", drawn) if "off" in text]
    assert len(wrong) == 1
    assert wrong[0].startswith("row 1, position 2, channel 3: got ")


@pytest.mark.parametrize(
    ("wrong", "pattern"),
    [
        (lambda t: t[..., 1::2], "wrong only at odd channels"),
        (lambda t: t[..., 0::2], "wrong only at even channels"),
        (lambda t: t[..., 4:8], "wrong only at head 1 (channels 4 to 7)"),
        (lambda t: t[:, 3], "wrong only at position 3"),
        (lambda t: t[:, 2:], "wrong only at positions from 2 on"),
        (lambda t: t[1], "wrong only at row 1"),
        (lambda t: t, "wrong everywhere"),
    ],
)
def test_the_pattern_of_errors_has_a_name(wrong: Callable[[Tensor], Tensor], pattern: str) -> None:
    differs = torch.zeros(2, 5, 12, dtype=torch.bool)
    wrong(differs).fill_(True)
    assert pattern_of(differs, ("row", "position", "channel"), num_heads=3) == pattern


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 30, 101), (2, 3, 8, 9), (1, 1, 5000), (1,)])
def test_a_map_of_any_size_is_small_and_shows_the_worst(shape: tuple[int, ...]) -> None:
    expected = torch.zeros(shape, dtype=torch.float64)
    actual = expected.clone()
    actual.view(-1)[-1] = math.nan
    names = ("row", "head", "position", "channel")[-len(shape) :]
    drawn = figures_of(Evidence(actual=actual, expected=expected, noise=1e-6, axes=names))["errors"]
    json.dumps(drawn, allow_nan=False)
    assert len(drawn["tolerances"]) <= MOST_CELLS
    chart = charts.errors(drawn)
    assert len(chart.cells) == len(drawn["tolerances"])
    assert chart.cells[-1].look == "e4"
    assert "got nan" in chart.cells[-1].text
    assert all(cell.x + cell.width <= charts.WIDTH + 0.1 for cell in chart.cells)


def test_a_leak_and_a_token_that_does_not_arrive_stand_out() -> None:
    influence = InfluenceMap(torch.tensor([[99.0, 99.0], [0.0, 99.0]]), (0, 1))
    drawn = figures_of(Evidence(influence=influence))["influence"]
    looks = [cell.look for cell in charts.influence(drawn).cells]
    assert looks[1] == "leak"
    assert looks[2] == "missing"
    assert texts("influence", drawn)[1] == (
        "token at position 1, logits at position 0: the token moves them, though it comes later: a leak"
    )


def test_what_the_rotation_turns_is_drawn_beside_what_it_must() -> None:
    reversed_turn = all_defects()["rope-direction-reversed"]
    suite = Suite(subject_of(reversed_turn))
    result = suite.result(all_checks()["components.rope"])
    drawn = result.to_json()["diagnosis"]["figures"]["rotation"]
    assert "pair 0, position 1: turned by -1 rad, must be 1 rad" in texts("rotation", drawn)
    assert sum(cell.look == "dial off" for cell in charts.rotation(drawn).cells) == 20  # all but those of position 0


@pytest.mark.parametrize("program", ["run_transformer_block", "built"])
def test_a_rotation_that_is_wrong_inside_attention_alone_is_read_there(program: str) -> None:
    mistaken = subject_of(all_defects()["rope-theta-not-passed-to-the-block"])
    drawn = json.loads(json.dumps(measured(mistaken, program, "positions")["rotation"], allow_nan=False))
    chart = charts.rotation(drawn)
    assert "inside attention, between neighbouring tokens" in chart.title
    looks = {cell.text.split(":")[0]: cell.look for cell in chart.cells}
    assert looks["pair 0, from position 0 to 1"] == "dial"
    assert looks["pair 1, from position 0 to 1"] == "dial off"
    assert all(cell.x + cell.width <= charts.WIDTH + 0.1 for cell in chart.cells)
    assert not measured(subject_of(), program, "positions")


@pytest.mark.parametrize("program", ["run_transformer_lm", "built"])
def test_which_token_moves_which_logits_is_drawn_whatever_check_failed(program: str) -> None:
    drawn = measured(subject_of(all_defects()["causal-mask-off-by-one"]), program, "mask")["influence"]
    assert charts.influence(drawn).summary.endswith("leaks from a later token to earlier logits.")
    assert "influence" not in measured(subject_of(), program, "mask")


def test_attention_weights_are_read_from_the_outside() -> None:
    read = measured(subject_of(all_defects()["causal-mask-missing"]), "run_multihead_self_attention", "mask")
    leaking = [text for text in texts("attention", read["attention"]) if text.startswith("query 0, key 1, as read")]
    assert len(leaking) == 1
    assert leaking[0].endswith(", must be 0")
    assert not measured(subject_of(), "run_multihead_self_attention", "mask")


def test_flops_are_drawn_by_multiply() -> None:
    mistaken = subject_of(all_defects()["flops-two-matrix-feed-forward"])
    result = Suite(mistaken, diagnose=False).result(all_checks()["accounting.forward_flops[mha]"])
    drawn = result.to_json()["figures"]["flops"]
    chart = charts.flops(drawn)
    assert [cell.look for cell in chart.cells] == ["bar", "bar", "bar", "bar off", "bar"]
    assert "w1" in chart.cells[3].text
    assert "w2" in chart.cells[3].text


def test_gradients_are_drawn_by_weight() -> None:
    drawn = result_of("slow_oracle.gradients[mha]", vectorised(DoubledGradient)).to_json()["figures"]["gradients"]
    assert {cell.look for cell in charts.gradients(drawn).cells} == {"bar off"}
    assert texts("gradients", drawn)[0].startswith("token_embeddings.weight: gradient of size ")


def test_what_each_use_of_a_tied_weight_sends_is_drawn() -> None:
    drawn = figures(defective("tied-look-up-detached"), "tying.gradients")["tied"]
    assert [cell.look for cell in charts.tied(drawn).cells] == ["bar off", "bar off", "bar", "bar"]
    assert texts("tied", drawn)[0].startswith("token_embeddings.weight: gradient of size ")


def test_the_uses_of_two_weights_that_must_be_one_are_drawn() -> None:
    drawn = figures(defective("tied-head-is-a-copy"), "tying.one_parameter")["tied"]
    assert [cell.look for cell in charts.tied(drawn).cells] == ["bar off", "bar off", "bar", "bar"]


def test_parameters_are_drawn_by_part() -> None:
    drawn = figures(defective("parameters-norms-forgotten"), "accounting.parameter_count[mha]")["parameters"]
    chart = charts.parameters(drawn)
    assert chart.summary.startswith("The count that was given is 336 too few")
    assert [label.text for label in chart.labels] == [
        "given", "embedding", "attention", "feed-forward", "head", "norms",
    ]  # fmt: skip


def test_the_page_of_one_fault_is_small() -> None:
    result = Suite(subject_of(all_defects()["rope-half-split-pairs"])).result(all_checks()["components.rope"])
    others = [judged(check_id, "blocked", blocked_by="components.rope") for check_id in all_checks()]
    html = page.render(verdict(result.to_json(), *others))
    assert html.count('class="chart"') == 2
    assert len(html.encode()) < 300_000


def test_figures_come_through_the_judging_process() -> None:
    result = Suite(subject_of(all_defects()["silu-is-gelu"])).result(all_checks()["components.silu"])
    event = json.loads(json.dumps(wire(result)))
    assert of_wire(event).to_json()["figures"] == event["figures"] != {}


def test_one_file_is_not_both(run: Run, tmp_path: Path) -> None:
    status, said = run("--json", tmp_path / "verdict", "--html", tmp_path / "verdict")
    assert status == 2
    assert "give two files" in said


def test_a_check_that_draws_nothing_loads_nothing_for_it(tmp_path: Path) -> None:
    subject = tmp_path / "adapters.py"
    subject.write_text(WRONG_LINEAR)
    arguments = ["cs336", "check", str(subject), "-k", "components.linear", "--no-diagnosis"]
    code = (
        f"import sys; sys.argv = {arguments!r}\n"
        "from cs336_harness import cli\n"
        "try: cli.main()\n"
        "finally: print('loaded', [name for name in sys.modules if 'cs336_harness.picture' in name])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert told.stdout.rstrip().endswith("loaded []")
    assert told.returncode == 1
