"""The ``cs336`` command. Each subcommand lives in ``commands/`` and imports what is heavy only when it runs."""

from __future__ import annotations

import atexit
import codecs
import gc
import importlib
import io
import os
import sys
import threading
import unicodedata
from typing import Annotated

import typer

from cs336_harness.subject.failures import CannotJudgeError

COMMANDS = ("check", "watch", "explain", "hint", "defects", "writeup", "submit", "grade", "handout", "account")
"""Each is a function of its name in a module of its name. A handout leaves out ``account``: it prints the answer that
is asked for."""


_SHORT = ("account", "explain", "hint", "writeup")


def app_of(named: str | None = None) -> typer.Typer:
    """The command line with the one command of this name, or with all of them where it is the name of none."""
    app = typer.Typer(
        help="Proves a decoder-only Transformer right before training can hide its defects.",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for name in (named,) if named in COMMANDS else COMMANDS:
        module = f"cs336_harness.commands.{name}"
        try:
            command = getattr(importlib.import_module(module), name)
            app.command(short_help=str(command.__doc__).partition("\n\n")[0])(command)  # in full: click would cut it
        except ModuleNotFoundError as error:
            if error.name != module:
                raise
    return app


def _tell_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"cs336-harness {version('cs336-harness')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """What stands before a command."""


PLAIN = {
    "✓": "v",
    "✗": "x",
    "○": "o",
    "·": ".",
    "§": "section ",
    "×": "x",
    "■": "#",
    "│": "|",
    "─": "-",
    "≤": "<=",
    "…": "...",
}
"""What stands for a sign that an encoding does not have; of others what Unicode takes them apart into, or "?"."""


def _in_plain_signs(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    apart = [PLAIN.get(sign) or unicodedata.normalize("NFKD", sign) for sign in signs]
    return "".join(sign if sign.isascii() else "?" for sign in apart), error.end


def _write_whatever_it_is() -> None:
    """Output goes through where its encoding lacks a sign: Windows redirects it in an old code page."""
    codecs.register_error("cs336", _in_plain_signs)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="cs336")


def main() -> None:
    """Runs the command line. Exit status 2 and one line on standard error when nothing can be judged."""
    _write_whatever_it_is()
    named = next(iter(sys.argv[1:]), None)
    if named in _SHORT:
        gc.disable()  # what they build stays until they end, so that a search for garbage finds none
    try:
        app_of(named)()
    except CannotJudgeError as error:
        print(f"cs336: {error}", file=sys.stderr)
        sys.exit(2)


def run() -> None:
    """The script: :func:`main`, and then the end of the process.

    The interpreter would take PyTorch apart first, for a fifth of the time that it took to import. Whatever is to be
    done at exit is done.
    """
    status: object = 0
    try:
        main()
    except SystemExit as leaving:
        status = leaving.code
    others = any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread())
    if "torch" not in sys.modules or others or not (status is None or isinstance(status, int)):
        sys.exit(status)
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:  # nobody reads it: the interpreter says so in its own way
        sys.exit(status)
    os._exit(status or 0)
