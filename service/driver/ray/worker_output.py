"""Logs what Ray's workers print: print(), warnings, the last messages of C libraries.

Ray itself (``log_to_driver``) writes these lines to the driver's terminal. Here they go to the driver's log instead,
from every node and from processes that have died, each with the id of the pack that its process trained.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from service.bucket import Bucket
from service.driver.job import MARK
from service.driver.ray.lean_ray import shortcut

_LOG = logging.getLogger(__name__)
PER_SECOND = 20.0
"""Lines per second that all workers of a driver may print on average; further lines are counted and dropped."""

BURST = 500
LONGEST = 1000
"""Characters of a line that are kept."""

_OWN = "driftline_output"
_RAYS = "ray_print_logs"


class Output:
    """Logs batches of lines as Ray delivers them.

    Args:
        per_second: Lines per second on average.
        burst: Lines at once after a pause.
        clock: A monotonic clock, in seconds.
    """

    def __init__(
        self, per_second: float = PER_SECOND, burst: int = BURST, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._bucket = Bucket(per_second, burst, clock())
        self._dropped = 0
        self._packs: dict[tuple[str, str], str] = {}  # pack that a process trains, by (node, process)
        self._lock = threading.Lock()

    def take(self, batch: Mapping[str, Any]) -> None:
        """Logs a batch.

        Args:
            batch: ``lines`` of one stream of one process, with ``ip``, ``pid`` and ``is_err``.
        """
        try:
            self._take(batch)
        except Exception:  # an exception would end the thread that delivers the lines
            _LOG.exception("lines of a worker could not be read")

    def close(self) -> None:
        """Logs how many lines were dropped."""
        with self._lock:
            self._tell_dropped()

    def _take(self, batch: Mapping[str, Any]) -> None:
        process = (str(batch.get("ip", "")), str(batch.get("pid", "")))
        if not process[1].isdigit():
            return  # a part of Ray, which has a name; the autoscaler prints many lines every few seconds
        level = logging.WARNING if batch.get("is_err") else logging.INFO
        with self._lock:
            for line in batch.get("lines", ()):
                text = str(line).rstrip()
                if text.startswith(MARK):
                    self._packs[process] = text.removeprefix(MARK)
                elif text and self._allowed():
                    self._tell_dropped()
                    name = self._packs.get(process)
                    source = f"pack {name}" if name else f"process {process[1]}"
                    _LOG.log(level, "%s: %s", source, text if len(text) <= LONGEST else f"{text[:LONGEST]} ...")

    def _allowed(self) -> bool:
        allowed = self._bucket.take(self._clock()) == 0
        self._dropped += not allowed
        return allowed

    def _tell_dropped(self) -> None:
        if self._dropped:
            limit = f"more than {self._per_second:g} a second"
            _LOG.warning("%d lines that workers printed were left out: %s", self._dropped, limit)
            self._dropped = 0


@shortcut
@contextlib.contextmanager
def logged() -> Iterator[None]:
    """Logs what workers print, until the block ends. Ray must have been started with ``log_to_driver``.

    With an unknown version, Ray itself prints the output, all of it and without the ids of packs.
    """
    dispatcher = importlib.import_module("ray._private.ray_logging").global_worker_stdstream_dispatcher
    output = Output()
    dispatcher.remove_handler(_RAYS)  # Ray's own would print the lines here as well
    dispatcher.add_handler(_OWN, output.take)
    try:
        yield
    finally:
        dispatcher.remove_handler(_OWN)
        output.close()
