"""Where a user's data is: a file or folder, and the format in which it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trainers.data.columns import ColumnReader, Names
from trainers.data.folder import VARIABLE, locate
from trainers.data.format_contract import Format
from trainers.data.remote import local_copy
from trainers.data.sides import SERVER, TEST, VALIDATION, SideColumns
from trainers.data.url_prefixes import is_url
from trainers.disk_cache import digest
from trainers.errors import MissingDataError, SpecError
from trainers.hyperparameters import join
from trainers.registry import Registry
from trainers.values import shown

AUTO = "auto"
"""Stands for the first format that recognises the data."""


@cache
def formats() -> Registry[Format]:
    """Every format in trainers/data/formats, by name."""
    return Registry("trainers.data.formats", "trainers.data.format_contract.Format", "format")


@dataclass(frozen=True)
class DataSource:
    """A user's data.

    Args:
        path: absolute, of a file or folder.
        name: name of the format.
        test: absolute path of the test examples, of the same format; None if there are none or they are at `path`.
        server: absolute path of the server's examples, of the same format; None without a file of its own.
        validation: absolute path of the examples for validation, of the same format; None without a file of its own.
    """

    path: Path
    name: str
    test: Path | None = None
    server: Path | None = None
    validation: Path | None = None

    @property
    def format(self) -> Format:
        """The format."""
        return formats()[self.name]

    def reader(self, names: tuple[Names, ...], key_path: str) -> ColumnReader:
        """Reads columns.

        Args:
            names: columns that are read next.
            key_path: dotted path of the task.
        """
        column_names = [name for side_names in names for name in side_names.given]
        columns = self.format.read(self.path, column_names, join(key_path, "path"))
        sides = {"": columns}
        others = (
            (TEST, self.test, "test.path"),
            (SERVER, self.server, "central.path"),
            (VALIDATION, self.validation, "validation.path"),
        )
        for ending, path, key in others:
            if path is not None:
                plain = [name.removesuffix(ending) for name in column_names]
                sides[ending] = self.format.read(path, plain, join(key_path, key))
        if len(sides) > 1:
            columns = SideColumns(sides)
        return ColumnReader(columns, self.path.name)

    def names(self, key_path: str) -> Sequence[str]:
        """Names of the columns of the training examples; () if they are not known yet.

        Args:
            key_path: dotted path of the task.
        """
        return self.format.names(self.path, join(key_path, "path"))

    @property
    def has_test(self) -> bool:
        """Whether test examples are in columns of their own, whose names end in _test."""
        return self.test is not None or self.format.has_test(self.path)

    def stamp(self) -> Hashable:
        """A value that changes when a file of the data changes, or another one is added."""
        return tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in self._files)

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(file.stat().st_size for file in self._files)

    def digest(self) -> str:
        """The SHA-256 of the file; for a folder, of its files' names and SHA-256s; for several, of their SHA-256s."""
        digests = [digest(path) if path.is_file() else self._folder_digest(path) for path in self._paths]
        return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()

    @property
    def _paths(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.path, self.test, self.server, self.validation) if path is not None)

    @property
    def _files(self) -> list[Path]:
        return [file for path in self._paths for file in self.format.files(path)]

    def _folder_digest(self, path: Path) -> str:
        lines = [f"{digest(file)}  {file.relative_to(path)}\n" for file in self.format.files(path)]
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def find(name: str, format_name: Any, path: str, others: Mapping[str, str] | None = None) -> DataSource:
    """A user's data, with its format.

    Args:
        name: the path in the document: absolute, from the current directory, or from the data folder; or a URL.
        format_name: name of a format, or `AUTO`.
        path: dotted path of the task.
        others: "test", "central", "validation" -> the path of a separate file in the document; None without any.

    Raises:
        MissingDataError: there is no such file or folder.
        SpecError: there is no such format, or none recognises the data.
    """
    format_module = None if format_name == AUTO else formats().find(format_name, join(path, "format"))
    folders = format_module is None or format_module.FOLDERS
    location = _located(name, folders, join(path, "path"))
    sides = {key: _located(side_path, folders, join(path, f"{key}.path")) for key, side_path in (others or {}).items()}
    separate = [sides.get(key) for key in ("test", "central", "validation")]
    if format_module is not None:
        return DataSource(location, format_name, *separate)
    for candidate in formats():
        if (location.is_file() or formats()[candidate].FOLDERS) and formats()[candidate].recognises(location):
            return DataSource(location, candidate, *separate)
    key_path = join(path, "path")
    raise SpecError(
        f"{key_path} must be data that a format recognises ({', '.join(formats())}), got {location.name}: give format",
        key_path,
    )


def _located(name: str, folders: bool, key_path: str) -> Path:
    if is_url(name):
        return local_copy(name, key_path)
    location = locate(name, folders)
    if location is None:
        kind = "file or folder" if folders else "file"
        where = "" if Path(name).is_absolute() else f" in the current directory or in ${VARIABLE}"
        advice = f"give its path or set {VARIABLE}; a service looks on its own computer"
        raise MissingDataError(f"{key_path}: no {kind} {shown(name)}{where}: {advice}", key_path)
    return location
