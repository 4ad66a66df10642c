"""The checker's side of the fork server: starts it, asks it for a worker per submission, ends them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from cs336_harness.grading import fork_server, sandbox
from cs336_harness.grading.remote import RemoteSubject, Wire
from cs336_harness.subject.failures import CannotJudgeError
from cs336_harness.subject.locating import locate, root_of

CLEAN = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "KINETO_LOG_LEVEL": "99",
    "PYTHONDONTWRITEBYTECODE": "1",
    "MALLOC_TRIM_THRESHOLD_": "268435456",  # memory that a call gives back is not cleared for the next one
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "TORCHDYNAMO_DISABLE": "1",  # the compiler starts programs; what it compiles computes the same without it
}
"""All that a submission's process has of an environment."""

START = 120.0
"""Seconds that PyTorch may take to be imported."""

NO_SANDBOX = (
    "other people's code cannot be shut in here ({found} of namespaces, Landlock and seccomp): that takes Linux 5.13 or"
    " newer"
)
UNSAFE = ", or --unsafe, which lets every submission do whatever you can do"


def require_sandbox() -> None:
    """:class:`CannotJudgeError` where submissions cannot be shut in; found out in a moment, without PyTorch."""
    with tempfile.TemporaryDirectory(prefix="cs336-scratch-") as scratch:
        layers = sandbox.tried(sandbox.Reach(("/usr",), (), scratch))
    if not layers.enough:
        raise CannotJudgeError(NO_SANDBOX.format(found=layers) + UNSAFE)


class ForkServer:
    """The process that workers come from, and the layers of protection that hold on this machine."""

    def __init__(self, *, unsafe: bool = False) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", _SCRIPT, str(theirs.fileno()), fork_server.__file__],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=CLEAN,
                cwd="/",
                start_new_session=True,
            )
        ours.settimeout(START)
        try:
            self.layers = sandbox.Layers(*self._received()["layers"])
        except (OSError, ValueError) as error:
            self.close()
            raise CannotJudgeError(f"the process that submissions are forked from does not start: {error}") from None
        if unsafe:
            self.layers = self.layers if self.layers.enough else sandbox.NOTHING
        elif not self.layers.enough:
            self.close()
            raise CannotJudgeError(NO_SANDBOX.format(found=self.layers))

    def _received(self) -> dict:
        data = self._control.recv(1 << 16)
        if not data:
            raise OSError("it ended at once")
        return json.loads(data)

    def _asked(self, request: dict, descriptor: int | None = None) -> dict:
        with self._lock:
            data = json.dumps(request).encode()
            if descriptor is None:
                self._control.sendall(data)
            else:
                socket.send_fds(self._control, [data], [descriptor])
            return self._received()

    def fork(self, folder: Path, limits: sandbox.Limits, seconds: float) -> Wire:
        """A worker that may read ``folder``; the wire to it, which is waited for so many seconds in all."""
        scratch = Path(tempfile.mkdtemp(prefix="cs336-scratch-"))
        ours, theirs = socket.socketpair()
        request = {
            "ask": "fork",
            "readable": [str(folder)],
            "scratch": str(scratch),
            "layers": list(dataclasses.astuple(self.layers)),
            "limits": dataclasses.asdict(limits),
        }
        try:
            with theirs:
                answer = self._asked(request, theirs.fileno())
        except BaseException:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        if "worker" not in answer:
            ours.close()
            shutil.rmtree(scratch, ignore_errors=True)
            raise CannotJudgeError(f"no process can be made for the submission: {answer.get('error')}")
        ended: list[str] = []

        def end() -> str:
            if not ended:
                ended.append(_how(self._asked({"ask": "end", "worker": answer["worker"]}).get("status")))
                shutil.rmtree(scratch, ignore_errors=True)
            return ended[0]

        return Wire(ours, end, seconds)

    def close(self) -> None:
        """Ends it, and with it every worker."""
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            try:
                self._process.wait(2)
            except subprocess.TimeoutExpired:
                os.kill(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_SCRIPT = (
    "import os, runpy, sys; given = int(sys.argv[1]); os.dup2(given, 3); given == 3 or os.close(given);"
    "runpy.run_path(sys.argv[2], run_name='__main__')"
)
"""Puts the socket where the server looks for it, then becomes the server."""


def _how(status: int | None) -> str:
    """The end of a process in words."""
    if status is None:
        return "it was stopped"
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"signal {signal.Signals(-status).name}"
        return f"signal {-status}"
    return f"exit status {status}"


def open_remote(
    server: ForkServer, path: Path, *, seconds: float, limits: sandbox.Limits | None = None
) -> RemoteSubject:
    """The submission at ``path`` (a folder or a file that holds nothing but it), imported in a worker of its own.

    Raises :class:`CannotJudgeError` where it does not load; the worker is gone then.
    """
    file = locate(path)
    folder = path.resolve() if path.is_dir() else file.parent
    root = root_of(file)
    bounds = limits or sandbox.Limits()
    subject = RemoteSubject(lambda: server.fork(folder, bounds, seconds), str(file.relative_to(folder)), root, file)
    try:
        subject.open(file)
    except BaseException:
        subject.close()
        raise
    return subject
