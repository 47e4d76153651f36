"""Migrations: up and down with data, equal to the tables, refused when unknown, safe when several begin at once."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from service.errors import Conflict, Unavailable
from service.names import holder
from service.schemas.protocol import Report
from service.store import database
from service.store.database import Database
from service.store.store import Store
from service.store.tables import METADATA

from .conftest import SPEC, new_trials


@pytest.fixture
def filled(new_url: str) -> Iterator[Store]:
    store = Store(new_url)
    study = store.create_study(SPEC, "f" * 64, key="k").id
    attempt = store.acquire(study, holder()).attempt
    trials = [trial.id for trial in store.create_trials(study, attempt, new_trials("fedavg", 2))]
    store.start_pack(study, attempt, "p", trials)
    columns = {"round": [0], "train_loss": [1.0]}
    store.report(study, Report(attempt=attempt, pack="p", reports={trials[0]: columns}, rounds_done=0))
    store.set_fact("fingerprint", "f" * 64)
    yield store
    store.close()


def tables(store: Store) -> set[str]:
    with store._database.read() as connection:
        return set(sa.inspect(connection).get_table_names())


def test_the_migrated_schema_is_what_the_tables_say(filled: Store) -> None:
    assert database.differences(filled._database) == []


def test_down_and_up_again_with_data_in_it(filled: Store) -> None:
    database.downgrade(filled._database)
    assert tables(filled) == {"alembic_version"}
    database.upgrade(filled._database)
    assert tables(filled) == set(METADATA.tables) | {"alembic_version"}
    assert database.differences(filled._database) == []
    assert filled.studies() == []
    filled.create_study(SPEC, "f" * 64)


def test_upgrading_what_is_up_to_date_changes_nothing(filled: Store) -> None:
    before = filled.studies()
    database.upgrade(filled._database)
    assert filled.studies() == before


def test_a_database_of_a_newer_driftline_is_refused(filled: Store, new_url: str) -> None:
    with filled._database.write() as connection:
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
    opened: list[Store] = []
    failed: list[BaseException] = []

    def open_it() -> None:
        try:
            opened.append(Store(new_url))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(opened) == 3
    for store in opened:
        assert store.studies() == []
        store.close()


def test_files_of_migrations_are_named_by_their_revision() -> None:
    folder = Path(database.__file__).parent / "migrations" / "versions"
    files = sorted(folder.glob("[0-9]*.py"))
    assert [path.name.partition("_")[0] for path in files] == [f"{number:04d}" for number in range(1, len(files) + 1)]
    assert f'revision = "{database._head()}"' in files[-1].read_text()


def test_a_database_that_cannot_be_reached(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="must be reachable"):
        Database(tmp_path / "no" / "such" / "folder" / "x.db")
    pytest.importorskip("psycopg")
    with pytest.raises(Unavailable, match="must be reachable"):
        Database(f"postgresql://nobody@/none?host={tmp_path}")
