"""One reader of the store for all event streams of a study in this process."""

from __future__ import annotations

import asyncio
import logging
import threading
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from driftline.errors import DriftlineError
from driftline.wire.records import STUDY_FINISHED
from service.store.stored_events import Tail

AT_ONCE = 500
"""Maximum number of events per read."""

KEPT = 500
"""Maximum number of events that an informer keeps."""

_LOG = logging.getLogger(__name__)


class StreamLine(NamedTuple):
    """An event in the text form of a stream.

    Attributes:
        id: Id of the event.
        kind: Kind of the event.
        text: The text that is sent.
    """

    id: int
    kind: str
    text: str


class Informer:
    """Polls a study's new events, keeps the newest, and wakes the followers. Use from one event loop.

    Args:
        newest: Reads the events after this id.
        read: Returns the events after an id, at most `AT_ONCE`.
        poll_s: Seconds between two reads.
        stopping: Ends it when set.

    Attributes:
        followers: Set when there is something new, and at the end.
        floor: All events read above this id are kept, except progress that newer progress replaces.
        head: Id of the last event read.
        finished: Whether the study has no more events after `head`.
        ended: Whether the informer has stopped reading.
    """

    def __init__(
        self, newest: int, read: Callable[[int], Awaitable[Tail]], poll_s: float, stopping: threading.Event
    ) -> None:
        self.followers: set[asyncio.Event] = set()
        self.floor = self.head = newest
        self.finished = self.ended = False
        self._lines: list[StreamLine] = []
        self._read = read
        self._poll_s = poll_s
        self._stopping = stopping
        self._task = asyncio.create_task(self._run())

    def close(self) -> None:
        """Stop reading."""
        self._task.cancel()

    def after(self, position: int) -> list[StreamLine]:
        """The lines after a position that is not below `floor`."""
        return self._lines[bisect_right(self._lines, position, key=lambda line: line.id) :]

    async def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                await asyncio.sleep(self._poll_s)
                while len((tail := await self._read(self.head)).events) == AT_ONCE:
                    self._add(tail)
                self._add(tail)
        except DriftlineError as error:  # the readers reconnect, and then get the error
            _LOG.warning("event streams end: %s", error)
        except Exception:
            _LOG.exception("event streams end")
        finally:
            self.ended = True
            self._wake()

    def _add(self, tail: Tail) -> None:
        if not tail.events and finished(tail) == self.finished:
            return
        new = lines(tail)
        if any(line.kind == "progress" for line in new):  # as the store does, keep only the newest
            self._lines = [line for line in self._lines if line.kind != "progress"]
        self._lines += new
        if dropped := self._lines[:-KEPT]:
            self.floor = dropped[-1].id
            del self._lines[: len(dropped)]
        self.head = new[-1].id if new else self.head
        self.finished = finished(tail)
        self._wake()

    def _wake(self) -> None:
        for follower in self.followers:
            follower.set()


def finished(tail: Tail) -> bool:
    """Whether these are the study's last events."""
    return tail.state in STUDY_FINISHED and len(tail.events) < AT_ONCE


def lines(tail: Tail) -> list[StreamLine]:
    """The events in the text form of a stream."""
    return [
        StreamLine(event.id, event.kind, f"id: {event.id}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n")
        for event in tail.events
    ]
