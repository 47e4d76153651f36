"""Runs a program that imports plug-ins where the service's secrets cannot be reached: `python -m service.confined`.

Code of a plug-in runs as the service's account. Linux lets a process give up rights for itself and all that it starts:
Landlock limits the files that it opens and hides the memory and environment of other processes; a seccomp filter takes
away sockets and tracing. Both survive `exec`, so this module confines itself while it has one thread, and then
becomes the program. Where the kernel has no Landlock, root becomes nobody, and others keep what their account may read.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import struct
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

NOBODY = 65534

_SYSTEM = (
    *("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/proc", "/sys", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf"),
    *("/etc/mime.types", "/etc/fonts", "/etc/alternatives", "/dev/zero", "/dev/random", "/dev/urandom"),
)
_WRITABLE = ("/dev/null", "/proc/self/oom_score_adj")

# Landlock: its system calls have the same numbers on all processors; its rights depend on the kernel's version
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read files, list folders
_LIST = 1 << 3
_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14  # what a rule for a file may name: execute, write, read, truncate
_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP = 1 << 0 | 1 << 1  # bind, connect: from version 4
_SCOPED = 1 << 0 | 1 << 1  # abstract Unix sockets, signals: from version 6
_NO_NEW_PRIVS, _SECCOMP, _BOUNDING_DROP, _DUMPABLE = 38, 22, 24, 4

# By processor: its name in a filter; the numbers of socket, ptrace, process_vm_readv and _writev, add_key, request_key,
# keyctl, and then of two calls that are numbered alike, pidfd_getfd and io_uring_setup
_ARCHITECTURES = {
    "x86_64": (0xC000003E, (41, 101, 310, 311, 248, 249, 250, 438, 425)),
    "aarch64": (0xC00000B7, (198, 117, 270, 271, 217, 218, 219, 438, 425)),
}

_libc = ctypes.CDLL(None, use_errno=True)


def hide_process() -> None:
    """Hides this process's memory and environment from other processes of its account; does nothing except on Linux."""
    if sys.platform == "linux":
        _libc.prctl(_DUMPABLE, 0, 0, 0, 0)


def landlock_version() -> int:
    """Version of the kernel's Landlock; 0 without it."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def becomes_nobody() -> bool:
    """Whether a program that this process confines gets the account nobody."""
    return sys.platform == "linux" and os.geteuid() == 0 and not landlock_version()


def command(
    program: Sequence[str],
    *,
    readable: Sequence[Path],
    writable: Sequence[Path],
    hidden: Sequence[Path],
    sockets: bool = False,
) -> list[str]:
    """The command that runs a Python program confined: it reads system files, Python's and `readable` ones.

    Args:
        program: Its arguments for Python: ``["-m", "service.api.check_process", ...]``.
        readable: Folders and files that it may also read, and those to which links in these folders lead.
        writable: Folders and files that it may also write.
        hidden: Files and folders that it may not read even if they lie in the folders above or in Python's. In
            `writable` folders and in Python's, the names of hidden files can still be listed.
        sockets: Whether it may open sockets.
    """
    rules = json.dumps([sockets, *([str(path) for path in paths] for paths in (readable, writable, hidden))])
    return [sys.executable, "-P", "-m", __name__, rules, *program]


def confine(
    readable: Sequence[Path], writable: Sequence[Path], hidden: Sequence[Path], *, sockets: bool = False
) -> None:
    """Confines this thread and everything that it will start, for good."""
    if sys.platform != "linux":
        return
    version = landlock_version()
    if becomes_nobody():
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        _drop_capabilities()
    elif os.geteuid() == 0:
        _drop_capabilities()
    _check(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    if version:
        _landlock(version, readable, [*map(Path, _WRITABLE), *writable], hidden, sockets)
    if not sockets:
        _filter_calls()


def _python() -> Iterator[Path]:
    """Where Python's modules and libraries lie, those of projects that are installed in place included."""
    yield from map(Path, filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":")))
    yield from map(Path, (sys.prefix, sys.base_prefix, sys.exec_prefix))
    for folder in map(Path, filter(None, sys.path)):
        yield folder
        for note in folder.glob("*.dist-info/direct_url.json"):
            url = str(json.loads(note.read_bytes()).get("url", ""))
            if url.startswith("file://"):
                yield Path(url.removeprefix("file://"))


