"""Databases as version 0.1 left them: a study in every state, the running one with a driver's lease."""

from __future__ import annotations

import gzip
from pathlib import Path

import sqlalchemy as sa

VERSION_0_1 = Path(__file__).parent / "equality" / "version_0_1"


def fill_postgresql(url: str) -> None:
    """Loads the dump of 0.1, of revision 0002, into a PostgreSQL database without tables of Driftline."""
    script = gzip.decompress((VERSION_0_1 / "service.sql.gz").read_bytes()).decode()
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS alembic_version"))
        connection.connection.cursor().execute(script)
    engine.dispose()


def sqlite_file(folder: Path) -> Path:
    """The same as a SQLite file in a folder."""
    file = folder / "service.db"
    file.write_bytes(gzip.decompress((VERSION_0_1 / "service.db.gz").read_bytes()))
    return file
