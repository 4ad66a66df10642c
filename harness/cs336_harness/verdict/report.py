"""A suite's results for a person (a terminal) and for a program (JSON)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cs336_harness.checks.registry import OPTIONAL_TASKS, TASKS, all_checks
from cs336_harness.subject.failures import BlankEntryPoint
from cs336_harness.subject.locating import ADAPTERS
from cs336_harness.subject.setting import USUAL, Setting
from cs336_harness.verdict.progress import progress_lines
from cs336_harness.verdict.suite import OUTCOMES, WHOLE_DECODER, Result, summary

MARKS = {"passed": "✓", "failed": "✗", "blank": "○", "blocked": "·", "skipped": "-", "advisory": "!"}
ASKED_PASSED = "all required checks that were asked passed"

STYLES = {
    "passed": "green",
    "failed": "bold red",
    "blank": "yellow",
    "blocked": "dim",
    "skipped": "dim",
    "advisory": "cyan",
}


def to_json(
    subject: str,
    results: Sequence[Result],
    *,
    provenance: str = "",
    cut_short: str | None = None,
    not_run: Sequence[str] = (),
    blockers: Sequence[Result] = (),
    setting: Setting = USUAL,
) -> dict[str, Any]:
    """The result for a program; the shape is that of docs/DESIGN.md, "Outcomes and exit status".

    ``provenance`` says where ``cs336_basics`` came from, ``setting`` what it was run on, where that is unusual. Where
    the run was cut short, the ids of the checks that have no result come with the reason. ``blockers`` are failures of
    checks that were not asked for and block one that was.
    """
    missing = {"cut_short": cut_short, "not_run": list(not_run)} if not_run else {}
    return {
        "subject": subject,
        **({} if setting.usual else {"setting": str(setting)}),
        "provenance": provenance.removeprefix(", with "),
        "summary": summary(results),
        "checks": [result.to_json() for result in results],
        **({"blockers": [result.to_json() for result in blockers]} if blockers else {}),
        **missing,
    }


def print_report(
    console: Console,
    results: Sequence[Result],
    seconds: float,
    *,
    verbose: bool = False,
    hint: bool = False,
    root: Path | None = None,
    file: str = ADAPTERS,
    missing: str | None = None,
    blockers: Sequence[Result] = (),
    standing: bool = True,
    written: Callable[[], str] | None = None,
) -> None:
    """The whole verdict: a row for each task, then every failure in full, then one line that sums up.

    ``blockers`` are failures of checks that were not asked for and block one that was: they are what must be read.

    ``root`` is where the subject's written answer is looked for, ``file`` what its adapters are called; ``missing``
    says which checks have no result, and why; ``standing`` whether it ends with where the learner stands,
    with the line on the written answer that ``written`` gives.
    """
    if any(result.whole_decoder for result in results):
        console.print(Text(WHOLE_DECODER, "dim"))
    console.print(_task_table(results), crop=False)
    if verbose:
        console.print(_check_table(results))
    for result in (*blockers, *results):
        if result.outcome == "failed":
            blocked = [r for r in results if r.blocked_by == result.check.id and not r.check.advisory]
            console.print(failure_block(result, blocked, hint, asked_for=result not in blockers))
    _print_advisories(console, results, in_full=verbose or not any(result.stops_exit_zero for result in results))
    _print_blank(console, results)
    _print_skipped(console, results)
    failed = [result for result in (*blockers, *results) if result.outcome == "failed"]
    told = [r.diagnosis for r in failed if r.diagnosis is not None and r.diagnosis.told_before is None]
    legend = [confidence_legend(diagnosis.confidence for diagnosis in told), TIED if _says_tied(failed) else ""]
    for line in filter(None, legend):
        console.print(Text(f"\n{line}", "dim"))
    console.print(_summary_line(results, seconds, missing))
    if standing:
        for line in progress_lines(results, root, file, written):
            console.print(Text(line, "green" if line.startswith("  ✓") else ""))


CONFIDENCE = {
    "certain": "(certain): one known mistake gives your very numbers, and nothing measured speaks against it",
    "measured": "(measured): read off your own results, whatever the cause",
    "likely": "(likely): the best guess, not proven",
}
"""What the word behind a place says, in a legend."""


def confidence_legend(words: Iterable[str]) -> str:
    """What the words behind the places of failures mean, for those that occur; nothing where none does."""
    told = set(words)
    return "; ".join(meaning for word, meaning in CONFIDENCE.items() if word in told)


TIED = "tied: embedding and head share one weight; untied: each has its own"


def _says_tied(results: Iterable[Result]) -> bool:
    """Whether a failure that is no question of tying speaks of a tied or an untied model."""
    return any(re.search(r"\b(un)?tied\b", each.message) for each in results if each.check.group != "tying")


def hidden_output_line(number: int) -> str | None:
    """How many lines the subject printed that were not shown; None when there were none."""
    lines, were = ("line", "was") if number == 1 else ("lines", "were")
    return f"{number} {lines} that the subject printed {were} hidden; -s shows them" if number else None


def counts_line(results: Sequence[Result]) -> Text:
    """How many checks came out each way, in marks."""
    text = Text()
    for outcome, number in _counted(results).items():
        if number:
            text.append(f"{MARKS[outcome]} {number}  ", STYLES[outcome])
    return text


def _counted(results: Sequence[Result]) -> dict[str, int]:
    """How many came out each way, but for an advisory that is blocked, which need not pass, and what is not asked."""
    told = (result for result in results if not (result.check.advisory and result.outcome == "blocked"))
    return summary(result for result in told if not result.unasked)


def _task_table(results: Sequence[Result]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    table.add_column("task")
    table.add_column("handout", justify="right")
    table.add_column("checks")
    for task, section in TASKS.items():
        own = [result for result in results if result.check.task == task and not result.unasked]
        if own:
            table.add_row(task, section, counts_line(own))
    return table


def _check_table(results: Sequence[Result]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, show_header=False)
    for result in results:
        if result.unasked:
            continue
        mark = Text(MARKS[result.outcome], STYLES[result.outcome])
        table.add_row(mark, Text(result.check.id), Text(_lasted(result.seconds), "dim"))
    return Padding(table, (1, 0, 0, 0))


def _lasted(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def failure_block(
    result: Result, blocked: Sequence[Result] = (), hint: bool = False, *, asked_for: bool = True
) -> RenderableType:
    """One failure in full: what is wrong, where, how to see it; then the numbers, and how many checks it blocks.

    Where a known mistake or a reading explains the numbers, its words come before them. Of one that was not asked for
    the first line says why it is shown.
    """
    diagnosis, numbers = _diagnosis_block(result, hint), _numbers_block(result)
    says_what = result.diagnosis is not None and result.diagnosis.says_what
    title = result.check.title.replace("``", "")
    heading = Text.assemble(("✗ ", "bold red"), (result.check.id, "bold"), ("  ", ""), (title, "dim"))
    that = f"it is shown because it fails and blocks {_checks(len(blocked))} that -k selects"
    shown = [] if asked_for else [Padding(Text(f"-k does not select this check; {that}", "dim"), (0, 0, 0, 2))]
    parts = [heading, *shown, *(diagnosis + numbers if says_what else numbers + diagnosis)]
    if blocked and asked_for:
        parts.append(Padding(Text(_blocked_line(blocked), "dim"), (0, 0, 0, 2)))
    return Padding(Group(*parts), (1, 0, 0, 0))


def _diagnosis_block(result: Result, hint: bool) -> list[RenderableType]:
    if result.diagnosis is None:
        return []
    first, *others = result.diagnosis.lines(hint=hint)
    style = "red" if result.diagnosis.says_what else ""
    return [Padding(Text(first, style), (0, 0, 0, 2)), *(Padding(Text(line), (0, 0, 0, 2)) for line in others)]


def _numbers_block(result: Result) -> list[RenderableType]:
    style = "" if result.diagnosis is not None and result.diagnosis.says_what else "red"
    block: list[RenderableType] = [Padding(Text(result.message, style), (0, 0, 0, 2))]
    if result.failure is not None:
        block += [Padding(Text(line), (0, 0, 0, 4)) for line in result.failure.evidence.details]
    return block


def _checks(number: int) -> str:
    return "1 check" if number == 1 else f"{number} checks"


def _blocked_line(blocked: Sequence[Result]) -> str:
    return f"{len(blocked)} more {'checks are' if len(blocked) > 1 else 'check is'} blocked by this one"


def _print_advisories(console: Console, results: Sequence[Result], *, in_full: bool) -> None:
    """What may fail: one line each, or one line for all while something required fails."""
    own = [result for result in results if result.outcome == "advisory"]
    if not own:
        return
    style, mark = STYLES["advisory"], MARKS["advisory"]
    if not in_full:
        told = (
            ("1 advisory check", "it does", "it")
            if len(own) == 1
            else (f"{len(own)} advisory checks", "they do", "them")
        )
        console.print(Text("\n{} {} failed too; {} not count, -v shows {}".format(mark, *told), style))
        return
    console.print(Text("\nadvisory (reported, never failed)", style))
    for result in own:
        console.print(Text.assemble((f"  {mark} ", style), f"{result.check.id}: {result.message}"))


def _print_blank(console: Console, results: Sequence[Result]) -> None:
    lines = blank_lines(results)
    if lines:
        console.print(Text("\nblank, not written yet", STYLES["blank"]))
    for line in lines:
        console.print(Text.assemble((f"  {MARKS['blank']} ", STYLES["blank"]), line))


def blank_lines(results: Sequence[Result]) -> list[str]:
    """One line for each blank entry point: which, and how many checks wait for it."""
    waiting = Counter(
        name
        for result in results
        if result.outcome == "blank"
        for name, state in result.states.items()
        if state == "blank"
    )
    return [
        f"{BlankEntryPoint(name)} ({number} check{'s' * (number > 1)} wait{'s' * (number == 1)})"
        for name, number in waiting.items()
    ]


def _print_skipped(console: Console, results: Sequence[Result]) -> None:
    reasons: dict[str, int] = {}
    for result in results:
        if result.outcome == "skipped" and not result.unasked:
            reasons[result.message] = reasons.get(result.message, 0) + 1
    if reasons:
        console.print(Text("\nskipped", STYLES["skipped"]))
    for reason, number in reasons.items():
        console.print(Text(f"  - {reason} ({number} check{'s' * (number > 1)})", "dim"))


def missing_line(not_run: Sequence[str], cut_short: str | None) -> str | None:
    """How many checks have no result, and why; None when none is missing."""
    checks = "1 check was" if len(not_run) == 1 else f"{len(not_run)} checks were"
    return f"{checks} not run: {cut_short}" if not_run else None


def _summary_line(results: Sequence[Result], seconds: float, missing: str | None) -> Text:
    wrong = any(result.stops_exit_zero for result in results)
    line = Text("\n")
    if wrong or missing is None:
        line.append(f"{verdict_line(results)}\n", "bold red" if wrong else "bold green")
    if missing is not None:
        line.append(f"{missing}\n", "bold red")
    for outcome, number in _counted(results).items():
        if number:
            line.append(f"{MARKS[outcome]} {number} {outcome}  ", STYLES[outcome])
    return line.append(f"in {seconds:.1f} s", "dim")


def verdict_line(results: Sequence[Result]) -> str:
    """What was shown, and never more than was run."""
    counts = summary(result for result in results if not result.check.advisory and not _unasked(result))
    return verdict_sentence(counts, [result.check.id for result in results])


def verdict_sentence(counts: Mapping[str, int], ids: Iterable[str]) -> str:
    """The same of how many required checks came out each way, and of the ids of all that were asked.

    An outcome that is not named counts nothing.
    """
    counts = {outcome: counts.get(outcome, 0) for outcome in OUTCOMES}
    required = sum(counts.values())
    if counts["blocked"] and not counts["failed"]:
        return f"{counts['blocked']} of {required} required checks are blocked by one that fails and was not asked for"
    if counts["failed"]:
        could_run = " that could run" if counts["skipped"] else ""
        return f"{counts['failed']} of {required - counts['skipped']} required checks{could_run} failed" + (
            f", {_are(counts['blocked'])} blocked by {'it' if counts['failed'] == 1 else 'them'}"
            if counts["blocked"]
            else ""
        )
    if counts["blank"]:
        return f"{counts['blank']} of {required} required checks wait for blank entry points"
    if not counts["passed"]:
        return "no required check ran"
    if counts["skipped"]:
        return "every required check that could run passed"
    nobody_may_leave_out = {
        check.id for check in all_checks().values() if not check.advisory and check.task not in OPTIONAL_TASKS
    }
    return "all required checks passed" if nobody_may_leave_out <= set(ids) else ASKED_PASSED


def _are(more: int) -> str:
    return "1 more is" if more == 1 else f"{more} more are"


def _unasked(result: Result) -> bool:
    """Whether a check was skipped that nobody has to have."""
    return result.unasked or (result.outcome == "skipped" and result.check.task in OPTIONAL_TASKS)
