"""uvicorn's HTTP/1.1 protocol with time limits for slow clients.

uvicorn itself waits without limit for the rest of a request's head, for the rest of a body after the request was
answered (a request without a token is answered before its body is read), and for a client that does not read its
answer. Each costs a connection, and a service has few. `request_bodies.BodyLimit` limits the time for other bodies.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 20.0
"""Seconds from opening a connection, or from the first byte of a later request, to the end of the request's head."""

LINGER_S = 10.0
"""Seconds for the rest of a body that nobody reads. Closing the connection at once could lose the answer."""

STALL_S = 60.0
"""Seconds that a client may stop reading while an answer fills the connection's buffers."""


class BoundedProtocol(H11Protocol):
    """A connection that is closed when its client takes too long."""

    head_s = HEAD_S
    linger_s = LINGER_S
    stall_s = STALL_S
    _stall: asyncio.TimerHandle | None = None
    _end: asyncio.TimerHandle | None = None
    _waits_for: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's signature
        """Start the time limit for the first head."""
        super().connection_made(transport)
        self._look(opened=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all time limits."""
        self._wait(None)
        self._read_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Stop sending until the client reads; abort after `stall_s`."""
        super().pause_writing()
        self._stall = self._stall or self.loop.call_later(self.stall_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue sending."""
        self._read_on()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Process the data, then update the time limit."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Limit the time for a body that is still arriving."""
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
        """Start the time limit for `what`, or keep it if it is already running."""
        if what is self._waits_for:
            return
        if self._end is not None:
            self._end.cancel()
        self._waits_for = what
        self._end = None if what is None else self.loop.call_later(seconds, self.transport.close)
