"""The methods of MLflow's client that the recorder needs, run directly on MLflow's SQLite database.

MLflow's client takes 2 CPU-s and 150 MB to import, more than the recording of a small study. `DatabaseClient` has the
client's methods that `tracking` needs and writes the same rows; for any other method it loads MLflow's client and calls
it. Like `bulk_runs` it serves databases of the known revisions only, for which a test compares every table.
"""

from __future__ import annotations

import math
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from service.recorder.bulk_runs import changing, new_run_id, opened, require_experiment
from service.sqlite_address import sqlite_file
from trainers import own_files


class MetricRow(NamedTuple):
    """A row of a metric."""

    key: str
    value: float
    timestamp: int
    step: int


class Pair(NamedTuple):
    """A parameter, or a tag of a run or of what it was trained on."""

    key: str
    value: str


@dataclass(frozen=True)
class InputDataset:
    """What a run was trained on."""

    name: str
    digest: str
    source_type: str
    source: str
    schema: str | None = None
    profile: str | None = None


class DatasetInput(NamedTuple):
    """A dataset as an input of a run."""

    dataset: InputDataset
    tags: Sequence[Pair]


Metric, Dataset, Param, RunTag, InputTag = MetricRow, InputDataset, Pair, Pair, Pair  # as in mlflow.entities


@dataclass(frozen=True)
class Experiment:
    """An experiment."""

    experiment_id: str
    name: str
    artifact_location: str
    lifecycle_stage: str
    tags: Mapping[str, str] = field(default_factory=dict)


class RunInfo(NamedTuple):
    """Facts of a run."""

    run_id: str


class Run(NamedTuple):
    """A run that was created."""

    info: RunInfo


class DatabaseClient:
    """MLflow's client for the recorder.

    Args:
        tracking_uri: A database that `bulk_runs.knows`.
        client: Makes MLflow's own client.
    """

    def __init__(self, tracking_uri: str, client: Callable[[str], Any]) -> None:
        file = sqlite_file(tracking_uri)
        assert file is not None
        self.tracking_uri = tracking_uri
        self._file = file
        self._client = client
        self._mlflow: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole(), name)

    def _whole(self) -> Any:
        """MLflow's own client."""
        if self._mlflow is None:
            self._mlflow = self._client(self.tracking_uri)
        return self._mlflow

    def get_experiment_by_name(self, name: str) -> Experiment | None:
        """The experiment with this name; None if there is none."""
        return self._experiment("name = ? AND workspace = 'default'", name)

    def get_experiment(self, experiment_id: str) -> Experiment | None:
        """The experiment with this id; None if there is none (MLflow's client raises an error)."""
        return self._experiment("experiment_id = ?", int(experiment_id))

    def create_experiment(
        self, name: str, artifact_location: str | None = None, tags: Mapping[str, str] | None = None
    ) -> str:
        """Creates an experiment; returns its id."""
        if artifact_location is None or "://" not in artifact_location:  # MLflow chooses a place, or resolves it
            return str(self._whole().create_experiment(name, artifact_location, tags))
        now = _now()
        with changing(self._file) as database:
            row = database.execute(
                "INSERT INTO experiments (name, artifact_location, lifecycle_stage, creation_time, last_update_time,"
                " workspace) VALUES (?, ?, 'active', ?, ?, 'default')",
                (name, artifact_location, now, now),
            )
            database.executemany(
                "INSERT INTO experiment_tags (key, value, experiment_id) VALUES (?, ?, ?)",
                [(key, value, row.lastrowid) for key, value in (tags or {}).items()],
            )
        return str(row.lastrowid)

    def set_experiment_tag(self, experiment_id: str, key: str, value: str) -> None:
        """Sets a tag of an experiment."""
        with changing(self._file) as database:
            require_experiment(database, experiment_id)
            database.execute(
                "INSERT OR REPLACE INTO experiment_tags (key, value, experiment_id) VALUES (?, ?, ?)",
                (key, value, int(experiment_id)),
            )

    def create_run(self, experiment_id: str, start_time: int, tags: Mapping[str, str], run_name: str) -> Run:
        """Creates a run, with the status RUNNING."""
        run_id, all_tags = new_run_id(), {**tags, "mlflow.runName": run_name}
        with changing(self._file) as database:
            location = require_experiment(database, experiment_id)
            database.execute(
                "INSERT INTO runs (run_uuid, name, source_type, source_name, entry_point_name, user_id, status,"
                " start_time, source_version, lifecycle_stage, artifact_uri, experiment_id)"
                " VALUES (?, ?, 'UNKNOWN', '', '', 'unknown', 'RUNNING', ?, '', 'active', ?, ?)",
                (run_id, run_name, start_time, f"{location.rstrip('/')}/{run_id}/artifacts", int(experiment_id)),
            )
            _put_tags(database, run_id, all_tags.items())
        return Run(RunInfo(run_id))

    def log_batch(
        self, run_id: str, metrics: Sequence[MetricRow], params: Sequence[Pair], tags: Sequence[Pair]
    ) -> None:
        """Adds metrics, parameters and tags to a run."""
        with changing(self._file) as database:
            _require_active(database, run_id)
            for name, value in params:
                query = "SELECT value FROM params WHERE run_uuid = ? AND key = ?"
                if (written := database.execute(query, (run_id, name)).fetchone()) is None:
                    database.execute(
                        "INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?)", (name, value, run_id)
                    )
                elif written != (value,):
                    raise ValueError(f"parameter {name} of run {run_id} must stay {written[0]!r}, got {value!r}")
            _put_metrics(database, run_id, metrics)
            _put_tags(database, run_id, tags)

    def log_inputs(self, run_id: str, datasets: Sequence[DatasetInput]) -> None:
        """Records what a run was trained on."""
        with changing(self._file) as database:
            _require_active(database, run_id)
            query = "SELECT experiment_id FROM runs WHERE run_uuid = ?"
            (experiment_id,) = database.execute(query, (run_id,)).fetchone()
            for source, tags in datasets:
                key = (experiment_id, source.name, source.digest)
                database.execute(
                    "INSERT OR IGNORE INTO datasets (dataset_uuid, experiment_id, name, digest, dataset_source_type,"
                    " dataset_source, dataset_schema, dataset_profile) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (uuid.uuid4().hex, *key, source.source_type, source.source, source.schema, source.profile),
                )
                query = "SELECT dataset_uuid FROM datasets WHERE experiment_id = ? AND name = ? AND digest = ?"
                link, (dataset_id,) = uuid.uuid4().hex, database.execute(query, key).fetchone()
                new = database.execute(
                    "INSERT OR IGNORE INTO inputs (input_uuid, source_type, source_id, destination_type,"
                    " destination_id, step) VALUES (?, 'DATASET', ?, 'RUN', ?, 0)",
                    (link, dataset_id, run_id),
                )
                if new.rowcount:
                    database.executemany(
                        "INSERT INTO input_tags (input_uuid, name, value) VALUES (?, ?, ?)",
                        [(link, tag.key, tag.value) for tag in tags],
                    )

    def set_terminated(self, run_id: str, status: str, end_time: int) -> None:
        """Sets how and when a run ended."""
        with changing(self._file) as database:
            _require_active(database, run_id)
            query = "UPDATE runs SET status = ?, end_time = ? WHERE run_uuid = ?"
            database.execute(query, (status, end_time, run_id))

    def delete_run(self, run_id: str) -> None:
        """Moves a run, which must have no traces, to MLflow's bin."""
        with changing(self._file) as database:
            query = "UPDATE runs SET lifecycle_stage = 'deleted', deleted_time = ? WHERE run_uuid = ?"
            database.execute(query, (_now(), run_id))

    def log_artifacts(self, run_id: str, local_dir: str) -> None:
        """Copies the files of a folder into a run's artifacts."""
        with opened(self._file) as database:
            (uri,) = database.execute("SELECT artifact_uri FROM runs WHERE run_uuid = ?", (run_id,)).fetchone()
        address = urlsplit(uri)
        if address.scheme != "file" or address.netloc or address.query or address.fragment:
            self._whole().log_artifacts(run_id, local_dir)
            return
        for file in sorted(Path(local_dir).rglob("*")):
            if file.is_file():
                target = Path(url2pathname(address.path)) / file.relative_to(local_dir)
                target.parent.mkdir(parents=True, exist_ok=True)
                own_files.put(target, file.read_bytes())  # not through a link, as MLflow would

    def _experiment(self, condition: str, value: str | int) -> Experiment | None:
        with opened(self._file) as database:
            query = "SELECT experiment_id, name, artifact_location, lifecycle_stage FROM experiments WHERE "
            row = database.execute(query + condition, (value,)).fetchone()
            if row is None:
                return None
            query = "SELECT key, value FROM experiment_tags WHERE experiment_id = ?"
            tags = dict(database.execute(query, row[:1]).fetchall())
        number, name, location, stage = row
        return Experiment(str(number), name, location, stage, tags)


