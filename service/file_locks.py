"""File locks that end with the process that holds them, and temporary folders whose leftovers are removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

from trainers.own_files import read

LOCK = "lock"
"""Name of the lock file in a folder made by `own_folder`."""

_RANDOM = 8  # characters that `mkdtemp` appends


def acquire(file: IO[str], *, shared: bool = False) -> bool:
    """Locks an open file until it is closed; False if another process holds the lock.

    Args:
        file: The file; open for writing, unless the lock is shared.
        shared: Whether other shared locks are allowed beside this one.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def own_folder(prefix: str, longest: int) -> tuple[Path, IO[str]]:
    """Makes a locked folder; first removes folders with this prefix whose processes have died.

    Args:
        prefix: Start of the folder's name.
        longest: Maximum length of its path in characters; if it would be longer, it is made in /tmp.

    Returns:
        The folder, readable by its owner only, and its lock, which is held until it is closed.
    """
    root = Path(tempfile.gettempdir())
    if len(str(root)) + len(prefix) + _RANDOM > longest and os.access("/tmp", os.W_OK):
        root = Path("/tmp")
    for old in root.glob(prefix + "?" * _RANDOM):
        with contextlib.suppress(OSError), read(old / LOCK) as lock:
            if old.lstat().st_uid == os.getuid() and acquire(lock):
                shutil.rmtree(old, ignore_errors=True)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=root))  # mode 0700
        folder_lock = (folder / LOCK).open("w")
        fcntl.flock(folder_lock, fcntl.LOCK_EX)
        if folder.exists():  # else another process removed it before it was locked
            return folder, folder_lock
        folder_lock.close()
