"""The examples of a user's data: inputs, targets and clients, fully checked before training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import class_labels
from trainers.data.class_labels import Labels
from trainers.data.columns import ColumnPart, Names
from trainers.data.data_source import DataSource
from trainers.data.features import joined
from trainers.data.partitions import Rows
from trainers.data.vocabulary import numbered
from trainers.errors import SpecError
from trainers.hyperparameters import join


@dataclass(frozen=True, eq=False)
class TablePart:
    """Training or test examples.

    Args:
        inputs: (examples, ...) finite numbers as in the data.
        targets: (examples,) class numbers, or (examples,) or (examples, outputs) finite numbers.
        clients: (examples,) client ids, numbered in the order of the clients' names; None without a client column.
        people: names of the clients, in order; empty without a client column.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    clients: Rows | None
    people: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Table:
    """The examples of a data set.

    Args:
        main: all examples, or the training examples if `test` is given.
        test: test examples from separate columns; None without them.
        mask: (examples of main,) True for test examples; None without such a column.
        sha256: hash of the data.
        tokens: number of different tokens if inputs were strings, else 0.
        labels: labels in the order of their class numbers; None if labels are the numbers, or targets no classes.
        onehot: (features,) True for features that are one-hot; None if inputs come from one column.
        groups: (examples of main,) group of the example's class; None without such a column.
        lowest: smallest number of the inputs of `main`.
        highest: largest number of the inputs of `main`.
        key: its name in the cache; None if it is not kept there.
    """

    main: TablePart
    test: TablePart | None
    mask: NDArray[np.bool_] | None
    sha256: str
    tokens: int = 0
    labels: Labels | None = None
    onehot: NDArray[np.bool_] | None = None
    groups: Rows | None = None
    lowest: float = 0.0
    highest: float = 0.0
    key: str | None = None


@dataclass(frozen=True)
class Classes:
    """What a document says about its classes.

    Args:
        labels: in the order of the class numbers; None finds them in the data.
        count: number of classes; None finds it.
    """

    labels: Labels | None = None
    count: int | None = None


def read(source: DataSource, names: Names, test: Names | None, classes: Classes | None, path: str) -> Table:
    """The checked examples of a data set.

    Args:
        source: the data.
        names: names of the columns.
        test: names of separate columns for testing; None without them.
        classes: None if targets are numbers to predict.
        path: dotted path of the task.

    Raises:
        SpecError: the data has another format, or a column is missing or invalid.
    """
    reader = source.reader((names,) if test is None else (names, test), path)
    keys = ("inputs", "targets", "client")
    found = [reader.part(names, {key: join(path, key) for key in keys}, classes is not None)]
    mask = None
    if test is not None:
        place = join(path, "test")
        found.append(reader.part(test, {key: join(place, key) for key in keys}, classes is not None))
        _require_alike(found[0], found[1], path, place)
    if names.mask is not None:
        mask = reader.mask(names.mask, len(found[0].targets), join(path, "test"))
    groups = None
    if names.groups is not None:
        groups = reader.groups(names.groups, len(found[0].targets), join(path, "partition.groups"))
    inputs, tokens, onehot = _inputs(found, names, join(path, "inputs"))
    targets, labels = [part.targets for part in found], None
    if classes is not None:
        targets, labels = class_labels.numbered(targets, classes.labels, classes.count, path)
    parts = [
        TablePart(one, other, part.clients, part.people)
        for one, other, part in zip(inputs, targets, found, strict=True)
    ]
    held_out = parts[1] if test is not None else None
    ends = float(inputs[0].min()), float(inputs[0].max())
    return Table(parts[0], held_out, mask, source.digest(), tokens, labels, onehot, groups, *ends)


def _require_alike(main: ColumnPart, test: ColumnPart, path: str, place: str) -> None:
    for one, other in zip(main.features, test.features, strict=True):
        if one.shape[1:] != other.shape[1:]:
            raise SpecError(
                f"{place}.inputs must have examples of shape {one.shape[1:]} as {path}.inputs has, "
                f"got {other.shape[1:]}",
                f"{place}.inputs",
            )
    if test.targets.shape[1:] != main.targets.shape[1:]:
        raise SpecError(
            f"{place}.targets must have as many numbers an example as {path}.targets, "
            f"got shapes {test.targets.shape} and {main.targets.shape}",
            f"{place}.targets",
        )
    pairs = [("inputs", *both) for both in zip(main.features, test.features, strict=True)]
    for key, one, other in (*pairs, ("targets", main.targets, test.targets)):
        if (one.dtype.kind == "U") != (other.dtype.kind == "U"):
            raise SpecError(
                f"{place}.{key} must hold {one.dtype} as {path}.{key} does, got {other.dtype}", f"{place}.{key}"
            )


def _inputs(
    parts: list[ColumnPart], names: Names, place: str
) -> tuple[list[NDArray[Any]], int, NDArray[np.bool_] | None]:
    """(inputs of each part, number of different tokens in inputs that were strings, what is one-hot)."""
    if not isinstance(names.inputs, str):
        inputs, onehot = joined([part.features for part in parts], names.features, place)
        return inputs, 0, onehot
    columns = [part.features[0] for part in parts]
    if columns[0].dtype.kind == "U":
        return *numbered(columns, place), None
    return columns, 0, None