def _linked(folders: Sequence[Path]) -> Iterator[Path]:
    """Where links in these folders, and one level deeper, lead: a data set may lie on another disk."""
    for folder in folders:
        for link in (*folder.glob("*"), *folder.glob("*/*")):
            target = Path(os.path.realpath(link))  # Path.resolve fails for a link to itself
            if link.is_symlink() and not folder.resolve().is_relative_to(target):
                yield target


def _around(path: Path, hidden: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """Paths that cover a path without the hidden ones; for each, whether everything in it is allowed."""
    if path in hidden:
        return
    whole = not any(hidden_path.is_relative_to(path) for hidden_path in hidden)
    yield path, whole
    if not whole:
        with contextlib.suppress(PermissionError):
            for child in path.iterdir():
                if not child.is_symlink():
                    yield from _around(child, hidden)


def _landlock(
    version: int, readable: Sequence[Path], writable: Sequence[Path], hidden: Sequence[Path], sockets: bool
) -> None:
    files = max(right for first, right in _FILES.items() if first <= version)
    attributes = struct.pack("QQQ", files, _TCP if version >= 4 and not sockets else 0, _SCOPED if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _check(_libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0))
    kept_out = [path.resolve() for path in hidden]
    python, data = [*map(Path, _SYSTEM), *_python()], [*readable, *_linked(readable)]
    for paths, rights, between in ((python, _READ, _LIST), (data, _READ, 0), (writable, files, _LIST)):
        for path in filter(Path.exists, paths):
            for subpath, whole in _around(path.resolve(), kept_out):
                # Python finds no module in a folder that it cannot list. This shows the names of hidden files there.
                if allowed := rights & files if whole else between:
                    _allow(ruleset, subpath, allowed)
    _check(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # it was removed meanwhile
        return
    try:
        rule = struct.pack("=Qi", rights if path.is_dir() else rights & _FILE, handle)
        _check(_libc.syscall(_ADD_RULE, ruleset, 1, rule, 0))
    finally:
        os.close(handle)


def _drop_capabilities() -> None:
    """Takes all capabilities from root, which then has the rights of an ordinary account that owns root's files."""
    for number in range(64):
        _libc.prctl(_BOUNDING_DROP, number, 0, 0, 0)
    header, none = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _check(_libc.capset(header, none))


def _filter_calls() -> None:
    """Forbids sockets, tracing and the kernel's keys, on processors whose system calls are listed here."""
    if platform.machine() not in _ARCHITECTURES:
        return
    name, refused = _ARCHITECTURES[platform.machine()]
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    allow, refuse, kill = 0x7FFF0000, 0x00050001, 0x80000000  # EPERM
    lines = [(load, 0, 0, 4), (equal, 1, 0, name), (give, 0, 0, kill), (load, 0, 0, 0)]
    lines += [(at_least, len(refused) + 1, 0, 0x40000000)]  # the x32 numbers of x86_64
    lines += [(equal, len(refused) - index, 0, number) for index, number in enumerate(refused)]
    lines += [(give, 0, 0, allow), (give, 0, 0, refuse)]
    program = b"".join(struct.pack("HBBI", *line) for line in lines)
    text = ctypes.create_string_buffer(program, len(program))
    _check(_libc.prctl(_SECCOMP, 2, ctypes.byref(_Program(len(lines), ctypes.addressof(text))), 0, 0))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _check(outcome: int) -> int:
    if outcome < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return outcome


def _main(rules: str, program: Sequence[str]) -> None:
    sockets, *places = json.loads(rules)
    readable, writable, hidden = ([Path(path) for path in paths] for paths in places)
    confine(readable, writable, hidden, sockets=sockets)
    command_line = [sys.executable, "-P", *program]
    try:
        os.execv(command_line[0], command_line)
    except PermissionError:
        sys.exit(
            f"{command_line[0]} must be readable to the account nobody, because this kernel has no Landlock: install "
            "Python elsewhere, or start the service with an account other than root"
        )


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
