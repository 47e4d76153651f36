"""Processes that do memory-hungry or slow work for a service: started when needed, ended when idle.

A child process answers each line of text with one line. It ends with its parent, and when it has had nothing to do for
a while, so that a resting service does not keep PyTorch or MLflow in memory.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from driftline.errors import Unavailable
from service.child_environment import child_environment
from service.confined import NOBODY, becomes_nobody, command, hide_process
from service.file_locks import own_folder
from service.log_file import log_to_stderr

START_S = 120.0
"""Seconds that a process may take to start."""

_READY = "ready"
_LONGEST = 200  # characters of the path of a folder


class ChildProcess:
    """One process; for one thread at a time.

    Args:
        module: Python module whose main program calls `answer_lines`.
        arguments: Its arguments.
        what: What the process does, for the error if it does not start.
        readable: If given, the process runs without the service's environment, network and files, and reads these
            (`service.confined`).
        hidden: Files and folders that it may not read even if they lie in `readable` folders.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        what: str,
        readable: Sequence[Path] | None = None,
        hidden: Sequence[Path] = (),
    ) -> None:
        self._program = ["-m", module, *arguments]
        self._what = what
        self._readable, self._hidden = readable, hidden
        self._folder: tuple[Path, IO[str]] | None = None  # of a confined process, for its own files
        self._running: subprocess.Popen[str] | None = None

    def ask(self, line: str, seconds: float) -> str:
        """The line that the process answers; "" if the process died, or was killed because it took too long.

        Args:
            line: A line of text, not empty.
            seconds: How long the answer may take.

        Raises:
            Unavailable: The process did not start.
        """
        running = self._running
        if running is None or running.poll() is not None:
            running = self._start()
        answer = self._ask(line, seconds)
        if not answer and running.wait() == 0:  # it ended, because it was idle, as the line arrived
            self._start()
            answer = self._ask(line, seconds)
        if not answer:
            self.end()
        return answer

    def end(self) -> None:
        """Kills the process; a thread that waits for its answer gets an empty one."""
        running, self._running = self._running, None
        folder, self._folder = self._folder, None
        if running is not None:
            running.kill()
            running.wait()
            for pipe in (running.stdin, running.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()
        if folder is not None:
            shutil.rmtree(folder[0], ignore_errors=True)
            folder[1].close()

    def _start(self) -> subprocess.Popen[str]:
        self.end()
        line, environment = [sys.executable, "-P", *self._program], None
        if self._readable is not None:
            self._folder = own_folder("driftline-child-", _LONGEST)
            folder = self._folder[0]
            if becomes_nobody():
                os.chown(folder, NOBODY, NOBODY)
            line = command(self._program, readable=self._readable, writable=[folder], hidden=self._hidden)
            environment = {**child_environment(os.environ), "HOME": str(folder), "TMPDIR": str(folder)}
        running = subprocess.Popen(
            line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=self._readable is not None,  # without the terminal of the service
        )
        self._running = running
        if self._ask("", START_S).strip() != _READY:
            self.end()
            raise Unavailable(f"the process that {self._what} did not start; the service's log says why")
        return running

    def _ask(self, line: str, seconds: float) -> str:
        running = self._running
        if running is None:  # `end` was called
            return ""
        assert running.stdin is not None
        assert running.stdout is not None
        timer = threading.Timer(seconds, running.kill)
        timer.start()
        try:
            running.stdin.write(line + "\n")
            running.stdin.flush()
            return running.stdout.readline()
        except (OSError, ValueError):  # it has ended, or `end` has closed its pipes
            return ""
        finally:
            timer.cancel()


def answer_lines(answer: Callable[[str], str], idle_seconds: float) -> None:
    """The main program of a child process: answers lines until the parent ends, or none has come for a while."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
    hide_process()
    log_to_stderr(logging.WARNING)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print must not write into the answers
    while select.select([sys.stdin], [], [], idle_seconds)[0] and (line := sys.stdin.readline()):
        print(answer(line) if line.strip() else _READY, file=answers, flush=True)
