"""Reads arrays out of .npz files; pickled objects are never read."""

from __future__ import annotations

import pickle
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    KeyError,
    MemoryError,
    RuntimeError,  # an archive with a password, or of an unknown compression
    zipfile.BadZipFile,
    zlib.error,
    pickle.UnpicklingError,
)
"""What reading a damaged file, or one of another kind, may raise."""


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The archive, name -> array, each read when it is asked for.

    Args:
        path: of an .npz file.

    Raises:
        ValueError: not an .npz file.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path.name} must be an .npz file, as numpy.savez writes it")
    with np.load(path, allow_pickle=False) as archive:
        yield archive


def read(path: Path, name: str) -> NDArray[Any]:
    """One array of an archive; nothing else of it is decompressed, and the array may not be written to.

    Args:
        path: of an .npz file.
        name: of the array.

    Raises:
        DAMAGE: damaged, or no such array.
    """
    with opened(path) as archive:
        array: NDArray[Any] = archive[name]
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name} must be an array, got bytes")
    array.setflags(write=False)
    return array
