"""Arrays in an .npz file, as numpy.savez writes it; an array is decompressed when it is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from trainers.data import archive
from trainers.errors import SpecError
from trainers.values import shown


class _Arrays:
    """The arrays of one file.

    Args:
        file: absolute path.
        names: its arrays.
    """

    def __init__(self, file: Path, names: Sequence[str]) -> None:
        self.file, self.names = file, names

    def array(self, name: str, key_path: str) -> NDArray[Any]:
        try:
            return archive.read(self.file, name)
        except archive.DAMAGE as error:
            if "allow_pickle" in str(error):
                raise SpecError(
                    f"{key_path}: array {shown(name)} must hold numbers or strings, got pickled objects, which are "
                    "never read: save it again with a dtype (strings of pandas: column.to_numpy(dtype=str))",
                    key_path,
                ) from error
            raise SpecError(
                f"{key_path}: array {shown(name)} must be readable, got {type(error).__name__}: save it again", key_path
            ) from error


def recognises(path: Path) -> bool:
    """Whether a file has the ending .npz."""
    return path.suffix == ".npz"


def read(path: Path, column_names: Sequence[str], key_path: str) -> _Arrays:
    """The arrays of a file.

    Raises:
        SpecError: it is not an .npz file.
    """
    try:
        with archive.opened(path) as opened:
            names = list(opened.files)
            if not any(name.endswith(".npy") for name in opened.zip.namelist()):
                raise ValueError("another kind of archive")
    except archive.DAMAGE as error:
        raise SpecError(
            f"{key_path} must be an .npz file, as numpy.savez writes it, got {path.name}", key_path
        ) from error
    return _Arrays(path, names)
