"""Which processes of this machine belong to a driver: it and its Ray inherit a variable that nothing else has."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import defaultdict
from pathlib import Path

MARK = "DRIFTLINE_DRIVER"
"""The variable: the path of the driver's lock, which ends in STUDY.lock."""


def marked(logs: Path, pid: int | None = None) -> dict[str, list[int]]:
    """Processes of the drivers whose locks lie in a folder, by study.

    Args:
        logs: The folder.
        pid: Look at this process only.

    Returns:
        Nothing where the system has no /proc.
    """
    mark = f"{MARK}={logs}/".encode()
    found: dict[str, list[int]] = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*" if pid is None else str(pid)):
        with contextlib.suppress(OSError):  # it has ended, or belongs to somebody else
            for variable in (entry / "environ").read_bytes().split(b"\0"):
                if variable.startswith(mark):
                    found[variable.removeprefix(mark).decode().removesuffix(".lock")].append(int(entry.name))
    return found


def driver(logs: Path, study_id: str) -> int | None:
    """The study's driver among its processes; None when there is none."""
    argument = f"--study={study_id}".encode()
    for pid in marked(logs).get(study_id, ()):
        with contextlib.suppress(OSError):
            if argument in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return pid
    return None


def kill(logs: Path, study_id: str) -> list[int]:
    """Sends SIGKILL, which ends stopped processes too, to all processes of a study; returns those that were there."""
    pids = marked(logs).get(study_id, [])
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            handle = os.pidfd_open(pid)  # no other process gets this number while the handle is open
            try:
                if study_id in marked(logs, pid):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)
    return pids
