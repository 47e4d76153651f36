"""Copies MLflow's SQLite databases into one, so that a single server shows studies of several output folders.

The folders are only read. Runs, datasets and models have random ids, so that only the numbers of experiments collide:
each further database gets numbers above the existing ones, also in links.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

from driftline.errors import InvalidSpec
from service.embedded.moved_folder import readable

_TABLES = (
    "experiments",
    "experiment_tags",
    "runs",
    "tags",
    "params",
    "metrics",
    "latest_metrics",
    "datasets",
    "inputs",
    "input_tags",
    "logged_models",
    "logged_model_tags",
    "logged_model_params",
    "logged_model_metrics",
)
"""Tables that a study writes; a table that refers to another one comes after it."""

_LINKED = (("experiment_tags", "key"), ("tags", "key"))
_LINK = re.compile(r"#/experiments/(\d+)/")
_DEFAULT = 0  # MLflow's own experiment, in every database


def copy_database(source: Path, target: Path) -> None:
    """Copies a database that another process may be writing."""
    with (
        readable(source),
        contextlib.closing(sqlite3.connect(f"{source.resolve().as_uri()}?mode=ro", uri=True, timeout=30)) as reader,
        contextlib.closing(sqlite3.connect(target)) as writer,
    ):
        reader.backup(writer)


def add_database(source: Path, target: Path) -> int:
    """Adds the studies of one MLflow database to another one.

    Args:
        source: A copy from `copy_database`; stays as it is.
        target: The database to add to.

    Returns:
        What was added to the numbers of the source's experiments.

    Raises:
        InvalidSpec: The databases are of different versions of MLflow, or both hold an experiment.
    """
    with readable(source), contextlib.closing(sqlite3.connect(target)) as connection, connection:
        connection.execute("ATTACH ? AS added", (str(source),))
        versions = [
            connection.execute(f"SELECT version_num FROM {name}.alembic_version").fetchone()[0]
            for name in ("main", "added")
        ]
        if versions[0] != versions[1]:
            raise InvalidSpec("DIR", "must all be of one version of MLflow: `driftline run` into the older one first")
        twice = connection.execute(
            "SELECT name FROM added.experiments WHERE experiment_id != ? AND name IN (SELECT name FROM experiments)",
            (_DEFAULT,),
        ).fetchone()
        if twice:
            raise InvalidSpec("DIR", f"must be folders of different studies, got {twice[0]!r} twice")
        shift: int = connection.execute("SELECT max(experiment_id) FROM experiments").fetchone()[0]
        for table in _TABLES:
            _copy(connection, table, shift)
        for table, key in _LINKED:
            _move_links(connection, table, key, shift)
        return shift


def _copy(connection: sqlite3.Connection, table: str, shift: int) -> None:
    columns = [row[1] for row in connection.execute(f"PRAGMA added.table_info({table})")]
    numbered = "experiment_id" in columns
    shown = [f'"{name}" + {shift}' if name == "experiment_id" else f'"{name}"' for name in columns]
    names = ", ".join(f'"{name}"' for name in columns)
    where = f"WHERE experiment_id != {_DEFAULT}" if numbered else ""
    connection.execute(f"INSERT INTO {table} ({names}) SELECT {', '.join(shown)} FROM added.{table} {where}")


def _move_links(connection: sqlite3.Connection, table: str, key: str, shift: int) -> None:
    """Adjusts the links in descriptions, which name an experiment by its number."""
    owner = "experiment_id" if table == "experiment_tags" else "run_uuid"
    owners = (
        f"SELECT {owner} + {shift} FROM added.{table}"
        if owner == "experiment_id"
        else (f"SELECT {owner} FROM added.{table}")
    )
    query = f"SELECT rowid, value FROM {table} WHERE {key} = 'mlflow.note.content' AND {owner} IN ({owners})"
    for row, text in connection.execute(query).fetchall():
        moved = _LINK.sub(lambda link: f"#/experiments/{int(link[1]) + shift}/", text)
        connection.execute(f"UPDATE {table} SET value = ? WHERE rowid = ?", (moved, row))
