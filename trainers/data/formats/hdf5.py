"""TensorFlow Federated's HDF5 (.h5, .hdf5): examples/CLIENT/COLUMN, as fed_emnist_train.h5 and fed_emnist_test.h5.

The data are a file, or a folder with files of training and of test examples. The columns are those of the clients
(EMNIST: pixels and label; CIFAR-100: image, label and coarse_label; Shakespeare: snippets) and `client`. Channels
that come last in images of bytes are moved to the front.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.arrow_columns import LONGEST
from trainers.data.damage import reading
from trainers.data.extra import library
from trainers.data.format_contract import Columns
from trainers.data.sides import SideColumns, SideFiles, Sides, title
from trainers.errors import SpecError
from trainers.values import shown

FOLDERS = True
_ROOT = "examples"
_CLIENT = "client"
_IMAGES, _CHANNELS = 4, (1, 3)  # axes; channels of images
_MOST = 2000  # bytes to which one stored byte can decompress
_FILES = SideFiles(
    lambda file: file.name.endswith((".h5", ".hdf5")),
    "a file .h5 of TensorFlow Federated, or a folder with one for training and one for testing",
)
recognises = _FILES.recognises
files = _FILES.files
has_test = _FILES.has_test


class _Hdf5Columns:
    """The columns of one file.

    Args:
        names: of the columns, and `client`.
        clients: (examples,) names of clients.
        arrays: column -> examples.
    """

    def __init__(self, names: Sequence[str], clients: NDArray[Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.names = (*names, _CLIENT)
        self._arrays = {**arrays, _CLIENT: clients}

    def array(self, name: str, key_path: str) -> NDArray[Any]:
        values = self._arrays[name]
        if values.dtype.kind != "O":
            return values
        strings = values.reshape(-1).tolist()
        longest, shortest = max(map(len, strings), default=0), min(map(len, strings), default=0)
        if shortest < longest > LONGEST:
            rule = f"must hold strings of one length, or of at most {LONGEST} characters"
            raise SpecError(f"{key_path}: column {shown(name)} {rule}", key_path)
        return values.astype(np.str_)

    def texts(self, name: str, key_path: str) -> Iterable[str | Sequence[str]] | None:
        """A column of strings; None for other columns."""
        values = self._arrays[name]
        return values.tolist() if values.dtype.kind == "O" and values.ndim == 1 else None


def names(path: Path, key_path: str) -> Sequence[str]:
    """Names of the columns of the first client, and `client`."""
    file = _required(path, key_path)[""][0]
    with reading(title(file, path), key_path), _opened(file, key_path) as clients:
        return (*clients[next(iter(clients))], _CLIENT)


def read(path: Path, column_names: Sequence[str], key_path: str) -> Columns:
    """The columns of a file or folder.

    Raises:
        SpecError: a file is damaged or not TensorFlow Federated's.
        MissingDataError: h5py is not installed.
    """
    columns: dict[str, Columns] = {}
    for ending, side in _required(path, key_path).items():
        plain = {name.removesuffix(ending) for name in column_names if name.endswith(ending)}
        with reading(title(side[0], path), key_path), _opened(side[0], key_path) as clients:
            columns[ending] = _columns(clients, plain)
    return SideColumns(columns)


def _required(path: Path, key_path: str) -> Sides:
    """The files of the sides, one each."""
    side_files = _FILES.required(path, key_path)
    with reading(path.name, key_path):
        if any(len(side) > 1 for side in side_files.values()):
            came = ", ".join(file.name for side in side_files.values() for file in side)
            raise ValueError(f"must be {_FILES.rule}, got {came}")
    return side_files


@contextmanager
def _opened(file: Path, key_path: str) -> Iterator[Any]:
    """The group of the clients."""
    with library("h5py", "HDF5 files", key_path).File(file) as opened:
        clients = opened.get(_ROOT)
        if clients is None or not hasattr(clients, "keys") or not len(clients):
            raise ValueError(f"must have clients in the group {_ROOT}, as files of TensorFlow Federated do")
        _require_own(clients, opened, _ROOT)
        yield clients


def _columns(clients: Any, selected: Collection[str]) -> _Hdf5Columns:
    names: list[str] = []
    sizes: dict[str, int] = {}
    parts: dict[str, list[NDArray[Any]]] = {}
    for client in clients:
        group = clients[client]
        try:
            _require_own(group, clients, "its group")
            if not names:
                names = list(group)
                parts = {name: [] for name in names if name in selected}
            columns = {name: _dataset(group, name) for name in parts}
            lengths = {len(column) for column in columns.values()}
            if len(lengths) > 1:
                raise ValueError("columns must have one row for each example")
            sizes[client] = lengths.pop() if lengths else 0
            for name, column in columns.items():
                parts[name].append(column)
        except (AttributeError, KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"client {shown(client)}: {error}") from error
    arrays = {}
    for name, rows in parts.items():
        if len({array.shape[1:] for array in rows}) > 1:
            raise ValueError(f"{name} must have examples of one shape for all clients")
        arrays[name] = _images_first(np.concatenate(rows))
    return _Hdf5Columns(names, np.repeat(list(sizes), list(sizes.values())), arrays)


def _require_own(part: Any, whole: Any, name: str, *, elsewhere: bool = False) -> None:
    """Refuses a link to another file: that file would be the reader's, not the writer's."""
    if elsewhere or part.file != whole.file:
        raise ValueError(f"{name} must be in the file itself, not in another one")


def _dataset(group: Any, name: str) -> NDArray[Any]:
    dataset = group[name]
    if not hasattr(dataset, "shape") or dataset.shape is None or not dataset.shape:
        raise ValueError(f"{name} must be an array with a row for each example")
    _require_own(dataset, group, name, elsewhere=dataset.external or dataset.is_virtual)
    if dataset.dtype.kind == "O":
        if dataset.size > _MOST * max(1, dataset.id.get_storage_size()):
            raise ValueError(f"{name} is damaged")
        return np.asarray(dataset.asstr()[...], dtype=np.object_)
    if dataset.size * dataset.dtype.itemsize > _MOST * max(1, dataset.id.get_storage_size()):
        raise ValueError(f"{name} is damaged: its shape {dataset.shape} needs more than the file holds")
    array = np.asarray(dataset[...])
    return np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array


def _images_first(array: NDArray[Any]) -> NDArray[Any]:
    images = array.dtype == np.uint8 and array.ndim == _IMAGES and array.shape[-1] in _CHANNELS
    return np.ascontiguousarray(array.transpose(0, 3, 1, 2)) if images else array
