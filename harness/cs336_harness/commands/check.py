"""``cs336 check``: the verdict on any adapters module."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer


def check(
    path: Annotated[
        Path | None,
        typer.Argument(help="An adapters file, or a repository that holds one; left out: the one you stand in."),
    ] = None,
    keyword: Annotated[
        str | None, typer.Option("-k", help="Only checks whose id or task contains this: 'rmsnorm', 'rope or softmax'.")
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the result to this file as JSON.")] = None,
    diagnosis: Annotated[bool, typer.Option(help="Say where a fault is and which known mistake it is.")] = True,
    hint: Annotated[bool, typer.Option("--hint", help="Say more on each named mistake, step by step.")] = False,
    plots: Annotated[Path | None, typer.Option(help="Write influence maps of failures into this folder (PNG).")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds that one check may take before it is stopped.", min=0.1)] = 30,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List every check.")] = False,
    show_output: Annotated[bool, typer.Option("--show-output", "-s", help="Show what the decoder prints.")] = False,
) -> None:
    """Judge a decoder: what is wrong, where, and which known mistake it is.

    Exit status: 0 all required checks passed, 1 some failed or are blank, 2 nothing could be judged.
    """
    from rich.console import Console

    from cs336_harness.subject.environment import prepare_torch

    prepare_torch()
    from cs336_harness.commands.writable import require_plots, require_writable_file
    from cs336_harness.course import drills
    from cs336_harness.subject.loading import load
    from cs336_harness.subject.locating import repository_here
    from cs336_harness.verdict import report
    from cs336_harness.verdict.suite import Suite, select

    console = Console()
    if json is not None:
        require_writable_file("--json", json)
    path = path if path is not None else repository_here()
    with report.errors_written(json, path):
        if plots is not None:
            require_plots(plots)
        checks = select(keyword)
        subject = load(path, show_output=show_output)
        console.print(report.subject_line(subject), markup=False, highlight=False, style="bold")
        started = time.perf_counter()
        suite = Suite(subject, diagnose=diagnosis, timeout=timeout)
        results = []
        with console.status("") as status:
            for number, item in enumerate(checks, 1):
                status.update(f"{number} of {len(checks)}  {item.id}")
                results.append(suite.result(item))
    console.print()
    report.print_report(console, results, time.perf_counter() - started, verbose=verbose, hint=hint, root=subject.root)
    if keyword is None and subject.root is not None and not any(result.stops_exit_zero for result in results):
        for line in drills.lines(subject.root):
            console.print(line, markup=False, highlight=False)
    if json is not None:
        report.write_json(report.to_json(subject, results), json)
    if plots is not None:
        for file in report.write_plots(results, plots):
            console.print(f"wrote {file}", markup=False, highlight=False)
    hidden = report.hidden_output_line(subject)
    if hidden is not None:
        console.print(hidden, markup=False, highlight=False, style="dim")
    raise typer.Exit(1 if any(result.stops_exit_zero for result in results) else 0)
