"""PostgreSQL set up or switched over in ways that tests of both databases do not know."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from driftline.errors import Conflict, InvalidSpec, Unavailable
from driftline.wire.ids import holder
from service.store.database import Database, migrate
from service.store.store import Store

from .api_setup import running
from .conftest import SPEC, Postgresql, new_trials
from .store_setup import make


@contextmanager
def administered(url: str) -> Iterator[sa.Connection]:
    """A connection of the operator; each statement is its own transaction."""
    options = {"options": "-c default_transaction_read_only=off"}
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", connect_args=options)
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def settings(url: str, *statements: str) -> None:
    """Run ``ALTER DATABASE ... SET ...`` for new connections."""
    name = sa.make_url(url).database
    with administered(url) as operator:
        for statement in statements:
            operator.execute(sa.text(f"ALTER DATABASE {name} SET {statement}"))


def setting(database: Database, name: str) -> str:
    with database.read() as connection:
        return str(connection.execute(sa.text(f"SHOW {name}")).scalar())


def disconnected(url: str) -> None:
    """End all other connections to the database."""
    with administered(url) as operator:
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        operator.execute(sa.text(f"{query} AND pid <> pg_backend_pid()"))


def test_a_driver_waits_while_the_server_is_read_only(postgresql: Postgresql) -> None:
    url = postgresql.fresh()
    with closing(Store(url)) as store, running(store) as service, service.client(patience_s=60) as driver:
        study = make(store)
        attempt = driver.acquire(study, holder()).attempt
        settings(url, "default_transaction_read_only = on")
        disconnected(url)
        with pytest.raises(Unavailable, match="read-only transaction; try again later"):
            make(store)
        assert not driver.ready()
        created: list[Any] = []
        waiting = threading.Thread(
            target=lambda: created.extend(driver.create_trials(study, attempt, new_trials("fedavg", 2)))
        )
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
        settings(url, "default_transaction_read_only = off")  # sessions keep the old value: new ones are needed
        waiting.join(60)
        assert len(created) == 2
        assert driver.ready()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_writers_do_not_take_the_isolation_that_the_server_prefers(postgresql: Postgresql, level: str) -> None:
    url = postgresql.fresh()
    migrate(url)
    settings(url, f"default_transaction_isolation = '{level}'")
    with closing(Store(url)) as one, closing(Store(url)) as other, ThreadPoolExecutor(6) as threads:

        def ask(number: int) -> str:
            store = (one, other)[number % 2]
            store.locks.take("scheduler", f"elsewhere/{number}", 0.0)
            return store.studies.create(SPEC, "f" * 64, key=f"key {number // 6}", request_hash="h").id

        assert len(set(threads.map(ask, range(36)))) == 6


def test_a_database_in_sql_ascii_holds_text(postgresql: Postgresql) -> None:
    url = postgresql.fresh("ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    with closing(Store(url)) as store:
        study = store.studies.create(SPEC | {"name": "数 \U0001f600"}, "f" * 64).id
        assert store.studies.get(study).name == "数 \U0001f600"


def test_a_new_database_that_cannot_hold_all_characters_is_refused(postgresql: Postgresql) -> None:
    latin = "ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
    with pytest.raises(Conflict, match="must have the encoding UTF8, got LATIN1"):
        migrate(postgresql.fresh(latin))


def test_options_of_the_operator_are_kept(postgresql: Postgresql, monkeypatch: pytest.MonkeyPatch) -> None:
    url = postgresql.fresh()
    with administered(url) as operator:
        operator.execute(sa.text("CREATE SCHEMA apart"))
    with closing(Database(f"{url}&options=-csearch_path%3Dapart")) as database:
        assert setting(database, "search_path") == "apart"
        assert setting(database, "idle_in_transaction_session_timeout") == "1min"
    monkeypatch.setenv("PGOPTIONS", "-c search_path=apart -c idle_in_transaction_session_timeout=5s")
    with closing(Database(url, upgraded=False)) as database:
        assert setting(database, "search_path") == "apart"
        assert setting(database, "idle_in_transaction_session_timeout") == "5s"
        with database.read() as connection:
            assert "studies" in sa.inspect(connection).get_table_names()


def test_a_migration_under_a_running_service_refuses_no_request_for_long(postgresql: Postgresql) -> None:
    """A later revision may change the type of a column; statements that are prepared then end once in an error."""
    url = postgresql.fresh()
    with closing(Store(url)) as store:
        study = make(store)
        for _ in range(10):
            store.studies.get(study)
        with administered(url) as operator:
            operator.execute(sa.text("ALTER TABLE studies ALTER COLUMN name TYPE varchar(300)"))
        with pytest.raises(Unavailable, match="cached plan"):
            store.studies.get(study)
        assert store.studies.get(study).id == study


def test_privileges_and_tables_that_are_missing(postgresql: Postgresql) -> None:
    url = postgresql.fresh()
    with administered(url) as operator:
        operator.execute(sa.text("CREATE ROLE reader LOGIN"))
    reader = sa.make_url(url).set(username="reader").render_as_string(hide_password=False)
    with pytest.raises(Unavailable, match="permission denied for schema public; try again later"):
        migrate(reader)
    migrate(url)
    with pytest.raises(Unavailable, match="permission denied for table alembic_version"):
        Store(reader)
    with closing(Store(url)) as store:
        study = make(store)
        with administered(url) as operator:
            operator.execute(sa.text("ALTER TABLE packs RENAME TO elsewhere"))
        with pytest.raises(Unavailable, match='relation "packs" does not exist'):
            store.leases.acquire(study, holder())


def test_a_migration_takes_longer_than_the_role_allows(postgresql: Postgresql) -> None:
    url = postgresql.fresh()
    settings(url, "statement_timeout = '300ms'")
    with administered(url) as operator:
        operator.execute(sa.text("SET statement_timeout = 0"))
        operator.execute(sa.text("SELECT pg_advisory_lock(7305918264)"))  # another process migrates
        release = threading.Timer(1.0, lambda: operator.execute(sa.text("SELECT pg_advisory_unlock_all()")))
        release.start()
        assert migrate(url)[0] is None
        release.join()


@pytest.mark.parametrize(
    "url",
    [
        "postgres://localhost/x",
        "mysql://localhost/x",
        "postgresql://u:secret/part",
        "sqlite://",
        "sqlite:///run?lr=0.1/x.db",
        "postgresql://localhost/x?sslmood=require",
    ],
)
def test_urls_of_no_database(url: str) -> None:
    with pytest.raises(
        InvalidSpec, match=r"^database URL: (must (be sqlite:///FILE or|hold valid options)|SQLite has no option 'lr')"
    ) as caught:
        Database(url)
    assert "secret" not in str(caught.value)


def test_no_blank_ends_the_options_which_pgbouncer_would_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []

    def connect(*_: object, options: str, **__: object) -> None:
        sent.append(options)
        raise psycopg.OperationalError("not reached")

    monkeypatch.delenv("PGOPTIONS", raising=False)
    monkeypatch.setattr(psycopg.Connection, "connect", connect)
    for query in ("", "?options=-csearch_path%3Dapart"):
        with pytest.raises(Unavailable, match="not reached"):
            Database(f"postgresql+psycopg://localhost/x{query}")
    assert sent == [
        "-c idle_in_transaction_session_timeout=60s",
        "-c idle_in_transaction_session_timeout=60s -csearch_path=apart",
    ]
