"""``cs336 grade``: a whole class, each submission judged in a process that can reach nothing but its own files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cs336_harness.subject.time_limit import CHECK_SECONDS


def grade(
    submissions: Annotated[
        Path, typer.Argument(help="A folder that holds a folder, an adapters file or a zip for each student.")
    ],
    out: Annotated[Path, typer.Option("--out", help="The folder for records, grades and reports.")],
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", help="Submissions judged at a time; one per core.", min=1)
    ] = None,
    rubric: Annotated[Path | None, typer.Option(help="Points by task and check, and what students see (TOML).")] = None,
    keyword: Annotated[
        str | None, typer.Option("-k", help="Only checks whose id or task contains this: 'rmsnorm', 'rope or softmax'.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Keep the records that are still of the submission as it is.")] = True,
    secret: Annotated[
        str | None, typer.Option(help="What the inputs are drawn from; drawn and kept in DIR/batch.json when left out.")
    ] = None,
    late: Annotated[Path | None, typer.Option(help="Days late, as lines of `name,days` (CSV).")] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds that a submission may take over one check.", min=0.1)
    ] = CHECK_SECONDS,
    total: Annotated[float, typer.Option(help="Seconds that a submission may take in all.", min=1)] = 300,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Run other people's code where it cannot be shut in.")
    ] = False,
    gradescope: Annotated[bool, typer.Option("--gradescope", help="Write Gradescope's results.json as well.")] = False,
    classroom: Annotated[bool, typer.Option("--classroom", help="Write GitHub Classroom's result as well.")] = False,
    cluster: Annotated[
        str | None, typer.Option(help="Judge on the Dask cluster whose scheduler is at this address.")
    ] = None,
) -> None:
    """Grade a class: a record, a report and a row for every submission, and the class at a glance.

    Exit status: 0 every submission was judged, 1 some could not be (they have a record that says why), 2 nothing was
    graded.
    """
    from cs336_harness.grading import intake, require_linux
    from cs336_harness.verdict.keyword import alternatives

    require_linux()
    found = intake.submissions(submissions)
    if keyword:
        alternatives(keyword)
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from cs336_harness.subject.environment import prepare_torch

    prepare_torch()
    from cs336_harness.checks import all_checks
    from cs336_harness.grading import batch, exports, pages, processes
    from cs336_harness.grading import rubric as rubrics
    from cs336_harness.verdict.suite import select

    console = Console(soft_wrap=True)
    if not unsafe and cluster is None:
        processes.require_sandbox()
    settings = batch.Settings(
        rubric=rubrics.read(rubric) if rubric is not None else rubrics.Rubric(),
        jobs=jobs or os.cpu_count() or 1,
        resume=resume,
        secret=secret,
        late=batch.read_late(late, (each.name for each in found)) if late is not None else {},
        unsafe=unsafe,
        seconds=timeout,
        all_seconds=total,
        cluster=cluster,
        checks=tuple(check.id for check in select(keyword)) if keyword is not None else None,
    )
    all_checks()
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(found))
        try:
            records = batch.grade(
                found, out, settings, lambda name, record: progress.update(task, advance=1, description=name)
            )
        except KeyboardInterrupt:
            console.print(f"stopped; the records of what was judged are in {out / 'records'}: the same command goes on")
            raise
    pages.write(out, records, settings.rubric)
    if gradescope:
        exports.write_gradescope(out, records, settings.rubric)
    if classroom:
        exports.write_classroom(out, records)
    over = intake.left_over(submissions)
    if over:
        shown = ", ".join(over[:5]) + (f" and {len(over) - 5} more" if len(over) > 5 else "")
        console.print(f"not graded, being no folder, .zip or .py: {shown}", markup=False, highlight=False)
    for line in pages.summary_lines(records, out):
        console.print(line, markup=False, highlight=False)
    raise typer.Exit(0 if all(record["state"] == "judged" for record in records) else 1)
