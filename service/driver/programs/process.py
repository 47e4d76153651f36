"""A program with all its processes, which end with the trial, and with the worker however the worker ends.

A guard process leads the program's process group, and kills the group when the worker dies. Processes that leave the
group, as those of torchrun do, are found by the variable `VARIABLE` in their environment (on Linux).
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driftline.program_command import obstacle
from service.driver.programs.report_lines import ProgramError
from service.driver.programs.run_log import RunLog

VARIABLE = "DRIFTLINE_TRIAL"
"""Tells the program the path of its trial's document. Each run has its own, so the value marks all its processes."""

_GUARD = """trap '' HUP INT QUIT TERM
echo
read line
for sweep in ${1:+1 2 3}; do
    for place in $(grep -lsF -e "$1" /proc/[0-9]*/environ); do
        process=${place%/environ}
        kill -9 "${process#/proc/}"
    done
done
kill -9 0"""
"""Kills the processes of the run when its stdin closes, which happens when the worker at the other end dies.

The guard ignores the SIGTERM that shell scripts send to their whole group in a trap; the program is started only when
the guard has said that it does.
"""

_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY, errno.EIO, errno.ESTALE)
"""Errors at the start of a program that may not recur at the next attempt."""

_PATIENCE_S = 0.5  # for processes that end by themselves after the program, such as Python's resource tracker
_LEAVE_S = 2.0  # for a reused program to exit, when there is no next trial
_STARTED = 19  # index of a process's start time in /proc/PID/stat, counted after its name
_SWEEPS = 20  # through the processes, which may start others while they are killed


