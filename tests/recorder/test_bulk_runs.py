"""Runs and schemas written at once are those that MLflow writes, in every table of its database."""

import copy
import dataclasses
import math
import re
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driftline.results.curves import TrialCurve
from service.recorder import bulk_runs, database_client, empty_database, study_recorder, trial_runs
from service.recorder.bulk_runs import WholeRun
from service.recorder.study_recorder import Recorder
from service.recorder.tracking import KEY, connect, connect_to_record
from service.store.store import Store

from ..results.samples import curve
from .stored import Stored

_ID = re.compile(r"\b[0-9a-f]{32}\b")  # of MLflow's own


def trials() -> Iterator[TrialCurve]:
    """Complete, diverged, and with a gap in its metric."""
    for number, values in enumerate(([0.1, 0.5, 0.7, 0.9], [0.1, 0.2, math.nan, math.nan], [0.1, math.nan, 0.3, 0.8])):
        state = "DIVERGED" if number == 1 else "COMPLETE"
        yield curve(values, metric="test_accuracy", label="fedavg", number=number, state=state)


def tables(file: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    """The rows of every table, with runs named by their keys, without the moments at which they were written."""
    with sqlite3.connect(file) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        keys = dict(database.execute("SELECT run_uuid, value FROM tags WHERE key = ?", (KEY,)).fetchall())
        content = {}
        for name in names:
            columns = [column[1] for column in database.execute(f"PRAGMA table_info({name})")]
            kept = [
                at
                for at, column in enumerate(columns)
                if column not in ("creation_time", "last_update_time", "deleted_time")
            ]
            rows = database.execute(f"SELECT * FROM {name}").fetchall()
            content[name] = Counter(tuple(_named(row[at], keys) for at in kept) for row in rows)
    return content


def _named(value: Any, keys: dict[str, str]) -> Any:
    for run_id, key in keys.items():
        if isinstance(value, str):
            value = value.replace(run_id, key)
    return _ID.sub("an id", value) if isinstance(value, str) else value


def test_every_table_and_artifact_is_as_the_client_writes_it(
    store: Store, migrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_runs, "LIVE_AFTER_S", 0.0)
    study = Stored(store, ["fedavg"], 3)
    curves = list(trials())
    study.add(curves[:1])
    started = study.add(curves[1:], until=2)
    store.close()
    written: list[int] = []
    original = bulk_runs.write

    def counted(uri: str, experiment: str, runs: Any) -> list[str]:
        written.append(len(runs))
        return original(uri, experiment, runs)

    def moments_are_equal(*_: Any) -> int:
        return 1_800_000_000_000

    monkeypatch.setattr(bulk_runs, "write", counted)
    for module in (study_recorder, trial_runs):
        monkeypatch.setattr(module, "milliseconds", moments_are_equal)
    found, artifacts = [], []
    for number, (client, takes) in enumerate(
        ((connect_to_record, bulk_runs.takes), (connect_to_record, _none), (connect, _none))
    ):
        monkeypatch.setattr(bulk_runs, "takes", takes)
        file, kept = tmp_path / f"{number}.db", tmp_path / f"store{number}.db"
        file.write_bytes(migrated.read_bytes())
        shutil.copy(tmp_path / "driftline.db", kept)
        own = copy.copy(study)
        own.store = Store(kept)
        folder = (tmp_path / "artifacts").as_uri()
        recorder = Recorder(own.store, study.id, f"sqlite:///{file}", folder, client=client)
        assert recorder.sync()
        own.finish(started, curves[1:])
        recorder.sync()
        more = dataclasses.replace(curves[0], number=7, configuration=7)
        own.add([more])
        own.succeed()
        assert recorder.finish()
        own.store.close()
        found.append(tables(file))
        files = [path for path in sorted((tmp_path / "artifacts").rglob("*")) if path.is_file()]
        artifacts.append([(path.name, path.stat().st_mode, path.parent.stat().st_mode) for path in files])
        shutil.rmtree(tmp_path / "artifacts")
    assert sum(written) == 2, "only trials that had ended when first seen are written at once"
    client = connect(uri := f"sqlite:///{tmp_path / '0.db'}")
    for experiment in client.search_experiments():
        runs = client.search_runs([experiment.experiment_id])
        read = []
        for run in (found for found in runs if KEY in found.data.tags):
            numbers = (len(run.data.metrics), len(run.data.params), run.info.end_time is not None)
            read.append((run.data.tags[KEY], run.info.run_id, *numbers))
        assert sorted(bulk_runs.contents(uri, experiment.experiment_id, KEY)) == sorted(read)
        marked = {run.data.tags[KEY] for run in runs if run.data.metrics.get("on_frontier", 0) > 0}
        assert bulk_runs.above_zero(uri, experiment.experiment_id, "on_frontier", KEY) == marked
    for other in (1, 2):
        assert artifacts[0] == artifacts[other]
        assert found[0].keys() == found[other].keys()
        for name in found[0]:
            assert found[0][name] == found[other][name], name
    assert sum(found[0]["metrics"].values()) > 12
    assert any(row for row in found[0]["runs"] if "deleted" in row), "labels were replaced"


def test_a_run_that_was_deleted_takes_no_more_rows(uri: str, tmp_path: Path) -> None:
    client = connect_to_record(uri)
    experiment = client.create_experiment("one", artifact_location=tmp_path.as_uri())
    assert client.get_experiment_by_name("one").experiment_id == experiment
    run = client.create_run(experiment, 1, {}, "first").info.run_id
    values = [math.nan, math.inf, -math.inf, 0.5]
    for number, value in enumerate(values):
        client.log_batch(run, [database_client.Metric("loss", value, 1, number)], [], [])
    read = connect(uri).get_metric_history(run, "loss")
    assert [row.value for row in read][1:] == [sys.float_info.max, -sys.float_info.max, 0.5]
    assert math.isnan(read[0].value)
    client.log_batch(run, [], [database_client.Param("a", "1")], [])
    with pytest.raises(ValueError, match=r"parameter a of run .* must stay '1', got '2'"):
        client.log_batch(run, [], [database_client.Param("a", "2")], [])
    client.delete_run(run)
    for write in (
        lambda: client.log_batch(run, [database_client.Metric("loss", 1.0, 1, 9)], [], []),
        lambda: client.set_terminated(run, "FINISHED", 2),
        lambda: client.create_run("77", 1, {}, "second"),
    ):
        with pytest.raises(LookupError, match="must be an active one: it was deleted"):
            write()


def test_an_experiment_that_was_deleted_takes_no_more_runs(uri: str, tmp_path: Path) -> None:
    client = connect_to_record(uri)
    experiment = client.create_experiment("one", artifact_location=tmp_path.as_uri())
    whole = WholeRun("one", {KEY: "1"}, {}, [("loss", 1.0, 0)], 1, 2, "FINISHED")
    bulk_runs.write(uri, experiment, [whole])
    client.delete_experiment(experiment)
    for number in (experiment, "77"):
        with pytest.raises(LookupError, match="must be an active one: it was deleted"):
            bulk_runs.write(uri, number, [whole])
    assert len(bulk_runs.contents(uri, experiment, KEY)) == 0


def test_tables_that_mlflow_has_upgraded_meanwhile_are_left_to_it(uri: str, tmp_path: Path) -> None:
    client = connect_to_record(uri)
    experiment = client.create_experiment("one", artifact_location=tmp_path.as_uri())
    run = client.create_run(experiment, 1, {}, "first").info.run_id
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("UPDATE alembic_version SET version_num = 'of a later version'")
    before = tables(tmp_path / "mlflow.db")
    for write in (
        lambda: client.create_experiment("two", artifact_location=tmp_path.as_uri()),
        lambda: client.set_experiment_tag(experiment, "a", "1"),
        lambda: client.create_run(experiment, 1, {}, "second"),
        lambda: client.log_batch(run, [database_client.Metric("loss", 1.0, 1, 9)], [], []),
        lambda: client.log_inputs(run, []),
        lambda: client.set_terminated(run, "FINISHED", 2),
        lambda: client.delete_run(run),
        lambda: bulk_runs.write(uri, experiment, []),
    ):
        with pytest.raises(LookupError, match="have been changed by another version of MLflow"):
            write()
    assert tables(tmp_path / "mlflow.db") == before


def test_artifacts_are_written_through_no_link(uri: str, tmp_path: Path) -> None:
    client = connect_to_record(uri)
    experiment = client.create_experiment("one", artifact_location=(tmp_path / "artifacts").as_uri())
    run = client.create_run(experiment, 1, {}, "first").info.run_id
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "page.html").write_text("page")
    (tmp_path / "keys").write_text("two keys")
    place = tmp_path / "artifacts" / run / "artifacts" / "page.html"
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "keys")
    client.log_artifacts(run, str(tmp_path / "new"))
    assert (tmp_path / "keys").read_text() == "two keys"
    assert place.read_text() == "page"


