"""What a check does, why, and what usually breaks it; and hints, one step at a time. All of it from docstrings.

A name may be a check's id, its id without the group or the case, a task, a group, an entry point, or a known mistake
of the fault dictionary.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator

from cs336_harness.checks import Check, all_checks
from cs336_harness.checks.registry import TASKS, names_of_checks, nearest
from cs336_harness.contract import ENTRY_POINTS
from cs336_harness.defects import Defect, all_defects
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.verdict.progress import entry_points_of
from cs336_harness.verdict.suite import select

USUAL = re.compile(r"(?:Also |More |And )?[Uu]sually (?:broken|missed|more) by .*", re.DOTALL)
"""The last sentence or sentences of a check's docstring: what usually breaks it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Topic:
    """What a name stands for: one check with all its cases, several checks, or a known mistake."""

    name: str
    checks: tuple[Check, ...] = ()
    defect: type[Defect] | None = None

    @property
    def bases(self) -> dict[str, list[Check]]:
        """The checks by id, the cases of one together."""
        found: dict[str, list[Check]] = {}
        for check in self.checks:
            found.setdefault(_base(check.id), []).append(check)
        return found


def topic(name: str) -> Topic:
    """What a name stands for.

    Raises:
        CannotJudgeError: nothing is called so; the line names what is nearest.
    """
    checks = all_checks().values()
    ways = (
        [check for check in checks if check.id == name],
        [check for check in checks if _base(check.id) == name],
        [check for check in checks if check.group == name],
        [check for check in checks if name in (_short(check.id), _short(_base(check.id)))],
        [check for check in checks if check.task == name],
        [check for check in checks if name in check.needs],
    )
    found = next(filter(None, ways), None)
    if found:
        return Topic(name, tuple(found))
    if name in all_defects():
        return Topic(name, defect=all_defects()[name])
    near = nearest(name, {*names_of_checks(), *ENTRY_POINTS, *all_defects()})
    raise CannotJudgeError(
        f"no check, task or known mistake is called {name}; "
        + (f"did you mean {' or '.join(near)}?" if near else "`cs336 explain` lists the checks")
    )


def explanation(name: str) -> list[str]:
    """Lines that explain a check, a known mistake, or list the checks of a task, group or entry point.

    Where a name is that of a check and of its task, it says so, and what ``-k`` selects by it is listed too.
    """
    found = topic(name)
    if found.defect is not None:
        return list(_explain_defect(found.defect))
    if len(found.bases) > 1:
        return list(_list_checks(found.checks))
    ((base, cases),) = found.bases.items()
    lines = list(_explain_check(base, cases))
    if name not in TASKS:
        return lines
    selected = select(name)
    run = f"{name} is a task too: `uv run cs336 check -k {name}` runs {len(selected)} checks"
    return [f"{run}, listed below; first the one of that name", "", *lines, "", *_list_checks(selected)]


def catalogue() -> list[str]:
    """Every check, task by task."""
    return list(_list_checks(all_checks().values()))


def hints(name: str) -> list[str]:
    """Steps towards a fix, from a question to the plain word."""
    found = topic(name)
    if found.defect is not None:
        return [found.defect.hint, *found.defect.steps, f"The mistake: {found.defect.explanation()}"]
    shown = [check for check in found.checks if check.snapshot] or list(found.checks)
    first = shown[0]
    asked = f"{' and '.join(first.needs) or first.task} must give"
    by = f", by {first.section} of the handout" if first.section.startswith("§") else ""
    steps = [f"What is it that {asked}{by}? Say it in your own words."]
    steps.append(f"Call {' and '.join(first.needs)} on an input so small that you can work the result out on paper.")
    parts = {name: _parts(check.explanation) for name, check in {_base(check.id): check for check in shown}.items()}
    steps += [f"{name}: {usual}" for name, (_, usual) in parts.items() if usual]
    run = f"`uv run cs336 check -k {_base(first.id)}`"
    steps.append(f"{run} holds your numbers against every known mistake and names the one that fits.")
    # What is asked holds the formula, so it comes last; and of several checks the one that the task begins with.
    return [*steps, *(f"{name}: {' '.join(what)}" for name, (what, _) in reversed(parts.items()))]


def _in_the_handout(check: Check) -> str:
    return f"handout {check.section}" if check.section.startswith("§") else f"{check.section} the handout"


def _explain_check(base: str, cases: list[Check]) -> Iterator[str]:
    check = cases[0]
    what, usual = _parts(check.explanation)
    kind = "advisory: reported, never failed" if check.advisory else "required"
    yield f"{base}  ({kind})"
    yield f"  {what[0]}"
    yield from (f"  {paragraph}" for paragraph in what[1:])
    if usual:
        yield f"  {usual}"
    yield ""
    tasks = list(dict.fromkeys(f"{case.task}, {_in_the_handout(case)}" for case in cases))
    yield f"  task        {tasks[0]}" if len(tasks) == 1 else f"  tasks       {'; '.join(tasks)}, by case"
    calls = dict.fromkeys(need for case in cases for need in case.needs)
    by_case = ", by case" if any(set(case.needs) != set(calls) for case in cases) else ""
    yield f"  calls       {', '.join(calls) or 'every entry point that is there'}{by_case}"
    if len(cases) > 1:
        yield f"  cases       {', '.join(case.id[len(base) + 1 : -1] for case in cases)}"
    after = dict.fromkeys(_base(other) for case in cases for other in case.after if _base(other) != base)
    if after:
        yield f"  builds on   {', '.join(after)}"
    if check.snapshot:
        yield f"  snapshot    fixtures/{check.snapshot}.safetensors"
    yield f"  run it      uv run cs336 check -k {base}"


def _explain_defect(defect: type[Defect]) -> Iterator[str]:
    yield f"{defect.name}  (a known mistake, in: {defect.place})"
    yield f"  {defect.explanation()}"
    if defect.equivalent:
        yield f"  It changes no output: {defect.equivalent}"
    if defect.same_as:
        yield f"  Cannot be told from: {', '.join(defect.same_as)}"
    yield ""
    yield f"  hints       uv run cs336 hint {defect.name}"


def _list_checks(checks: Iterable[Check]) -> Iterator[str]:
    listed = list(checks)
    for task, section in TASKS.items():
        bases = {_base(check.id): check for check in reversed(listed) if check.task == task}
        if bases:
            yield f"{task}  ({section}: {', '.join(entry_points_of(task))})"
        for base, check in reversed(bases.items()):
            yield f"  {base}{' (advisory)' if check.advisory else ''}: {check.title}"


def _parts(docstring: str) -> tuple[list[str], str]:
    """What a check does and why, in paragraphs; and what usually breaks it."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in docstring.split("\n\n")]
    found = USUAL.search(paragraphs[-1])
    if found is None:
        return paragraphs, ""
    rest = paragraphs[-1][: found.start()].strip()
    return [*paragraphs[:-1], *([rest] if rest else [])], found.group()


def _base(check_id: str) -> str:
    return check_id.partition("[")[0]


def _short(check_id: str) -> str:
    return check_id.partition(".")[2]
