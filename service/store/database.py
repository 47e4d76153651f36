"""Connections to SQLite or PostgreSQL, and migrations of the schema.

SQLite runs in WAL mode: readers see a snapshot and never wait; writers take turns with BEGIN IMMEDIATE, so that no
transaction starts as a reader and then fails to become a writer. On PostgreSQL, readers use REPEATABLE READ and writers
lock the study's row.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from pydantic import ValidationError
from pydantic_core import from_json
from sqlalchemy import event
from sqlalchemy.exc import ArgumentError, DataError, DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from driftline.errors import Conflict, DriftlineError, InvalidSpec, Unavailable
from service.sqlite_address import sqlite_file
from service.store import postgresql
from service.store.schema import METADATA
from trainers.own_files import require_plain

_BUSY_S = 30.0
_SYNCHRONOUS = "FULL"  # what is committed survives a power cut
_UNREADABLE = (json.JSONDecodeError, UnicodeDecodeError, ValidationError, sqlite3.Error)
"""Errors from stored values that were changed by something else than this package."""

_MIGRATIONS = Path(__file__).parent / "migrations"
_UPGRADE_LOCK = 7_305_918_264  # PostgreSQL advisory lock held while migrating


class Database:
    """One database with its connection pool.

    Args:
        url: ``sqlite:///file``, ``postgresql://user:password@host/name``, or a plain path of a SQLite file.
        upgraded: Whether to upgrade the database to the newest revision.

    Attributes:
        writes_fail: Whether the last write failed, because the disk is full or the database is unavailable.

    Raises:
        InvalidSpec: The URL is not one of these, or the SQLite file is a link.
        Unavailable: The database cannot be reached.
        Conflict: The database was written by a newer Driftline, or the file is not a database.
    """

    def __init__(self, url: str | Path, *, upgraded: bool = True) -> None:
        self.url = _parsed(url)
        self.sqlite = self.url.get_backend_name() == "sqlite"
        if self.sqlite:
            _check_file(self.url)
            engine = sa.create_engine(
                self.url, pool_size=8, max_overflow=64, connect_args={"timeout": _BUSY_S}, json_deserializer=_json
            )
            event.listen(engine, "connect", _prepare)
            event.listen(engine, "begin", _begin)
            self._reader: sa.Engine = engine
            self._writer: sa.Engine = engine.execution_options(driftline_write=True)
        else:
            engine = sa.create_engine(
                self.url, pool_size=8, max_overflow=24, pool_pre_ping=True, json_deserializer=_json
            )
            if self.url.get_driver_name() == "psycopg":
                postgresql.listen(engine)
            self._reader = engine.execution_options(isolation_level="REPEATABLE READ")
            self._writer = engine.execution_options(isolation_level="READ COMMITTED")  # whatever the server's default
        self._engine = engine
        self.writes_fail = False
        self._writing = threading.Lock() if self.sqlite else None  # SQLite's own waiting polls and is unfair
        try:
            if upgraded:
                upgrade(self)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A snapshot: all statements inside see the same state."""
        with self._guarded(), self._reader.begin() as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[sa.Connection]:
        """A transaction: stores everything inside, or nothing if an exception leaves the block."""
        try:
            with self._guarded(), self._writing or nullcontext(), self._writer.begin() as connection:
                yield connection
        except Unavailable:
            self.writes_fail = True
            raise
        self.writes_fail = False

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turns errors of the database, and errors that a damaged file causes, into one-line Driftline errors."""
        try:
            yield
        except (DriftlineError, MemoryError):
            raise
        except (OperationalError, PoolTimeout) as error:
            code = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0) & 0xFF  # the primary result code
            if code == sqlite3.SQLITE_FULL:
                raise Unavailable(
                    f"the disk must have room for {self.url.database}, got a full one: free some space; nothing that "
                    "was stored is lost"
                ) from error
            if "decode" in _cause(error) or self._is_damaged():
                raise self._damage(error) from error
            raise Unavailable(f"the database cannot be reached: {_cause(error)}; try again later") from error
        except (DataError, OverflowError, UnicodeEncodeError) as error:
            raise InvalidSpec("", f"the database cannot hold a value: {_cause(error)}") from error
        except DBAPIError as error:
            if error.connection_invalidated:
                raise Unavailable(f"the database cannot be used: {_cause(error)}; try again later") from error
            if type(error.orig) is sqlite3.DatabaseError:  # SQLITE_NOTADB, SQLITE_CORRUPT
                raise self._damage(error) from error
            raise
        except Exception as error:
            if isinstance(error, _UNREADABLE) or self._is_damaged():
                raise self._damage(error) from error
            raise

    def _damage(self, error: Exception) -> Conflict:
        what = f"{type(error).__name__}: {_cause(error)}" if isinstance(error, _UNREADABLE) else _cause(error)
        advice = "restore a backup of it" if self.sqlite else "restore a backup"
        return Conflict(f"{self.url.database} is not a Driftline database, or it is damaged ({what}): {advice}")

    def _is_damaged(self) -> bool:
        """Whether a SQLite file is damaged; looked at only after an error."""
        if not self.sqlite:
            return False
        try:
            with closing(sqlite3.connect(str(self.url.database), timeout=_BUSY_S)) as connection:
                return bool(connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",))
        except sqlite3.OperationalError:
            return False
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            return True

    def turn(self, connection: sa.Connection, name: str) -> None:
        """Lock a name until the connection's transaction ends; other transactions that lock it wait.

        For rows that do not exist yet and so cannot be locked. SQLite has only one writer at a time.
        """
        if not self.sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(sa.func.hashtext(name))))

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def upgrade(database: Database, revision: str = "head") -> None:
    """Upgrade the schema to a revision; does nothing if it is there already.

    Args:
        database: The database to migrate.
        revision: ``head`` or a revision's identifier.

    Raises:
        Conflict: The database is at a revision that this Driftline does not know.
    """
    if revision == "head" and _revision(database) == _head():
        return
    _migrate(database, "upgrade", revision)


def migrate(url: str | Path) -> tuple[str | None, str]:
    """Upgrade a database to the newest revision; safe to repeat, also by several processes at once.

    One process migrates in one transaction (under an advisory lock on PostgreSQL, under the write lock on SQLite); the
    others wait and then find nothing to do.

    Args:
        url: URL of the database, or path of a SQLite file.

    Returns:
        The revision before (None for an empty database), and the present one.

    Raises:
        Unavailable: The database cannot be reached.
        Conflict: The database was written by a newer Driftline, or the file is not a database.
    """
    database = Database(url, upgraded=False)
    try:
        before = _revision(database)
        upgrade(database)
        after = _revision(database)
    finally:
        database.close()
    assert after is not None
    return before, after


def take_back(url: str | Path, revision: str) -> None:
    """Downgrade a database to an earlier revision; later changes are lost.

    Args:
        url: URL of the database, or path of a SQLite file.
        revision: Identifier of the revision, such as "0003".

    Raises:
        Conflict: The revision is unknown.
    """
    database = Database(url, upgraded=False)
    try:
        downgrade(database, revision)
    finally:
        database.close()


def downgrade(database: Database, revision: str = "base") -> None:
    """Downgrade the schema to a revision; data of later revisions is lost."""
    _migrate(database, "downgrade", revision)


def differences(database: Database) -> list[Any]:
    """Differences between `schema` and the migrated database; empty if there are none."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    options: dict[str, Any] = {"compare_type": True}
    with database.read() as connection:
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), METADATA))


