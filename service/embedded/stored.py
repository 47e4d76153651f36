"""Results of an output folder, read beside whoever works in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from service.embedded.folder import DATABASE
from service.errors import NotFound
from service.results.study import StudyResult, study_result
from service.schemas.records import StudyRecord
from service.sdk.frontier import Frontier
from service.store.store import Store


def stored_frontier(folder: Path) -> Frontier:
    """The frontiers of a folder's study, as far as it has come; computed from the stored curves.

    Raises:
        NotFound: The folder holds no study.
    """
    store = _open(folder)
    try:
        result = stored_result(store, _study(store, folder).id)
        return Frontier(result.document, lambda: result.curves)
    finally:
        store.close()


def stored_result(store: Store, study_id: str) -> StudyResult:
    """The result of a study, computed from what is stored of it now."""
    return study_result(store.study(study_id), store.trials(study_id), store.curves(study_id))


def stored_study(folder: Path) -> StudyRecord:
    """The study of a folder.

    Raises:
        NotFound: The folder holds none.
    """
    store = _open(folder)
    try:
        return _study(store, folder)
    finally:
        store.close()


def _open(folder: Path) -> Store:
    database = folder / DATABASE
    if not database.is_file():
        raise NotFound(f"no study in {folder}: name a folder that `driftline run` wrote")
    return Store(database)


def _study(store: Store, folder: Path) -> StudyRecord:
    for record in store.studies(limit=1):
        return record
    raise NotFound(f"no study in {folder}: nothing was submitted to it yet")


@dataclass(frozen=True)
class StoredLink:
    """How a folder's study is opened in MLflow.

    Attributes:
        url: Its page, once a server runs.
        tracking_uri: The folder's MLflow database.
        artifact_root: Where its artifacts are.
    """

    url: str
    tracking_uri: str
    artifact_root: str


def stored_link(folder: Path, port: int) -> StoredLink:
    """How a folder's study is opened in MLflow.

    Args:
        folder: An output folder.
        port: Port on this computer where MLflow's server will be.

    Raises:
        NotFound: The folder holds no study, or nothing of it is in MLflow yet.
    """
    from service.recorders.links import mlflow_link
    from service.recorders.views import VIEW

    store = _open(folder)
    try:
        uri = mlflow_uri(folder)
        recorded = store.recorded(_study(store, folder).id, "experiment")
    finally:
        store.close()
    experiment = next((entry.run_id for entry in recorded if entry.key == "labels"), None)
    if experiment is None:
        raise NotFound(f"nothing of the study in {folder} is in MLflow yet: run it (or resume it) first")
    link = mlflow_link(uri, experiment, view=VIEW, port=port)
    return StoredLink(link.url, uri, artifact_root(folder))


def mlflow_uri(folder: Path) -> str:
    """Tracking URI of a folder's MLflow database."""
    return f"sqlite:///{(folder / 'mlflow.db').resolve()}"


def artifact_root(folder: Path) -> str:
    """Where a folder's MLflow artifacts are."""
    return str((folder / "mlartifacts").resolve())
