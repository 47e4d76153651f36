"""Addresses of SQLite files, as SQLAlchemy and MLflow read them: `?`, `%` and whatever else a URL means are escaped."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

_OPTIONS = frozenset({"timeout", "isolation_level", "detect_types", "check_same_thread", "cached_statements", "uri"})
"""Options that Python's sqlite3 takes. After `uri`, SQLite has further ones."""


def sqlite_url(file: Path) -> str:
    """The address of a file.

    An escaped one names the driver too: MLflow 3.17 makes the folder of "sqlite:///FILE" without reading the escapes.

    Raises:
        ValueError: The file's name is not text, so that no address can express it.

    Examples:
        >>> sqlite_url(Path("/runs/lr?0.1/mlflow.db"))
        'sqlite+pysqlite:////runs/lr%3F0.1/mlflow.db'
        >>> sqlite_url(Path("/runs/lr 0.1/mlflow.db"))
        'sqlite:////runs/lr 0.1/mlflow.db'
    """
    try:
        plain = sa.URL.create("sqlite", database=str(file))
        if plain.render_as_string() == f"sqlite:///{file}":
            return plain.render_as_string()
        return plain.set(drivername="sqlite+pysqlite").render_as_string()
    except UnicodeEncodeError:
        raise ValueError(f"must have a name of valid UTF-8, got {str(file)!r}") from None


def sqlite_file(url: str) -> Path | None:
    """The file of an address; None if it is the address of something else, or left to SQLite by its option `uri`.

    Raises:
        ValueError: The address has unknown options, which SQLAlchemy would drop, or names no file.

    Examples:
        >>> sqlite_file("sqlite:////runs/lr%3F0.1/mlflow.db")
        PosixPath('/runs/lr?0.1/mlflow.db')
        >>> sqlite_file("https://mlflow.example.org")
    """
    try:
        parts = sa.make_url(url)
    except (ArgumentError, ValueError):
        return None
    if parts.get_backend_name() != "sqlite":
        return None
    unknown = [name for name in parts.query if name not in _OPTIONS]
    if unknown and "uri" not in parts.query:
        raise ValueError(f"SQLite has no option {unknown[0]!r}: write a ? of the file's name as %3F")
    if "uri" in parts.query:
        return None
    if parts.host or parts.database in (None, "", ":memory:"):
        raise ValueError("must be sqlite:///FILE or sqlite:////ABSOLUTE/FILE")
    return Path(str(parts.database))


def shown_address(url: str) -> str:
    """The address without its password, for people to read."""
    try:
        return sa.make_url(url).render_as_string(hide_password=True) if "@" in url else url
    except (ArgumentError, ValueError):
        return url.partition("://")[0] + "://..."
