"""Sends a driver's log to the API, so that it can be read after the driver, its pod or its machine is gone.

Sending never blocks logging or makes it fail: lines go into a bounded buffer, and a separate thread sends them in
batches, which it retries while the API is unreachable. When the buffer is full, the oldest lines are dropped and a line
says how many.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from typing import Protocol, Self

from driftline.backoff import pauses
from driftline.errors import DriftlineError, NotFound, Unavailable
from driftline.wire.logs import LINES_AT_ONCE, NewLine

LINES_KEPT = 20_000
"""Lines that are kept while the API is unreachable."""

EVERY_S = 1.0
LONGEST_PAUSE_S = 15.0
CLOSE_S = 10.0


class Receiver(Protocol):
    """Takes lines: a `DriverClient` without patience."""

    def send_logs(self, study_id: str, attempt: int, lines: list[NewLine]) -> int:
        """Stores lines; sending the same batch again adds nothing."""


class Shipper(logging.Handler):
    """A logging handler that posts its lines to the study's log.

    Args:
        receiver: Takes the lines. It should not retry, because this class does.
        study_id: Id of the study.
        lines_kept: Lines that are kept while the API is unreachable.
        every_s: Seconds between two batches.

    Attributes:
        attempt: The attempt under which lines are stored; lines wait until it is set.
    """

    def __init__(
        self, receiver: Receiver, study_id: str, *, lines_kept: int = LINES_KEPT, every_s: float = EVERY_S
    ) -> None:
        super().__init__(logging.INFO)
        self.attempt: int | None = None
        self._receiver = receiver
        self._study_id = study_id
        self._lines: deque[NewLine] = deque()
        self._kept = lines_kept
        self._every_s = every_s
        self._dropped = 0
        self._guard = threading.Lock()  # of _lines and _dropped; held only briefly
        self._over = threading.Event()
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name="driftline-logs", daemon=True)

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        logging.getLogger().removeHandler(self)
        self.close()

    def emit(self, record: logging.LogRecord) -> None:
        """Puts a record's lines into the buffer; returns at once."""
        if threading.current_thread() is self._thread:
            return  # else sending a line could log a line, forever
        try:
            text = self.format(record)
            level = record.levelname.lower()
            fresh = [NewLine(at=record.created, level=level, text=line) for line in text.splitlines() if line.strip()]
        except Exception:
            self.handleError(record)
            return
        with self._guard:
            self._lines.extend(fresh)
            while len(self._lines) > self._kept:
                self._lines.popleft()
                self._dropped += 1

    def close(self) -> None:
        """Sends what is left, for about `CLOSE_S` seconds at most, and ends the thread."""
        self._deadline = time.monotonic() + CLOSE_S
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S + 5.0)
        super().close()

    def _run(self) -> None:
        retries = pauses(2 * self._every_s, LONGEST_PAUSE_S)
        batch: list[NewLine] = []
        while True:
            pause = self._every_s
            ending = self._over.is_set()
            batch = batch or self._take()  # a batch is retried as it was: the API stores it only once
            if batch:
                try:
                    self._receiver.send_logs(self._study_id, self.attempt or 0, batch)
                    batch, retries = [], pauses(2 * self._every_s, LONGEST_PAUSE_S)
                    continue
                except Unavailable:
                    pause = next(retries)
                except NotFound:  # the study no longer exists
                    batch = []
                except DriftlineError as error:  # a retry would be rejected as well
                    print(f"{len(batch)} lines of the log were rejected: {error}", file=sys.stderr)
                    batch = []
                except Exception as error:
                    print(f"the log could not be sent: {type(error).__name__}: {error}", file=sys.stderr)
                    pause = next(retries)
            elif ending:
                return
            if ending and time.monotonic() >= self._deadline:
                print(f"{len(batch) + len(self._lines)} lines of the log could not be sent", file=sys.stderr)
                return
            if ending:
                time.sleep(min(pause, 1.0))
            else:
                self._over.wait(pause)

    def _take(self) -> list[NewLine]:
        """The next lines to send; none before the driver has acquired its study, unless it ends before that."""
        if self.attempt is None and not self._over.is_set():
            return []
        with self._guard:
            lines: list[NewLine] = []
            if self._dropped:
                text = f"{self._dropped} lines before this one were dropped: the API was unreachable for too long"
                lines.append(NewLine(at=time.time(), level="warning", text=text))
                self._dropped = 0
            while self._lines and len(lines) < LINES_AT_ONCE // 2:
                lines.append(self._lines.popleft())
            return lines