def _parsed(address: str | Path) -> sa.URL:
    rule = "must be sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME"
    if isinstance(address, Path) or "://" not in address:
        return sa.URL.create("sqlite", database=str(address))
    try:
        url = sa.make_url(address)
    except (ArgumentError, ValueError):  # their messages may hold a part of the password
        raise InvalidSpec("database URL", f"{rule}; write special characters of the password as %XX") from None
    if url.drivername in ("postgresql", "postgresql+psycopg2"):  # as many write it; psycopg 3 is installed
        url = url.set(drivername="postgresql+psycopg")
    try:
        sqlite_file(address)
    except ValueError as error:
        raise InvalidSpec("database URL", str(error)) from None
    try:
        url.get_dialect().import_dbapi()
    except (ArgumentError, ImportError) as error:
        problem = f"{rule}, the latter with driftline[service] installed, got {url.drivername}://...: {error}"
        raise InvalidSpec("database URL", problem) from error
    return url


def _check_file(url: sa.URL) -> None:
    try:
        require_plain(Path(url.database or ""))
    except OSError as error:
        raise InvalidSpec("database", f"{url.database} {error.strerror}") from error


def _migrate(database: Database, direction: str, revision: str) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    with database.write() as connection:
        if not database.sqlite:
            postgresql.unhurried(connection)
            if not sa.inspect(connection).has_table("alembic_version"):
                postgresql.check_encoding(connection)
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
        config.attributes["connection"] = connection
        try:
            (command.upgrade if direction == "upgrade" else command.downgrade)(config, revision)
        except CommandError as error:
            problem = f"this Driftline does not know the database's revision: {error}"
            advice = "use a newer Driftline, or another database if another program has made this one"
            raise Conflict(f"{problem}; {advice}") from error


def _revision(database: Database) -> str | None:
    with database.read() as connection:
        if not sa.inspect(connection).has_table("alembic_version"):
            return None
        revision: str | None = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
        return revision


def _head() -> str:
    """The newest revision: the files in versions/ are numbered."""
    return max(path.name for path in (_MIGRATIONS / "versions").glob("[0-9]*.py")).partition("_")[0]


def _cause(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]


def _json(text: str) -> Any:
    """Parses stored JSON three times as fast as `json.loads`, which is used only for halves of surrogate pairs."""
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)


def _prepare(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # `_begin` starts transactions, not the sqlite3 module
    connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_S * 1000)}")
    _write_ahead(connection)
    connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS}")
    connection.execute("PRAGMA foreign_keys = ON")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Sets WAL mode, with retries: if several connections do so at once in a new file, SQLite refuses some at once."""
    until = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _begin(connection: sa.Connection) -> None:
    write = connection.get_execution_options().get("driftline_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
