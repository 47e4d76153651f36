"""Databases of version 0.1: read and upgraded on SQLite and PostgreSQL, and taken back from the backup."""

import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

import driftline
from driftline.errors import InvalidSpec, StaleDriver
from driftline.sdk.frontier import Frontier
from driftline.study import version_0_1
from driftline.study.spec import Study
from driftline.wire.curve_codec import encode
from driftline.wire.records import TRIAL_FINISHED
from service.cli.main import app
from service.store import database
from service.store.curve_segments import decode
from service.store.schema import CURVE_SEGMENTS
from service.store.store import Store
from tests.databases_0_1 import VERSION_0_1, fill_postgresql, sqlite_file


@pytest.fixture(params=["sqlite", "postgresql"])
def old_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A service's database as 0.1 left it: a study in every state, the running one with a driver's lease."""
    if request.param == "sqlite":
        return f"sqlite:///{sqlite_file(tmp_path)}"
    url: str = request.getfixturevalue("postgresql").fresh()
    fill_postgresql(url)
    return url


def contents(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables but the revision, sorted."""
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        names = sorted(set(sa.inspect(connection).get_table_names()) - {"alembic_version"})
        found = {}
        for name in names:
            columns = sorted(column["name"] for column in sa.inspect(connection).get_columns(name))
            rows = connection.execute(
                sa.text(f"SELECT {', '.join(f'{chr(34)}{c}{chr(34)}' for c in columns)} FROM {name}")
            )
            found[name] = sorted((tuple(str(value) for value in row) for row in rows), key=str)
    engine.dispose()
    return found


@pytest.fixture
def upgraded(old_url: str) -> Iterator[Store]:
    store = Store(old_url)
    yield store
    store.close()


def test_every_study_is_read_under_its_own_fingerprint(upgraded: Store) -> None:
    studies = upgraded.studies.find()
    assert {study.state for study in studies} >= {"PENDING", "PAUSED", "SUCCEEDED"}
    for record in studies:
        study = Study.from_json(record.spec)
        assert study.to_json() == record.spec
        assert study.fingerprint() == record.fingerprint
        assert study.budget.confirm >= 1


def test_trials_have_the_new_names_and_finished_ones_their_curves(upgraded: Store) -> None:
    confirmed = 0
    for record in upgraded.studies.find():
        trials = upgraded.trials.find(record.id)
        curves = upgraded.curves.columns(record.id, [trial.id for trial in trials])
        for trial in trials:
            assert trial.id == f"{record.id}.{trial.label}.{trial.phase[0]}{trial.number:05d}"
            if trial.phase == "search":
                assert trial.configuration == trial.number
            else:
                confirmed += 1
                (twin,) = [
                    one
                    for one in trials
                    if (one.label, one.phase, one.number) == (trial.label, "search", trial.configuration)
                ]
                assert twin.hyperparameters == trial.hyperparameters
            if trial.state in TRIAL_FINISHED:
                assert bool(curves[trial.id]["round"]) == bool(trial.rounds_done)
            else:
                assert (trial.state, trial.pack, trial.checkpoint, trial.rounds_done) == ("WAITING", None, None, 0)
                assert not curves.get(trial.id, {}).get("round")
    assert confirmed


def test_curves_that_were_stored_since_the_upgrade_go_back_in_the_old_form(old_url: str) -> None:
    before = contents(old_url)["curve_segments"]
    with closing(Store(old_url)) as store:
        with store.session.write() as connection:
            for row in connection.execute(sa.select(CURVE_SEGMENTS)).all():
                (block,) = encode(decode(row.payload))  # what a trial that runs again would leave
                key = (CURVE_SEGMENTS.c.trial_id == row.trial_id, CURVE_SEGMENTS.c.segment == row.segment)
                connection.execute(sa.update(CURVE_SEGMENTS).where(*key).values(payload=block))
        database.downgrade(store.session.database, "0002")
    assert contents(old_url)["curve_segments"] == before


