"""Event streams: how many may be open, what they send, and when they end.

A stream first reads from the store what happened before it was opened. Then it follows its study's informer, which
reads the store once for all streams of the study in this process. A stream whose reader is so slow that the informer no
longer keeps its next event reads from the store again. A stream has no queue, only a position: the id of the last event
that it sent.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from anyio import CapacityLimiter, to_thread
from pydantic import Field

from driftline.errors import DriftlineError, Forbidden, InvalidSpec, RateLimited, Unavailable
from driftline.study.validation import Section, join
from service.api.auth.tokens import Access, Tokens
from service.api.study_polls import AT_ONCE, Informer, StreamLine, finished, lines
from service.store.store import Store
from service.store.stored_events import Tail

_THREADS = 4  # only for streams, so that they never use the threads of other requests
_RETRY_S = 5.0
_LOG = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class StreamLimits(Section):
    """How many event streams may be open at one replica of the API; None is no limit.

    Attributes:
        per_token: With one token, or for one user of an identity provider.
        per_process: In total.
    """

    per_token: int | None = Field(default=16, ge=1)
    per_process: int | None = Field(default=500, ge=1)

    @classmethod
    def taken(cls, document: dict[str, Any]) -> StreamLimits:
        """Removes the key ``streams`` from the limits of a service, and returns its value.

        Raises:
            InvalidSpec: The value is invalid.
        """
        try:
            return cls.from_json(document.pop("streams", {}))
        except InvalidSpec as error:
            raise error.moved(lambda path: join("streams", path)) from error


@dataclass(frozen=True)
class StreamPace:
    """How often streams act, in seconds.

    Attributes:
        heartbeat_s: A stream sends a comment after this much silence.
        poll_s: Between two polls for new events of a study.
        check_s: Between two checks of the tokens of open streams.
    """

    heartbeat_s: float = 15.0
    poll_s: float = 0.25
    check_s: float = 5.0


class Stream:
    """One open stream.

    Args:
        study_id: The study whose events it sends.
        access: What the token allowed when the stream was opened.
        token: The reader's token.
        position: Id of the last event that the reader has.

    Attributes:
        informer: Source of new events; None until all earlier events have been sent.
        over: Whether the token no longer allows the stream.
        wake: Set when there may be something to do.
    """

    def __init__(self, study_id: str, access: Access, token: str, position: int) -> None:
        self.study_id = study_id
        self.access = access
        self.token = token
        self.position = position
        self.informer: Informer | None = None
        self.over = False
        self.wake = asyncio.Event()

    @property
    def ended(self) -> bool:
        """Whether the stream must end before the study does; its reader may reconnect."""
        return self.over or (self.informer is not None and self.informer.ended)

    def check(self, access: Access | None) -> None:
        """End the stream unless `access`, what its token allows now, still permits it."""
        try:
            if access is not None and access.project == self.access.project:
                access.require("read", self.study_id)
                return
        except Forbidden:
            pass
        self.over = True
        self.wake.set()

    async def woken(self, seconds: float) -> bool:
        """Wait until there may be something to do; False after a timeout."""
        try:
            async with asyncio.timeout(seconds):
                await self.wake.wait()
        except TimeoutError:
            return False
        return True


class Streams:
    """The event streams of this process. Use from one event loop.

    Args:
        store: Source of the events.
        tokens: Checks who may read them.
        stopping: Ends all streams when set.
        limits: How many may be open.
        pace: How often they act.
    """

    def __init__(
        self, store: Store, tokens: Tokens, stopping: threading.Event, limits: StreamLimits, pace: StreamPace
    ) -> None:
        self._store = store
        self._tokens = tokens
        self._stopping = stopping
        self._limits = limits
        self._pace = pace
        self._open: set[Stream] = set()
        self._informers: dict[str, Informer] = {}
        self._checks: asyncio.Task[None] | None = None
        self._limiter: CapacityLimiter | None = None

    @contextmanager
    def opened(self, study_id: str, access: Access, token: str, position: int) -> Iterator[AsyncIterator[str]]:
        """The text of a stream, which counts as open until the block ends.

        Args:
            study_id: The study.
            access: What the token allows now.
            token: Checked every `StreamPace.check_s`; the stream ends when the token no longer permits it.
            position: Send the events after this id.

        Raises:
            RateLimited: The token has as many open streams as allowed.
            Unavailable: This process has as many open streams as allowed.
        """
        self._admit(access)
        stream = Stream(study_id, access, token, position)
        self._open.add(stream)
        if self._checks is None or self._checks.done():
            self._checks = asyncio.create_task(self._check())
        try:
            yield self._text(stream)
        finally:
            self._open.remove(stream)
            if stream.informer is not None:
                self._leave(stream, stream.informer)
            if not self._open:
                self._checks.cancel()
                self._checks = None  # a cancelled task is not done before the loop's next turn

    def _admit(self, access: Access) -> None:
        per_token, per_process = self._limits.per_token, self._limits.per_process
        if per_token is not None and sum(stream.access.id == access.id for stream in self._open) >= per_token:
            raise RateLimited(f"this token has {per_token} open event streams, the most allowed: close one first")
        if per_process is not None and len(self._open) >= per_process:
            text = f"the service has {per_process} open event streams, the most allowed: try again in {_RETRY_S:g} s"
            raise Unavailable(text, retry_after=_RETRY_S)

    async def _text(self, stream: Stream) -> AsyncIterator[str]:
        yield "retry: 1000\n\n"
        spoken = time.monotonic()
        while not self._stopping.is_set():
            stream.wake.clear()
            try:
                new, last = await self._next(stream)
            except DriftlineError as error:  # the reader reconnects, and then gets the error
                _LOG.warning("an event stream of study %s ends: %s", stream.study_id, error)
                return
            if stream.ended:
                return
            if new:
                yield "".join(line.text for line in new)
                spoken = time.monotonic()
            if last:
                yield "event: end\ndata: {}\n\n"
                return
            if not new and not await stream.woken(spoken + self._pace.heartbeat_s - time.monotonic()):
                yield ": still here\n\n"
                spoken = time.monotonic()

    async def _next(self, stream: Stream) -> tuple[list[StreamLine], bool]:
        """The next lines, and whether they are the study's last; advances the stream's position."""
        if stream.informer is not None and stream.position >= stream.informer.floor:
            new, last = stream.informer.after(stream.position), stream.informer.finished
        else:
            tail = await self._read(stream.study_id, stream.position)
            new, last = lines(tail), finished(tail)
            if len(new) < AT_ONCE and not last:
                stream.position = max(stream.position, tail.newest)
                self._follow(stream)
        if new:
            stream.position = max(stream.position, new[-1].id)
        return new, last

    def _follow(self, stream: Stream) -> None:
        """Attach a stream that has read all events from the store to its study's informer."""
        if stream.informer is None:
            informer = self._informers.get(stream.study_id)
            if informer is None or informer.ended:
                read = partial(self._read, stream.study_id)
                informer = Informer(stream.position, read, self._pace.poll_s, self._stopping)
                self._informers[stream.study_id] = informer
            informer.followers.add(stream.wake)
            stream.informer = informer
        stream.wake.set()  # the informer may have read further than the stream

    def _leave(self, stream: Stream, informer: Informer) -> None:
        informer.followers.remove(stream.wake)
        if not informer.followers:
            informer.close()
            if self._informers.get(stream.study_id) is informer:
                del self._informers[stream.study_id]

    async def _check(self) -> None:
        """Check the tokens of open streams every `StreamPace.check_s`, forever."""
        try:
            while True:
                await asyncio.sleep(self._pace.check_s)
                allowed = await self._in_thread(partial(self._allowed, {stream.token for stream in self._open}))
                for stream in self._open:
                    stream.check(allowed.get(stream.token, stream.access))  # new ones were just checked
        except Exception:
            _LOG.exception("tokens could not be checked: all event streams end")
            for stream in self._open:
                stream.check(None)

    def _allowed(self, tokens: set[str]) -> dict[str, Access | None]:
        """What each token allows now; None for a token that is invalid or cannot be checked."""
        allowed: dict[str, Access | None] = {}
        for token in tokens:
            try:
                allowed[token] = self._tokens.access(token)
            except DriftlineError:
                allowed[token] = None
        return allowed

    async def _read(self, study_id: str, after: int) -> Tail:
        return await self._in_thread(lambda: self._store.events.tail(study_id, after=after, limit=AT_ONCE))

    async def _in_thread(self, ask: Callable[[], _Answer]) -> _Answer:
        self._limiter = self._limiter or CapacityLimiter(_THREADS)
        return await to_thread.run_sync(ask, limiter=self._limiter)
