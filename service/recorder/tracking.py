"""MLflow for the recorder: runs have a key by which they are found again, and every write may be repeated.

A key keeps one run: of runs that a slow server created twice, all but one are deleted. MLflow drops a row that is
written again, because its timestamp is the same. MLflow is imported only when connecting, because the import takes two
seconds.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from driftline.client.network_settings import is_loopback
from driftline.errors import InvalidSpec
from service.recorder import bulk_runs, database_client, empty_database
from service.recorder.bulk_runs import Contents, WholeRun
from service.recorder.database_client import DatabaseClient
from service.sqlite_address import sqlite_file
from trainers.own_files import require_plain

KEY = "driftline.key"
"""Tag of every run: what it shows."""

_METRICS_A_BATCH = 800  # MLflow accepts 1000 items of all kinds
_PARAMS_A_BATCH = 100
_TAG_LENGTH = 20_000  # of an experiment, in characters
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the recorder retries by itself; MLflow would create a run twice
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "GIT_PYTHON_REFRESH": "quiet",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # two lines for each run
}

Row = tuple[str, float, int]
"""(metric, value, step)"""


@dataclass(frozen=True)
class Dataset:
    """What a run was trained on.

    Attributes:
        name: Its name.
        digest: Equal for equal datasets, at most 36 characters.
        profile: Its settings, as JSON.
        tags: What people look for in it, at most 500 characters each.
    """

    name: str
    digest: str
    profile: str
    tags: Mapping[str, str] = field(default_factory=dict)


class Tracking:
    """One experiment's runs.

    Args:
        client: The client that `connect` returns.
        name: Name of the experiment; created if it does not exist.
        artifact_root: URI or folder for the artifacts of a new experiment; None leaves it to the server.
        tags: Tags of the experiment.

    Attributes:
        experiment_id: MLflow's id of the experiment.
    """

    def __init__(self, client: Any, name: str, artifact_root: str | None, tags: Mapping[str, str]) -> None:
        self._client = client
        self._uri = str(getattr(client, "tracking_uri", ""))
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            location = None if artifact_root is None else f"{artifact_root.rstrip('/')}/{name.replace(' ', '_')}"
            self.experiment_id = str(client.create_experiment(name, artifact_location=location, tags=dict(tags)))
        else:
            self.experiment_id = str(experiment.experiment_id)
            if experiment.lifecycle_stage == "deleted":
                client.restore_experiment(self.experiment_id)
        self._runs: dict[str, str] = {}
        self.keep_one_each()

    def tag_experiment(self, tags: Mapping[str, str]) -> None:
        """Set tags of the experiment."""
        for name, value in tags.items():
            self._client.set_experiment_tag(self.experiment_id, name, value[:_TAG_LENGTH])

    def run(self, key: str, name: str, tags: Mapping[str, str], started_ms: int) -> str:
        """The run with this key; created if it does not exist.

        Args:
            key: What it shows; unique in the experiment.
            name: Its name in the list.
            tags: Its tags.
            started_ms: When it began, milliseconds since 1970.

        Returns:
            MLflow's id of the run.
        """
        if key not in self._runs:
            run = self._client.create_run(
                self.experiment_id, start_time=started_ms, run_name=name, tags={**tags, KEY: key}
            )
            self._runs[key] = run.info.run_id
        return self._runs[key]

    def shows(self, key: str) -> bool:
        """Whether there is a run with this key."""
        return key in self._runs

    def run_id(self, key: str) -> str:
        """MLflow's id of the run with this key, which exists."""
        return self._runs[key]

    def has(self, run_id: str) -> bool:
        """Whether this run exists and is not in the bin."""
        return run_id in self._runs.values()

    def write(
        self,
        run_id: str,
        rows: Sequence[Row] = (),
        *,
        timestamp_ms: int,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Add rows, parameters and tags to a run, in as few requests as MLflow allows.

        Args:
            run_id: The run.
            rows: Metrics; the same rows with the same timestamp may be written again.
            timestamp_ms: When they were measured.
            params: Parameters, immutable once written.
            tags: Tags; they replace older ones.
        """
        types = self._types
        metrics = [types.Metric(name, value, timestamp_ms, step) for name, value, step in rows]
        parameters = [types.Param(name, value[:6000]) for name, value in (params or {}).items()]
        marks = [types.RunTag(name, value[:8000]) for name, value in (tags or {}).items()]
        while metrics or parameters or marks:
            self._client.log_batch(
                run_id, metrics[:_METRICS_A_BATCH], parameters[:_PARAMS_A_BATCH], marks[:_PARAMS_A_BATCH]
            )
            metrics, parameters = metrics[_METRICS_A_BATCH:], parameters[_PARAMS_A_BATCH:]
            marks = marks[_PARAMS_A_BATCH:]

    def uses(self, run_id: str, dataset: Dataset | None) -> None:
        """Say what a run was trained on, if that is known; saying it again changes nothing."""
        if dataset is None:
            return
        types = self._types
        source = types.Dataset(dataset.name, dataset.digest, "driftline", dataset.profile, profile=dataset.profile)
        tags = {"mlflow.data.context": "training", **dataset.tags}
        self._client.log_inputs(
            run_id, [types.DatasetInput(source, [types.InputTag(name, value[:500]) for name, value in tags.items()])]
        )

    def mark(self, metric: str, keys: Iterable[str], *, step: int, timestamp_ms: int) -> None:
        """Let a metric be 1 for the runs with these keys and 0 for all others; writes only what differs.

        Args:
            metric: The metric, 0 where it was never written.
            keys: Keys of runs that exist.
            step: Step of the new rows; larger whenever the keys have changed, because MLflow shows the last step.
            timestamp_ms: Their timestamp.
        """
        marked, target = self._above_zero(metric), set(keys)
        for key, run_id in self._runs.items():
            if (key in marked) != (key in target):
                self.write(run_id, [(metric, float(key in target), step)], timestamp_ms=timestamp_ms)

    def add(self, runs: Mapping[str, WholeRun]) -> bool:
        """Creates whole runs, by key, all at once; False if MLflow's client must do it, one by one."""
        if not runs or not bulk_runs.takes(self._uri, runs.values()):
            return False
        tagged = [replace(run, tags={**run.tags, KEY: key}) for key, run in runs.items()]
        self._runs.update(zip(runs, bulk_runs.write(self._uri, self.experiment_id, tagged), strict=True))
        return True

    def end(self, run_id: str, status: str, ended_ms: int) -> None:
        """Say how a run ended: FINISHED, FAILED or KILLED."""
        self._client.set_terminated(run_id, status, ended_ms)

    def artifacts(self, run_id: str, files: Iterable[tuple[str, bytes]]) -> None:
        """Put files into a run's artifacts; they replace older ones."""
        with tempfile.TemporaryDirectory(prefix="driftline-") as folder:
            for name, content in files:
                (Path(folder) / name).write_bytes(content)
            self._client.log_artifacts(run_id, folder)

    def artifact_store(self) -> str:
        """Where the experiment's artifacts are, without its own folder there."""
        location = str(self._client.get_experiment(self.experiment_id).artifact_location)
        return location.rpartition("/")[0] or location

    def keep_only(self, prefix: str, keys: Iterable[str]) -> None:
        """Delete runs whose key begins with `prefix`, except those of `keys`; they stay in MLflow's bin."""
        kept = set(keys)
        for key in [key for key in self._runs if key.startswith(prefix) and key not in kept]:
            self._client.delete_run(self._runs[key])
            del self._runs[key]

    def keep_one_each(self) -> None:
        """Reads the runs of the experiment; of several with one key, deletes all but the one with the most in it.

        A server that answers too late may create a run after the recorder has asked for it again. Of runs with as much
        in them, one that has ended is kept: a recorder that lost its lease may never end its own.
        """
        by_key: dict[str, list[Contents]] = {}
        for run in self._contents():
            by_key.setdefault(run.key, []).append(run)
        for key, runs in by_key.items():
            kept, *others = sorted(runs, key=lambda run: (-run.metrics, -run.params, not run.ended, run.run_id))
            for other in others:
                self._client.delete_run(other.run_id)
            self._runs[key] = kept.run_id

    def _contents(self) -> Iterable[Contents]:
        """The experiment's runs with a key. MLflow's client takes a second for a thousand, which it reads in full."""
        if bulk_runs.knows(self._uri):
            return bulk_runs.contents(self._uri, self.experiment_id, KEY)
        return (
            Contents(
                run.data.tags[KEY],
                run.info.run_id,
                len(run.data.metrics),
                len(run.data.params),
                run.info.end_time is not None,
            )
            for run in self._search()
            if KEY in run.data.tags
        )

    def _above_zero(self, metric: str) -> set[str | None]:
        """Keys of the runs with a metric above 0."""
        if bulk_runs.knows(self._uri):
            return {*bulk_runs.above_zero(self._uri, self.experiment_id, metric, KEY)}
        return {run.data.tags.get(KEY) for run in self._search(f"metrics.`{metric}` > 0")}

    @property
    def _types(self) -> Any:
        """The module with the types that the client takes."""
        if isinstance(self._client, DatabaseClient):
            return database_client
        from mlflow import entities

        return entities

    def _search(self, condition: str = "") -> Iterable[Any]:
        token = None
        while True:
            page = self._client.search_runs([self.experiment_id], condition, max_results=1000, page_token=token)
            yield from page
            token = page.token
            if not token:
                return


def forget(client: Any, name: str, tags: Mapping[str, str]) -> None:
    """Moves the experiment with this name and these tags to MLflow's trash, with its runs, if it exists."""
    experiment = client.get_experiment_by_name(name)
    if experiment is None or experiment.lifecycle_stage == "deleted":
        return
    if all(experiment.tags.get(tag) == value for tag, value in tags.items()):
        client.delete_experiment(experiment.experiment_id)


def connect(tracking_uri: str) -> Any:
    """An MLflow client for a server or a database; a SQLite database is created if it does not exist.

    Args:
        tracking_uri: ``http://...`` or ``sqlite:///...``.

    Raises:
        InvalidSpec: A variable names a file of certificates that does not exist.
    """
    _prepare(tracking_uri)
    from mlflow import MlflowClient

    logging.getLogger("mlflow").setLevel(logging.WARNING)  # its import sets INFO
    return MlflowClient(tracking_uri)


def connect_to_record(tracking_uri: str) -> Any:
    """What `Tracking` needs of `connect`, without MLflow's import for a database whose tables are known."""
    _prepare(tracking_uri)
    if os.environ.get("MLFLOW_ENABLE_WORKSPACES") or not bulk_runs.knows(tracking_uri):
        return connect(tracking_uri)
    return DatabaseClient(tracking_uri, connect)


def _prepare(tracking_uri: str) -> None:
    """Sets MLflow's variables, and makes a SQLite database that does not exist."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if tracking_uri.startswith(("http://", "https://")):
        _prepare_requests(tracking_uri)
    for logger in ("mlflow", "alembic"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    file = sqlite_file(tracking_uri)
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        require_plain(file)
        if not file.exists():
            empty_database.create(file)


def _prepare_requests(url: str) -> None:
    """MLflow's client uses `requests`, which takes a proxy even to this machine and names no variable in errors."""
    host = urlsplit(url).hostname or ""
    excluded = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if is_loopback(host) and host not in excluded.split(","):
        os.environ["no_proxy"] = f"{excluded},{host}".lstrip(",")
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "MLFLOW_TRACKING_SERVER_CERT_PATH"):
        path = os.environ.get(name)
        if path and not os.path.exists(path):
            raise InvalidSpec(name, f"must name certificates in PEM format, got {path!r}, which does not exist")
