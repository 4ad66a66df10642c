"""Who runs the jobs of a watch: a server that forks for each, or, without fork, a fresh process kept waiting."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import IO, Any, Protocol

from cs336_harness.places import PACKAGE
from cs336_harness.watch.judge import Event, Job, run_job, tell_line

CAN_FORK = hasattr(os, "fork") and sys.platform != "darwin"
"""Whether a process that has torch loaded can be forked. On macOS the system's own libraries do not survive it."""

OFTEN_IMPORTED = ("numpy", "numpy.typing", "jaxtyping", "einops")
"""Libraries that decoders import, loaded ahead where they are installed."""

MOST_PARTS = 4
"""Judges that share a job at most; each costs a fork and its own first call of everything."""

Tell = Callable[[Event], None]


class Workers(Protocol):
    """Runs one job at a time in ``parts`` processes. Events come from another thread; a part's last is ``ended``."""

    parts: int

    def start(self, job: Job) -> None:
        """Begins a job, after the one before it was stopped or has ended."""

    def stop(self) -> None:
        """Kills the running job, if any."""

    def close(self) -> None:
        """Ends everything."""


class ForkServer:
    """Forks a job's judges from a process with one thread, in which torch and every check are loaded.

    ``prepare`` lets it work out what checks keep while it is idle.
    """

    def __init__(self, tell: Tell, *, prepare: bool = True) -> None:
        self.parts = min(MOST_PARTS, os.cpu_count() or 1)
        _load_ahead()
        requests, self._requests = os.pipe()
        self._events, events = os.pipe()
        self._server = os.fork()
        if self._server == 0:
            os.close(self._requests)
            os.close(self._events)
            _serve_and_exit(requests, events, prepare)
        os.close(requests)
        os.close(events)
        self._running: set[int] = set()
        self._last, self._stopped = -1, -1
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, args=(tell,), daemon=True).start()

    def start(self, job: Job) -> None:
        """Asks the server to fork."""
        self._last = job.number
        with contextlib.suppress(BrokenPipeError):  # the server is gone, which the listener tells
            os.write(self._requests, job.to_json().encode())

    def stop(self) -> None:
        """Kills the judges with whatever they started. Those that are not forked yet are killed as soon as they are."""
        with self._lock:
            self._stopped = self._last
            for process in self._running:
                _kill_group(process)

    def close(self) -> None:
        """Kills the judge and lets the server end."""
        self.stop()
        with contextlib.suppress(OSError):
            os.close(self._requests)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._server, 0)

    def _listen(self, tell: Tell) -> None:
        with open(self._events, encoding="utf-8") as events:
            for event in _read(events):
                with self._lock:
                    if event["event"] == "forked":
                        self._running.add(event["process"])
                        if event["job"] <= self._stopped:
                            _kill_group(event["process"])
                    elif event["event"] == "ended":
                        self._running.discard(event["process"])
                tell(event)
        tell({"event": "gone"})


class FreshProcesses:
    """A new process per job. The next one is started ahead and waits with torch loaded."""

    parts = 1

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._running: subprocess.Popen[str] | None = None
        self._waiting = self._launch()

    def start(self, job: Job) -> None:
        """Gives the job to the waiting process and starts the next one to wait."""
        process, self._waiting = self._waiting, self._launch()
        self._running = process
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.write(job.to_json())
            process.stdin.close()
        threading.Thread(target=self._listen, args=(process, job.number), daemon=True).start()

    def stop(self) -> None:
        """Kills the running process."""
        if self._running is not None:
            _kill(self._running)

    def close(self) -> None:
        """Kills both processes."""
        for process in (self._running, self._waiting):
            if process is not None:
                _kill(process)
                process.wait()

    def _listen(self, process: subprocess.Popen[str], number: int) -> None:
        assert process.stdout is not None
        for event in _read(process.stdout):
            self._tell(event)
        self._tell({"event": "ended", "job": number, "part": 0, "status": process.wait()})

    @staticmethod
    def _launch() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", __name__]
        own_group: dict[str, Any] = {} if os.name == "nt" else {"process_group": 0}
        paths = os.pathsep.join(filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH"))))
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONPATH": paths},
            **own_group,
        )


def _load_ahead() -> None:
    """Loads what every job needs, with one thread: a pool of threads would not survive a fork."""
    import torch

    from cs336_harness.checks import all_checks

    torch.set_num_threads(1)
    all_checks()
    for name in (*OFTEN_IMPORTED, "cs336_harness.diagnosis"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _serve_and_exit(requests: int, events: int, prepare: bool) -> None:
    """The life of the server: a job per line, a fork per part; while it is idle, it works ahead."""
    from cs336_harness.watch.ahead import work_ahead

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    chores = work_ahead() if prepare else None
    unread = b""
    while True:
        if select.select([requests], [], [], None if chores is None else 0)[0]:
            received = os.read(requests, 65536)
            if not received:
                os._exit(0)
            *lines, unread = (unread + received).split(b"\n")
            for line in lines:
                _fork(Job.from_json(line.decode()), events)
        elif chores is not None and next(chores, "done") == "done":
            chores = None
            gc.freeze()


def _fork(job: Job, events: int) -> None:
    """Forks a judge per part and waits for all of them."""
    running = {}
    for part in range(job.parts):
        process = os.fork()
        if process == 0:
            _judge_and_exit(job, part, events)
        with contextlib.suppress(OSError):
            os.setpgid(process, process)
        running[process] = part
        tell_line(events, {"event": "forked", "job": job.number, "part": part, "process": process})
    while running:
        process, status = os.wait()
        _kill_group(process)
        part, code = running.pop(process), os.waitstatus_to_exitcode(status)
        tell_line(events, {"event": "ended", "job": job.number, "part": part, "process": process, "status": code})


def _judge_and_exit(job: Job, part: int, events: int) -> None:
    status = 1
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        run_job(job, part, events)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _kill(process: subprocess.Popen[str]) -> None:
    if os.name == "nt":
        process.kill()
    else:
        _kill_group(process.pid)


def _kill_group(process: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process, signal.SIGKILL)


def _read(lines: IO[str]) -> Iterator[Event]:
    for line in lines:
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict) and "event" in event:
                yield event


def _wait_for_one_job() -> None:
    """The life of a fresh process: load, wait for one line, judge."""
    events = os.dup(1)
    os.dup2(2, 1)
    _load_ahead()
    line = sys.stdin.readline()
    if line:
        run_job(Job.from_json(line), 0, events)
    os._exit(0)


if __name__ == "__main__":
    from cs336_harness.subject.environment import prepare_torch

    prepare_torch()
    _wait_for_one_job()
