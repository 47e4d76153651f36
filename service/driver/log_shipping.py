"""Sends what a driver logs to the API, so that it can be read after the driver, its pod or its machine are gone.

Logging never waits for it and never fails because of it: lines go into a bounded buffer, a thread of its own sends
them in batches, again and again while the API is away. When the buffer is full the oldest lines are dropped, and a line
says how many.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from types import TracebackType
from typing import Protocol, Self

from driftline.errors import DriftlineError, NotFound, Unavailable
from driftline.retry import pauses
from driftline.wire.logs import LINES_AT_ONCE, NewLine

LINES_KEPT = 20_000
"""Lines that are kept while the API is away."""

EVERY_S = 1.0
LONGEST_PAUSE_S = 15.0
CLOSE_S = 10.0


class Receiver(Protocol):
    """Takes lines: an `DriverClient` without patience."""

    def send_logs(self, study_id: str, attempt: int, lines: list[NewLine]) -> int:
        """Stores lines; the same batch again adds nothing."""


class Shipper(logging.Handler):
    """A logging handler that posts its lines to the study's log.

    Args:
        receiver: Where to; should give up at once when the API is away, since this class tries again itself.
        study_id: The study.
        lines_kept: Lines that are kept while the API is away.
        every_s: Seconds between two batches.

    Attributes:
        attempt: Under which the lines are filed; set when the driver has its study, until then lines wait.
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
        self._guard = threading.Lock()  # of lines and count; held for moments only
        self._over = threading.Event()
        self._deadline = float("inf")
        self._thread = threading.Thread(target=self._run, name="driftline-logs", daemon=True)

    def __enter__(self) -> Self:
        logging.getLogger().addHandler(self)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        logging.getLogger().removeHandler(self)
        self.close()

    def emit(self, record: logging.LogRecord) -> None:
        """Puts a record's lines into the buffer; comes back at once."""
        if threading.current_thread() is self._thread:
            return  # what sending logs would be sent in turn, for ever
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
        """Sends what is left, for some seconds at most, and ends."""
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
            batch = batch or self._take()  # the same batch again: the API knows it, and takes it once
            if batch:
                try:
                    self._receiver.send_logs(self._study_id, self.attempt or 0, batch)
                    batch, retries = [], pauses(2 * self._every_s, LONGEST_PAUSE_S)
                    continue
                except Unavailable:
                    pause = next(retries)
                except NotFound:  # there is no study to whose log they would belong
                    batch = []
                except DriftlineError as error:  # it will not take them another time either
                    print(f"{len(batch)} lines of the log were refused: {error}", file=sys.stderr)
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
        """The next lines to be sent; none before the driver has its study, unless it ends without."""
        if self.attempt is None and not self._over.is_set():
            return []
        with self._guard:
            found: list[NewLine] = []
            if self._dropped:
                text = f"{self._dropped} lines before this one were dropped: the API was away for too long"
                found.append(NewLine(at=time.time(), level="warning", text=text))
                self._dropped = 0
            while self._lines and len(found) < LINES_AT_ONCE // 2:
                found.append(self._lines.popleft())
            return found
