"""Writes files by name and never through a link, so that a link made by another user redirects nothing.

    put, put_new     write a whole file, in place of an older one or only where none is
    append, update   open a file that grows or is changed in place
    read             opens such a file to read it
    require_plain    for a file that a library opens by its name
    require_folder   for a folder in which files are changed in place

A file that is changed in place must be a plain file with one name: a link, also a hard one, would change another file.
Errors are OSErrors with the file's name, and say in `strerror` what is wrong and what to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import IO

DRAFT = ".part"
"""End of the name of a file that is being written."""

_CLOSED = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not wait for its other end


def put(path: Path, data: bytes) -> None:
    """Writes a file whole or not at all; a link of this name is replaced, not followed.

    Args:
        path: The file; its folder must exist.
        data: Its contents.

    Raises:
        OSError: It cannot be written, or the name is that of a folder, a device or a pipe.
    """
    mode = _mode(path)
    name = os.fsdecode(os.fsencode(path.name)[:200])
    draft = path.parent / f".{name}.{secrets.token_hex(6)}{DRAFT}"
    try:
        put_new(draft, data, mode)
        os.replace(draft, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise


def put_new(path: Path, data: bytes, mode: int | None = None) -> None:
    """Writes a new file; leaves none behind if that fails.

    Args:
        path: The file; its folder must exist.
        data: Its contents.
        mode: Its permissions; those of the umask by default.

    Raises:
        FileExistsError: There is a file or a link of this name.
        OSError: It cannot be written.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _CLOSED, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except BaseException as error:
        with contextlib.suppress(OSError):
            path.unlink()
        if isinstance(error, OSError):
            error.filename = str(path)
        raise


def append(path: Path) -> int:
    """Opens a file to append to it, and makes it if it is missing; returns its descriptor."""
    return _opened(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def update(path: Path, mode: int = 0o666) -> IO[str]:
    """Opens a file to read and change it; a missing file is made, with permissions `mode` reduced by the umask."""
    return os.fdopen(_opened(path, os.O_RDWR | os.O_CREAT, mode), "r+", encoding="utf-8")


def read(path: Path) -> IO[str]:
    """Opens a file to read it."""
    return os.fdopen(_opened(path, os.O_RDONLY), "r", encoding="utf-8", errors="replace")


def require_plain(path: Path) -> None:
    """Checks a file that a library will open by its name and change in place; it may be missing.

    Raises:
        OSError: It is no plain file, has a second name, or belongs to another user.
    """
    with contextlib.suppress(FileNotFoundError):
        _check(path, path.lstat())


def require_folder(path: Path) -> None:
    """Checks that nobody else can put links into a folder.

    The folder of another user is refused, also to root. The owner may be root, or the owner of files that this process
    makes there, because a file server may map several users to one.

    Raises:
        OSError: It belongs to another user, or is a link of another user.
    """
    for status in (path.lstat(), path.stat()):
        if status.st_uid not in (os.geteuid(), 0) and status.st_uid != _maker(path):
            raise OSError(
                errno.EPERM,
                f"belongs to {_user(status.st_uid)}: work as that user, or in a folder of your own",
                str(path),
            )


def _opened(path: Path, flags: int, mode: int = 0o666) -> int:
    try:
        descriptor = os.open(path, flags | _CLOSED, mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):  # a link; a pipe that nobody reads; a folder
            _check(path, path.lstat())
        raise
    try:
        status = os.fstat(descriptor)
        if flags & (os.O_WRONLY | os.O_RDWR) or not stat.S_ISREG(status.st_mode):
            _check(path, status)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(path: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, f"is a link to {os.readlink(path)!r}: remove the link", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "must be a file, got a folder, device or pipe: remove it", str(path))
    if status.st_nlink > 1:
        problem = "is a hard link, and its other name would change too: replace it by a copy"
        raise OSError(errno.EMLINK, problem, str(path))
    if status.st_uid not in (os.geteuid(), 0) and status.st_uid != path.parent.stat().st_uid:
        raise OSError(errno.EPERM, f"belongs to {_user(status.st_uid)}: remove it", str(path))


def _mode(path: Path) -> int | None:
    """The permissions of the file to be replaced; None if there is none."""
    try:
        status = path.stat()
    except OSError:  # missing, or a link to nothing
        return None
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "must be a file, got a folder, device or pipe: give another name", str(path))
    return None if path.is_symlink() else stat.S_IMODE(status.st_mode) & 0o777


def _maker(folder: Path) -> int:
    """The owner of a file that this process makes in a folder; -1 if it cannot make one."""
    probe = folder / f".{secrets.token_hex(6)}{DRAFT}"
    try:
        put_new(probe, b"")
        return probe.lstat().st_uid
    except OSError:
        return -1
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()


def _user(number: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"
