"""Checks studies in separate processes, in bounded time and memory, without delaying other requests.

Checking a large study holds the interpreter lock for seconds; in the API's process all other requests would wait. Each
process answers one line of JSON with one line of JSON. It ends with its parent, and after a while without studies,
because it holds PyTorch in memory.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import logging
import os
import queue
import select
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driftline.errors import DriftlineError, InvalidSpec, Unavailable, from_problem, problem
from driftline.wire.budgets import CheckedStudy
from service.api import study_checks
from service.api.allowed_files import only_under

START_S = 120.0
"""Seconds that a process may take to load the trainers."""

CHECK_S = 30.0
"""Seconds that a check may take."""

IDLE_S = 600.0
"""Seconds without a study after which a process ends; the next study starts another one."""

CHECK_BYTES = 2 * 2**30
"""Memory that a check may take, including data. Enforced on Linux only."""

PROCESSES = 2
"""One more than the studies of one project that are checked at once (`service.api.rate_limits.Checking`)."""

_LOG = logging.getLogger(__name__)
_READY = "ready"
_NICE = 10


class CheckProcesses:
    """Checks studies in a few processes, which are started when they are needed.

    Args:
        roots: Folders that must contain every file that a study names.
        seconds: How long a check may take.
        most_bytes: Memory that a check may take.
        idle_seconds: How long a process waits for the next study.
        count: Number of processes.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        *,
        seconds: float = CHECK_S,
        most_bytes: int = CHECK_BYTES,
        idle_seconds: float = IDLE_S,
        count: int = PROCESSES,
    ) -> None:
        limits = [str(most_bytes), str(idle_seconds)]
        command = [sys.executable, "-m", "service.api.check_process", *limits, *map(str, roots)]
        self._processes = [_Process(command, seconds) for _ in range(count)]
        self._idle: queue.LifoQueue[_Process] = queue.LifoQueue()  # LIFO: reuses started processes
        for process in self._processes:
            self._idle.put(process)

    def __call__(self, body: Mapping[str, Any]) -> CheckedStudy:
        """Runs `service.api.study_checks.check`.

        Raises:
            InvalidSpec: A line for each error, with the key, the rule, and what was given; or the check took too long.
            Unavailable: No process could be started.
        """
        process = self._idle.get()
        try:
            return process.check(body)
        finally:
            self._idle.put(process)

    def close(self) -> None:
        """Ends the processes; a running check fails."""
        for process in self._processes:
            process.end()


class _Process:
    """One process; for one thread at a time."""

    def __init__(self, command: Sequence[str], seconds: float) -> None:
        self._command = command
        self._seconds = seconds
        self._running: subprocess.Popen[str] | None = None

    def check(self, body: Mapping[str, Any]) -> CheckedStudy:
        line = json.dumps(body)
        running = self._running
        if running is None or running.poll() is not None:
            running = self._start()
        answer = self._ask(line, self._seconds)
        if not answer and running.wait() == 0:  # it ended, because it was idle, as the study arrived
            self._start()
            answer = self._ask(line, self._seconds)
        if not answer:
            self.end()
            limit = f"within {self._seconds:g} s and the memory limit"
            raise InvalidSpec("", f"the study could not be checked {limit}: make it smaller")
        outcome = json.loads(answer)
        if "problem" in outcome:
            raise from_problem(outcome["problem"]["status"], outcome["problem"])
        return CheckedStudy.model_validate(outcome["checked"])

    def end(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.kill()
            running.wait()
            for pipe in (running.stdin, running.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def _start(self) -> subprocess.Popen[str]:
        self.end()
        running = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._running = running
        if self._ask("", START_S).strip() != _READY:
            self.end()
            raise Unavailable("the process that checks studies did not start; the service's log says why")
        return running

    def _ask(self, line: str, seconds: float) -> str:
        """The line that the process answers; "" if it ends, or is killed because it takes too long."""
        running = self._running
        assert running is not None
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


@functools.cache
def check_processes(*roots: Path) -> CheckProcesses:
    """The check processes of this program; they end with it."""
    processes = CheckProcesses(roots)
    atexit.register(processes.close)
    return processes


def limit_memory(most_bytes: int) -> None:
    """Lets this process allocate at most `most_bytes` more memory; does nothing except on Linux."""
    if sys.platform == "linux":
        import resource

        with open("/proc/self/statm") as file:
            held = int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (held + most_bytes, hard))


def _serve(most_bytes: int, idle_seconds: float, roots: Sequence[Path]) -> None:
    """Answers checks until the parent ends, or none has come for a while."""
    import torch  # noqa: F401  # load it before memory is limited and the first study comes

    from driftline.study import check as _check  # noqa: F401

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print must not write into the answers
    os.nice(_NICE)
    limit_memory(most_bytes)
    check = only_under(roots, study_checks.check)
    while select.select([sys.stdin], [], [], idle_seconds)[0] and (line := sys.stdin.readline()):
        if not line.strip():
            answer: Any = _READY
        else:
            try:
                answer = json.dumps({"checked": check(json.loads(line)).model_dump(mode="json")})
            except DriftlineError as error:
                answer = json.dumps({"problem": problem(error)})
            except Exception:
                _LOG.exception("a study could not be checked")
                failed = DriftlineError("the service failed unexpectedly; its log says why")
                answer = json.dumps({"problem": problem(failed)})
        print(answer, file=answers, flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is for the parent
        _serve(int(sys.argv[1]), float(sys.argv[2]), [Path(root) for root in sys.argv[3:]])
