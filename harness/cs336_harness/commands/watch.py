"""``cs336 watch``: the verdict again at each save."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cs336_harness.subject.time_limit import SECONDS_WHILE_SOMEBODY_WAITS


def watch(
    path: Annotated[
        Path | None,
        typer.Argument(help="An adapters file, or a repository that holds one; left out: the one you stand in."),
    ] = None,
    keyword: Annotated[str | None, typer.Option("-k", help="Only checks whose id or task contains this.")] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds that the decoder may compute in one check before it is stopped.", min=0.1)
    ] = SECONDS_WHILE_SOMEBODY_WAITS,
    diagnosis: Annotated[bool, typer.Option(help="Say where a fault is and which known mistake it is.")] = True,
    web: Annotated[
        bool, typer.Option("--web", help="Draw each verdict on a page of this machine, whose address is printed.")
    ] = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open that page in the browser.")] = False,
    fork: Annotated[
        bool | None, typer.Option("--fork/--no-fork", help="Fork a loaded process per save, or start fresh ones.")
    ] = None,
) -> None:
    """Judge again each time a file is saved: torch stays loaded, and what is affected runs first.

    Keys: Enter judges again, f only what failed, a all checks; a task's name and Enter only that task; h shows hints,
    ? what the marks mean, q quits.
    """
    from cs336_harness.subject.locating import locate, repository_here
    from cs336_harness.verdict.keyword import alternatives

    subject = path if path is not None else repository_here()
    locate(subject)
    if keyword:
        alternatives(keyword)
    if sys.stdout.isatty():
        print("loading torch and the checks …", flush=True)
    from rich.console import Console

    from cs336_harness.subject.environment import loading_torch

    with loading_torch():
        from cs336_harness.verdict.suite import select
        from cs336_harness.watch.loop import watch as watch_subject

    select(keyword)  # refuses a wrong -k now, once, and not at each save
    watch_subject(
        Console(),
        subject,
        timeout=timeout,
        keyword=keyword,
        fork=fork,
        diagnose=diagnosis,
        web=web or open_page,
        open_page=open_page,
    )
