"""Where judges come from: a server that forks one for each job, or, without fork, a fresh process kept waiting."""

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
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from cs336_harness.isolation.job import Event, Job
from cs336_harness.isolation.judge import WHERE, run_job, tell_line
from cs336_harness.places import PACKAGE
from cs336_harness.subject.environment import loading_torch

CAN_FORK = hasattr(os, "fork") and sys.platform != "darwin"
"""Whether a process that has torch loaded can be forked. On macOS the system's own libraries do not survive it."""

OFTEN_IMPORTED = ("numpy", "numpy.typing", "jaxtyping", "einops", "cs336_harness.diagnosis")
"""Libraries that decoders import, loaded ahead where they are installed; and what comes after a failure."""

MOST_RUNNERS = 3
"""Processes that help a judge at most; each costs a fork, an import of the subject and its first call of everything."""

LAST_WORDS = 0.1
"""Seconds for a judge to write its stack before it is killed."""

Tell = Callable[[Event], None]


def spare_cores() -> int:
    """How many runners a judge may have: one for each other core that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_RUNNERS, cores - 1)


class Workers(Protocol):
    """Gives each job a judge. Events come from another thread; the last of a judge is ``ended``, with its status."""

    def start(self, job: Job) -> None:
        """Has a judge do a job."""

    def kill(self, part: int) -> None:
        """Ends the judge that has this part, and whatever it started; its log says where it stood."""

    def computed(self, part: int) -> float | None:
        """Seconds of processor time that the judge has used; None where a system does not say that of a process."""

    def queued(self, part: int) -> float:
        """Seconds that the judge has stood ready while others had the processors; 0 where a system does not say."""

    def stop(self) -> None:
        """Ends all judges at once."""

    def close(self) -> None:
        """Ends everything."""


class ForkServer:
    """Forks judges from a process with one thread, in which torch and every check are loaded.

    It is to be made before the process has other threads. ``ahead`` is work for its idle moments, in small steps, whose
    results judges then share; ``libraries`` are loaded into it first.
    """

    def __init__(
        self, tell: Tell, *, ahead: Callable[[], Iterator[None]] | None = None, libraries: tuple[str, ...] = ()
    ) -> None:
        from cs336_harness.checks import all_checks

        all_checks()  # here, where whoever prints needs them too, and not once more in the server
        requests, self._requests = os.pipe()
        self._events, events = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of libraries, which the server does not need
            self._server = os.fork()
        if self._server == 0:
            os.close(self._requests)
            os.close(self._events)
            _serve_and_exit(requests, events, ahead, libraries)
        os.close(requests)
        os.close(events)
        self._running: dict[int, int] = {}
        self._last, self._stopped = -1, -1
        self._lock = threading.Lock()
        self._listener = threading.Thread(target=self._listen, args=(tell,), daemon=True)
        self._listener.start()

    def start(self, job: Job) -> None:
        """Asks the server to fork."""
        self._last = job.number
        line = job.to_json().encode()
        with contextlib.suppress(BrokenPipeError):  # the server is gone, which the listener tells
            while line:
                line = line[os.write(self._requests, line) :]

    def computed(self, part: int) -> float | None:
        """The judge's own processor time."""
        return next(map(_seconds_computed, self._processes(part)), None)

    def queued(self, part: int) -> float:
        """The judge's own waiting for a processor."""
        return next(map(_seconds_queued, self._processes(part)), 0.0)

    def _processes(self, part: int) -> list[int]:
        with self._lock:
            return [process for process, own in self._running.items() if own == part]

    def kill(self, part: int) -> None:
        """Asks the judge where it stands, and ends it."""
        for process in self._processes(part):
            if WHERE is not None:
                with contextlib.suppress(OSError):
                    os.kill(process, WHERE)
                time.sleep(LAST_WORDS)
            _kill_group(process)

    def stop(self) -> None:
        """Kills the judges with whatever they started. Those that are not forked yet are killed as soon as they are."""
        with self._lock:
            self._stopped = self._last
            for process in self._running:
                _kill_group(process)

    def close(self) -> None:
        """Kills the judges and lets the server end."""
        self.stop()
        with contextlib.suppress(OSError):
            os.close(self._requests)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._server, 0)
        self._listener.join(timeout=1)

    def _listen(self, tell: Tell) -> None:
        with open(self._events, encoding="utf-8") as events:
            for event in _read(events):
                with self._lock:
                    if event["event"] == "forked":
                        self._running[event["process"]] = event["part"]
                        if event["job"] <= self._stopped:
                            _kill_group(event["process"])
                    elif event["event"] == "ended":
                        self._running.pop(event["process"], None)
                tell(event)
        tell({"event": "gone"})


