"""Where the saves, the keys and the events of a watch come together."""

from __future__ import annotations

import contextlib
import queue
import signal
import tempfile
import threading
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from cs336_harness.isolation.answering import keep_answers
from cs336_harness.isolation.supervisor import Supervisor
from cs336_harness.isolation.workers import CAN_FORK, OFTEN_IMPORTED, ForkServer, FreshProcesses, spare_cores
from cs336_harness.subject.locating import locate, root_of
from cs336_harness.watch.ahead import work_ahead
from cs336_harness.watch.keys import keys_of_terminal
from cs336_harness.watch.saves import report_saves
from cs336_harness.watch.session import Session

if TYPE_CHECKING:
    from cs336_harness.picture.live import Live

TICK = 0.05
"""Seconds between two looks at what takes long, while a job is running."""


def watch(
    console: Console,
    path: Path,
    *,
    timeout: float,
    keyword: str | None,
    fork: bool | None,
    diagnose: bool,
    web: bool = False,
    open_page: bool = False,
) -> None:
    """Judges the subject now and after each save, until the person quits.

    ``web`` serves a page of each verdict as well, ``open_page`` opens it in the browser.
    """
    file = locate(path)
    root = root_of(file)
    inbox: queue.Queue[tuple[str, Any]] = queue.Queue()
    forking = CAN_FORK if fork is None else fork

    def tell(event: dict[str, Any]) -> None:
        inbox.put(("event", event))

    # The server is forked before any thread is there.
    if forking:
        workers = ForkServer(tell, ahead=work_ahead, libraries=OFTEN_IMPORTED)
    else:
        workers = FreshProcesses(tell)
        console.print("a fresh process is started for each save: this platform cannot fork one that has torch loaded")
    keep_answers()
    supervisor = Supervisor(workers)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the terminal is put back, whoever ends the watch
    stopping = threading.Event()
    with (
        tempfile.TemporaryDirectory(prefix="cs336-watch-") as folder,
        _live_page(console, file, open_page=open_page) if web else contextlib.nullcontext() as page,
        keys_of_terminal(inbox),
    ):
        session = Session(
            console,
            supervisor,
            file,
            Path(folder) / "log",
            runners=spare_cores() if forking else 0,
            timeout=timeout,
            keyword=keyword,
            diagnose=diagnose,
            page=page,
        )
        threading.Thread(target=report_saves, args=(root, inbox, stopping), daemon=True).start()
        try:
            session.run(f"watching {root}")
            while _take(inbox, session, supervisor):
                pass
        except KeyboardInterrupt:
            pass
        finally:
            stopping.set()
            session.close()
            workers.close()


@contextlib.contextmanager
def _live_page(console: Console, file: Path, *, open_page: bool) -> Generator[Live]:
    """The page of the verdicts, as long as this lasts. Its address is printed, and opened on request."""
    from cs336_harness.picture.live import Live

    page = Live({"subject": file.name, "checks": []})
    try:
        console.print(f"the verdict is drawn at {page.address}", markup=False, highlight=False, style="bold")
        if open_page:
            import webbrowser

            if not webbrowser.open(page.address):
                console.print("no browser could be opened: open that address yourself", markup=False, highlight=False)
        yield page
    finally:
        page.close()


def _take(inbox: queue.Queue[tuple[str, Any]], session: Session, supervisor: Supervisor) -> bool:
    """Handles one thing that happened; False when the watch is over."""
    supervisor.tick()
    try:
        kind, what = inbox.get(timeout=TICK if supervisor.live else None)
    except queue.Empty:
        return True
    match kind:
        case "command":
            return session.command(what)
        case "typing":
            session.typing(what)
        case "focus":
            session.focus(what)
        case "saved":
            session.saved(what)
        case "harness":
            session.say(f"{what} changed: start the watch again to use it")
        case _:
            if what["event"] == "gone":
                session.say("the process that has torch loaded is gone; start the watch again")
                return False
            for event in supervisor.take(what):
                session.event(event)
    return True
