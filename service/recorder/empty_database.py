"""MLflow's empty SQLite database from a kept script.

MLflow makes a new database by its migrations since 2018, which take more processor time than the recording of a hundred
trials. What they end with is kept as a script of SQL for each version of MLflow, and every later database is made by
it, in one transaction. Whatever is wrong with the script leaves an empty file, with which MLflow begins as usual, and
the script can change no other file. Only schemas of the `bulk_runs.REVISIONS` are kept.
"""

from __future__ import annotations

import contextlib
import sqlite3
import tempfile
from importlib.metadata import version
from pathlib import Path

from service.recorder.bulk_runs import REVISIONS
from trainers import disk_cache, own_files

_SCRIPT = "schema.sql"
_BUSY_S = 30.0


def create(file: Path) -> None:
    """Makes MLflow's database, without experiments, if that can be done by the script; `file` does not exist."""
    key = disk_cache.key("mlflow schema", version("mlflow"), sorted(REVISIONS))
    try:
        script = disk_cache.entry(key, _make, lambda folder: (folder / _SCRIPT).read_text(encoding="utf-8"))
    except Exception:  # of any kind, from MLflow, such as a lack of room for temporary files
        return
    if not script:
        return
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(file, timeout=_BUSY_S)) as database:
        database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        database.executescript(script)  # of another process's tables it changes none: the first statement fails


def _make(folder: Path) -> None:
    """Writes the script of what MLflow's migrations make; an empty one for a revision that is not known."""
    from mlflow import MlflowClient

    with tempfile.TemporaryDirectory(prefix="driftline-") as temporary:
        file = Path(temporary) / "mlflow.db"
        MlflowClient(f"sqlite:///{file}").search_experiments()
        with contextlib.closing(sqlite3.connect(file)) as database:
            is_known = {row[0] for row in database.execute("SELECT version_num FROM alembic_version")} <= REVISIONS
            statements = [line for line in database.iterdump() if not line.startswith('INSERT INTO "experiments"')]
    own_files.put_new(folder / _SCRIPT, ("\n".join(statements) if is_known else "").encode())