def test_a_running_study_waits_for_a_driver_and_its_old_one_is_refused(old_url: str) -> None:
    engine = sa.create_engine(old_url)
    with engine.connect() as connection:
        (held,) = connection.execute(sa.text("SELECT study_id FROM drivers WHERE NOT released")).all()
        attempt = connection.execute(
            sa.text("SELECT attempt FROM drivers WHERE study_id = :study"), {"study": held[0]}
        ).scalar_one()
    engine.dispose()
    with closing(Store(old_url)) as store:
        assert store.studies.get(held[0]).state == "PENDING"
        assert "start again" in store.studies.get(held[0]).reason
        with pytest.raises(StaleDriver):
            store.leases.heartbeat(held[0], attempt)
        assert store.leases.acquire(held[0], "elsewhere/1").attempt == attempt + 1


def test_the_upgrade_is_taken_back_to_the_last_row(old_url: str) -> None:
    before = contents(old_url)
    with closing(Store(old_url)) as store:
        (pending, *_) = [study for study in store.studies.find() if study.state == "PENDING"]
        store.leases.acquire(pending.id, "new/1")
        store.studies.create(pending.spec, "e" * 64)
        database.downgrade(store.session.database, "0002")
    after = contents(old_url)
    assert len(after.pop("audit")) == len(before.pop("audit")) + 1  # what happened since stays in the audit trail
    assert after == before
    with closing(Store(old_url)) as store:  # and up again
        assert store.studies.find()
        assert database.differences(store.session.database) == []


def test_a_study_that_was_deleted_since_does_not_come_back(old_url: str) -> None:
    before = contents(old_url)
    with closing(Store(old_url)) as store:
        deleted, hidden = [study.id for study in store.studies.find() if study.state in ("SUCCEEDED", "PAUSED")][:2]
        store.deletions.request(deleted)
        while store.deletions.purge():
            pass
        store.deletions.request(hidden)
        database.downgrade(store.session.database, "0002")
    after = contents(old_url)
    left = {
        name: [row for row in rows if not any(study in value for value in row for study in (deleted, hidden))]
        for name, rows in before.items()
        if name != "audit"
    }
    assert {name: rows for name, rows in after.items() if name != "audit"} == left
    assert len(left["studies"]) == len(before["studies"]) - 2


def test_the_command_goes_back_and_drops_the_backup(old_url: str) -> None:
    before = contents(old_url)
    migrate = ["migrate", "--database", old_url]
    for options, said in (
        ([], "it was at 0002"),
        (["--to", "0002"], "at revision 0002"),
        ([], "it was at 0002"),
        (["--drop-backup"], "Dropped 8 backup tables"),
        (["--drop-backup"], "no backup to drop"),
    ):
        if options == ["--drop-backup"] and said.startswith("Dropped"):
            assert contents(old_url) != before
        done = CliRunner().invoke(app, [*migrate, *options])
        assert done.exit_code == 0, done.output
        assert said in done.output
        if options[:1] == ["--to"]:
            assert contents(old_url) == before
    refused = CliRunner().invoke(app, [*migrate, "--to", "0003"])
    assert "only where it kept a backup" in str(refused.exception)


def test_an_old_output_folder_is_read(tmp_path: Path) -> None:
    with tarfile.open(VERSION_0_1 / "folder.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    (file,) = tmp_path.rglob("frontier.json")
    read = Frontier.read(file.parent)
    again = driftline.frontier(file.parent)
    assert read.labels == again.labels
    assert any(method["reported"]["phase"] == "confirmation" for method in again.data["methods"].values())
    for label in read.labels:
        old, new = read.data["methods"][label], again.data["methods"][label]
        assert old["frontier"] == new["frontier"]
        for rows in ("points", "configurations"):
            assert [_without(row) for row in old[rows]] == [_without(row) for row in new[rows]]
        names = {name for row in new["points"] for name in row["hyperparameters"]}
        assert not any(name.startswith("client_") and name != "client_lr" for name in names)


def _without(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "hyperparameters"}


def test_a_study_in_the_old_spelling_is_refused_with_the_new_one() -> None:
    document = {
        "name": "old",
        "task": {"name": "digits"},
        "methods": [{"name": "fedavg"}],
        "budget": {"trials_per_method": 2, "rounds": 2, "front": 1},
    }
    with pytest.raises(InvalidSpec, match=r"^budget\.front: is spelled budget\.confirm since Driftline 0\.2$"):
        Study.from_json(document)
    new = version_0_1.study(document)
    assert Study.from_json(new).budget.confirm == 1
    assert version_0_1.study(new) == new
