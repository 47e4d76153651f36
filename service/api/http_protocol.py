"""HTTP/1.1 as uvicorn speaks it, with an end to how long a client may take over what it sends.

uvicorn waits for ever for the rest of a request's head, takes in for ever what belongs to a request that has been
answered already, as one without a token is before its body is read, and waits for ever for a client that does not read
its answer. Each costs an open connection, and a service has not many. How long a body may take that is still wanted is
in `bodies.BodyLimit`.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0
"""Seconds from the opening of a connection, or from the first byte of a further request, to the end of its head."""

LINGER_S = 10.0
"""Seconds for the rest of a body that nobody reads. A connection that is closed at once may take the answer with it."""

STALL_S = 60.0
"""Seconds in which a client must read on once an answer fills its connection's buffers."""


class BoundedProtocol(H11Protocol):
    """A connection that is closed when its client takes too long."""

    head_s = HEAD_S
    linger_s = LINGER_S
    stall_s = STALL_S
    _stall: asyncio.TimerHandle | None = None
    _end: asyncio.TimerHandle | None = None
    _waits_for: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for a head."""
        super().connection_made(transport)
        self._look(opened=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._wait(None)
        self._read_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Send nothing more until the client has read some of it, and do not wait for ever."""
        super().pause_writing()
        self._stall = self._stall or self.loop.call_later(self.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Send on."""
        self._read_on()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Take what has come, and see what is missing."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """See whether the client still sends."""
        super().on_response_complete()
        self._look()

    def _read_on(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _look(self, opened: bool = False) -> None:
        theirs = self.conn.their_state
        if self.transport.is_closing():
            self._wait(None)
        elif theirs is h11.IDLE and (opened or self.conn.trailing_data[0]):
            self._wait(h11.IDLE, self.head_s)
        elif theirs is h11.SEND_BODY and (self.cycle is None or self.cycle.response_complete):
            self._wait(h11.SEND_BODY, self.linger_s)
        else:
            self._wait(None)

    def _wait(self, what: object, seconds: float = 0.0) -> None:
        """Go on waiting for the same, or begin to wait for something else."""
        if what is self._waits_for:
            return
        if self._end is not None:
            self._end.cancel()
        self._waits_for = what
        self._end = None if what is None else self.loop.call_later(seconds, self.transport.close)