class Process:
    """A started program.

    Args:
        command: The program and its arguments.
        folder: Its working directory.
        environment: Its environment.
        log: Takes the program's output.
        reuse: Whether it trains several trials, and reads the paths of their documents from stdin.

    Attributes:
        log: Takes the program's output.
        unseen: Whether a process that `end` did not find still holds the output open.

    Raises:
        ProgramError: The program cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: str,
        environment: Mapping[str, str],
        log: RunLog,
        *,
        reuse: bool = False,
    ) -> None:
        self.log = log
        self.unseen = False
        name = environment.get(VARIABLE)
        self._mark = f"{VARIABLE}={name}" if name else ""
        self._guard: subprocess.Popen[bytes] | None = self._guarded()
        try:
            self._program = subprocess.Popen(
                list(command),
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.PIPE if reuse else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=self._guard.pid,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            self._end_guard(self._guard)
            passing = isinstance(error, OSError) and error.errno in _PASSING
            problem = None if passing else obstacle(os.path.join(folder, command[0]))
            cause = f"{command[0]}, {problem}" if problem else str(error)
            raise ProgramError(f"cannot be started in {folder}: {cause}", final=not passing) from error
        assert self._program.stdout is not None
        assert self._program.stderr is not None
        log.drain(self._program.stdout, named=False)
        log.drain(self._program.stderr, named=True)

    @property
    def code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._program.poll()

    def hand(self, document: Path) -> bool:
        """Hands a waiting program the document of its next trial; returns whether the program still runs."""
        assert self._program.stdin is not None
        if self.code is not None:
            return False
        try:
            self._program.stdin.write(os.fsencode(document) + b"\n")
        except OSError:  # it is ending
            return False
        return True

    def dismiss(self) -> None:
        """Ends a program that waits for its next trial: closes its stdin, and gives it `_LEAVE_S` seconds to exit."""
        self._close_stdin()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(_LEAVE_S)
        self.end()

    def terminate(self, grace_s: float) -> bool:
        """Sends SIGTERM to the program, and waits; returns whether it has ended in time."""
        if self.code is None:
            self._program.terminate()
        self._close_stdin()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._program.wait(grace_s)
        return self.code is not None

    def end(self) -> int:
        """Kills all processes of the run; returns how many were left behind by a program that had already ended."""
        if self._guard is None:
            return 0
        group = self._guard.pid
        self._close_stdin()
        left = self._others() if self.code is not None else set()
        deadline = time.monotonic() + _PATIENCE_S
        while left and time.monotonic() < deadline:
            time.sleep(0.02)
            left = self._others()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
        self._program.wait()
        for _ in range(_SWEEPS):
            for process in (others := self._others()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
            if not others:
                break
            time.sleep(0.01)
        self._end_guard(self._guard)
        self._guard = None
        self.unseen = not self.log.close()
        return len(left)

    def _close_stdin(self) -> None:
        if self._program.stdin is not None:
            with contextlib.suppress(OSError):
                self._program.stdin.close()

    def _others(self) -> set[int]:
        assert self._guard is not None
        return _members(self._guard.pid, self._mark) - {self._program.pid, self._guard.pid}

    def _guarded(self) -> subprocess.Popen[bytes]:
        mark = "" if "\n" in self._mark else self._mark  # grep takes each line as a pattern; an empty one matches all
        try:
            guard = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "driftline-guard", mark],
                env={"PATH": os.environ.get("PATH", os.defpath)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,  # in the session of the worker, so that the program can join it
            )
        except OSError as error:
            raise ProgramError(f"cannot be guarded: {error}") from error
        assert guard.stdout is not None
        with guard.stdout as ready:
            if not ready.read(1):
                self._end_guard(guard)
                raise ProgramError("cannot be guarded: the guard has ended")
        return guard

    def _end_guard(self, guard: subprocess.Popen[bytes]) -> None:
        guard.kill()
        assert guard.stdin is not None
        with contextlib.suppress(OSError):
            guard.stdin.close()
        guard.wait()


@dataclass(frozen=True)
class RestingProgram:
    """A program that waits for its next trial.

    Attributes:
        process: The program.
        kind: What it was started with; it only trains trials of its own kind.
    """

    process: Process
    kind: Any

    def take_on(self, kind: Any, log: Path, document: Path) -> Process | None:
        """Begins a trial; returns None if the program cannot train it, after ending the program.

        Raises:
            OSError: There is no room for its log.
        """
        try:
            if kind == self.kind and self.process.code is None:
                self.process.log.turn_to(log)
                if self.process.hand(document):
                    return self.process
        except OSError:
            self.process.dismiss()
            raise
        self.process.dismiss()
        return None


def _members(group: int, mark: str) -> set[int]:
    """The live processes of a group, those with the mark in their environment, and the descendants of both.

    Empty where /proc cannot be read. Processes that are older than the leader of the group are skipped, so that few
    environments are read.
    """
    parents: dict[int, int] = {}
    members: set[int] = set()
    try:
        oldest = int(_read(f"/proc/{group}/stat").rpartition(b")")[2].split()[_STARTED])
        names = os.listdir("/proc")
    except (OSError, IndexError, ValueError):
        return members
    for name in names:
        if name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                state, parent, pgrp, *rest = _read(f"/proc/{name}/stat").rpartition(b")")[2].split(None, _STARTED + 1)
                if state not in (b"Z", b"X") and int(rest[_STARTED - 3]) >= oldest:
                    process = int(name)
                    parents[process] = int(parent)
                    if int(pgrp) == group or (mark and _has(process, mark)):
                        members.add(process)
    while children := {process for process, parent in parents.items() if parent in members} - members:
        members |= children
    return members


def _has(process: int, mark: str) -> bool:
    try:
        return os.fsencode(mark) in _read(f"/proc/{process}/environ").split(b"\0")
    except OSError:  # of another user, or gone
        return False


def _read(path: str) -> bytes:
    """Reads a file of /proc, ten times as fast as `Path.read_bytes`: it is called for all processes of a machine."""
    file = os.open(path, os.O_RDONLY)
    try:
        data = b""
        while block := os.read(file, 1 << 16):
            data += block
        return data
    finally:
        os.close(file)
