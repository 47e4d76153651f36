"""Waiting for what other threads and processes do."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def until(true: Callable[[], T], seconds: float = 180.0, why: Callable[[], object] = lambda: "") -> T:
    """Looks every 50 ms until something holds, and gives what it found.

    Args:
        true: Looks; what it raises is not caught.
        seconds: How long at most. Long: what is waited for happens, only later on a busy machine.
        why: Told when it was in vain.
    """
    deadline = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain. {why()}"
        time.sleep(0.05)
    return found


def together(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Runs tasks at the same time, each in a thread of its own, and gives their results.

    Args:
        tasks: The first error that one of them raises is raised when all have ended.
    """
    with ThreadPoolExecutor(len(tasks)) as threads:
        running = [threads.submit(task) for task in tasks]
    return [task.result() for task in running]
