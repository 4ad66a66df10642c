"""``cs336 submit``: judges one's work, then packs what is to be handed in, and says what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MOST_SHOWN = 20
"""How many failures are listed."""


def submit(
    path: Annotated[Path, typer.Argument(help="Your repository.", exists=True, file_okay=False)] = Path("."),
    out: Annotated[Path, typer.Option("--out", help="The zip to write.")] = Path("submission.zip"),
    judge: Annotated[bool, typer.Option(help="Judge the work first.")] = True,
) -> None:
    """Pack adapters, package and written answer into one zip, judged as it will be: from the zip, by itself.

    Exit status: 0 packed and all required checks passed, 1 packed with something missing or failed, 2 nothing packed.
    """
    from rich.console import Console

    from cs336_harness.course import packing

    console = Console(soft_wrap=True)
    packed = packing.pack(path, out)
    for line in packed.lines():
        console.print(line, markup=False, highlight=False)
    missing = bool(packed.missing)
    if judge:
        from cs336_harness.subject.environment import prepare_torch

        prepare_torch()
        with console.status("judging what was packed"):
            passed, lines = _verdict(out)
        for line in lines:
            console.print(line, markup=False, highlight=False)
        missing = missing or not passed
    raise typer.Exit(1 if missing else 0)


def _verdict(packed: Path) -> tuple[bool, list[str]]:
    """What an instructor will find in the zip, in lines: it is one's own work, so it need not be shut in."""
    import secrets

    from cs336_harness.grading.judging import Job, judge
    from cs336_harness.grading.records import failures, scored, waiting
    from cs336_harness.grading.rubric import Rubric
    from cs336_harness.verdict.report import MARKS

    record = scored(judge(Job("your work", str(packed), secrets.token_hex(8), unsafe=True)), Rubric(), 0.0)
    if record["state"] != "judged":
        return False, [f"what was packed is {record['state']}: {record['reason']}"]
    done = [name for name, task in record["tasks"].items() if task["passed"] == task["required"]]
    lines = [
        f"judged from the zip, by itself: all required checks passed in {len(done)} of {len(record['tasks'])} tasks"
    ]
    failed = failures(record)
    for each in failed[:MOST_SHOWN]:
        more = f" ({len(each.blocked)} more wait for it)" if each.blocked else ""
        lines.append(f"  {MARKS['failed']} {each.check['id']}: {' '.join(each.check['message'].split())}{more}")
    if len(failed) > MOST_SHOWN:
        lines.append(f"  and {len(failed) - MOST_SHOWN} more")
    lines += [
        f"  {MARKS['blank']} {reason} ({number} check{'s wait' if number > 1 else ' waits'})"
        for reason, number in waiting(record).items()
    ]
    written = record["writeup"]
    if written is not None and not written["passed"]:
        lines.append(f"  ✗ {written['right']} of {written['asked']} written answers are right; see `cs336 writeup`")
    if not record["passed"]:
        lines.append("`cs336 check` says more")
    return record["passed"], lines
