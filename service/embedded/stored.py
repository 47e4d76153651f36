"""Results of an output folder, read beside whoever works in it."""

from __future__ import annotations

from pathlib import Path

from service.api.results import Results
from service.embedded.folder import DATABASE
from service.errors import NotFound
from service.results.curves import TrialCurve
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
        study = _study(store, folder)
        columns = store.curves(study.id)
        curves = [TrialCurve.from_record(trial, columns.get(trial.id, {})) for trial in store.trials(study.id)]
        return Frontier(Results(store).frontier(study.id), lambda: curves)
    finally:
        store.close()


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