def _none(*_: Any) -> bool:
    return False


def test_an_unknown_revision_and_a_server_are_left_to_the_client(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = WholeRun("one", {}, {}, [("loss", 1.0, 0)], 1, 2, "FINISHED")
    assert bulk_runs.takes(uri, [run])
    assert not bulk_runs.takes("http://127.0.0.1:5000", [run])
    assert not bulk_runs.takes(f"{uri}?timeout=60", [run])
    assert not bulk_runs.takes(uri, [WholeRun("one", {}, {}, [("loss", math.inf, 0)], 1, 2, "FINISHED")])
    monkeypatch.setattr(bulk_runs, "REVISIONS", frozenset({"another"}))
    assert not bulk_runs.takes(uri, [run])
    assert type(connect_to_record(uri)) is type(connect(uri))


def test_the_installed_mlflow_makes_a_database_of_a_known_revision(uri: str) -> None:
    connect(uri)
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        assert {row[0] for row in database.execute("SELECT version_num FROM alembic_version")} <= bulk_runs.REVISIONS


def schema(file: Path) -> list[tuple[Any, ...]]:
    """Without the order of constraints and of the values that they allow, which MLflow's migrations take from sets."""

    def in_order(values: re.Match[str]) -> str:
        return f"IN ({', '.join(sorted(values[1].split(', ')))})"

    def lines(sql: str | None) -> list[str]:
        return sorted(line.strip(" \t,") for line in re.sub(r"IN \(([^()]*)\)", in_order, sql or "").splitlines())

    with sqlite3.connect(file) as database:
        rows = database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    return sorted(((*names, lines(sql)) for *names, sql in rows), key=str)


def test_a_database_made_by_the_kept_script_is_that_of_mlflow_s_migrations(
    migrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    empty_database.create(tmp_path / "empty.db")
    assert schema(tmp_path / "empty.db") == schema(migrated)
    monkeypatch.setattr(empty_database, "_make", None)  # the second one takes the script from the cache
    connect(f"sqlite:///{tmp_path / 'mlflow.db'}").search_experiments()
    assert tables(tmp_path / "mlflow.db") == tables(migrated)


def test_a_script_that_fails_leaves_no_table_and_changes_no_database(
    migrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "BEGIN; CREATE TABLE first (x); CREATE TABLE experiments (x); nonsense; COMMIT;"
    monkeypatch.setattr(empty_database.disk_cache, "entry", lambda *_: script)
    empty_database.create(tmp_path / "new.db")
    assert not schema(tmp_path / "new.db")
    other = f"ATTACH '{tmp_path / 'other.db'}' AS other; CREATE TABLE other.first (x);"
    monkeypatch.setattr(empty_database.disk_cache, "entry", lambda *_: other)
    empty_database.create(tmp_path / "new.db")
    assert not (tmp_path / "other.db").exists()
    monkeypatch.setattr(empty_database.disk_cache, "entry", lambda *_: script)
    another = tmp_path / "made by another process meanwhile.db"
    another.write_bytes(migrated.read_bytes())
    empty_database.create(another)
    assert schema(another) == schema(migrated)


def test_where_no_script_can_be_made_mlflow_begins_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def fails(_: Path) -> None:
        raise RuntimeError("database or disk is full")

    monkeypatch.setattr(empty_database, "_make", fails)
    empty_database.create(tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()
