"""CIFAR-10 and CIFAR-100 as published for Python: data_batch_1 .. data_batch_5 and test_batch, or train and test.

The data are a folder, or one file. The columns are `image`, (examples, 3, 32, 32), and `label`, or `fine_label` and
`coarse_label`. The files are pickles, of which nothing is executed: arrays, numbers, strings, lists and mappings are
read, and every other name in them is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.damage import reading
from trainers.data.format_contract import Columns
from trainers.data.plain_pickle import load
from trainers.data.sides import SideColumns, SideFiles, title
from trainers.values import shown

FOLDERS = True
_NAME = re.compile(r"^(data_batch(_\d+)?|test_batch|train|test)$")
_KEYS = {b"data": "image", b"labels": "label", b"fine_labels": "fine_label", b"coarse_labels": "coarse_label"}
_SHAPE = (3, 32, 32)
_FILES = SideFiles(
    lambda file: _NAME.match(file.name) is not None, "a folder of CIFAR's batches for Python, such as data_batch_1"
)
files = _FILES.files
has_test = _FILES.has_test


class _Batches:
    """The batches of one side, one after another."""

    def __init__(self) -> None:
        self._parts: dict[str, list[NDArray[Any]]] = {}

    @property
    def names(self) -> Sequence[str]:
        """Names of the columns."""
        return list(self._parts)

    def array(self, name: str, key_path: str) -> NDArray[Any]:
        return np.concatenate(self._parts[name])

    def add(self, file: Path) -> None:
        """Adds a file.

        Raises:
            ValueError: the file is damaged, or another pickle.
        """
        batch = load(file.read_bytes())
        if not isinstance(batch, dict):
            raise ValueError("must hold a mapping, as CIFAR's batches do")
        keys = {key.encode() if isinstance(key, str) else key: value for key, value in batch.items()}
        columns = {name: keys[key] for key, name in _KEYS.items() if key in keys}
        image = columns.get("image")
        if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.shape[1:] != (np.prod(_SHAPE),):
            raise ValueError(f"must hold data, bytes of shape (examples, {np.prod(_SHAPE)}), as CIFAR's batches do")
        if self._parts and list(columns) != list(self._parts):
            raise ValueError(f"must hold {', '.join(self._parts)} as the others do, got {', '.join(columns)}")
        for name, values in columns.items():
            array = image.reshape(-1, *_SHAPE) if name == "image" else np.asarray(values)
            if name != "image" and (array.ndim != 1 or array.dtype.kind not in "iu" or len(array) != len(image)):
                raise ValueError(f"must hold a whole number for each image in {name}, got {shown(str(array.dtype))}")
            self._parts.setdefault(name, []).append(array)


def recognises(path: Path) -> bool:
    """Whether a path is a file with one of CIFAR's names that begins like a pickle, or a folder of such files."""
    first = next(iter(_FILES.sides(path)[""]), None)
    if first is None or not _FILES.belongs(first):
        return False
    with first.open("rb") as file:
        return file.read(1) in (b"\x80", b"(")


def names(path: Path, key_path: str) -> Sequence[str]:
    """Names of the columns."""
    with_fine = any(file.name == "train" for file in files(path)) or path.name in ("train", "test")
    return ("image", "fine_label", "coarse_label") if with_fine else ("image", "label")


def read(path: Path, column_names: Sequence[str], key_path: str) -> Columns:
    """The columns of a file or folder.

    Raises:
        SpecError: a file is damaged, or names something that is no array.
    """
    columns: dict[str, Columns] = {}
    for ending, side in _FILES.required(path, key_path).items():
        columns[ending] = batches = _Batches()
        for file in side:
            with reading(title(file, path), key_path):
                batches.add(file)
    return SideColumns(columns)
