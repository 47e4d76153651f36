"""PostgreSQL connections with timeouts.

A network or a proxy may stop forwarding data without closing the connection; TCP does not notice. So the client limits
each wait for an answer, and the server ends idle transactions, which frees the locks of clients that are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

CONNECT_S = 10
ANSWER_S = 30.0
IDLE_S = 60
"""Seconds after which the server ends an idle transaction."""


def listen(engine: sa.Engine) -> None:
    """Make an engine use such connections. Imports psycopg only here, because SQLite does not need it."""
    import psycopg

    class Answering(psycopg.Connection[Any]):
        """Waits at most `answer_s` seconds for an answer (None: no limit), then closes the connection."""

        answer_s: float | None = ANSWER_S

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            if timeout is not None or self.answer_s is None:
                return super().wait(gen, interval, timeout)
            try:
                return super().wait(gen, interval, self.answer_s)
            except psycopg.OperationalError as error:
                if type(error).__name__ != "_WaitTimeout":
                    raise
                self.pgconn.finish()  # whether the server ran the statement is unknown: drop the connection
                raise psycopg.OperationalError(f"no answer came within {self.answer_s:.0f} s") from error

    def connect(_dialect: Any, _record: Any, arguments: Any, options: dict[str, Any]) -> Any:
        options.setdefault("connect_timeout", CONNECT_S)
        options.setdefault("options", f"-c idle_in_transaction_session_timeout={IDLE_S}s")
        open_: Callable[..., Any] = Answering.connect
        return open_(*arguments, **options)

    event.listen(engine, "do_connect", connect)


def unhurried(connection: sa.Connection) -> None:
    """Remove the time limit of a connection that migrates large tables or waits for another migration."""
    held: Any = connection.connection.driver_connection
    held.answer_s = None
