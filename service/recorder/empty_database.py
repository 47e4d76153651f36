"""Creates MLflow's empty SQLite database from a stored script.

MLflow creates a new database by all its migrations since 2018, which takes more processor time than recording a hundred
trials. The resulting schema is stored as an SQL script for each version of MLflow, and every later database is created
by this script in one transaction. If the script fails, it leaves an empty file, with which MLflow begins as usual; the
script can change no other file. Only schemas of the `bulk_runs.REVISIONS` are stored.
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
    """Creates MLflow's database without experiments, if the script can do it; `file` must not exist yet."""
    key = disk_cache.key("mlflow schema", version("mlflow"), sorted(REVISIONS))
    try:
        script = disk_cache.entry(key, _make, lambda folder: (folder / _SCRIPT).read_text(encoding="utf-8"))
    except Exception:  # MLflow may raise anything, as for lack of room for temporary files
        return
    if not script:
        return
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(file, timeout=_BUSY_S)) as database:
        database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        database.executescript(script)  # if another process made the tables, the first statement fails


def _make(folder: Path) -> None:
    """Writes the script of the schema that MLflow's migrations make; an empty one for an unknown revision."""
    from mlflow import MlflowClient

    with tempfile.TemporaryDirectory(prefix="driftline-") as temporary:
        file = Path(temporary) / "mlflow.db"
        MlflowClient(f"sqlite:///{file}").search_experiments()
        with contextlib.closing(sqlite3.connect(file)) as database:
            is_known = {row[0] for row in database.execute("SELECT version_num FROM alembic_version")} <= REVISIONS
            statements = [line for line in database.iterdump() if not line.startswith('INSERT INTO "experiments"')]
    own_files.put_new(folder / _SCRIPT, ("\n".join(statements) if is_known else "").encode())
