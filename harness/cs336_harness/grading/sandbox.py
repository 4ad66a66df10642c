"""What a submission's process may reach: its own files, the system's libraries, one scratch folder. Linux only.

Four layers, each of which holds if another fails: namespaces (nothing else is there to be seen), Landlock (nothing else
opens), a seccomp filter (no programs, no network, no signals to others) and limits. Standard library only: this runs in
the process that a submission then has to itself.
"""

from __future__ import annotations

import ctypes
import dataclasses
import os
import resource
import struct
import sys
from pathlib import Path

from cs336_harness.grading import syscalls

_libc = ctypes.PyDLL(None, use_errno=True)  # keeps the interpreter's lock, across a fork as well


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """How much one submission may use."""

    memory: int = 4 << 30
    """Bytes of address space beyond those that PyTorch takes."""
    seconds: int = 600
    """Seconds of processor time."""
    file: int = 64 << 20
    """Bytes of one file, and of all files of the scratch folder where that is a file system of its own."""
    descriptors: int = 256
    files: int = 4096
    """How many files and folders the scratch folder holds, where it is a file system of its own."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reach:
    """Absolute paths: trees and files that may be read, what is hidden inside them, the one folder to write in."""

    readable: tuple[str, ...]
    hidden: tuple[str, ...]
    scratch: str


@dataclasses.dataclass(frozen=True, slots=True)
class Layers:
    """Which layers of protection are there."""

    namespaces: bool
    landlock: bool
    seccomp: bool

    @property
    def enough(self) -> bool:
        """Whether a submission is held: files by either of two layers, programs and the network by the filter."""
        return self.seccomp and (self.namespaces or self.landlock)

    def __str__(self) -> str:
        there = [name for name in self.__slots__ if getattr(self, name)]
        return ", ".join(there) or "nothing"


NOTHING = Layers(namespaces=False, landlock=False, seccomp=False)

_NEW_USER, _NEW_NAMES = 0x10000000, 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
_SIGCHLD = 17
_CLONE = {"x86_64": 56, "aarch64": 220}
_MOUNT_SETATTR, _LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 442, 444, 445, 446
_BIND, _RECURSIVE, _PRIVATE = 4096, 16384, 1 << 18
_NO_SUID, _NO_DEVICES = 2, 4
_DETACH = 2


def _called(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _syscall(number: int, *arguments: int | ctypes._SimpleCData | ctypes.Array | bytes | None) -> int:
    given = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    _libc.syscall.restype = ctypes.c_long
    return _called(_libc.syscall(ctypes.c_long(number), *given), f"system call {number}")


def fork(layers: Layers) -> int:
    """As ``os.fork``, with user, mount, process, network, host and ipc namespaces of the child's own if they are to be.

    The child is the first process of its namespace: when it ends, whatever it started ends.
    """
    if not layers.namespaces:
        return os.fork()
    api = ctypes.pythonapi
    api.PyOS_BeforeFork()
    try:
        child = _syscall(_CLONE[os.uname().machine], _NEW_USER | _NEW_NAMES | _SIGCHLD, 0, 0, 0, 0)
    except OSError:
        api.PyOS_AfterFork_Parent()
        raise
    if child:
        api.PyOS_AfterFork_Parent()
    else:
        api.PyOS_AfterFork_Child()
    return child


def enter(layers: Layers, reach: Reach, limits: Limits) -> None:
    """Shuts this process in, for good. ``OSError`` when a layer that should be there is not."""
    taken = _address_space()
    if layers.namespaces:
        _map_identity()
        _see_only(reach, limits)
    _limit(limits, taken)
    _called(_libc.prctl(38, 1, 0, 0, 0), "no_new_privs")
    if layers.landlock:
        _open_only(reach)
    if layers.enough:
        _drop_capabilities()
    if layers.seccomp:
        syscalls.refuse()


def _map_identity() -> None:
    """The user stays who they were, as seen from outside; inside there is nobody else."""
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {_UID} 1")
    Path("/proc/self/gid_map").write_text(f"0 {_GID} 1")


_UID, _GID = os.geteuid(), os.getegid()
"""Asked for before there are namespaces, in which nobody has a number until one is written."""


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    encoded = [None if each is None else each.encode() for each in (source, target, kind, options)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _called(result, f"mounting {target}")


def _see_only(reach: Reach, limits: Limits) -> None:
    """A root of its own with nothing in it but what may be read, read-only, and an empty scratch folder in memory."""
    _mount("none", "/", None, _RECURSIVE | _PRIVATE)
    base = reach.scratch
    _mount("tmpfs", base, "tmpfs", _NO_SUID | _NO_DEVICES, f"size={limits.file},nr_inodes={limits.files},mode=755")
    for path in (*reach.readable, *DEVICES):
        target = base + path
        if os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            Path(target).touch()
        _mount(path, target, None, _BIND | _RECURSIVE)
        if path not in DEVICES:
            _read_only(target)
    for path in reach.hidden:
        if os.path.isdir(base + path):
            _mount("tmpfs", base + path, "tmpfs", _NO_SUID | _NO_DEVICES, "size=4096,mode=555")
        elif os.path.exists(base + path):
            _mount("/dev/null", base + path, None, _BIND)
    os.makedirs(base + base, exist_ok=True)
    os.makedirs(base + "/.outside", exist_ok=True)
    _syscall(_PIVOT[os.uname().machine], ctypes.c_char_p(base.encode()), ctypes.c_char_p(f"{base}/.outside".encode()))
    os.chdir("/")
    _called(_libc.umount2(b"/.outside", _DETACH), "leaving the old root")
    os.rmdir("/.outside")


_PIVOT = {"x86_64": 155, "aarch64": 41}
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")


def _read_only(target: str) -> None:
    attributes = struct.pack("QQQQ", 1 | 2 | 4, 0, 0, 0)  # read-only, no setuid, no devices
    recursively = 0x8000
    _syscall(
        _MOUNT_SETATTR,
        -100,
        ctypes.c_char_p(target.encode()),
        recursively,
        ctypes.create_string_buffer(attributes, len(attributes)),
        len(attributes),
    )


def _address_space() -> int:
    """Bytes of it that this process has now: PyTorch maps gigabytes that it never uses."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _limit(limits: Limits, taken: int) -> None:
    for kind, value in (
        (resource.RLIMIT_AS, taken + limits.memory),
        (resource.RLIMIT_CPU, limits.seconds),
        (resource.RLIMIT_FSIZE, limits.file),
        (resource.RLIMIT_NOFILE, limits.descriptors),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(kind)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (value, value))


