"""The process that workers are forked from: PyTorch imported once, and nothing of the harness but the room ``subject``.

Run as a script, on a socket that the checker holds the other end of; when that closes, every worker is killed and this
process ends. Forked workers cost a few hundredths of a second where an import of PyTorch costs seconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
HIDDEN = ("cs336_harness", "cs336_basics")
COMMON = ("numpy", "einops", "einx", "jaxtyping")
"""Packages that submissions import, loaded beforehand where they are installed."""

SYSTEM = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime")
CONTROL = 3


def main() -> None:
    """Serves requests to fork and to end workers."""
    die_with_parent()
    control = socket.socket(fileno=CONTROL)
    sys.path.insert(0, str(PACKAGE.parent))
    from cs336_harness.grading import sandbox, worker

    for name in COMMON:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    _warm_up()
    readable, hidden = _seal()
    gc.collect()
    gc.freeze()  # what is here now is never collected, so its pages stay shared
    layers = _tried(sandbox, readable, hidden)
    control.sendall(json.dumps({"layers": [layers.namespaces, layers.landlock, layers.seccomp]}).encode())
    children: set[int] = set()
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 1)
        except ConnectionError:
            data, descriptors = b"", []
        if not data:
            break
        request = json.loads(data)
        if request["ask"] == "end":
            control.sendall(json.dumps({"status": _end(request["worker"], children)}).encode())
            continue
        reach = sandbox.Reach((*readable, *request["readable"]), hidden, request["scratch"])
        try:
            child = sandbox.fork(sandbox.Layers(*request["layers"]))
        except OSError as error:
            control.sendall(json.dumps({"error": str(error)}).encode())
            continue
        if child == 0:
            _become_worker(sandbox, worker, descriptors[0], reach, request)
        os.close(descriptors[0])
        children.add(child)
        control.sendall(json.dumps({"worker": child}).encode())
    for child in tuple(children):
        _end(child, children)


def die_with_parent() -> None:
    """Has the kernel kill this process when the one that started it ends, however it ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def _warm_up() -> None:
    """Lets PyTorch look at the machine, which a worker cannot. No backward pass: it starts threads."""
    import torch

    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        x = torch.ones(2, 8, 8, dtype=dtype)
        torch.nn.functional.scaled_dot_product_attention(x @ x, x, x.square().mean(-1, keepdim=True) * x)
        torch.softmax(torch.nn.functional.silu(x), -1)


def _end(child: int, children: set[int]) -> int | None:
    """Kills a worker with all that it started; its exit status, negative for a signal, None if it had to be killed."""
    if child not in children:
        return None
    finished, status = os.waitpid(child, os.WNOHANG)
    if not finished:
        time.sleep(0.02)
        finished, status = os.waitpid(child, os.WNOHANG)
    if not finished:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    children.discard(child)
    return os.waitstatus_to_exitcode(status) if finished else None


def _seal() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Nothing more of the harness can be imported from here on; what a worker may read, and what is hidden in it."""
    clone = (str(PACKAGE.parent), str(PACKAGE.parents[1]))
    sys.path[:] = [entry for entry in sys.path if entry and (entry not in clone or Path(entry).name == "site-packages")]
    for name, module in sys.modules.items():
        if name.partition(".")[0] in HIDDEN and hasattr(module, "__path__"):
            module.__path__ = []
    sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("__editable__")]
    trees = [entry for entry in sys.path if os.path.exists(entry)]
    libraries = Path(sys.base_prefix, "lib")
    trees += [str(libraries), *SYSTEM]
    readable = tuple(dict.fromkeys(os.path.realpath(tree) for tree in trees if os.path.exists(tree)))
    readable += tuple(tree for tree in SYSTEM if os.path.islink(tree))
    outermost = tuple(tree for tree in readable if not any(_inside(tree, other) for other in readable if other != tree))
    hidden = tuple(
        str(child)
        for tree in readable
        if os.path.isdir(tree)
        for child in Path(tree).glob("cs336_*")
        if child.name.partition(".")[0].partition("-")[0] in HIDDEN
    )
    return outermost, hidden


def _inside(path: str, tree: str) -> bool:
    return path.startswith(tree.rstrip("/") + "/")


def _tried(sandbox: Any, readable: tuple[str, ...], hidden: tuple[str, ...]) -> Any:
    with tempfile.TemporaryDirectory(prefix="cs336-") as scratch:
        return sandbox.tried(sandbox.Reach(readable, hidden, scratch))


def _become_worker(sandbox: Any, worker: Any, descriptor: int, reach: Any, request: dict[str, Any]) -> None:
    """Everything that a forked child does; it never comes back."""
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in range(3):
            os.dup2(nothing, standard)
        os.dup2(descriptor, CONTROL)
        os.closerange(CONTROL + 1, 1 << 16)
        os.environ.update(dict.fromkeys(("HOME", "TMPDIR", "TORCHINDUCTOR_CACHE_DIR"), reach.scratch))
        tempfile.tempdir = None  # it is asked for again
        die_with_parent()
        layers = sandbox.Layers(*request["layers"])
        if layers != sandbox.NOTHING:
            sandbox.enter(layers, reach, sandbox.Limits(**request["limits"]))
        os.chdir(request["readable"][0])
        worker.serve(socket.socket(fileno=CONTROL))
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
