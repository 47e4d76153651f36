"""Empty stores for tests: SQLite files are migrated once in a process, then copied."""

import functools
import tempfile
from pathlib import Path

from service.store.store import Store


@functools.cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "driftline.db")
        Store(path).close()
        return path.read_bytes()


def empty_database(path: Path) -> Path:
    """Writes a file with the newest tables and no rows, in a fifteenth of the time of migrations."""
    path.write_bytes(_migrated())
    return path