def _require_active(database: sqlite3.Connection, run_id: str) -> None:
    row = database.execute("SELECT lifecycle_stage FROM runs WHERE run_uuid = ?", (run_id,)).fetchone()
    if row != ("active",):
        raise LookupError(f"MLflow's run {run_id} must be an active one: it was deleted")


def _put_tags(database: sqlite3.Connection, run_id: str, tags: Iterable[tuple[str, str]]) -> None:
    rows = [(name, value, run_id) for name, value in tags]
    database.executemany("INSERT OR REPLACE INTO tags (key, value, run_uuid) VALUES (?, ?, ?)", rows)


def _put_metrics(database: sqlite3.Connection, run_id: str, metrics: Iterable[MetricRow]) -> None:
    rows = [(row.key, *_stored(row.value), row.timestamp, row.step, run_id) for row in metrics]
    database.executemany(
        "INSERT OR IGNORE INTO metrics (key, value, is_nan, timestamp, step, run_uuid) VALUES (?, ?, ?, ?, ?, ?)", rows
    )
    database.executemany(
        "INSERT INTO latest_metrics (key, value, is_nan, timestamp, step, run_uuid) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (key, run_uuid) DO UPDATE SET value = excluded.value, is_nan = excluded.is_nan,"
        " timestamp = excluded.timestamp, step = excluded.step"
        " WHERE (excluded.step, excluded.timestamp, excluded.value) > (step, timestamp, value)",
        rows,
    )


def _stored(value: float) -> tuple[float, int]:
    """A value as MLflow's tables hold it, and whether it is not a number."""
    if math.isnan(value):
        return 0.0, 1
    return max(-sys.float_info.max, min(sys.float_info.max, value)), 0


def _now() -> int:
    return int(time.time() * 1000)
