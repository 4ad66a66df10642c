"""`cs336 grade`: always a record, a row and a report for each, which no text of somebody else can break."""

import contextlib
import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from attacks import RIGHT, WRONG
from markdown_it import MarkdownIt

from cs336_harness.checks import all_checks, find
from cs336_harness.contract import ENTRY_POINTS
from cs336_harness.grading import batch, exports, intake, pages, sandbox
from cs336_harness.grading.batch import Settings
from cs336_harness.grading.judging import Job, judge
from cs336_harness.grading.records import scored, write_json
from cs336_harness.grading.rubric import VISIBLE, Rubric, read
from cs336_harness.subject.failures import CannotJudgeError

CHECKS = ("components.linear", "components.silu", "tying.one_parameter")
KEYS = {
    "name",
    "entry",
    "state",
    "passed",
    "score",
    "max_score",
    "tasks",
    "checks",
    "diagnosis",
    "writeup",
    "seconds",
    "versions",
    "seed",
}
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module", autouse=True)
def _shut_in(tmp_path_factory: pytest.TempPathFactory) -> None:
    if not sandbox.tried(sandbox.Reach(("/usr",), (), str(tmp_path_factory.mktemp("scratch")))).enough:
        pytest.skip("submissions cannot be shut in here")


@pytest.fixture(scope="module")
def students(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("class")
    broken = f"def run_silu(in_features):\n    raise ValueError('{EVIL} | *x*')\n"
    for name, text in {
        "ann": RIGHT,
        "bob": WRONG,
        f"{EVIL}": f"{RIGHT}\n\n{broken}",
        "=cmd()": "import nothing_of_that_name",
        "eve": "import os; os._exit(0)",
    }.items():
        (folder / name).mkdir()
        (folder / name / "adapters.py").write_text(text)
    (folder / "notes.txt").write_text("not a submission")
    (folder / ".hidden").mkdir()
    return folder


@pytest.fixture(scope="module")
def out(students: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graded") / "out"
    graded(students, folder)
    return folder


def graded(students: Path, out: Path, **settings: Any) -> tuple[list[dict[str, Any]], list[str]]:
    done: list[str] = []
    with_checks = Settings(**{"checks": CHECKS, **settings})
    records = batch.grade(intake.submissions(students), out, with_checks, lambda name, _: done.append(name))
    pages.write(out, records, with_checks.rubric)
    return records, done


def record(out: Path, name: str) -> dict[str, Any]:
    return json.loads((out / "records" / f"{name}.json").read_text())


def test_every_submission_has_a_whole_record(out: Path) -> None:
    names = {path.stem for path in (out / "records").iterdir()}
    assert len(names) == 5
    assert all(set(record(out, name)) >= KEYS for name in names)
    states = {name: record(out, name)["state"] for name in names}
    assert states["ann"] == states["bob"] == "judged"
    assert states["eve"] == "crashed"
    assert states["_cmd__"] == "not loadable"
    told = record(out, "_cmd__")["reason"]
    assert "`uv run --with nothing_of_that_name cs336 grade …`" in told
    assert "cs336 check" not in told


def test_full_marks_are_for_everything_passed(out: Path) -> None:
    ann, bob = record(out, "ann"), record(out, "bob")
    assert ann["passed"]
    assert ann["score"] == ann["max_score"] > 0
    assert not bob["passed"]
    assert bob["score"] < bob["max_score"]
    assert bob["tasks"]["linear"]["points"] == 0


def defined(body: str) -> str:
    """Every entry point of a decoder with one body, in which ``given`` are the arguments by name."""
    points = [name for name in ENTRY_POINTS if name.startswith("run_") and "in_pieces" not in name]
    lines = ["import torch"]
    for name in points:
        arguments = ENTRY_POINTS[name].arguments
        lines.append(f"def {name}({', '.join(arguments)}):\n    given = dict(locals())\n    {body}")
    return "\n".join(lines)


WORTHLESS = {
    "raises": "raise ValueError('not today')",
    "returns nothing": "return None",
    "returns its input": "return next((v for v in given.values() if isinstance(v, torch.Tensor) and v.ndim > 1), None)",
    "returns zeros": (
        "ids = given.get('token_ids', given.get('in_indices'))\n"
        "    x = given.get('in_features', given.get('V', given.get('in_query_or_key', ids)))\n"
        "    last = given.get('d_out') or (given['vocab_size' if 'in_indices' in given else 'd_model'], )[0]"
        " if ids is not None or 'd_out' in given else x.shape[-1]\n"
        "    return torch.zeros(*x.shape[: x.ndim if x is ids else -1], last)"
    ),
}


@pytest.mark.parametrize("body", WORTHLESS.values(), ids=WORTHLESS)
def test_a_submission_in_which_nothing_works_gets_nothing(body: str, tmp_path: Path) -> None:
    (tmp_path / "adapters.py").write_text(defined(body))
    record = scored(judge(Job("nobody", str(tmp_path), "a secret", diagnose=False)), Rubric(), 0.0)
    assert record["state"] == "judged"
    assert (record["score"], record["max_score"]) == (0, 110)


def test_part_of_an_entry_point_that_is_right_is_worth_a_part(tmp_path: Path) -> None:
    always_the_same_theta = (
        "import torch\n\n\n"
        "def run_rope(d_k, theta, max_seq_len, in_query_or_key, token_positions):\n"
        "    angles = token_positions[..., None] * 10000.0 ** (-torch.arange(0, d_k, 2) / d_k)\n"
        "    even, odd = in_query_or_key[..., ::2], in_query_or_key[..., 1::2]\n"
        "    turned = even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()\n"
        "    return torch.stack(turned, -1).flatten(-2)\n"
    )
    (tmp_path / "adapters.py").write_text(always_the_same_theta)
    rope = tuple(check.id for check in find("components") if check.task == "rope")
    record = scored(judge(Job("ann", str(tmp_path), "a secret", checks=rope, diagnose=False)), Rubric(), 0.0)
    assert 0 < record["score"] < record["max_score"] == 10


def test_the_table_has_a_row_for_each_and_no_formula(out: Path) -> None:
    rows = list(csv.DictReader((out / "grades.csv").open()))
    assert len(rows) == 5
    assert not any(value.startswith(("=", "+", "-", "@")) for row in rows for value in row.values())


class Page(HTMLParser):
    """Tags, and what they load."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attributes if name in ("src", "href", "onerror")]


def test_pages_load_nothing_and_show_foreign_text_as_text(out: Path) -> None:
    for path in [out / "index.html", *(out / "reports").glob("*.html")]:
        page = Page()
        page.feed(path.read_text())
        assert "img" not in page.tags
        assert all(each.startswith(("reports/", "#", "data:image/svg+xml,")) for each in page.loads)
    shown = "".join(path.read_text() for path in (out / "reports").glob("*.html"))
    assert "&lt;img src=x" in shown


def test_a_report_is_the_picture_of_the_verdict_with_the_grade_above_it(out: Path) -> None:
    report = (out / "reports" / "bob.html").read_text()
    assert report.index("points") < report.index('<main id="verdict">') < report.index('<svg class="decoder"')
    assert 'details class="card failure" id="failure-1"' in report


def test_a_report_holds_no_hint_that_the_rubric_hides(out: Path, tmp_path: Path) -> None:
    record = json.loads((out / "records" / "bob.json").read_text())
    each = next(check for check in record["checks"] if check["outcome"] == "failed")
    defect = {"name": "a-mistake", "explanation": "What it is.", "hint": "A hint.", "steps": ["A step."]}
    empty = {"together": False, "told_before": None, "reading": "", "table": [], "evidence": [], "reproducer": ""}
    each["diagnosis"] = {"where": "linear", "confidence": "certain", "defects": [defect], **empty}
    without_hints, without_diagnosis = ("checks", "diagnosis"), ("checks",)
    for visible, told, hinted in (
        (VISIBLE, True, True),
        (without_hints, True, False),
        (without_diagnosis, False, False),
    ):
        pages.write(tmp_path, [record], Rubric(visible=visible))
        report = (tmp_path / "reports" / "bob.html").read_text()
        assert ("What it is." in report) == told
        assert ("A hint." in report) == hinted
        assert ("A step." in report) == hinted
    pages.write(tmp_path, [record], Rubric(visible=("score",)))
    assert each["message"] not in (tmp_path / "reports" / "bob.html").read_text()


HOSTILE = "</td></style><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\x00\u202egnp\u2066 '\"&\ud800"


def test_whatever_comes_from_a_class_is_text_on_every_page(out: Path, tmp_path: Path) -> None:
    record = json.loads((out / "records" / "bob.json").read_text())
    name = "".join(each for each in HOSTILE if each not in "/\x00\ud800")  # what no file system has in a name
    defect = {"name": HOSTILE, "explanation": HOSTILE, "hint": HOSTILE, "steps": [HOSTILE]}
    told = {"where": HOSTILE, "confidence": HOSTILE, "defects": [defect], "together": False, "told_before": None}
    told |= {"reading": HOSTILE, "table": [HOSTILE], "evidence": [HOSTILE], "reproducer": HOSTILE}
    for each in record["checks"]:
        each |= {"message": HOSTILE, "details": [HOSTILE]}
        each |= {"diagnosis": told} if each["outcome"] == "failed" else {"outcome": "blank"}
    record |= {"name": name, "reason": HOSTILE, "diagnosis": [defect | {"name": name}]}
    record["writeup"] = {"reason": HOSTILE, "right": 0, "asked": 1}
    crashed = record | {"name": f"{name}2", "state": "crashed"}
    for visible in (VISIBLE, ("score", "tasks", "writeup")):
        pages.write(tmp_path, [record, crashed], Rubric(visible=visible))
        written = [tmp_path / "index.html", *(tmp_path / "reports").iterdir()]
        assert len(written) == 5
        for path in written:
            text = path.read_text()
            assert not set(text) & set("\x00\x1b\u202e\u2066\ud800"), path
            assert "\\u202e" in text
            shown = Page()
            shown.feed(MarkdownIt().render(text) if path.suffix == ".md" else text)
            assert "img" not in shown.tags
            assert shown.tags.count("script") == (path.suffix == ".html")


def test_the_class_page_is_made_of_the_picture(out: Path) -> None:
    shown, report = ((out / name).read_text() for name in ("index.html", "reports/bob.html"))
    for part in ("style", "script"):
        (of_class,), (of_student,) = (
            re.findall(f"<{part}>(.*?)</{part}>", each, re.DOTALL) for each in (shown, report)
        )
        assert of_class == of_student
    assert "unsafe" not in shown
    assert 'aria-label="Q, K and V projections: wrong in 1 of 3"' in shown
    details = re.search(r'id="part-projections">(.*?)</details>', shown, re.DOTALL)
    assert details is not None
    assert '<a href="reports/bob.html">bob</a>' in details[1]


def test_markdown_reports_show_foreign_text_as_text(out: Path) -> None:
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    rendered = [reader.render(path.read_text()) for path in (out / "reports").glob("*.md")]
    assert any("&lt;img src=x" in page for page in rendered)
    for text in rendered:
        page = Page()
        page.feed(text)
        assert "img" not in page.tags


def test_a_second_run_keeps_what_is_still_so_and_takes_a_new_rubric(out: Path, students: Path) -> None:
    before = record(out, "ann")
    half = Rubric(tasks={"linear": 4.0})
    graded(students, out, rubric=half)
    after = record(out, "ann")
    assert after["seconds"] == before["seconds"]
    assert after["max_score"] == 4
    (students / "ann" / "note.py").write_text("")
    graded(students, out)
    assert record(out, "ann")["digest"] != before["digest"]
    assert record(out, "bob")["seed"] == before["seed"]


def test_late_days_cost_what_the_rubric_says(out: Path, students: Path) -> None:
    rubric = Rubric(tasks={"linear": 10.0}, late_per_day=0.25, late_least=0.4)
    for days, score in ((1.0, 7.5), (3.0, 4.0)):
        graded(students, out, rubric=rubric, late={"ann": days})
        assert record(out, "ann")["score"] == score


def test_exports_are_what_the_services_read(out: Path) -> None:
    told = exports.gradescope(record(out, "bob"), Rubric())
    assert set(told) == {"score", "output", "output_format", "visibility", "tests"}
    assert all(set(each) == {"name", "score", "max_score", "status", "output", "visibility"} for each in told["tests"])
    linear = next(each for each in told["tests"] if each["name"] == "linear")
    assert linear["status"] == "failed"
    assert "components.linear" in linear["output"]
    told = exports.classroom(record(out, "ann"))
    assert (told["version"], told["status"]) == (1, "pass")
    assert exports.classroom(record(out, "eve"))["status"] == "error"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tasks]\nlinera = 3", "linera"),
        ("[tasks]\nlinear = 'x'", "number of points"),
        ("[checks]\n'nothing' = 3", "nothing"),
        ("[students]\nsee = ['all']", "see is a list"),
        ("x = 1", "no such table"),
        ("[tasks", "no TOML"),
        ("[tasks]\nlinear = 0", "no points"),
    ],
)
def test_a_rubric_that_is_none_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text(text)
    with pytest.raises(CannotJudgeError, match=said) as error:
        read(tmp_path / "rubric.toml")
    assert "\n" not in str(error.value)


def test_the_rubric_of_the_page_is_one() -> None:
    rubric = read(Path(__file__).parents[3] / "docs" / "grading" / "rubric.toml")
    assert rubric.writeup == 10


def test_a_folder_that_holds_other_files_is_left_alone(students: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(CannotJudgeError, match=r"thesis\.tex"):
        graded(students, tmp_path)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_grades_that_would_not_come_again_are_not_written_over(students: Path, out: Path, tmp_path: Path) -> None:
    before = (out / "grades.csv").read_bytes()
    (tmp_path / "zoe").mkdir()
    for folder, settings, said in (
        (students, {"checks": CHECKS[:1]}, "holds grades for 2 checks that this run does not ask"),
        (students, {"checks": CHECKS[1:], "resume": False}, "holds grades for components.linear that this run"),
        (students, {"secret": "another"}, "of another secret"),
        (tmp_path, {}, "submissions that are not here"),
    ):
        with pytest.raises(CannotJudgeError, match=said):
            graded(folder, out, **settings)
    assert (out / "grades.csv").read_bytes() == before


def test_what_can_earn_nothing_is_not_asked() -> None:
    asked, every = Settings().asked, all_checks()
    assert not any(every[name].advisory or every[name].task == "incremental_decoding" for name in asked)
    assert sum(not item.advisory for item in every.values()) > len(asked) > 200
    advisory = next(item for item in every.values() if item.advisory)
    named = Rubric(tasks={"incremental_decoding": 5.0}, checks={advisory.id: 1.0})
    assert {advisory.id, "incremental.one_piece"} <= set(Settings(rubric=named).asked)


def test_what_was_not_asked_is_empty_and_what_could_not_be_judged_is_said(out: Path) -> None:
    rows = {row["name"]: row for row in csv.DictReader((out / "grades.csv").open())}
    assert [rows[name]["linear"] for name in ("ann", "bob", "_cmd__")] == ["10.0", "0.0", "not judged"]
    assert {row["rope"] for row in rows.values()} == {""}
    assert "rope" not in (out / "reports" / "ann.md").read_text()


def test_ctrl_c_ends_a_run_at_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    students, scratch, out = tmp_path / "class", tmp_path / "scratch", tmp_path / "out"
    students.mkdir()
    scratch.mkdir()
    (students / "a.py").write_text("def run_silu(:")
    for name in ("b", "c", "d", "e"):
        (students / f"{name}.py").write_text("import time\ntime.sleep(1e6)")
    command = [sys.executable, "-m", "cs336_harness", "grade", str(students), "--out", str(out), "--timeout", "500"]
    with subprocess.Popen(
        [*command, "--jobs", "2"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
        start_new_session=True,
        # where the tests run in the background of a shell, it has them ignore Ctrl-C, and children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as run:
        until = time.monotonic() + 120
        while (
            not (out / "records" / "a.json").is_file() or len([*scratch.glob("cs336-grading-*/cs336-submission-*")]) < 2
        ):
            assert time.monotonic() < until  # two that never end are under way then
            time.sleep(0.1)
        os.killpg(run.pid, signal.SIGINT)
        told, _ = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "the same command goes on" in told
    assert [path.name for path in (out / "records").iterdir()] == ["a.json"]
    assert os.listdir(scratch) == []


def in_session(session: int) -> set[str]:
    """The numbers of the processes of a session that have not ended."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, its = stat.read_text().rpartition(")")[2].split()[:4]
            if int(its) == session and state != "Z":
                found.add(stat.parent.name)
    return found


def test_a_run_that_is_killed_leaves_no_process_and_the_same_command_goes_on(tmp_path: Path) -> None:
    students, out = tmp_path / "class", tmp_path / "out"
    students.mkdir()
    (students / "a.py").write_text("def run_silu(:")
    for name in ("b", "c"):
        (students / f"{name}.py").write_text("import time\ntime.sleep(1e6)")
    command = [sys.executable, "-m", "cs336_harness", "grade", str(students), "--out", str(out), "--jobs", "2"]
    with subprocess.Popen([*command, "--timeout", "500"], start_new_session=True) as run:
        until = time.monotonic() + 120
        while not (out / "records" / "a.json").is_file():
            assert time.monotonic() < until
            time.sleep(0.1)
        assert len(in_session(run.pid)) > 2
        run.kill()
    while left := in_session(run.pid):
        assert time.monotonic() < until, left
        time.sleep(0.1)
    for name in ("b", "c"):
        (students / f"{name}.py").write_text("def run_silu(:")
    assert subprocess.run(command, check=False).returncode == 1
    assert {path.stem for path in (out / "records").iterdir()} == {"a", "b", "c"}


STORY = """\
def run_linear(d_in, d_out, weights, in_features):
    return in_features @ weights.T * 1.01

def run_rmsnorm(d_model, eps, weights, in_features):
    return in_features * in_features.square().mean(-1, keepdim=True).rsqrt() * weights

def run_silu(in_features):
    raise NotImplementedError
"""


def test_a_student_reads_what_is_wrong_where_and_what_waits(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "ann.py").write_text(STORY)
    checks = tuple(item.id for name in ("linear", "rmsnorm", "silu") for item in find("components") if name in item.id)
    (record,), _ = graded(tmp_path / "class", tmp_path / "out", checks=checks)
    always = ("norm-eps-missing", "from adapters import run_rmsnorm", "elements differ", "run_silu is blank")
    for kind, *own in (("html", "<dt>where</dt><dd>norm", "by this one."), ("md", "Where:", "by this one: ")):
        text = (tmp_path / "out" / "reports" / f"ann.{kind}").read_text()
        for said in (*always, *own):
            assert said in text, (kind, said)
        assert text.count("run_silu is blank") == 1
    told = {each["name"]: each["output"] for each in exports.gradescope(record, Rubric())["tests"]}
    assert "more wait for it" in told["linear"]
    assert told["positionwise feedforward"].count("run_silu is blank") == 1


def test_one_submission_is_no_class(students: Path) -> None:
    with pytest.raises(CannotJudgeError, match="is one submission"):
        intake.submissions(students / "ann")


def test_two_of_one_name_have_two_records(tmp_path: Path) -> None:
    for name in ("ann", "Ann.", "a/nn".replace("/", "*"), "a?nn"):
        (tmp_path / name).mkdir()
    names = [each.name for each in intake.submissions(tmp_path)]
    assert len({name.lower() for name in names}) == 4


def test_long_names_stay_names_of_files_and_nothing_is_left_over_in_silence(tmp_path: Path) -> None:
    long = chr(0x20000) * 62
    for name in (f"{long}a", f"{long}b"):
        (tmp_path / name).mkdir()
    for name in ("ANN.ZIP", "bob.Py", "tar.tar.gz", ".hidden"):
        (tmp_path / name).write_text("")
    (tmp_path / "linked").symlink_to("/etc")
    os.mkfifo(tmp_path / "fifo.py")
    found = intake.submissions(tmp_path)
    names = [each.name for each in found]
    assert names[:2] == ["ANN", "bob"]
    assert len(set(names)) == 4
    assert all(len(name.encode()) <= 210 for name in names)
    for name in names:
        write_json(tmp_path / ".out" / f"{name}.json", {})
    assert intake.left_over(tmp_path) == ["fifo.py", "linked", "tar.tar.gz"]


def test_public_numbers_are_not_graded(tmp_path: Path) -> None:
    public = "slow_oracle.huggingface_llama"
    assert public in all_checks()
    assert public not in Rubric().asked
    assert public not in Rubric(checks={"slow_oracle": 5.0}).asked
    (tmp_path / "rubric.toml").write_text(f'[checks]\n"{public}" = 5\n')
    with pytest.raises(CannotJudgeError, match="public"):
        read(tmp_path / "rubric.toml")
    with pytest.raises(CannotJudgeError, match="public"):
        batch.grade([], tmp_path / "out", Settings(checks=(public,)), lambda *_: None)


@pytest.mark.slow
def test_the_command_prints_a_summary(students: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from cs336_harness.cli import main; main()", "grade", str(students)]
    command += ["--out", str(tmp_path / "out"), "-k", "linear", "--gradescope", "--classroom"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "5 submissions: 3 judged, 1 crashed, 1 not loadable; 2 passed everything that is required" in done.stdout
    assert "nothing_of_that_name" in done.stdout
    assert (tmp_path / "out" / "gradescope" / "ann.json").is_file()
