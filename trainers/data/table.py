"""Arrays of a user: inputs, targets and clients from one .npz file, fully checked before training."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import archive
from trainers.data.partitions import Rows
from trainers.errors import SpecError
from trainers.hyperparameters import join
from trainers.spelling import hint
from trainers.values import shown

_LARGEST = float(np.finfo(np.float32).max)
_LARGE = 64 * 2**20  # bytes of inputs


@dataclass(frozen=True, eq=False)
class TablePart:
    """Training or test examples; arrays as in the file.

    Args:
        inputs: (examples, ...) finite numbers.
        targets: (examples,) class numbers, or (examples,) or (examples, outputs) finite numbers.
        clients: (examples,) client ids, numbered in the order of the clients' names; None without a client array.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    clients: Rows | None


@dataclass(frozen=True, eq=False)
class Table:
    """The arrays of a file.

    Args:
        main: all examples, or the training examples if `test` is given.
        test: test examples from separate arrays; None without them.
        mask: (examples of main,) True for test examples; None without such an array.
        sha256: hash of the file.
    """

    main: TablePart
    test: TablePart | None
    mask: NDArray[np.bool_] | None
    sha256: str


@dataclass(frozen=True)
class Names:
    """Names of the arrays in the file.

    Args:
        inputs: array of inputs.
        targets: array of classes or numbers.
        client: array with the client of each example; None without clients.
        client_optional: the file need not have the client array.
        mask: array that marks test examples; None without such an array.
    """

    inputs: str
    targets: str
    client: str | None = None
    client_optional: bool = False
    mask: str | None = None


def load(file: Path, names: Names, test: Names | None, classified: bool, path: str) -> Table:
    """The checked arrays of a file; cached while the file does not change.

    Args:
        file: absolute path.
        names: names of the arrays.
        test: names of separate arrays for testing; None without them.
        classified: whether targets are classes.
        path: dotted path of the task.

    Raises:
        SpecError: the file is not an .npz file, or an array is missing or invalid.
    """
    stat = file.stat()
    return _load(file, stat.st_mtime_ns, stat.st_size, names, test, classified, path)


def forget(table: Table) -> None:
    """Ends the caching of large tables, whose examples a model now holds in its own form.

    Args:
        table: from `load`.
    """
    held = [part.inputs.nbytes for part in (table.main, table.test) if part is not None]
    if sum(held) > _LARGE:
        _load.cache_clear()


@lru_cache(maxsize=2)
def _load(file: Path, changed: int, size: int, names: Names, test: Names | None, classified: bool, path: str) -> Table:
    reader = _Reader(file, path)
    main = reader.part(names, {key: join(path, key) for key in ("inputs", "targets", "client")}, classified)
    held_out = mask = None
    if test is not None:
        place = join(path, "test")
        held_out = reader.part(test, {key: join(place, key) for key in ("inputs", "targets", "client")}, classified)
        if held_out.inputs.shape[1:] != main.inputs.shape[1:]:
            raise SpecError(
                f"{place}.inputs must have examples of shape {main.inputs.shape[1:]} as {path}.inputs has, "
                f"got {held_out.inputs.shape[1:]}",
                f"{place}.inputs",
            )
        if held_out.targets.shape[1:] != main.targets.shape[1:]:
            raise SpecError(
                f"{place}.targets must have as many numbers an example as {path}.targets, "
                f"got shapes {held_out.targets.shape} and {main.targets.shape}",
                f"{place}.targets",
            )
    if names.mask is not None:
        mask = reader.mask(names.mask, len(main.targets), join(path, "test"))
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return Table(main, held_out, mask, digest)


