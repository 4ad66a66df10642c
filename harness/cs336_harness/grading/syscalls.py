"""The system calls that a submission has no use for, and the filter that refuses them. Standard library only.

A list of what is denied, not of what is allowed: new libraries keep working. What a denied call could do is either
starting programs, reaching other processes or the network, leaving something behind in the system, or changing what
Landlock does not guard (modes, owners and times of files).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    "socket": (41, 198),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "kcmp": (312, 272),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "open_tree": (428, 428),
    "mount_setattr": (442, 442),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "kexec_load": (246, 104),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "quotactl": (179, 60),
    "acct": (163, 89),
    "personality": (135, 92),
    "syslog": (103, 116),
    "fanotify_init": (300, 262),
    "vhangup": (153, 58),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "utime": (132, None),
    "utimes": (235, None),
    "utimensat": (280, 88),
    "futimesat": (261, None),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "truncate": (76, 45),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
}
"""Name -> its number on x86_64 and on aarch64."""

SPECIAL = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "kill": (62, 129),
    "tgkill": (234, 131),
    "prlimit64": (302, 261),
    "prctl": (157, 167),
    "socketpair": (53, 199),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
}
"""Calls that are allowed for some arguments: threads, signals to oneself, one's own limits, anything but outliving the
parent; two sockets that know only each other; anything of a descriptor but whom its signals go to."""

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine -> its place in :data:`NUMBERS`, and the kernel's word for it."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x54
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_DENY, _ABSENT = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_X32 = 0x40000000
_CLONE_THREAD = 0x00010000
_PR_SET_SECCOMP, _FILTER = 22, 2
DIE_WITH_PARENT = 1
"""What ``prctl`` is given to be killed when the parent ends."""

STREAM, KIND_OF_SOCKET = 1, 0xF
"""A socket of a pair that can be connected to no other one, and the bits that say which kind one is."""

OWNERS = {"fcntl": (8, 10, 15), "ioctl": (0x8901, 0x8902)}
"""F_SETOWN, F_SETSIG, F_SETOWN_EX; FIOSETOWN, SIOCSPGRP: what has the kernel send signals to any process."""


def known_machine() -> bool:
    """Whether the filter knows this machine's numbers."""
    return platform.machine() in ARCHITECTURES


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def program() -> bytes:
    """The filter for this machine and this process, as the kernel's instructions."""
    column, architecture = ARCHITECTURES[platform.machine()]
    steps = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, architecture, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
        _step(_AT_LEAST, _X32, 0, 1),
        _step(_RETURN, _DENY),
    ]
    for numbers in NUMBERS.values():
        number = numbers[column]
        if number is not None:
            steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _DENY)]
    steps += [_step(_EQUAL, SPECIAL["clone3"][column], 0, 1), _step(_RETURN, _ABSENT)]  # then glibc takes clone
    steps += [
        _step(_EQUAL, SPECIAL["clone"][column], 0, 4),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_ANY_BIT, _CLONE_THREAD, 1, 0),
        _step(_RETURN, _DENY),
        _step(_RETURN, _ALLOW),
    ]
    for name, own in (("kill", os.getpid()), ("tgkill", os.getpid()), ("prlimit64", 0)):
        steps += [
            _step(_EQUAL, SPECIAL[name][column], 0, 4),
            _step(_LOAD, _FIRST_ARGUMENT),
            _step(_EQUAL, own, 1, 0),
            _step(_RETURN, _DENY),
            _step(_RETURN, _ALLOW),
        ]
    steps += [
        _step(_EQUAL, SPECIAL["prctl"][column], 0, 3),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_EQUAL, DIE_WITH_PARENT, 0, 1),
        _step(_RETURN, _DENY),
        _step(_LOAD, _NUMBER),
        _step(_EQUAL, SPECIAL["socketpair"][column], 0, 5),
        _step(_LOAD, _SECOND_ARGUMENT),
        _step(_AND, KIND_OF_SOCKET),
        _step(_EQUAL, STREAM, 1, 0),
        _step(_RETURN, _DENY),
        _step(_RETURN, _ALLOW),
    ]
    for name, denied in OWNERS.items():
        steps += [_step(_EQUAL, SPECIAL[name][column], 0, 2 * len(denied) + 2), _step(_LOAD, _SECOND_ARGUMENT)]
        for value in denied:
            steps += [_step(_EQUAL, value, 0, 1), _step(_RETURN, _DENY)]
        steps.append(_step(_RETURN, _ALLOW))
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def refuse() -> None:
    """Refuses the calls to this process from now on, for good. ``OSError`` where the kernel takes no filter."""
    steps = program()
    buffer = ctypes.create_string_buffer(steps, len(steps))
    filtered = _Program(len(steps) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_SECCOMP, _FILTER, ctypes.byref(filtered), 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel takes no seccomp filter")
