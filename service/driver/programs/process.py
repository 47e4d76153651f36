"""A program as a process group: it ends with its trial, and with the worker, whatever way that ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from service.driver.programs.report_lines import ProgramError
from service.driver.programs.run_log import RunLog

_GUARD = ["/bin/sh", "-c", "read line; kill -9 0"]
"""Kills the group that it is in when its stdin ends: with the worker, which holds the other end."""

POLL_S = 0.02


class Process:
    """A started program.

    Args:
        command: The program and its arguments.
        folder: Its working directory.
        environment: Its environment.
        log: Takes what it prints.

    Raises:
        ProgramError: It cannot be started.
    """

    def __init__(self, command: Sequence[str], folder: str, environment: Mapping[str, str], log: RunLog) -> None:
        self._log = log
        try:
            self._program = subprocess.Popen(
                list(command),
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,  # in the session of the worker, so that the guard can join it
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            raise ProgramError(f"cannot be started in {folder}: {error}") from error
        assert self._program.stdout is not None
        assert self._program.stderr is not None
        log.drain(self._program.stdout, named=False)
        log.drain(self._program.stderr, named=True)
        self._guard = self._guarded()
        self.started = time.monotonic()

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._program.poll()

    def terminate(self, grace_s: float) -> bool:
        """Sends SIGTERM to the program, and waits; whether it has ended in time."""
        if self.code is None:
            self._program.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(grace_s)
        return self.code is not None

    def end(self) -> int:
        """Kills what is left of the group; returns how many processes beside the program there were."""
        if self._guard is None:
            return 0
        left = _members(self._program.pid) - {self._program.pid, self._guard.pid}
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._program.pid, signal.SIGKILL)
        self._program.wait()
        assert self._guard.stdin is not None
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        self._guard.wait()
        self._guard = None
        self._log.close()
        return len(left)

    def _guarded(self) -> subprocess.Popen[bytes] | None:
        try:
            return subprocess.Popen(
                _GUARD,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                process_group=self._program.pid,
            )
        except OSError as error:
            self._program.kill()
            self._program.wait()
            raise ProgramError(f"cannot be guarded: {error}") from error


def _members(group: int) -> set[int]:
    """The live processes of a group; none where /proc does not tell."""
    members = set()
    for entry in Path("/proc").iterdir() if Path("/proc/self/stat").exists() else ():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                state, _, own = (entry / "stat").read_text().rpartition(")")[2].split()[:3]
                if int(own) == group and state not in "ZX":
                    members.add(int(entry.name))
    return members
