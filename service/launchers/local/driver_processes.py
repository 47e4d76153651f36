"""Finds the processes of a driver and its Ray: they inherit an environment variable that no other process has."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import defaultdict
from pathlib import Path

MARK = "DRIFTLINE_DRIVER"
"""The variable: the path of the driver's lock, which ends in STUDY.lock."""


def marked(logs: Path, pid: int | None = None) -> dict[str, list[int]]:
    """Processes of the drivers whose locks lie in a folder.

    Args:
        logs: The folder.
        pid: Look at this process only.

    Returns:
        Process ids by study id; empty on a system without /proc.
    """
    mark = f"{MARK}={logs}/".encode()
    pids: dict[str, list[int]] = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*" if pid is None else str(pid)):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            for variable in (entry / "environ").read_bytes().split(b"\0"):
                if variable.startswith(mark):
                    pids[variable.removeprefix(mark).decode().removesuffix(".lock")].append(int(entry.name))
    return pids


def driver(logs: Path, study_id: str) -> int | None:
    """Process id of the study's driver, without the processes that it started; None if there is none."""
    argument = f"--study={study_id}".encode()
    for pid in marked(logs).get(study_id, ()):
        with contextlib.suppress(OSError):
            if argument in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                return pid
    return None


def kill(logs: Path, study_id: str) -> list[int]:
    """Sends SIGKILL, which also ends suspended processes, to all processes of a study; returns their ids."""
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
