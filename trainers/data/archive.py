"""Reads arrays from .npz files; never reads pickled objects."""

from __future__ import annotations

import math
import pickle
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trainers import disk_cache

_LARGE = 32 * 2**20  # bytes

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
    """One array of an archive, read-only, without decompressing the others; a large one is mapped from a file.

    Args:
        path: an .npz file.
        name: name of the array.

    Raises:
        DAMAGE: the file is damaged, or has no such array.
    """
    with opened(path) as archive:
        array: NDArray[Any] | None = _mapped(archive.zip, f"{name}.npy")
        if array is None:
            array = archive[name]
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name} must be an array, got bytes")
    array.setflags(write=False)
    return array


def _mapped(archive: zipfile.ZipFile, name: str) -> NDArray[Any] | None:
    """A large array, decompressed into an unnamed file; None for a small array, or where nothing can be cached."""
    if name not in archive.namelist() or archive.getinfo(name).file_size < _LARGE:
        return None
    file = disk_cache.unnamed()
    if file is None:
        return None
    with file, archive.open(name) as member:
        shutil.copyfileobj(member, file, _LARGE)
        file.seek(0)
        version = np.lib.format.read_magic(file)
        header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, by_column, kind = header(file)
        if kind.hasobject:
            raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
        order: Literal["F", "C"] = "F" if by_column else "C"
        return np.asarray(np.memmap(file, kind, "r", file.tell(), shape, order)) if math.prod(shape) else None