class _Reader:
    """Reads and checks arrays of one file.

    Args:
        file: absolute path.
        path: dotted path of the task.
    """

    def __init__(self, file: Path, path: str) -> None:
        self.file = file
        try:
            with archive.opened(file) as opened:
                self.names = list(opened.files)
                if not any(name.endswith(".npy") for name in opened.zip.namelist()):
                    raise ValueError("another kind of archive")
        except archive.DAMAGE as error:
            place = join(path, "path")
            raise SpecError(
                f"{place} must be an .npz file, as numpy.savez writes it, got {file.name}", place
            ) from error

    def part(self, names: Names, places: Mapping[str, str], classified: bool) -> TablePart:
        inputs = self._inputs(names.inputs, places["inputs"])
        targets = (self._classes if classified else self._numbers)(names.targets, places["targets"])
        _as_long(targets, len(inputs), names.targets, names.inputs, places["targets"])
        clients = None
        if names.client is not None and (names.client in self.names or not names.client_optional):
            clients = self._clients(names.client, places["client"])
            _as_long(clients, len(inputs), names.client, names.inputs, places["client"])
        return TablePart(inputs, targets, clients)

    def mask(self, name: str, examples: int, place: str) -> NDArray[np.bool_]:
        mask = self._array(name, place)
        if mask.ndim != 1 or not (mask.dtype.kind == "b" or (mask.dtype.kind in "iu" and np.isin(mask, (0, 1)).all())):
            raise SpecError(f"{place}: array {shown(name)} must be 1-D, true or false, got {_facts(mask)}", place)
        _as_long(mask, examples, name, "the inputs", place)
        mask = mask.astype(np.bool_)
        if mask.all() or not mask.any():
            which = "all" if mask.all() else "none"
            raise SpecError(f"{place}: array {shown(name)} must mark some examples, got {which} of them marked", place)
        return mask

    def _array(self, name: str, place: str) -> NDArray[Any]:
        if name not in self.names:
            advice = hint(name, self.names)
            raise SpecError(f"{place}: no array {shown(name)} in {self.file.name}: {advice}", place)
        try:
            return archive.read(self.file, name)
        except archive.DAMAGE as error:
            if "allow_pickle" in str(error):
                raise SpecError(
                    f"{place}: array {shown(name)} must hold numbers or strings, got pickled objects, which are never "
                    "read: save it again with a dtype (strings of pandas: column.to_numpy(dtype=str))",
                    place,
                ) from error
            raise SpecError(
                f"{place}: array {shown(name)} must be readable, got {type(error).__name__}: save it again", place
            ) from error

    def _numeric(self, name: str, place: str, kinds: str, what: str) -> NDArray[Any]:
        array = self._array(name, place)
        if array.dtype.kind not in kinds:
            raise SpecError(f"{place}: array {shown(name)} must hold {what}, got {_facts(array)}", place)
        if not array.size:
            raise SpecError(f"{place}: array {shown(name)} must hold examples, got {_facts(array)}", place)
        if array.dtype.kind == "f" and not np.isfinite((array.min(), array.max())).all():
            row = int(np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(1))[0])
            raise SpecError(f"{place}: array {shown(name)} must be finite, got NaN or infinity in row {row}", place)
        return array

    def _inputs(self, name: str, place: str) -> NDArray[Any]:
        array = self._numeric(name, place, "fiub", "numbers")
        if array.ndim < 2:
            raise SpecError(
                f"{place}: array {shown(name)} must have an axis of examples and one of features, got {_facts(array)}: "
                f"reshape it to {(*array.shape, 1)}",
                place,
            )
        return _small(array, name, place)

    def _numbers(self, name: str, place: str) -> NDArray[Any]:
        array = self._numeric(name, place, "fiub", "numbers")
        if array.ndim not in (1, 2):
            shape = "(examples,) or (examples, outputs)"
            raise SpecError(f"{place}: array {shown(name)} must have shape {shape}, got {_facts(array)}", place)
        return _small(array, name, place)

    def _classes(self, name: str, place: str) -> NDArray[Any]:
        what = "whole numbers from 0 on, one for each class"
        array = self._numeric(name, place, "fiub", what)
        if array.ndim != 1:
            raise SpecError(f"{place}: array {shown(name)} must be 1-D, got {_facts(array)}", place)
        if array.dtype.kind == "f" and (array != np.floor(array)).any():
            value = float(array[array != np.floor(array)][0])
            raise SpecError(
                f"{place}: array {shown(name)} must hold {what}, got {value:g}: for numbers to predict, "
                'set model to "linear"',
                place,
            )
        if array.min() < 0 or array.max() >= 2**31:
            value = float(array.min() if array.min() < 0 else array.max())
            raise SpecError(f"{place}: array {shown(name)} must hold {what}, got {value:g}", place)
        return array.astype(np.int64)

    def _clients(self, name: str, place: str) -> Rows:
        if name not in self.names:
            advice = hint(name, self.names)
            raise SpecError(
                f"{place}: no array {shown(name)} in {self.file.name}: {advice} "
                '(without such an array, set client to null, partition to "iid" and clients to their number)',
                place,
            )
        array = self._array(name, place)
        whole = array.dtype.kind != "f" or bool((np.isfinite(array) & (array == np.floor(array))).all())
        if array.ndim != 1 or array.dtype.kind not in "iufUSb" or not whole:
            raise SpecError(
                f"{place}: array {shown(name)} must be 1-D, a whole number or string for each example, "
                f"got {_facts(array)}{'' if whole else ' with other numbers'}",
                place,
            )
        return np.asarray(np.unique(array, return_inverse=True)[1], dtype=np.int64)


def _as_long(array: NDArray[Any], examples: int, name: str, other: str, place: str) -> None:
    if len(array) != examples:
        raise SpecError(
            f"{place}: array {shown(name)} must have one row for each example of {other}, "
            f"got {len(array)} rows and {examples} examples",
            place,
        )


def _small(array: NDArray[Any], name: str, place: str) -> NDArray[Any]:
    largest = max(abs(float(array.min())), abs(float(array.max())))
    if largest > _LARGEST:
        raise SpecError(f"{place}: array {shown(name)} must stay below 3.4e38, got {largest:g}: scale it", place)
    return array


def _facts(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {array.shape}"
