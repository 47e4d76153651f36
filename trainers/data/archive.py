"""Reads arrays from .npz files; never reads pickled objects."""

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
    RuntimeError,  # an archive with a password or an unknown compression
    zipfile.BadZipFile,
    zlib.error,
    pickle.UnpicklingError,
)
"""Errors from reading a damaged file or a file of another kind."""


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The archive, name -> array; an array is read when it is accessed.

    Args:
        path: an .npz file.

    Raises:
        ValueError: the file is not an .npz file.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path.name} must be an .npz file, as numpy.savez writes it")
    with np.load(path, allow_pickle=False) as archive:
        yield archive


def read(path: Path, name: str) -> NDArray[Any]:
    """One array of an archive, read-only; the other arrays are not decompressed.

    Args:
        path: an .npz file.
        name: name of the array.

    Raises:
        DAMAGE: the file is damaged, or has no such array.
    """
    with opened(path) as archive:
        array: NDArray[Any] = archive[name]
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name} must be an array, got bytes")
    array.setflags(write=False)
    return array