class FreshProcesses:
    """A new process per job. With ``spare``, the next one is started ahead and waits with torch loaded."""

    def __init__(self, tell: Tell, *, spare: bool = True) -> None:
        self._tell = tell
        self._spare = spare
        self._running: dict[int, subprocess.Popen[str]] = {}
        self._waiting: subprocess.Popen[str] | None = self._launch()

    def start(self, job: Job) -> None:
        """Gives the job to the waiting process, and starts the next one to wait."""
        process = self._waiting or self._launch()
        self._waiting = self._launch() if self._spare else None
        self._running[job.part] = process
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.write(job.to_json())
            process.stdin.close()
        threading.Thread(target=self._listen, args=(process, job), daemon=True).start()

    def computed(self, part: int) -> float | None:
        """The judge's own processor time."""
        return _seconds_computed(self._running[part].pid) if part in self._running else None

    def queued(self, part: int) -> float:
        """The judge's own waiting for a processor."""
        return _seconds_queued(self._running[part].pid) if part in self._running else 0.0

    def kill(self, part: int) -> None:
        """Asks the judge where it stands, and ends it."""
        process = self._running.get(part)
        if process is not None:
            if WHERE is not None and process.poll() is None:
                process.send_signal(WHERE)
                time.sleep(LAST_WORDS)
            _kill(process)

    def stop(self) -> None:
        """Kills the running processes."""
        for process in self._running.values():
            _kill(process)

    def close(self) -> None:
        """Kills all processes."""
        for process in (*self._running.values(), self._waiting):
            if process is not None:
                _kill(process)
                process.wait()

    def _listen(self, process: subprocess.Popen[str], job: Job) -> None:
        assert process.stdout is not None
        for event in _read(process.stdout):
            self._tell(event)
        self._tell({"event": "ended", "job": job.number, "part": job.part, "status": process.wait()})

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


def _prepare(libraries: tuple[str, ...]) -> None:
    """Loads what a judge needs, with one thread: a pool of threads would not survive a fork."""
    import torch

    from cs336_harness.checks import all_checks

    torch.set_num_threads(1)
    all_checks()
    for name in libraries:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _serve_and_exit(
    requests: int, events: int, ahead: Callable[[], Iterator[None]] | None, libraries: tuple[str, ...]
) -> None:
    try:
        _prepare(libraries)
        _serve(requests, events, ahead() if ahead is not None else None)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _serve(requests: int, events: int, chores: Iterator[None] | None) -> None:
    """The life of the server: a fork for each line, a word for each judge that ended, and chores while it is idle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ended, bell = os.pipe()
    for end in (ended, bell):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(bell, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    gc.freeze()
    running: dict[int, Job] = {}
    unread = b""
    while True:
        idle = chores is not None and not running
        ready = select.select([requests, ended], [], [], 0 if idle else None)[0]
        if ended in ready:
            os.read(ended, 4096)
            _reap(running, events)
        if requests in ready:
            received = os.read(requests, 65536)
            if not received:
                break
            *lines, unread = (unread + received).split(b"\n")
            for line in lines:
                job = Job.from_json(line.decode())
                running[_fork(job, requests, events)] = job
        elif idle and next(chores, "done") == "done":
            chores = None
            gc.freeze()
    for process in running:
        _kill_group(process)


def _reap(running: dict[int, Job], events: int) -> None:
    while running:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if process == 0:
            return
        if process in running:
            _kill_group(process)  # what it left behind
            job, code = running.pop(process), os.waitstatus_to_exitcode(status)
            ended = {"event": "ended", "job": job.number, "part": job.part, "process": process, "status": code}
            tell_line(events, ended)


def _fork(job: Job, requests: int, events: int) -> int:
    """Forks a judge and tells of it."""
    process = os.fork()
    if process == 0:
        try:
            os.setpgid(0, 0)
            os.close(requests)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
        finally:
            _judge_and_exit(job, events)
    with contextlib.suppress(OSError):
        os.setpgid(process, process)
    tell_line(events, {"event": "forked", "job": job.number, "part": job.part, "process": process})
    return process


def _judge_and_exit(job: Job, events: int) -> None:
    """The life of a judge. Nothing of the subject's outlives it: no thread, no function that runs at exit."""
    status = 1
    try:
        run_job(job, events)
        status = 0
    except BrokenPipeError:  # who asked was ended, and nobody reads what comes of it
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _seconds_computed(process: int) -> float | None:
    """The processor time of a process. Linux numbers the clocks of processes; elsewhere nobody says."""
    if sys.platform != "linux":
        return None
    try:
        return time.clock_gettime((~process << 3) | 2)
    except OSError:
        return None


def _seconds_queued(process: int) -> float:
    """How long the first thread of a process was ready to run and did not: the second number that Linux keeps of it."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


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
    with loading_torch():
        _prepare(OFTEN_IMPORTED)
    line = sys.stdin.readline()
    if line:
        _judge_and_exit(Job.from_json(line), events)
    os._exit(0)


if __name__ == "__main__":
    _wait_for_one_job()
