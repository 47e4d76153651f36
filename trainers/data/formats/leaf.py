"""LEAF's JSON (Caldas et al. 2018): the examples of each user, {"users": [..], "num_samples": [..], "user_data": {..}}.

A user's data are lists, {"x": [..], "y": [..]}. The columns are their names and `client`, the user. The data are one
file, or all files of a folder; or the folders `train` and `test` of one, as LEAF's scripts write them. The columns of
`test` are then x_test, y_test and client_test. Files end in .json or .json.gz.

Files are read user by user: memory holds the columns, and the text of one user.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.damage import reading
from trainers.data.format_contract import Columns
from trainers.data.growing_column import GrowingColumn
from trainers.data.gzipped import opened
from trainers.data.json_text import JsonText
from trainers.data.sides import TEST, SideColumns, require_files, sides, title
from trainers.values import shown

FOLDERS = True
_ENDINGS = (".json", ".json.gz")
_CLIENT = "client"


class _Users:
    """The users of one side, and their examples.

    Args:
        wanted: names of the columns to keep.
    """

    def __init__(self, wanted: Collection[str]) -> None:
        self.wanted = wanted
        self._names: list[str] = []
        self.columns: dict[str, GrowingColumn] = {}
        self.files: dict[str, str] = {}
        self.sizes: dict[str, int] = {}

    @property
    def names(self) -> Sequence[str]:
        """Names of the columns."""
        return (*self._names, _CLIENT)

    def array(self, name: str, place: str) -> NDArray[Any]:
        """A column."""
        if name == _CLIENT:
            return np.repeat(list(self.sizes), list(self.sizes.values()))
        return self.columns[name].array()

    def read(self, file: Path, title: str) -> None:
        """Adds the users of a file.

        Raises:
            ValueError: it is damaged or not LEAF's.
        """
        counts: dict[str, int] = {}
        facts: dict[str, Any] = {}
        with io.TextIOWrapper(opened(file), encoding="utf-8-sig") as text:
            document = JsonText(text)
            for key in document.members():
                if key != "user_data":
                    facts[key] = document.value()
                    continue
                for user in document.members():
                    try:
                        counts[user] = self._add(user, document.value(), title)
                    except ValueError as error:
                        raise ValueError(f"user {shown(user)}: {error}") from error
                facts[key] = None
            document.end()
        if "user_data" not in facts:
            raise ValueError('must have "user_data", as LEAF\'s files do')
        _require_counts(facts, counts)

    def _add(self, user: str, data: Any, title: str) -> int:
        """The number of a user's examples, which are added to the columns."""
        if user in self.files:
            raise ValueError(f"must be in one place, is in {self.files[user]} already")
        if not isinstance(data, Mapping):
            raise ValueError(f"must be an object of lists, got {shown(data)}")
        if not self.files:
            self._names = [name for name in data if name != _CLIENT]
            self.columns = {name: GrowingColumn() for name in self._names if name in self.wanted}
        self.files[user] = title
        sizes = {}
        for name in self.columns:
            if not isinstance(data.get(name), list):
                raise ValueError(f"{name} must be a list, got {shown(data.get(name))}")
            sizes[name] = len(data[name])
        if len(set(sizes.values())) > 1:
            counts = " and ".join(f"{size} of {name}" for name, size in sizes.items())
            raise ValueError(f"columns must have one row for each example, got {counts}")
        size = max(sizes.values(), default=0)
        for name, column in self.columns.items():
            try:
                if size:
                    column.extend(data[name])
            except ValueError as error:
                raise ValueError(f"{name} {error}") from error
        if size:
            self.sizes[user] = size
        return size


def recognises(path: Path) -> bool:
    """Whether it is a file with the ending .json or .json.gz, or a folder of them."""
    return _belongs(path) if path.is_file() else bool(files(path))


def files(path: Path) -> Sequence[Path]:
    """The file; or the files of `train` and `test`, or of the folder without them."""
    return [file for side in sides(path, _belongs).values() for file in side]


def has_test(path: Path) -> bool:
    """Whether there is a folder `test` with files."""
    return TEST in sides(path, _belongs)


def read(path: Path, wanted: Sequence[str], place: str) -> Columns:
    """The columns of a file or folder.

    Raises:
        SpecError: a file is damaged or not LEAF's, or a user is in two files of a side.
    """
    found = sides(path, _belongs)
    rule = "a folder of LEAF's .json or .json.gz files, in the folder itself or in its train and test"
    require_files(path, found, rule, place)
    columns: dict[str, _Users] = {}
    for ending, side in found.items():
        endless = [name for name in wanted if TEST not in found or name.endswith(TEST) == (ending == TEST)]
        users = columns[ending] = _Users({name.removesuffix(ending) for name in endless})
        for file in side:
            with reading(title(file, path), place):
                users.read(file, title(file, path))
    return SideColumns(columns)


def _belongs(file: Path) -> bool:
    return file.name.endswith(_ENDINGS)


def _require_counts(facts: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    """Raises a ValueError if a file's lists of users and sizes, which it need not have, differ from its data."""
    users, sizes = facts.get("users", list(counts)), facts.get("num_samples", list(counts.values()))
    if not isinstance(users, list) or not isinstance(sizes, list) or len(users) != len(sizes):
        raise ValueError('"users" and "num_samples" must be lists of one length')
    named = dict(zip(map(str, users), sizes, strict=True))
    for user in [*named, *counts]:
        if named.get(user) != counts.get(user):
            said, got = named.get(user, "no data"), counts.get(user, "none")
            raise ValueError(f"user {shown(user)} must have as many examples as the file says, {said}, got {got}")
