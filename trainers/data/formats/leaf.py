"""LEAF's JSON (Caldas et al. 2018): the examples of each user, {"users": [..], "num_samples": [..], "user_data": {..}}.

A user's data are lists, {"x": [..], "y": [..]}. The columns are the names of these lists and `client`, the user.
The data are one file, or all files of a folder; or of its folders `train` and `test`, as LEAF's scripts write them. The
columns of `test` are then x_test, y_test and client_test. Files end in .json or .json.gz.

Files are read block by block: large columns are in files, and memory holds the text of a row.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers import disk_cache
from trainers.data.damage import OtherBytes, reading
from trainers.data.format_contract import Columns
from trainers.data.growing_column import GrowingColumn
from trainers.data.gzipped import opened
from trainers.data.json_text import JsonText
from trainers.data.sides import TEST, SideColumns, SideFiles, title
from trainers.values import shown

FOLDERS = True
_CLIENT = "client"
_FILES = SideFiles(
    lambda file: file.name.endswith((".json", ".json.gz")),
    "a folder of LEAF's .json or .json.gz files, in the folder itself or in its train and test",
)
recognises = _FILES.recognises
files = _FILES.files
has_test = _FILES.has_test


class _Users:
    """The users of one side, and their examples.

    Args:
        selected: names of the columns to keep.
    """

    def __init__(self, selected: Collection[str]) -> None:
        self.wanted = selected
        self._names: list[str] = []
        self.columns: dict[str, GrowingColumn] = {}
        self.files: dict[str, str] = {}
        self.sizes: dict[str, int] = {}

    @property
    def names(self) -> Sequence[str]:
        """Names of the columns."""
        return (*self._names, _CLIENT)

    def array(self, name: str, key_path: str) -> NDArray[Any]:
        if name == _CLIENT:
            return self._clients()
        return self.columns[name].array()

    def read(self, file: Path, title: str) -> None:
        """Adds the users of a file.

        Raises:
            ValueError: the file is damaged or not LEAF's.
        """
        counts: dict[str, int] = {}
        facts: dict[str, Any] = {}
        with io.TextIOWrapper(opened(file), encoding="utf-8-sig") as text:
            document = JsonText(text)
            for key in document.members():
                if key in ("users", "num_samples"):
                    facts[key] = document.value()
                    continue
                if key != "user_data":
                    document.skip()
                    continue
                for user in document.members():
                    try:
                        counts[user] = self._add(user, document, title)
                    except OtherBytes:
                        raise
                    except ValueError as error:
                        raise ValueError(f"user {shown(user)}: {error}") from error
                facts[key] = None
            document.end()
        if "user_data" not in facts:
            raise ValueError('must have "user_data", as LEAF\'s files do')
        _require_counts(facts, counts)

    def _clients(self) -> NDArray[np.str_]:
        clients = disk_cache.array((sum(self.sizes.values()),), np.array(list(self.sizes), np.str_).dtype)
        row = 0
        for user, size in self.sizes.items():
            clients[row : row + size] = user
            row += size
        return clients

    def _add(self, user: str, document: JsonText, title: str) -> int:
        """Adds a user's examples, which come next in the document, to the columns, and returns their number."""
        if user in self.files:
            raise ValueError(f"must be in one place, is in {self.files[user]} already")
        if document.begins() != "{":
            raise ValueError(f"must be an object of lists, got {shown(document.value())}")
        first, sizes = not self.files, dict[str, int]()
        for name in document.members():
            if first and name != _CLIENT and name not in self._names:
                self._names.append(name)
                self.columns |= {name: GrowingColumn()} if name in self.wanted else {}
            if name not in self.columns:
                document.skip()
            elif name in sizes:
                raise ValueError(f"{name} must be given once")
            else:
                sizes[name] = self._extend(name, document)
        self.files[user] = title
        for name in self.columns:
            if name not in sizes:
                raise ValueError(f"{name} must be a list, got null")
        if len(set(sizes.values())) > 1:
            counts = " and ".join(f"{sizes[name]} of {name}" for name in self.columns)
            raise ValueError(f"columns must have one row for each example, got {counts}")
        size = max(sizes.values(), default=0)
        if size:
            self.sizes[user] = size
        return size

    def _extend(self, name: str, document: JsonText) -> int:
        """Adds the rows that come next in the document to a column, and returns their number."""
        if document.begins() != "[":
            raise ValueError(f"{name} must be a list, got {shown(document.value())}")
        size = 0
        for rows in document.elements():
            try:
                self.columns[name].extend(rows)
            except ValueError as error:
                raise ValueError(f"{name} {error}") from error
            size += len(rows)
        return size


def read(path: Path, column_names: Sequence[str], key_path: str) -> Columns:
    """The columns of a file or folder.

    Raises:
        SpecError: a file is damaged or not LEAF's, or a user is in two files of a side.
    """
    side_files = _FILES.required(path, key_path)
    columns: dict[str, _Users] = {}
    for ending, side in side_files.items():
        endless = [name for name in column_names if TEST not in side_files or name.endswith(TEST) == (ending == TEST)]
        users = columns[ending] = _Users({name.removesuffix(ending) for name in endless})
        for file in side:
            with reading(title(file, path), key_path):
                users.read(file, title(file, path))
    return SideColumns(columns)


def _require_counts(facts: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    """Raises a ValueError if the lists of users and sizes, which a file may lack, differ from its data."""
    users, sizes = facts.get("users", list(counts)), facts.get("num_samples", list(counts.values()))
    if not isinstance(users, list) or not isinstance(sizes, list) or len(users) != len(sizes):
        raise ValueError('"users" and "num_samples" must be lists of one length')
    named = dict(zip(map(str, users), sizes, strict=True))
    for user in [*named, *counts]:
        if named.get(user) != counts.get(user):
            size, got = named.get(user, "no data"), counts.get(user, "none")
            raise ValueError(f"user {shown(user)} must have as many examples as the file says, {size}, got {got}")
