"""Landlock, seccomp and rlimits through ctypes: what confines untrusted Python on Linux.

Needs no privilege and no package. Landlock (kernel 5.13, ABI 1) leaves only reads below the
interpreter's prefix; seccomp takes away the network, processes, threads, signals, everything that
changes files or limits, and the calls of kernels younger than this list; rlimits bound CPU time,
memory and descriptors. Numbers of system calls: include/uapi/asm-generic/unistd.h and
arch/x86/entry/syscalls/syscall_64.tbl.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from functools import lru_cache

__all__ = [
    "Filter",
    "apply_landlock",
    "die_with_parent",
    "landlock_abi",
    "limit_child",
    "no_new_privileges",
]

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38

# name -> (x86-64, aarch64); None where the architecture has no such call
_DENIED: dict[str, tuple[int | None, int | None]] = {
    # network
    "socket": (41, 198), "connect": (42, 203), "accept": (43, 202), "sendto": (44, 206),
    "recvfrom": (45, 207), "sendmsg": (46, 211), "recvmsg": (47, 212), "bind": (49, 200),
    "listen": (50, 201), "socketpair": (53, 199), "setsockopt": (54, 208), "accept4": (288, 242),
    "recvmmsg": (299, 243), "sendmmsg": (307, 269),
    # processes, threads, signals
    "clone": (56, 220), "fork": (57, None), "vfork": (58, None), "clone3": (435, 435),
    "execve": (59, 221), "execveat": (322, 281), "kill": (62, 129), "tkill": (200, 130),
    "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "setpgid": (109, 154), "setsid": (112, 157),
    "timer_create": (222, 107), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274),
    "setpriority": (141, 140), "ioprio_set": (251, 30),
    # limits and privileges
    "prctl": (157, 167), "seccomp": (317, 277), "prlimit64": (302, 261), "setrlimit": (160, 164),
    "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143),
    "setgroups": (116, 159), "setresuid": (117, 147), "setresgid": (119, 149), "capset": (126, 91),
    "personality": (135, 92), "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280),
    "perf_event_open": (298, 241), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "modify_ldt": (154, None),
    "iopl": (172, None), "ioperm": (173, None),
    # the machine
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142), "sethostname": (170, 161),
    "setdomainname": (171, 162), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171), "acct": (163, 89),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "vhangup": (153, 58), "uselib": (134, None),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "statmount": (457, 457),
    "listmount": (458, 458), "lsm_set_self_attr": (460, 460),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "syslog": (103, 116),
    # shared memory, semaphores and message queues are others' too, and outlive a process
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "mq_open": (240, 180), "mq_unlink": (241, 181), "mq_timedsend": (242, 182),
    "mq_timedreceive": (243, 183), "mq_notify": (244, 184), "mq_getsetattr": (245, 185),
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    # locks that others wait for, disks that all wait for, and what watches others' files
    "flock": (73, 32), "sync": (162, 81), "syncfs": (306, 267), "sync_file_range": (277, 84),
    "io_setup": (206, 0), "inotify_init": (253, None), "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27), "inotify_rm_watch": (255, 28), "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    # changes to files that landlock does not see, or sees only in later versions
    "creat": (85, None), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None),
    "unlink": (87, None), "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38),
    "renameat2": (316, 276), "link": (86, None), "linkat": (265, 37), "symlink": (88, None),
    "symlinkat": (266, 36), "mknod": (133, None), "mknodat": (259, 33), "truncate": (76, 45),
    "ftruncate": (77, 46), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55), "lchown": (94, None),
    "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "openat2": (437, 437), "fallocate": (285, 47),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "getxattr": (191, 8),
    "lgetxattr": (192, 9), "fgetxattr": (193, 10), "listxattr": (194, 11), "llistxattr": (195, 12),
    "flistxattr": (196, 13), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
}  # fmt: skip
# what the zygote itself still needs: its children lose it with a second, short filter
_ZYGOTE_NEEDS = frozenset(
    {"clone", "fork", "vfork", "clone3", "kill", "prctl", "seccomp", "prlimit64", "setrlimit"}
)
_OPEN = {"x86_64": ((2, 1), (257, 2)), "aarch64": ((56, 2),)}  # (call, index of its flags)
# A list of what is denied ages with the kernel: calls that it does not know answer ENOSYS, as on a
# kernel without them. They lie in a gap of the table and behind mseal, the last call of Linux 6.12;
# setxattrat and file_setattr, which came next, change files.
_GAP = {"x86_64": (335, 424), "aarch64": (295, 424)}  # end exclusive
_FIRST_UNKNOWN = 463
# Of two calls with many uses only these are left: call -> (number, values of its second argument)
_ONLY = {
    # a lease or a lock keeps others from a file, and a ready pipe may signal any process:
    # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC, F_GETPIPE_SZ
    "fcntl": ({"x86_64": 72, "aarch64": 25}, (0, 1, 2, 3, 4, 1030, 1032)),
    # FS_IOC_SETFLAGS changes a file: TCGETS, FIONREAD, FIOCLEX, FIONCLEX
    "ioctl": ({"x86_64": 16, "aarch64": 29}, (0x5401, 0x541B, 0x5451, 0x5450)),
}
_ARCH = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    """The C library, looked up once: every child of a zygote would pay for it again."""
    return ctypes.CDLL(None, use_errno=True)


def landlock_abi() -> int:
    """Version of landlock that the kernel offers, 0 where there is none. Changes nothing."""
    if sys.platform != "linux" or platform.machine() not in _ARCH:
        return 0
    version = _libc().syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    return max(int(version), 0)


def no_new_privileges() -> bool:
    """Give up the right to gain privileges; needed by landlock and seccomp."""
    return bool(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)


def apply_landlock(readable: list[str]) -> int:
    """Confine this process and its children to reading below ``readable``.

    Returns:
        The ABI that was applied, 0 where nothing could be.
    """
    abi = landlock_abi()
    if not abi:
        return 0
    libc = _libc()
    handled = (1 << 13) - 1
    if abi >= 2:
        handled |= 1 << 13
    if abi >= 3:
        handled |= 1 << 14
    if abi >= 5:
        handled |= 1 << 15
    network = 3 if abi >= 4 else 0
    scoped = 3 if abi >= 6 else 0  # signals and abstract sockets
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    attributes = struct.pack("QQQ", handled, network, scoped)[:size]
    ruleset = libc.syscall(_LANDLOCK_CREATE, ctypes.c_char_p(attributes), ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return 0
    try:
        for path in readable:
            if not os.path.exists(path):
                continue
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            allowed = (1 << 2) | (1 << 3) if os.path.isdir(path) else 1 << 2  # read file, read dir
            rule = struct.pack("=Qi", allowed, fd)
            libc.syscall(_LANDLOCK_ADD, ruleset, 1, ctypes.c_char_p(rule), 0)
            os.close(fd)
        return abi if libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) == 0 else 0
    finally:
        os.close(ruleset)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


class Filter:
    """A seccomp filter, assembled once.

    Two are used: a long one that the zygote puts on itself and its children inherit, and a short
    one that each child adds. Filters add up, and installing a short one is cheap.

    Args:
        child: Assemble the short one.
    """

    def __init__(self, *, child: bool) -> None:
        self.ready = sys.platform == "linux" and platform.machine() in _ARCH
        if not self.ready:
            return
        machine = platform.machine()
        arch, column = _ARCH[machine]
        load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
        kill, allow = 0x80000000, 0x7FFF0000
        refuse, unknown = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
        steps = [(load, 0, 0, 4), (equal, 1, 0, arch), (give, 0, 0, kill), (load, 0, 0, 0)]
        if machine == "x86_64":  # the x32 table would bypass the numbers below
            steps += [(at_least, 0, 1, 0x40000000), (give, 0, 0, kill)]
        if not child:
            low, high = _GAP[machine]
            steps += [(at_least, 0, 2, low), (at_least, 1, 0, high), (give, 0, 0, unknown)]
            steps += [(at_least, 0, 1, _FIRST_UNKNOWN), (give, 0, 0, unknown)]
        calls = (row[column] for name, row in _DENIED.items() if (name in _ZYGOTE_NEEDS) == child)
        numbers = sorted({call for call in calls if call is not None})
        for number in numbers:
            steps += [(equal, 0, 1, number), (give, 0, 0, refuse)]
        for call, index in () if child else _OPEN[machine]:
            steps += [
                (equal, 0, 4, call),
                (load, 0, 0, 16 + 8 * index),
                (any_bit, 0, 1, _WRITE_FLAGS),
                (give, 0, 0, refuse),
                (give, 0, 0, allow),
            ]
        for numbers_of, values in () if child else _ONLY.values():
            last = len(values) - 1
            steps += [(equal, 0, last + 4, numbers_of[machine]), (load, 0, 0, 24)]
            steps += [(equal, last - i + 1, 0, value) for i, value in enumerate(values)]
            steps += [(give, 0, 0, refuse), (give, 0, 0, allow)]
        steps.append((give, 0, 0, allow))
        self._bytes = b"".join(struct.pack("HBBI", *step) for step in steps)
        self._program = _Program(len(steps), self._bytes)
        self._libc = _libc()

    def install(self) -> bool:
        """Install the filter in this process for good."""
        if not self.ready:
            return False
        pointer = ctypes.byref(self._program)
        return bool(self._libc.prctl(_PR_SET_SECCOMP, 2, pointer, 0, 0) == 0)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    if sys.platform == "linux":
        _libc().prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)


def limit_child(cpu_s: int, memory_bytes: int) -> None:
    """Bound this process: CPU seconds, address space, no files, few descriptors, no core."""
    import resource

    limit = resource.setrlimit
    limit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    limit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    limit(resource.RLIMIT_FSIZE, (0, 0))
    limit(resource.RLIMIT_CORE, (0, 0))
    limit(resource.RLIMIT_NOFILE, (32, 32))
