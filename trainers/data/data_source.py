"""Where a user's data is: a file or folder, and the format in which it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trainers.data.columns import ColumnReader, Format, Names
from trainers.data.folder import VARIABLE, locate
from trainers.errors import MissingDataError, SpecError
from trainers.hyperparameters import join
from trainers.registry import Registry
from trainers.values import shown

AUTO = "auto"
"""The format that recognises the data."""


@cache
def formats() -> Registry[Format]:
    """Every format in trainers/data/formats, by name."""
    return Registry("trainers.data.formats", "trainers.data.columns.Format", "format")


@dataclass(frozen=True)
class DataSource:
    """A user's data.

    Args:
        path: absolute, of a file or folder.
        name: name of the format.
    """

    path: Path
    name: str

    @property
    def format(self) -> Format:
        """The format."""
        return formats()[self.name]

    def reader(self, names: tuple[Names, ...], place: str) -> ColumnReader:
        """Reads columns.

        Args:
            names: columns that are read next.
            place: dotted path of the task.
        """
        wanted = [name for one in names for name in one.given]
        columns = self.format.read(self.path, wanted, join(place, "path"))
        return ColumnReader(columns, self.path.name, self.format.STRINGS)

    def stamp(self) -> Hashable:
        """A value that changes when a file of the data changes, or another one is added."""
        files = self.format.files(self.path)
        return tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files)

    def digest(self) -> str:
        """The SHA-256 of the file; of a folder, that of its files' names and SHA-256s."""
        if self.path.is_file():
            return _digest(self.path)
        lines = [f"{_digest(file)}  {file.relative_to(self.path)}\n" for file in self.format.files(self.path)]
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def find(name: str, wanted: Any, path: str) -> DataSource:
    """A user's data, with its format.

    Args:
        name: the path in the document: absolute, from the current directory, or from the data folder.
        wanted: name of a format, or `AUTO`.
        path: dotted path of the task.

    Raises:
        MissingDataError: there is no such file or folder.
        SpecError: there is no such format, or none recognises the data.
    """
    one = None if wanted == AUTO else formats().find(wanted, join(path, "format"))
    place = join(path, "path")
    folders = one is None or one.FOLDERS
    found = locate(name, folders)
    if found is None:
        kind = "file or folder" if folders else "file"
        where = "" if Path(name).is_absolute() else f" in the current directory or in ${VARIABLE}"
        advice = f"give its path or set {VARIABLE}; a service looks on its own computer"
        raise MissingDataError(f"{place}: no {kind} {shown(name)}{where}: {advice}", place)
    if one is not None:
        return DataSource(found, wanted)
    for candidate in formats():
        if formats()[candidate].recognises(found):
            return DataSource(found, candidate)
    raise SpecError(
        f"{place} must be data that a format recognises ({', '.join(formats())}), got {found.name}: give format", place
    )


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
