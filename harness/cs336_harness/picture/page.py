"""The page: from the JSON result of a verdict to one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import os
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from cs336_harness.checks import all_checks
from cs336_harness.checks.registry import OPTIONAL_TASKS
from cs336_harness.picture import drawing
from cs336_harness.picture.charts import charts_of
from cs336_harness.picture.parts import WORDS, Judged, located, states
from cs336_harness.verdict.report import MARKS, confidence_legend, verdict_sentence
from cs336_harness.verdict.suite import WHOLE_DECODER

MAY_BE_LEFT_OUT: dict[str, Any] = {
    "checks": (),
    "setting": "",
    "provenance": "",
    "error": None,
    "cut_short": None,
    "not_run": (),
}
"""Keys of the JSON result that are not always there."""

OPENED = 1
"""Failures that are unfolded when the page opens."""


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """One failure as the page shows it."""

    judged: Judged
    title: str
    headline: str
    parts: tuple[str, ...]
    waiting: int
    charts: tuple[Any, ...]
    asked: bool = True

    @property
    def worst(self) -> Mapping[str, Any] | None:
        """The number that is furthest off: its place, what was got and what it must be."""
        return ((self.judged.get("figures") or {}).get("errors") or {}).get("worst")

    @property
    def diagnosis(self) -> Mapping[str, Any] | None:
        """What is known of its cause."""
        return self.judged.get("diagnosis")


@functools.cache
def environment(*others: str, escape: bool = True) -> jinja2.Environment:
    """The templates of this room, and of ``others``, which may use its pieces: every text is :func:`visible`, escaped.

    ``escape`` is off for templates of plain text.
    """
    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in ("cs336_harness.picture", *others)]),
        autoescape=escape,
        finalize=lambda value: value if isinstance(value, Markup) else visible(value),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    names: Any = made.globals
    names.update(marks=MARKS | {"unasked": " "}, words=WORDS, drawing=drawing)
    return made


HARMFUL = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def visible(text: object) -> str:
    """A text whose characters are all seen: what would turn, hide or end a line is written as its number.

    Control characters, the ones that reverse the direction of writing, and lone surrogates, which no file can hold.
    """
    return HARMFUL.sub(lambda found: f"\\u{ord(found[0]):04x}", str(text))


def file_text(name: str) -> str:
    """A style sheet or script of ours, as it stands in every page."""
    loader = environment().loader
    assert loader is not None
    return loader.get_source(environment(), name)[0]


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def face(data: Mapping[str, Any]) -> dict[str, str]:
    """What stands on the tab of a browser: the title, and a picture of the mark."""
    outcome = _outcome(data)
    return {"title": f"{MARKS[outcome]} {visible(data['subject'])}", "icon": icon(MARKS[outcome], outcome)}


def icon(mark: str, outcome: str = "") -> str:
    """A picture of a mark, in the colour of an outcome."""
    colour = {"failed": "%23c8451b", "passed": "%232f7d6b"}.get(outcome, "%23767c83")
    return (
        "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Ctext x='8' y='13'"
        f" font-size='14' text-anchor='middle' fill='{colour}'%3E{mark}%3C/text%3E%3C/svg%3E"
    )


def policy(*, live: bool = False) -> str:
    """What the page may do: its own style, its own script, and, live, listen to its own server. Nothing else."""
    style, script = _digest(file_text("style.css")), _digest(file_text("script.js"))
    rules = ["default-src 'none'", f"style-src '{style}'", f"script-src '{script}'", "img-src data:"]
    rules += ["connect-src 'self'"] if live else []
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def render(data: Mapping[str, Any], *, live: str | None = None, before: str = "") -> str:
    """The whole page. ``data`` is what ``cs336 check --json`` writes.

    ``live`` is for a page that listens for the next verdict: what this one is called in the stream. ``before`` is HTML
    of our own that stands above the verdict.
    """
    return document(content(data), **face(data), live=live, before=before)


def document(
    content: str, *, title: str, icon: str, live: str | None = None, before: str = "", heading: str | None = None
) -> str:
    """A page of ours around ``content``, HTML that templates of :func:`environment` wrote: its head, style and script.

    ``before`` is more of such HTML, above it, and ``heading`` what stands over that.
    """
    return (
        environment()
        .get_template("page.html")
        .render(
            content=content,
            title=title,
            icon=icon,
            policy=policy(live=live is not None),
            style=file_text("style.css"),
            script=file_text("script.js"),
            live=live,
            before=before,
            heading=heading,
        )
    )


def framed(data: Mapping[str, Any]) -> str:
    """The page inside another one, a notebook: in a frame of its own, which neither changes the other.

    Where frames are not shown, the line above it says what was shown.
    """
    template = environment().get_template("framed.html")
    mark = MARKS[_outcome(data)]
    return template.render(page=render(data), sentence=sentence(data), mark=mark, subject=data["subject"])


def content(data: Mapping[str, Any]) -> str:
    """What changes from one verdict to the next: all of the page but its head."""
    checks, blockers = _asked(data), data.get("blockers", ())
    shown = [*blockers, *checks]
    failures = failures_of(shown, unasked=[each["id"] for each in blockers])
    first = failures[0].judged if failures else None
    return (
        environment()
        .get_template("verdict.html")
        .render(
            data={**MAY_BE_LEFT_OUT, **data},
            sentence=sentence(data),
            failures=failures,
            opened=OPENED,
            confidence=confidence_legend(
                str(each.diagnosis["confidence"])
                for each in failures
                if each.diagnosis is not None and not each.diagnosis.get("told_before")
            ),
            states=states(shown, first),
            blanks=Counter(check["message"] for check in checks if check["outcome"] == "blank"),
            summary=Counter(check["outcome"] for check in checks),
            outcome=_outcome(data),
        )
    )


def _asked(data: Mapping[str, Any]) -> Sequence[Judged]:
    """The checks, without those that nobody asks of a whole decoder: what is drawn of them reads "not asked"."""
    return [check for check in data.get("checks", ()) if check.get("message") != WHOLE_DECODER]


def _required(checks: Sequence[Judged]) -> Counter[str]:
    """How many required checks came out each way, as the terminal counts them."""
    return Counter(check["outcome"] for check in checks if _counts(check))


def _counts(judged: Judged) -> bool:
    check = all_checks().get(judged["id"])
    if check is None:
        return True
    return not check.advisory and not (judged["outcome"] == "skipped" and check.task in OPTIONAL_TASKS)


def _outcome(data: Mapping[str, Any]) -> str:
    """What became of the subject as a whole: ``failed``, ``blank``, ``passed``; ``blocked`` before any ran."""
    counts = _required(_asked(data))
    if "error" in data or counts["failed"] or counts["blocked"] or data.get("not_run"):
        return "failed"
    return "blank" if counts["blank"] else "passed" if counts else "blocked"


def sentence(data: Mapping[str, Any]) -> str:
    """What was shown, in one line, and never more than was run."""
    if "error" in data:
        return "Nothing could be judged"
    checks = _asked(data)
    if not checks:
        return "No check has run"
    said = verdict_sentence(_required(checks), [check["id"] for check in data["checks"]])
    return said[0].upper() + said[1:]


def failures_of(checks: Sequence[Judged], unasked: Collection[str] = ()) -> list[Failure]:
    """The failures that a learner reads: what says what is wrong first, what was said before last.

    ``unasked`` are the ids of those that are there only because they block one that was asked for.
    """
    failed = [check for check in checks if check["outcome"] == "failed"]
    waiting = Counter(check.get("blocked_by") for check in checks)
    known = all_checks()

    def rank(judged: Judged) -> int:
        diagnosis = judged.get("diagnosis")
        if diagnosis is None:
            return 1
        return 2 if diagnosis.get("told_before") else 0 if diagnosis["defects"] or diagnosis.get("reading") else 1

    return [
        Failure(
            judged,
            known[judged["id"]].title.replace("``", "") if judged["id"] in known else "",
            headline(judged),
            located(judged),
            waiting[judged["id"]],
            charts_of(judged),
            judged["id"] not in unasked,
        )
        for judged in sorted(failed, key=rank)
    ]


def headline(judged: Judged) -> str:
    """What is wrong, in words: the mistake, the number that was read, or the message."""
    diagnosis = judged.get("diagnosis")
    if not diagnosis:
        return str(judged["message"])
    if diagnosis["defects"]:
        named = diagnosis["defects"] if diagnosis["together"] else diagnosis["defects"][:1]
        return " Also: ".join(str(defect.get("explanation") or defect["name"]) for defect in named)
    return str(diagnosis.get("reading") or judged["message"])


def write(data: Mapping[str, Any], path: Path) -> None:
    """Writes the page through a temporary file beside it, so that a reader never sees half of one."""
    path = path.resolve()  # a link stays one
    handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(render(data))
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
