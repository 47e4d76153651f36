"""Reads an output folder, also while another process works in it."""

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from driftline.wire.records import StudyRecord
from service.store.store import Store


def stored_study(folder: Path) -> StudyRecord:
    """The study of a folder."""
    store = Store(folder / "driftline.db")
    try:
        return store.studies.find()[0]
    finally:
        store.close()


def in_mlflow(folder: Path, query: str) -> list[Any]:
    """The column that a query finds in MLflow's database of a folder."""
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as mlflow:
        return [value for (value,) in mlflow.execute(query)]


def shown(folder: Path) -> int:
    """Runs of trials and labels that MLflow has."""
    return len(in_mlflow(folder, "select run_uuid from runs where lifecycle_stage = 'active'"))
