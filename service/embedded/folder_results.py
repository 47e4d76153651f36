"""Reads the results of an output folder, even while another process works in it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from driftline.client.environment import environment
from driftline.errors import Conflict, InvalidSpec, NotFound
from driftline.results.modelled_time import Time
from driftline.results.recorded_table import RecordedTable, study_table
from driftline.results.study_result import StudyResult, study_result
from driftline.sdk.frontier import Frontier
from driftline.wire.logs import LogLine
from driftline.wire.records import StudyRecord, TrialRecord
from service.embedded.folder import DATABASE, LOG, require_own
from service.embedded.moved_folder import ARTIFACTS, adopt_artifacts
from service.embedded.moved_folder import DATABASE as MLFLOW_DATABASE
from service.sqlite_address import sqlite_url
from service.store.store import Store
from trainers import hint, shown
from trainers.own_files import require_folder

_LOGGED = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})(Z?) ([A-Z]+) \S+: (.*)")


def stored_frontier(folder: Path, quality: str | None = None, cost: str | Time | None = None) -> Frontier:
    """The frontiers of a folder's study so far; see `stored_reading`."""
    result = stored_reading(folder, quality, cost)
    return Frontier(result.document, lambda: result.curves)


def stored_reading(folder: Path, quality: str | None = None, cost: str | Time | None = None) -> StudyResult:
    """The result of a folder's study so far, computed from the stored curves.

    Args:
        folder: An output folder.
        quality: Another metric that the trials reported; by default the one of the study's objective.
        cost: Another cost; by default the one of the study's objective.

    Raises:
        NotFound: The folder holds no study.
        InvalidSpec: There is no such cost, or no trial reported the metric.
    """
    with _opened(folder) as store:
        result = stored_result(store, _study(store, folder).id, quality, cost)
        result.require_reported(quality)
        return result


def stored_study(folder: Path) -> StudyRecord:
    """A folder's study.

    Raises:
        NotFound: The folder holds no study.
    """
    with _opened(folder) as store:
        return _study(store, folder)


def stored_log(folder: Path, after: int = 0) -> Iterator[LogLine]:
    """The lines of a folder's log, whose ids are the numbers of the lines. The log does not hold attempts: they are 0.

    Args:
        folder: An output folder.
        after: Only lines after the one with this number.
    """
    at, level = None, ""
    with contextlib.suppress(FileNotFoundError), (folder / LOG).open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            text = line.rstrip("\n")
            if match := _LOGGED.fullmatch(text):
                at = datetime.strptime(f"{match[1]}.{match[2]}", "%Y-%m-%d %H:%M:%S.%f")
                at = at.replace(tzinfo=UTC) if match[3] else at.astimezone(UTC)  # version 0.3.0 wrote local times
                level, text = match[4].lower(), match[5]
            if at is not None and number > after:  # without a time of its own, it continues the line before
                yield LogLine(id=number, at=at, attempt=0, level=level, text=text)


def stored_trials(folder: Path) -> list[TrialRecord]:
    """The trials of a folder's study so far.

    Raises:
        NotFound: The folder holds no study.
    """
    with _opened(folder) as store:
        return store.trials.find(_study(store, folder).id)


def stored_curves(folder: Path, trials: Sequence[str] = ()) -> dict[str, dict[str, list[Any]]]:
    """The curves of a folder's trials so far, of all unless some are named; see `driftline.Job.curves`.

    Raises:
        NotFound: The folder holds no study, or the study has no such trial.
    """
    with _opened(folder) as store:
        return store.curves.columns(_study(store, folder).id, list(trials) or None)


def stored_table(folder: Path) -> RecordedTable:
    """The ended trials of a folder's study as a table.

    Raises:
        NotFound: The folder holds no study, or no trial has ended.
    """
    with _opened(folder) as store:
        study = _study(store, folder)
        return study_table(study, store.trials.find(study.id), store.curves.arrays(study.id))


def log_stored_models(
    folder: Path, label: str | None = None, tell: Callable[[str], object] = lambda text: None
) -> list[str]:
    """Trains what a folder's study recommends again, and logs the models to its MLflow database.

    Args:
        folder: An output folder.
        label: Only this label's models.
        tell: Called with a line for each model.

    Returns:
        The models' addresses in the database, for `mlflow.pytorch.load_model`.

    Raises:
        NotFound: The folder holds no study, nothing of it is in MLflow yet, or the study has no such label.
        Conflict: The study has not finished.
        InvalidSpec: The task's model is no torch module, training gave another quality than was measured, or the
            folder is another user's or holds links.
    """
    from service.recorder.logged_models import log_models
    from service.recorder.tracking import connect

    with _opened(folder) as store:
        study = _study(store, folder)
        if study.study.program is not None:
            raise InvalidSpec("program", "its models are its own: run it with the values of the recommendation")
        if study.state != "SUCCEEDED":
            raise Conflict(
                f"models are logged when the study has succeeded, got a {study.state.lower()} one: run it to its end"
            )
        if label is not None and label not in study.study.labels:
            raise NotFound(f"no label {shown(label)} in this study: {hint(label, study.study.labels)}")
        experiment = _experiment(store, study.id, folder)
        _require_own(folder)
        adopt_artifacts(folder)
        result = stored_result(store, study.id)
        return log_models(connect(mlflow_uri(folder)), experiment, study, result, label=label, tell=tell)


