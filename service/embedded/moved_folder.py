"""Repairs the MLflow database of a moved or copied folder, which still names the old place of the artifacts."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from driftline.errors import Conflict
from trainers.own_files import require_plain

ARTIFACTS = "mlartifacts"
DATABASE = "mlflow.db"

_PLACES = (("experiments", "artifact_location"), ("runs", "artifact_uri"), ("logged_models", "artifact_location"))


@contextlib.contextmanager
def readable(database: Path) -> Iterator[None]:
    """Turns errors of SQLite into one line that names the file.

    Raises:
        Conflict: The file is no database of MLflow, or it is damaged.
    """
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        advice = "delete it and use `driftline resume`, which writes it again"
        raise Conflict(f"{database} is not a database of MLflow, or it is damaged ({error}): {advice}") from error


def adopt_artifacts(folder: Path, copy: Path | None = None) -> None:
    """Points a folder's MLflow database to the artifacts in the folder itself; does nothing if it does so already.

    Args:
        folder: An output folder, which may have no MLflow database yet.
        copy: A copy of its MLflow database, to change in its place.

    Raises:
        Conflict: The database is damaged.
    """
    database = copy or folder / DATABASE
    if not database.is_file():
        return
    require_plain(database)
    new = f"{(folder.resolve() / ARTIFACTS).as_uri()}/"
    with readable(database), contextlib.closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        query = f"SELECT DISTINCT artifact_location FROM experiments WHERE artifact_location LIKE '%/{ARTIFACTS}/%'"
        prefixes = {
            str(location).rpartition(f"/{ARTIFACTS}/")[0] + f"/{ARTIFACTS}/"
            for (location,) in connection.execute(query)
        }
        for old in prefixes - {new}:
            for table, column in _PLACES:
                change = f"UPDATE {table} SET {column} = ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?"
                connection.execute(change, (new, len(old) + 1, len(old), old))
