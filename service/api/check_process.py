"""Checks studies in separate processes, in bounded time and memory, without delaying other requests.

Checking a large study holds the interpreter lock for seconds; in the API's process all other requests would wait. Each
child process answers one line of JSON with one line of JSON.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import logging
import os
import queue
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driftline.errors import DriftlineError, InvalidSpec, from_problem, problem
from driftline.wire.budgets import CheckedStudy
from service.api import study_checks
from service.api.allowed_files import only_under
from service.child_process import ChildProcess, answer_lines
from service.garbage import collect_rarely
from trainers import reading_only

CHECK_S = 30.0
"""Seconds that a check may take."""

IDLE_S = 600.0
"""Seconds without a study after which a process ends; the next study starts another one."""

CHECK_BYTES = 2 * 2**30
"""Most memory that a check may take, including data. Enforced on Linux only."""

PROCESSES = 2
"""One more than the studies of one project that are checked at once (`service.api.rate_limits.Checking`)."""

_PARENT_BYTES = 256 * 2**20
_START_BYTES = 192 * 2**20  # of a process before its first study: 172 MiB were measured
_LEAST_BYTES = 64 * 2**20
_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")  # of a control group, version 2 and version 1

_LOG = logging.getLogger(__name__)
_NICE = 10


class CheckProcesses:
    """Checks studies in a few processes, which are started when they are needed.

    Args:
        roots: Folders that must contain every file that a study names.
        urls: What every URL that a study names must begin with. No process reads any.
        hidden: Files and folders with secrets, which no check may read. Checks import plug-ins, so their processes are
            confined to Python's files and `roots`, without the service's environment and without a network.
        seconds: How long a check may take.
        most_bytes: Memory that a check may take.
        idle_seconds: How long a process waits for the next study.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        *,
        urls: Sequence[str] = (),
        hidden: Sequence[Path] = (),
        seconds: float = CHECK_S,
        most_bytes: int = CHECK_BYTES,
        idle_seconds: float = IDLE_S,
    ) -> None:
        arguments = [str(most_bytes), str(idle_seconds), json.dumps(list(urls)), *map(str, roots)]
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._processes = [
            ChildProcess(__name__, *arguments, what="checks studies", readable=roots, hidden=hidden)
            for _ in range(PROCESSES)
        ]
        self._idle: queue.LifoQueue[ChildProcess] = queue.LifoQueue()  # LIFO: reuses started processes
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
            answer = process.ask(json.dumps(body), self._seconds)
        finally:
            self._idle.put(process)
        if not answer:
            limit = f"within {self._seconds:g} s and {self._most_bytes / 2**20:.0f} MiB of memory"
            raise InvalidSpec("", f"the study could not be checked {limit}: make it smaller")
        outcome = json.loads(answer)
        if "problem" in outcome:
            raise from_problem(outcome["problem"]["status"], outcome["problem"])
        return CheckedStudy.model_validate(outcome["checked"])

    def close(self) -> None:
        """Ends the processes; a running check fails."""
        for process in self._processes:
            process.end()


@functools.cache
def check_processes(
    roots: tuple[Path, ...], hidden: tuple[Path, ...] = (), urls: tuple[str, ...] = ()
) -> CheckProcesses:
    """The check processes of this program; they end with it."""
    processes = CheckProcesses(roots, urls=urls, hidden=hidden, most_bytes=check_bytes())
    atexit.register(processes.close)
    return processes


def check_bytes(root: Path = Path("/")) -> int:
    """Memory that a check may take, so that all processes and their parent fit into the limit of their container.

    Args:
        root: Folder that contains sys.
    """
    limit = container_bytes(root)
    most = CHECK_BYTES if limit is None else min(CHECK_BYTES, (limit - _PARENT_BYTES) // PROCESSES - _START_BYTES)
    return max(most, _LEAST_BYTES)


def container_bytes(root: Path = Path("/")) -> int | None:
    """The limit of this container's memory; None without one.

    Args:
        root: Folder that contains sys.
    """
    limits = []
    for name in _LIMITS:
        with contextlib.suppress(OSError, ValueError):  # there is no such file, or it says "max"
            limits.append(int((root / "sys/fs/cgroup" / name).read_text()))
    return min(limits, default=None)


def limit_memory(most_bytes: int) -> None:
    """Lets this process allocate at most `most_bytes` more memory; does nothing except on Linux."""
    if sys.platform == "linux":
        import resource

        with open("/proc/self/statm") as file:
            used_bytes = int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (used_bytes + most_bytes, hard))


def _answer(roots: Sequence[Path], urls: Sequence[str], line: str) -> str:
    try:
        with reading_only(()):
            check = only_under(roots, study_checks.check, urls, study_checks.check_without_data)
            checked = check(json.loads(line))
        return json.dumps({"checked": checked.model_dump(mode="json")})
    except DriftlineError as error:
        return json.dumps({"problem": problem(error)})
    except Exception:
        _LOG.exception("a study could not be checked")
        return json.dumps({"problem": problem(DriftlineError("the service failed unexpectedly; its log says why"))})


def _main(most_bytes: int, idle_seconds: float, urls: Sequence[str], roots: Sequence[Path]) -> None:
    """Answers checks."""
    collect_rarely()
    import torch  # noqa: F401  # load it before memory is limited and the first study comes

    from driftline.study import check as _check  # noqa: F401

    os.nice(_NICE)
    with contextlib.suppress(OSError):  # there is no such file except on Linux
        Path("/proc/self/oom_score_adj").write_text("1000")  # if memory runs out, the kernel ends this process first
    limit_memory(most_bytes)
    answer_lines(functools.partial(_answer, roots, urls), idle_seconds)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is for the parent
        _main(int(sys.argv[1]), float(sys.argv[2]), json.loads(sys.argv[3]), [Path(root) for root in sys.argv[4:]])
