"""Connections to PostgreSQL that do not wait for ever.

A network or a proxy may stop to pass on what is sent without closing the connection: the server then has no chance to
answer, and TCP none to notice. So each wait for an answer has an end here, at the client; and so that what a client
that is gone holds is freed, the server ends transactions in which nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

CONNECT_S = 10
ANSWER_S = 30.0
IDLE_S = 60
"""Seconds after which the server ends a transaction whose client says nothing."""


def listen(engine: sa.Engine) -> None:
    """Has an engine make such connections. Needs psycopg, imported here and not before."""
    import psycopg

    class Answering(psycopg.Connection[Any]):
        """Waits `answer_s` seconds for an answer, None for ever; one that does not come ends the connection."""

        answer_s: float | None = ANSWER_S

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            if timeout is not None or self.answer_s is None:
                return super().wait(gen, interval, timeout)
            try:
                return super().wait(gen, interval, self.answer_s)
            except psycopg.OperationalError as error:
                if type(error).__name__ != "_WaitTimeout":
                    raise
                self.pgconn.finish()  # what the server makes of the statement is not known: this connection is over
                raise psycopg.OperationalError(f"no answer came within {self.answer_s:.0f} s") from error

    def connect(_dialect: Any, _record: Any, arguments: Any, options: dict[str, Any]) -> Any:
        options.setdefault("connect_timeout", CONNECT_S)
        options.setdefault("options", f"-c idle_in_transaction_session_timeout={IDLE_S}s")
        open_: Callable[..., Any] = Answering.connect
        return open_(*arguments, **options)

    event.listen(engine, "do_connect", connect)


def unhurried(connection: sa.Connection) -> None:
    """Lets a connection wait for as long as it takes: migrations of large tables, or behind another one's."""
    held: Any = connection.connection.driver_connection
    held.answer_s = None