_READ_FILE, _READ_FOLDER = 1 << 2, 1 << 3
_WRITE = sum(1 << bit for bit in (1, 2, 3, 4, 5, 7, 8, 12, 14))
"""Write, read, list, remove, make folders, files and links, truncate."""


def landlock_version() -> int:
    """What this kernel's Landlock can do; 0 when there is none."""
    try:
        return _syscall(_LANDLOCK_CREATE, None, 0, 1)
    except OSError:
        return 0


def _open_only(reach: Reach) -> None:
    version = landlock_version()
    if version < 1:
        raise OSError("this kernel has no Landlock")
    handled = (1 << (13 + min(version - 1, 2))) - 1  # 13 rights at first; refer and truncate with 2 and 3
    handled |= (1 << 15) if version >= 5 else 0
    rules = struct.pack("QQQ", handled, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    made = _syscall(_LANDLOCK_CREATE, ctypes.create_string_buffer(rules, len(rules)), size, 0)
    try:
        for path in _readable_parts(reach):
            _allow(made, path, (_READ_FILE | _READ_FOLDER) & handled)
        for path in DEVICES:
            _allow(made, path, (_READ_FILE | 1 << 1) & handled)
        _allow(made, reach.scratch, _WRITE & handled)
        _syscall(_LANDLOCK_RESTRICT, made, 0)
    finally:
        os.close(made)


def _readable_parts(reach: Reach) -> list[str]:
    """What may be read, without what is hidden: a tree that holds something hidden is given child by child."""
    parts = []
    for tree in reach.readable:
        if any(hidden.startswith(tree.rstrip("/") + "/") for hidden in reach.hidden):
            parts += [entry.path for entry in os.scandir(tree) if entry.path not in reach.hidden]
        elif tree not in reach.hidden:
            parts.append(tree)
    return parts


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _READ_FILE | 1 << 1 | 1 << 14
        rule = struct.pack("=Qi", rights, opened)
        _syscall(_LANDLOCK_ADD, rules, 1, ctypes.create_string_buffer(rule, len(rule)), 0)
    finally:
        os.close(opened)


def _drop_capabilities() -> None:
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0), 8)
    _called(_libc.capset(header, ctypes.create_string_buffer(24)), "dropping capabilities")


def tried(reach: Reach) -> Layers:
    """The layers that hold here, found by entering them in a child. None on a system other than Linux."""
    if sys.platform != "linux" or not syscalls.known_machine():
        return NOTHING
    landlock = landlock_version() >= 1
    for layers in (Layers(True, landlock, True), Layers(False, landlock, True), Layers(True, False, True)):
        if layers.enough and _holds(layers, reach):
            return layers
    return NOTHING


def _holds(layers: Layers, reach: Reach) -> bool:
    try:
        child = fork(layers)
    except OSError:
        return False
    if child == 0:
        code = 1
        try:
            enter(layers, reach, Limits())
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return status == 0
