"""Whether the holder of a lease or lock is a process of this machine that has ended."""

import os
import socket
from pathlib import Path


def gone(holder: str) -> bool:
    """Whether a holder (``host/pid`` or ``host/pid/more``) is a process of this machine that has ended."""
    host, _, rest = holder.partition("/")
    pid = rest.partition("/")[0]
    if host != socket.gethostname() or not pid.isdecimal() or int(pid) == 0:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    return _is_zombie(int(pid))


def _is_zombie(pid: int) -> bool:
    """Whether a process is a zombie: it has ended, and its parent has not read its exit code."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:  # not Linux
        return False
    return stat.rpartition(")")[2].split()[0] == "Z"
