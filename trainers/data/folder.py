"""Locates data files, in the folder that the environment variable DATA_DIR names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainers.errors import MissingDataError

VARIABLE = "DATA_DIR"
DEFAULT = "../shared/data"


def data_dir() -> Path:
    """The folder of the data sets: $DATA_DIR, else ../shared/data relative to the current directory."""
    return Path(os.environ.get(VARIABLE) or DEFAULT)


def find(name: str) -> Path:
    """A file of the data folder.

    Args:
        name: relative to the data folder, as "mnist_by_writer/mnist_by_writer.npz".

    Raises:
        MissingDataError: the file is not there.
    """
    path = data_dir() / name
    if path.is_file():
        return path
    raise MissingDataError(
        f"the data file {name} must be in the data folder, got none in {data_dir()}: "
        f"set {VARIABLE} to the folder that holds {name.partition('/')[0]}"
    )


def locate(name: str, folders: bool = False) -> Path | None:
    """A user's file. A relative path is looked up in the current directory, then in the data folder.

    Args:
        name: the path that the user gave.
        folders: whether it may also be a folder.

    Returns:
        Its absolute path; None if there is no such file.
    """
    for path in (Path(name), data_dir() / name):
        try:
            if path.is_file() or (folders and path.is_dir()):
                return path.resolve()
        except OSError:  # a name that no file can have, for example one that is too long
            continue
    return None


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Adds the path of the task to errors about missing data.

    Args:
        path: dotted path of the task.
    """
    try:
        yield
    except MissingDataError as error:
        raise MissingDataError(f"{path}: {error}", path) from error
