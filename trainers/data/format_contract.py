"""The contract of a format, a module in trainers/data/formats: columns of a file or folder."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from trainers.data.tags import TagLists


class Columns(Protocol):
    """The columns of one data set, each an array with one row an example."""

    @property
    @abstractmethod
    def names(self) -> Collection[str]:
        """Names of the columns."""

    @abstractmethod
    def array(self, name: str, key_path: str) -> NDArray[Any]:
        """A column as it is stored, read-only.

        Args:
            name: one of `names`.
            key_path: dotted path of the setting that names it, for errors.

        Raises:
            SpecError: it cannot be read.
        """


@runtime_checkable
class HasLists(Protocol):
    """Columns that may be lists of different lengths, or text that is cut into lists."""

    def lists(self, name: str, key_path: str, separator: str | None) -> TagLists | None:
        """A column of lists, or of text with a separator between its parts; None for other columns.

        Args:
            name: one of `Columns.names`.
            key_path: dotted path of the setting that names it, for errors.
            separator: between the parts of a text; None leaves text to `array`.

        Raises:
            SpecError: it cannot be read.
        """


@runtime_checkable
class HasTexts(Protocol):
    """Columns that may be strings of any length."""

    def texts(self, name: str, key_path: str) -> Iterable[str | Sequence[str]] | None:
        """A column of strings, or of lists of strings, one after the other; None for other columns.

        Args:
            name: one of `Columns.names`.
            key_path: dotted path of the setting that names it, for errors.

        Raises:
            SpecError: it cannot be read.
        """


@runtime_checkable
class HasDates(Protocol):
    """Columns that may be dates or times."""

    def dates(self, name: str, key_path: str) -> NDArray[np.int64] | None:
        """(examples,) dates or times as whole numbers of one unit; None for other columns.

        Args:
            name: one of `Columns.names`.
            key_path: dotted path of the setting that names it, for errors.

        Raises:
            SpecError: it cannot be read.
        """


@runtime_checkable
class Format(Protocol):
    """A module in trainers/data/formats. Attributes and functions with a value or body here are optional.

    Attributes:
        FOLDERS: the data may be a folder.
    """

    FOLDERS: bool = False

    @abstractmethod
    def recognises(self, path: Path) -> bool:
        """Whether a file or folder seems to have this format, by its name or its first bytes."""

    @abstractmethod
    def read(self, path: Path, column_names: Sequence[str], key_path: str) -> Columns:
        """The columns of a file or folder.

        Args:
            path: absolute.
            column_names: columns that are read next, if they exist; others need not be available.
            key_path: dotted path of the setting that names the file, for errors.

        Raises:
            SpecError: the file is damaged or has another format.
        """

    def names(self, path: Path, key_path: str) -> Sequence[str]:
        """Names of the columns of the training examples, found without reading the data; () if that would take long.

        Raises:
            SpecError: the file is damaged or has another format.
        """
        return ()

    def files(self, path: Path) -> Sequence[Path]:
        """The files that hold the data, in a fixed order."""
        return (path,)

    def has_test(self, path: Path) -> bool:
        """Whether test examples are in columns of their own, whose names end in _test, as x_test does."""
        return False
