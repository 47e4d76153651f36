"""The examples of a user's data: inputs, targets and clients, fully checked before training."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from trainers.data.columns import Names, TablePart
from trainers.data.data_source import DataSource
from trainers.data.vocabulary import numbered
from trainers.errors import SpecError
from trainers.hyperparameters import join

_LARGE = 64 * 2**20  # bytes of inputs


@dataclass(frozen=True, eq=False)
class Table:
    """The examples of a data set.

    Args:
        main: all examples, or the training examples if `test` is given.
        test: test examples from separate columns; None without them.
        mask: (examples of main,) True for test examples; None without such a column.
        sha256: hash of the data.
        tokens: number of different tokens if inputs were strings, else 0.
    """

    main: TablePart
    test: TablePart | None
    mask: NDArray[np.bool_] | None
    sha256: str
    tokens: int = 0


def load(source: DataSource, names: Names, test: Names | None, classified: bool, path: str) -> Table:
    """The checked examples of a data set; cached while its files do not change.

    Args:
        source: the data.
        names: names of the columns.
        test: names of separate columns for testing; None without them.
        classified: whether targets are classes.
        path: dotted path of the task.

    Raises:
        SpecError: the data has another format, or a column is missing or invalid.
    """
    return _load(source, source.stamp(), names, test, classified, path)


def forget(table: Table) -> None:
    """Ends the caching of large tables, whose examples a model now holds in its own form.

    Args:
        table: from `load`.
    """
    held = [part.inputs.nbytes for part in (table.main, table.test) if part is not None]
    if sum(held) > _LARGE:
        _load.cache_clear()


@lru_cache(maxsize=2)
def _load(source: DataSource, stamp: Hashable, names: Names, test: Names | None, classified: bool, path: str) -> Table:
    reader = source.reader((names,) if test is None else (names, test), path)
    main = reader.part(names, {key: join(path, key) for key in ("inputs", "targets", "client")}, classified)
    held_out = mask = None
    if test is not None:
        place = join(path, "test")
        held_out = reader.part(test, {key: join(place, key) for key in ("inputs", "targets", "client")}, classified)
        _require_alike(main, held_out, path, place)
    if names.mask is not None:
        mask = reader.mask(names.mask, len(main.targets), join(path, "test"))
    parts, tokens = _numbered([main] if held_out is None else [main, held_out], path)
    return Table(parts[0], parts[1] if held_out is not None else None, mask, source.digest(), tokens)


def _require_alike(main: TablePart, test: TablePart, path: str, place: str) -> None:
    if test.inputs.shape[1:] != main.inputs.shape[1:]:
        raise SpecError(
            f"{place}.inputs must have examples of shape {main.inputs.shape[1:]} as {path}.inputs has, "
            f"got {test.inputs.shape[1:]}",
            f"{place}.inputs",
        )
    if test.targets.shape[1:] != main.targets.shape[1:]:
        raise SpecError(
            f"{place}.targets must have as many numbers an example as {path}.targets, "
            f"got shapes {test.targets.shape} and {main.targets.shape}",
            f"{place}.targets",
        )
    for key, one, other in (("inputs", main.inputs, test.inputs), ("targets", main.targets, test.targets)):
        if (one.dtype.kind == "U") != (other.dtype.kind == "U"):
            raise SpecError(
                f"{place}.{key} must hold {one.dtype} as {path}.{key} does, got {other.dtype}", f"{place}.{key}"
            )


def _numbered(parts: list[TablePart], path: str) -> tuple[list[TablePart], int]:
    """(the parts with numbers in place of strings, number of different tokens in inputs that were strings)."""
    tokens = 0
    if parts[0].inputs.dtype.kind == "U":
        inputs, tokens = numbered([part.inputs for part in parts], join(path, "inputs"), characters=True)
        parts = [replace(part, inputs=array) for part, array in zip(parts, inputs, strict=True)]
    if parts[0].targets.dtype.kind == "U":
        targets, _ = numbered([part.targets for part in parts], join(path, "targets"), characters=False)
        parts = [replace(part, targets=array.astype(np.int64)) for part, array in zip(parts, targets, strict=True)]
    return parts, tokens
