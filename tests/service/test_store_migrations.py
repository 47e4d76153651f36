"""Migrations: up and down with data, equal to the tables, refused when unknown, safe when several begin at once."""

import importlib
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from driftline.errors import Conflict, Unavailable
from driftline.wire.access import NewToken, Quota
from driftline.wire.curve_codec import encode
from driftline.wire.driver_messages import Report
from driftline.wire.ids import holder
from driftline.wire.logs import NewLine, NewLines
from service.store import database
from service.store.database import Database
from service.store.recorder_state import Recorded
from service.store.schema import DRIVERS, METADATA
from service.store.session import Actor
from service.store.store import Store
from tests.waiting import together

from .conftest import SPEC, new_trials
from .store_setup import packed

VERSIONS = Path(database.__file__).parent / "migrations" / "versions"
REVISIONS = sorted(path.name.partition("_")[0] for path in VERSIONS.glob("[0-9]*.py"))


@pytest.fixture
def filled(new_url: str) -> Iterator[Store]:
    """A store with something in every table."""
    store = Store(new_url)
    actor = Actor("t1", "ann")
    store.archives.put("default", "a" * 64, b"files", None)
    spec = {**SPEC, "program": {"archive": "a" * 64}}
    study = store.studies.create(spec, "f" * 64, key="k", actor=actor).id
    attempt = store.leases.acquire(study, holder()).attempt
    trials = [trial.id for trial in store.trials.create(study, attempt, new_trials("fedavg", 2))]
    store.trials.start_pack(study, attempt, "p", trials, gpus=0.5)
    columns = {"round": [0], "train_loss": [1.0]}
    store.curves.report(study, Report(attempt=attempt, pack="p", reports={trials[0]: encode(columns)}, rounds_done=0))
    store.facts.setdefault("fingerprint", "f" * 64)
    store.locks.take("scheduler", "a", 10)
    store.recorder_state.write(study, Recorded("study", "", "run-1", 1))
    store.tokens.create(NewToken(name="ann"), actor)
    store.quotas.set("default", Quota(studies=9), actor)
    delete_another(store)
    store.logs.write(study, NewLines(attempt=1, lines=[NewLine(at=1.0, text="hello")]))
    yield store
    store.close()


def delete_another(store: Store) -> None:
    """A study that has used a GPU, and of which files are left."""
    study, attempt, _ = packed(store, 1, gpus=1.0)
    time.sleep(0.001)  # the clock's resolution
    store.leases.release(study, attempt, "FAILED", "no")
    store.deletions.request(study)
    while store.deletions.purge():
        pass


def rows(store: Store) -> dict[str, int]:
    """Number of rows by table."""
    with store.session.read() as connection:
        there = set(sa.inspect(connection).get_table_names()) & set(METADATA.tables)
        return {
            name: connection.execute(sa.select(sa.func.count()).select_from(sa.table(name))).scalar_one()
            for name in there
        }


def tables(store: Store) -> set[str]:
    with store.session.read() as connection:
        return set(sa.inspect(connection).get_table_names())


def test_the_migrated_schema_is_what_the_tables_say_and_something_is_in_every_table(filled: Store) -> None:
    assert database.differences(filled.session.database) == []
    assert {name: count for name, count in rows(filled).items() if not count} == {}


def test_down_and_up_again(new_url: str) -> None:
    store = Store(new_url)
    database.downgrade(store.session.database)
    assert tables(store) == {"alembic_version"}
    database.upgrade(store.session.database)
    assert tables(store) == set(METADATA.tables) | {"alembic_version"}
    assert database.differences(store.session.database) == []
    store.studies.create(SPEC, "f" * 64)
    store.close()


@pytest.mark.parametrize("revision", REVISIONS)
def test_down_to_every_revision_and_up_again_keeps_what_it_knows(filled: Store, revision: str) -> None:
    """As after a rollback: what a revision has tables for is there afterwards, unchanged."""
    (record,), counted = filled.studies.find(), rows(filled)
    trials, curves = filled.trials.find(record.id), filled.curves.columns(record.id)
    database.downgrade(filled.session.database, revision)
    left = rows(filled)
    assert left == {name: counted[name] for name in left}
    database.upgrade(filled.session.database)
    assert database.differences(filled.session.database) == []
    assert filled.studies.find() == [record]
    assert (filled.trials.find(record.id), filled.curves.columns(record.id)) == (trials, curves)
    assert {name: count for name, count in rows(filled).items() if name in left} == left
    assert filled.quotas.get("default").use.trials == 2 * (4 + 1 * 2)
    with filled.session.read() as connection:
        assert connection.execute(sa.select(DRIVERS.c.fingerprint)).scalar_one() == "f" * 64
    filled.leases.heartbeat(record.id, 1)
    filled.studies.create(SPEC, "f" * 64)


def test_migrating_says_from_where_to_where(new_url: str) -> None:
    assert database.migrate(new_url) == (None, REVISIONS[-1])
    assert database.migrate(new_url) == (REVISIONS[-1], REVISIONS[-1])
    store = Store(new_url)
    database.downgrade(store.session.database, REVISIONS[0])
    store.close()
    assert database.migrate(new_url) == (REVISIONS[0], REVISIONS[-1])


def test_a_database_of_a_newer_driftline_is_refused(filled: Store, new_url: str) -> None:
    with filled.session.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(Conflict, match="use a newer Driftline"):
        Store(new_url)


def test_a_failing_migration_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alembic import op

    def fail(*_: object) -> None:
        raise RuntimeError("power cut")

    monkeypatch.setattr(op, "create_index", fail)
    with pytest.raises(RuntimeError, match="power cut"):
        Store(tmp_path / "half.db")
    monkeypatch.undo()
    store = Store(tmp_path / "half.db")
    assert tables(store) == set(METADATA.tables) | {"alembic_version"}
    store.close()


def test_several_may_open_a_new_database_at_once(new_url: str) -> None:
    for store in together([lambda: Store(new_url)] * 3):
        assert store.studies.find() == []
        store.close()


def test_readers_that_open_a_new_file_at_once_all_get_it(tmp_path: Path) -> None:
    for number in range(40):  # without a second try, SQLite refuses one of them in a tenth of the files
        databases = [Database(str(tmp_path / f"{number}.db"), upgraded=False) for _ in range(6)]

        def opened(one: Database) -> int:
            with one.read() as connection:
                return int(connection.execute(sa.text("SELECT 1")).scalar_one())

        assert together([partial(opened, one) for one in databases]) == [1] * 6
        for one in databases:
            one.close()


def test_files_of_migrations_are_named_by_their_revision() -> None:
    assert [f"{number:04d}" for number in range(7, 7 + len(REVISIONS))] == REVISIONS


def test_replicas_of_the_version_before_can_write_to_the_new_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every migration only adds."""
    for revision in REVISIONS:
        (file,) = VERSIONS.glob(f"{revision}_*.py")
        migration = importlib.import_module(f"service.store.migrations.versions.{file.stem}")
        op = Mock()
        monkeypatch.setattr(migration, "op", op)
        migration.upgrade()
        assert {name for name, _, _ in op.mock_calls} <= {"add_column", "create_table", "create_index"}
        added = [arguments[1] for name, arguments, _ in op.mock_calls if name == "add_column"]
        assert [column.name for column in added if not column.nullable and column.server_default is None] == []


def test_a_database_that_cannot_be_reached(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot be reached"):
        Database(tmp_path / "no" / "such" / "folder" / "x.db")
    pytest.importorskip("psycopg")
    with pytest.raises(Unavailable, match="cannot be reached"):
        Database(f"postgresql://nobody@/none?host={tmp_path}")
