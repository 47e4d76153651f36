"""What Ray's workers print, on its way into the driver's log: print(), warnings, the last words of C libraries.

Ray's own way to it (``log_to_driver``) writes to the driver's terminal. Here the same lines, from every node and from
processes that have died, go to logging, each with the name of the pack that its process trained.
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

_LOG = logging.getLogger(__name__)
PER_SECOND = 20.0
"""Lines that all workers of a driver may print in the long run; what is more is counted and left out."""

BURST = 500
LONGEST = 1000
"""Characters of a line that are kept."""

_OWN = "driftline_output"
_RAYS = "ray_print_logs"


class Output:
    """Takes batches of lines as Ray hands them out.

    Args:
        per_second: Lines in the long run.
        burst: Lines at once after a pause.
        clock: Gives seconds that never go back.
    """

    def __init__(
        self, per_second: float = PER_SECOND, burst: int = BURST, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._bucket = Bucket(per_second, burst, clock())
        self._dropped = 0
        self._packs: dict[tuple[str, str], str] = {}  # what a process trains, by (node, process)
        self._lock = threading.Lock()

    def take(self, batch: Mapping[str, Any]) -> None:
        """Logs a batch.

        Args:
            batch: ``lines`` of one stream of one process, with ``ip``, ``pid`` and ``is_err``.
        """
        try:
            self._take(batch)
        except Exception:  # it would end the thread that brings the lines
            _LOG.exception("lines of a worker could not be read")

    def close(self) -> None:
        """Says what was left out."""
        with self._lock:
            self._tell_dropped()

    def _take(self, batch: Mapping[str, Any]) -> None:
        process = (str(batch.get("ip", "")), str(batch.get("pid", "")))
        if not process[1].isdigit():
            return  # Ray's own parts have names; its autoscaler says many lines every few seconds
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


@contextlib.contextmanager
def logged() -> Iterator[None]:
    """Logs what workers print, until the block ends. Ray must have been started with ``log_to_driver``."""
    dispatcher = importlib.import_module("ray._private.ray_logging").global_worker_stdstream_dispatcher
    output = Output()
    dispatcher.remove_handler(_RAYS)  # it would print them here as well
    dispatcher.add_handler(_OWN, output.take)
    try:
        yield
    finally:
        dispatcher.remove_handler(_OWN)
        output.close()
