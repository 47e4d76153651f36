"""PostgreSQL connections with timeouts.

A network or a proxy may stop forwarding data without closing the connection; TCP does not notice. So the client limits
each wait for an answer, and the server ends idle transactions, which frees the locks of clients that are gone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import ExceptionContext

from driftline.errors import Conflict, InvalidSpec

CONNECT_S = 10
ANSWER_S = 30.0
IDLE_S = 60
"""Seconds after which the server ends an idle transaction."""

_OF_THE_SERVER = frozenset(
    {
        "25006",  # read-only: a replica, or a primary that became one
        "42501",  # the role lacks a privilege
        "3F000",  # no schema in the search path
        "42P01",  # a table is missing ...
        "42703",  # ... or a column: the database is at another revision
        "0A000",  # a prepared statement is older than a migration
    }
)
"""SQLSTATEs that say that the server is not ready, not that a statement is wrong."""


def listen(engine: sa.Engine) -> None:
    """Make an engine use connections with timeouts. Imports psycopg only here, because SQLite does not need it."""
    import psycopg

    class Answering(psycopg.Connection[Any]):
        """Waits at most `answer_s` seconds for an answer (None: no limit), then closes the connection."""

        answer_s: float | None = ANSWER_S

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            if timeout is not None or self.answer_s is None:
                return super().wait(gen, interval, timeout)
            begun = time.monotonic()
            try:
                return super().wait(gen, interval, self.answer_s)
            except psycopg.OperationalError as error:
                if time.monotonic() - begun < 0.9 * self.answer_s:  # another error than that of the time-out
                    raise
                self.pgconn.finish()  # whether the server ran the statement is unknown: drop the connection
                raise psycopg.OperationalError(f"no answer came within {self.answer_s:.0f} s") from error

    def connect(_dialect: Any, _record: Any, arguments: Any, options: dict[str, Any]) -> Any:
        options.setdefault("connect_timeout", CONNECT_S)
        options.setdefault("client_encoding", "utf8")  # without it, a database in SQL_ASCII sends bytes
        settings = options.get("options") or os.environ.get("PGOPTIONS", "")
        idle = f"-c idle_in_transaction_session_timeout={IDLE_S}s"
        options["options"] = f"{idle} {settings}".strip()  # PgBouncer refuses a blank at the end
        open_: Callable[..., Any] = Answering.connect
        try:
            return open_(*arguments, **options)
        except psycopg.ProgrammingError as error:  # an option that PostgreSQL does not have
            raise InvalidSpec("database URL", f"must hold valid options: {str(error).strip()}") from error

    event.listen(engine, "do_connect", connect)
    event.listen(engine, "handle_error", _give_up)


def _give_up(context: ExceptionContext) -> None:
    """Replace all connections after an error of the server: new ones may reach another server."""
    if getattr(context.original_exception, "sqlstate", None) in _OF_THE_SERVER:
        context.is_disconnect = True


def unhurried(connection: sa.Connection) -> None:
    """Remove the time limits of a connection that migrates large tables or waits for another migration."""
    driver_connection: Any = connection.connection.driver_connection
    driver_connection.answer_s = None
    connection.execute(sa.text("SET LOCAL statement_timeout = 0"))  # the role may have one


def check_encoding(connection: sa.Connection) -> None:
    """Check that a new database holds all characters: logs and reasons must be storable, whatever they quote.

    Raises:
        Conflict: The database does not hold all characters.
    """
    encoding = connection.execute(sa.text("SHOW server_encoding")).scalar_one()
    if encoding not in ("UTF8", "SQL_ASCII"):
        raise Conflict(f"the database must have the encoding UTF8, got {encoding}: create it with ENCODING 'UTF8'")
