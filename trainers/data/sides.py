"""Training and test examples of one data set: their files in a folder, their keys, and their columns together."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.format_contract import Columns, HasDates, HasLists, HasTexts
from trainers.data.tags import TagLists
from trainers.errors import SpecError
from trainers.hyperparameters import tunable

TEST = "_test"
"""Ending of the names of test columns, as in x_test."""
SERVER = "_server"
"""Ending of the names of the columns of the server's own file."""

VALIDATION = "_validation"
"""Ending of the names of the columns of a file for validation."""

Sides = Mapping[str, Sequence[Path]]
"""Ending of the columns' names, "" or `TEST` -> files."""

_TRAIN_NAME = re.compile(r"(^|[-_. ])train([-_. ]|$)", re.I)
_TEST_NAME = re.compile(r"(^|[-_. ])(test|t10k)([-_. ]|$)", re.I)


@dataclass(frozen=True)
class FileKeys:
    """The keys of a side that is in a file of its own, with the same columns."""

    path: str = tunable(doc="the file or folder")


@dataclass(frozen=True)
class ClientsKeys:
    """The keys of a side that some of the clients are."""

    clients: Any = tunable(kind="any", doc="fraction of the clients, or their names")


class SideColumns:
    """The columns of training and of test examples.

    Args:
        sides: ending of a column's name -> columns.
    """

    def __init__(self, sides: Mapping[str, Columns]) -> None:
        self._columns = {
            f"{name}{ending}": (columns, name) for ending, columns in sides.items() for name in columns.names
        }
        self.names = list(self._columns)

    def array(self, name: str, key_path: str) -> NDArray[Any]:
        """A column of either side."""
        columns, plain = self._columns[name]
        return columns.array(plain, key_path)

    def lists(self, name: str, key_path: str, separator: str | None) -> TagLists | None:
        """A column of lists, or of text with a separator; None for other columns."""
        columns, plain = self._columns[name]
        return columns.lists(plain, key_path, separator) if isinstance(columns, HasLists) else None

    def dates(self, name: str, key_path: str) -> NDArray[np.int64] | None:
        """A column of dates or times of either side, as whole numbers; None for other columns."""
        columns, plain = self._columns[name]
        return columns.dates(plain, key_path) if isinstance(columns, HasDates) else None

    def texts(self, name: str, key_path: str) -> Iterable[str | Sequence[str]] | None:
        """A column of strings of either side, or of lists of them; None for other columns."""
        columns, plain = self._columns[name]
        return columns.texts(plain, key_path) if isinstance(columns, HasTexts) else None


class SideFiles:
    """The files of a format, told by their names; its methods are functions of the format's module.

    Args:
        belongs: whether a file, by its name, belongs to the format.
        rule: what a path must be, for errors.
    """

    def __init__(self, belongs: Callable[[Path], bool], rule: str) -> None:
        self.belongs, self.rule = belongs, rule

    def recognises(self, path: Path) -> bool:
        """Whether a path is a file that belongs to the format, or a folder of such files."""
        return self.belongs(path) if path.is_file() else bool(self.files(path))

    def files(self, path: Path) -> Sequence[Path]:
        """The file; or the files of a folder, or of its folders train and test."""
        return [file for side in self.sides(path).values() for file in side]

    def has_test(self, path: Path) -> bool:
        """Whether a folder has files of test examples."""
        return TEST in self.sides(path)

    def sides(self, path: Path) -> Sides:
        """The files of training and of test examples.

        In a folder, these are the files of its folders `train` and `test`. Without such folders, files with "test" or
        "t10k" in their names are test examples; files with "train", or all others if there are none, training examples.
        """
        if path.is_file():
            return {"": [path]}
        train, test = (self._in(path / side) for side in ("train", "test"))
        if not train and not test:
            everything = self._in(path)
            test = [file for file in everything if _TEST_NAME.search(file.name)]
            train = [file for file in everything if _TRAIN_NAME.search(file.name)]
            train = train or [file for file in everything if file not in test]
            if not train:
                train, test = test, []
        return {"": train, **({TEST: test} if test else {})}

    def required(self, path: Path, key_path: str) -> Sides:
        """The files as in `sides`, of which there are some.

        Raises:
            SpecError: there are no files, or one is a link out of the folder.
        """
        side_files = self.sides(path)
        require_files(path, side_files, self.rule, key_path)
        return side_files

    def _in(self, folder: Path) -> list[Path]:
        entries = folder.iterdir() if folder.is_dir() else ()
        return sorted(file for file in entries if file.name[0] not in "._" and self.belongs(file) and file.is_file())


def require_files(path: Path, files: Sides, rule: str, key_path: str) -> None:
    """Raises a SpecError if there are no files, or one is a link out of the folder.

    Args:
        path: of the file or folder.
        files: as from `SideFiles.sides`.
        rule: what the folder must hold.
        key_path: dotted path of the setting that names the data.
    """
    inside = all(file.resolve().is_relative_to(path) for side in files.values() for file in side)
    if not files.get("") or not inside:
        raise SpecError(f"{key_path} must be {rule}, and no links out of it, got {path.name}", key_path)


def title(file: Path, path: Path) -> str:
    """A file's name for errors, relative to the folder of the data if `path` is one."""
    return file.name if file == path else str(file.relative_to(path))
