"""``cs336 check``: the verdict on any adapters module."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.time_limit import (
    CHECK_SECONDS,
    COMPILED_CHECK_SECONDS,
    COMPILED_TOTAL_SECONDS,
    TOTAL_SECONDS,
)


def check(
    context: typer.Context,
    path: Annotated[
        Path | None,
        typer.Argument(help="An adapters file, or a repository that holds one; left out: the one you stand in."),
    ] = None,
    huggingface: Annotated[
        Path | None,
        typer.Option(help="Judge a Llama-family checkpoint instead: config.json and safetensors.", metavar="FOLDER"),
    ] = None,
    keyword: Annotated[
        str | None, typer.Option("-k", help="Only checks whose id or task contains this: 'rmsnorm', 'rope or softmax'.")
    ] = None,
    json: Annotated[Path | None, typer.Option("--json", help="Write the result to this file as JSON.")] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Draw the verdict: one file, to be opened in any browser.")
    ] = None,
    diagnosis: Annotated[bool, typer.Option(help="Say where a fault is and which known mistake it is.")] = True,
    hint: Annotated[bool, typer.Option("--hint", help="Say more on each named mistake, step by step.")] = False,
    plots: Annotated[Path | None, typer.Option(help="Write influence maps of failures into this folder (PNG).")] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            help=f"Seconds that the decoder may compute in one check: {CHECK_SECONDS:g},"
            f" or {COMPILED_CHECK_SECONDS:g} with --compile.",
            min=0.1,
        ),
    ] = None,
    total_timeout: Annotated[
        float | None,
        typer.Option(
            help=f"Seconds that the whole run may take: {TOTAL_SECONDS:g},"
            f" or {COMPILED_TOTAL_SECONDS:g} with --compile.",
            min=0.1,
        ),
    ] = None,
    device: Annotated[
        str, typer.Option(help="Judge on 'cuda', 'cuda:1' or 'mps' in place of the CPU.", metavar="DEVICE")
    ] = "cpu",
    dtype: Annotated[
        str, typer.Option(help="Judge in 'bfloat16' or 'float64', with tolerances made for it.", metavar="DTYPE")
    ] = "float32",
    compile: Annotated[bool, typer.Option("--compile", help="Judge what torch.compile makes of the decoder.")] = False,
    backend: Annotated[
        str, typer.Option(help="The backend of torch.compile: 'aot_eager' needs no C++ compiler.", metavar="NAME")
    ] = "inductor",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List every check.")] = False,
    isolated: Annotated[
        bool, typer.Option("--isolated", help="Judge somebody else's code: it reaches nothing but a copy of itself.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="A required check that was skipped is not exit status 0.")
    ] = False,
    show_output: Annotated[bool, typer.Option("--show-output", "-s", help="Show what the decoder prints.")] = False,
) -> None:
    """Judge a decoder: what is wrong, where, and which known mistake it is.

    Exit status: 0 all required checks passed, 1 some failed or are blank, 2 nothing could be judged.
    """
    from rich.console import Console

    from cs336_harness.commands.check_checkpoint import check_checkpoint
    from cs336_harness.commands.writable import (
        errors_told,
        require_html,
        require_plots,
        require_writable_file,
        unwritten,
        write_json,
    )
    from cs336_harness.grading import require_linux
    from cs336_harness.subject.environment import loading_torch, prepare_torch
    from cs336_harness.subject.locating import ADAPTERS, locate, repository_here
    from cs336_harness.subject.setting import USUAL, Setting
    from cs336_harness.verdict.keyword import alternatives

    if hint and not diagnosis:
        raise CannotJudgeError("--hint says more on each named mistake, and --no-diagnosis names none: leave one out")
    console = Console()
    if json is not None:
        require_writable_file("--json", json)
    if html is not None:
        require_html(html)
        if json is not None and html.resolve() == json.resolve():
            raise CannotJudgeError(f"--json and --html both name {html}; give two files")
    setting = Setting(device, dtype, compile, backend)
    if huggingface is not None:
        if not setting.usual:
            raise CannotJudgeError(f"--huggingface judges {USUAL}, uncompiled; leave the other option out")
        if path is not None:
            raise CannotJudgeError(f"give either {path} or --huggingface {huggingface}, not both")
        if html is not None:
            raise CannotJudgeError("--html draws the verdict on a decoder; for --huggingface there is --json")
        _require_alone(context, "huggingface", "json")
        prepare_torch()
        with errors_told(huggingface, json, None):
            raise typer.Exit(0 if check_checkpoint(console, huggingface, json) else 1)
    timeout = timeout or (COMPILED_CHECK_SECONDS if compile else CHECK_SECONDS)
    total_timeout = total_timeout or (COMPILED_TOTAL_SECONDS if compile else TOTAL_SECONDS)
    if isolated:
        require_linux()
    if isolated and not setting.usual:
        raise CannotJudgeError(f"--isolated judges {USUAL}, uncompiled; leave the other option out")
    path = path if path is not None else repository_here()
    with errors_told(path, json, html), contextlib.ExitStack() as opened:
        if plots is not None:
            require_plots(plots)
        if keyword:
            alternatives(keyword)
        locate(path)
        # Nobody waits for torch to be told of a wrong call: it is loaded here.
        with loading_torch():
            from cs336_harness.checks.registry import OPTIONAL_TASKS
            from cs336_harness.course import drills
            from cs336_harness.isolation.trial import Trial
            from cs336_harness.verdict import report
            from cs336_harness.verdict.progress import written_ahead
            from cs336_harness.verdict.suite import require_any_ran, select

        checks = select(keyword)
        if isolated:
            from cs336_harness.grading.isolated import IsolatedTrial

            made = IsolatedTrial(path, checks, diagnose=diagnosis, timeout=timeout, total=total_timeout)
        else:
            made = Trial(
                path,
                checks,
                diagnose=diagnosis,
                timeout=timeout,
                total=total_timeout,
                show_output=show_output,
                setting=setting,
            )
        trial = opened.enter_context(made)
        line = f"judging {trial.name}{'' if setting.usual else f' {setting}'}{trial.provenance}"
        console.print(line, markup=False, highlight=False, style="bold")
        asked = {check.id for check in checks if check.not_asked(setting) is None}
        started = time.perf_counter()
        written = written_ahead(trial.root) if setting.usual and keyword is None else None
        with console.status("") as status:
            for result in trial.run():
                done = sum(result.check.id in asked for result in trial.results)
                status.update(f"{done + 1} of {len(asked)}  {trial.running}")
                if compile and result is not None and result.outcome != "skipped":  # each takes seconds, or minutes
                    line = f"{report.MARKS[result.outcome]} {result.check.id}  {result.seconds:.0f} s"
                    console.print(line, markup=False, highlight=False, style=report.STYLES[result.outcome])
        seconds = time.perf_counter() - started
        results, not_run, blockers = trial.results, trial.not_run, trial.blockers
        require_any_ran(results)
        wrong = bool(not_run) or any(result.stops_exit_zero for result in results)
        mine = isinstance(trial, Trial) and setting.usual  # drills are run as one's own code
        closing = drills.lines(trial.root, trial.drills) if mine and keyword is None and not wrong else []
    data = report.to_json(
        trial.name,
        results,
        provenance=trial.provenance,
        cut_short=trial.cut_short,
        not_run=not_run,
        blockers=blockers,
        setting=setting,
    )
    lost = []
    if json is not None:
        lost.append(unwritten("--json", json, partial(write_json, data, json)))
    if html is not None:
        from cs336_harness.picture import page

        lost.append(unwritten("--html", html, partial(page.write, data, html)))
    missing = report.missing_line(not_run, trial.cut_short)
    console.print()
    report.print_report(
        console,
        results,
        seconds,
        verbose=verbose,
        hint=hint,
        root=trial.root,
        file=Path(trial.name).name if trial.name.endswith(".py") else ADAPTERS,
        missing=missing,
        blockers=blockers,
        standing=setting.usual,
        written=written,
    )
    for line in closing:
        console.print(line, markup=False, highlight=False)
    if html is not None and lost[-1] is None:
        console.print(f"wrote {html}", markup=False, highlight=False)
    for line in filter(None, lost):
        Console(stderr=True, soft_wrap=True).print(line, markup=False, highlight=False)
    if plots is not None:
        from cs336_harness.picture.plots import write_plots

        for file in write_plots(results, plots):
            console.print(f"wrote {file}", markup=False, highlight=False)
    hidden = report.hidden_output_line(trial.hidden_lines)
    if hidden is not None:
        console.print(hidden, markup=False, highlight=False, style="dim")
    skipped = strict and any(
        result.outcome == "skipped"
        and not result.unasked
        and not result.check.advisory
        and result.check.task not in OPTIONAL_TASKS
        and result.check.not_asked(setting) is None
        for result in results
    )
    if skipped:
        console.print("--strict: required checks were skipped", markup=False, highlight=False)
    raise typer.Exit(1 if wrong or skipped or any(lost) else 0)


def _require_alone(context: typer.Context, option: str, *beside: str) -> None:
    """:class:`CannotJudgeError` where an option was given that means nothing beside ``option``."""
    given = [parameter.name for parameter in context.command.params if parameter.name is not None]
    names = {name: f"--{name}".replace("_", "-") for name in given}
    names |= {"keyword": "-k", "diagnosis": "--no-diagnosis"}
    for name in names.keys() - {option, *beside}:
        if str(context.get_parameter_source(name)).endswith("COMMANDLINE"):
            raise CannotJudgeError(f"--{option} takes --{' and --'.join(beside)} alone; leave {names[name]} out")