def _experiment(store: Store, study_id: str, folder: Path) -> str:
    """MLflow's number of the experiment with the study's labels."""
    recorded = store.recorder_state.read(study_id, "experiment")
    for entry in recorded:
        if entry.key == "labels":
            return entry.run_id
    raise NotFound(f"nothing of the study in {folder} is in MLflow yet: run it (or resume it) first")


def stored_result(
    store: Store, study_id: str, quality: str | None = None, cost: str | Time | None = None
) -> StudyResult:
    """The result of a study so far, computed from its stored curves; see `stored_frontier`."""
    study, trials = store.studies.get(study_id), store.trials.find(study_id)
    return study_result(study, trials, store.curves.arrays(study_id), quality=quality, cost=cost)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[Store]:
    """The store of a folder; of a copy if the folder is not writable or another user's: SQLite writes even to read."""
    database = folder / DATABASE
    if not os.path.isfile(database):
        advice = "name a folder that `driftline run` wrote"
        if environment().url:
            advice += " (this command reads folders alone, not the service in DRIFTLINE_URL)"
        else:
            advice += ", or set DRIFTLINE_URL for one on a service"
        raise NotFound(f"no study in {folder}: {advice}")
    with contextlib.ExitStack() as stack:
        if not (os.access(database, os.W_OK) and _is_own(folder)):
            copies = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="driftline-")))
            for file in folder.glob(f"{DATABASE}*"):  # including its write-ahead log
                if not file.name.endswith("-shm"):
                    shutil.copyfile(file, copies / file.name)
            database = copies / DATABASE
        store = Store(database)
        stack.callback(store.close)
        yield store


def _is_own(folder: Path) -> bool:
    try:
        require_folder(folder)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _require_own(folder: Path) -> None:
    try:
        require_own(folder)
    except OSError as error:
        problem = f"must be a folder to write into, got {error.filename} ({error.strerror})"
        raise InvalidSpec("DIR", problem) from error


def _study(store: Store, folder: Path) -> StudyRecord:
    for record in store.studies.find(limit=1):
        return record
    raise NotFound(f"no study in {folder}: nothing was submitted to it yet")


@dataclass(frozen=True)
class RecordedFolder:
    """A folder's study that MLflow shows.

    Attributes:
        folder: The folder.
        study: The study.
        result: Its result so far.
        experiment: Number of the experiment with the study's labels, in the folder's MLflow database.
    """

    folder: Path
    study: StudyRecord
    result: StudyResult
    experiment: str


def recorded_folder(folder: Path) -> RecordedFolder:
    """A folder's study with its result and its place in MLflow.

    Raises:
        NotFound: The folder holds no study, or nothing of it is in MLflow yet.
    """
    with _opened(folder) as store:
        study = _study(store, folder)
        return RecordedFolder(folder, study, stored_result(store, study.id), _experiment(store, study.id, folder))


@dataclass(frozen=True)
class StoredLink:
    """How to open a folder's study in MLflow.

    Attributes:
        url: Its page, once a server runs.
        tracking_uri: The folder's MLflow database.
        artifact_roots: Addresses of the folders of its artifacts.
    """

    url: str
    tracking_uri: str
    artifact_roots: tuple[str, ...]


def stored_link(folder: Path, port: int) -> StoredLink:
    """How to open a folder's study in MLflow, also after the folder was moved.

    Args:
        folder: An output folder.
        port: Port on this computer at which MLflow's server will run.

    Raises:
        NotFound: The folder holds no study, or nothing of it is in MLflow yet.
        InvalidSpec: The folder is writable, but another user's, or holds links.
    """
    from service.recorder.chart_view import VIEW
    from service.recorder.links import charts_page

    with _opened(folder) as store:
        experiment = _experiment(store, _study(store, folder).id, folder)
    if os.access(folder / MLFLOW_DATABASE, os.W_OK):  # MLflow's server will write into it
        _require_own(folder)
        adopt_artifacts(folder)
    url = f"http://127.0.0.1:{port}/{charts_page(experiment, VIEW)}"
    return StoredLink(url, mlflow_uri(folder), (artifact_root(folder),))


def mlflow_uri(folder: Path) -> str:
    """Tracking URI of a folder's MLflow database."""
    return sqlite_url((folder / MLFLOW_DATABASE).resolve())


def artifact_root(folder: Path) -> str:
    """Address of the folder of a folder's MLflow artifacts."""
    return (folder.resolve() / ARTIFACTS).as_uri()
