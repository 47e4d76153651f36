"""Runs and schemas written at once are those that MLflow writes, in every table of its database."""

from __future__ import annotations

import math
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driftline.results.curves import TrialCurve
from service.recorder import bulk_runs, empty_database
from service.recorder.bulk_runs import WholeRun
from service.recorder.study_recorder import Recorder
from service.recorder.tracking import KEY, connect
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
            kept = [at for at, column in enumerate(columns) if column not in ("creation_time", "last_update_time")]
            rows = database.execute(f"SELECT * FROM {name}").fetchall()
            content[name] = Counter(tuple(_named(row[at], keys) for at in kept) for row in rows)
    return content


def _named(value: Any, keys: dict[str, str]) -> Any:
    for run_id, key in keys.items():
        if isinstance(value, str):
            value = value.replace(run_id, key)
    return _ID.sub("an id", value) if isinstance(value, str) else value


def test_every_table_is_as_the_client_writes_it(
    store: Store, migrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Stored(store, ["fedavg"], 3)
    study.add(list(trials()))
    study.succeed()
    written: list[int] = []
    original = bulk_runs.write

    def counted(uri: str, experiment: str, runs: Any) -> list[str]:
        written.append(len(runs))
        return original(uri, experiment, runs)

    monkeypatch.setattr(bulk_runs, "write", counted)
    found = []
    for number, takes in enumerate((bulk_runs.takes, lambda *_: False)):
        monkeypatch.setattr(bulk_runs, "takes", takes)
        file = tmp_path / f"{number}.db"
        file.write_bytes(migrated.read_bytes())
        assert Recorder(store, study.id, f"sqlite:///{file}", str(tmp_path / "artifacts")).finish()
        found.append(tables(file))
    assert written == [3], "the first recorder must have written all trials at once"
    client = connect(uri := f"sqlite:///{tmp_path / '0.db'}")
    for experiment in client.search_experiments():
        read = sorted(
            (run.data.tags[KEY], run.info.run_id, len(run.data.metrics), len(run.data.params))
            for run in client.search_runs([experiment.experiment_id])
            if KEY in run.data.tags
        )
        assert sorted(bulk_runs.contents(uri, experiment.experiment_id, KEY)) == read
    assert found[0].keys() == found[1].keys()
    for name in found[0]:
        assert found[0][name] == found[1][name], name
    assert sum(found[0]["metrics"].values()) > 12


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


def test_the_installed_mlflow_makes_a_database_of_a_known_revision(uri: str) -> None:
    connect(uri)
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        assert {row[0] for row in database.execute("SELECT version_num FROM alembic_version")} <= bulk_runs.REVISIONS


def schema(file: Path) -> list[tuple[Any, ...]]:
    with sqlite3.connect(file) as database:
        return sorted(database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"), key=str)


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
    another = tmp_path / "made by another process meanwhile.db"
    another.write_bytes(migrated.read_bytes())
    empty_database.create(another)
    assert schema(another) == schema(migrated)
