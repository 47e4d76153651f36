"""Class numbers for labels of any kind: strings, numbers that begin at 1, numbers with gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers import disk_cache
from trainers.data.partitions import Rows
from trainers.errors import SpecError
from trainers.hyperparameters import join
from trainers.values import shown

_ROWS = 2**16  # at once
_PER_VALUE = 4  # entries of a table for each value, at most
Labels = tuple[str, ...] | tuple[int, ...]


def checked(value: Any, path: str) -> Labels | None:
    """The labels that a document gives, in the order of their classes.

    Args:
        value: the value of `labels`; None finds them in the data.
        path: dotted path of the task.

    Raises:
        SpecError: they are not different strings or different whole numbers.
    """
    key_path = join(path, "labels")
    if value is None:
        return None
    kinds = {type(label) for label in value} if isinstance(value, list | tuple) else set()
    if kinds not in ({str}, {int}) or len(set(value)) < len(value):
        raise SpecError(
            f"{key_path} must be a list of different strings or of different whole numbers, got labels={shown(value)}",
            key_path,
        )
    return tuple(value)


def different(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct values, ascending; dense whole numbers from 0 on are marked in a table, cheaper than sorting.

    Examples:
        >>> different(np.array([3, 0, 3]))
        array([0, 3])
    """
    counted = values.dtype.kind in "iu" and values.dtype != np.uint64 and len(values) > 0 and values.min() >= 0
    if counted and int(values.max()) < _PER_VALUE * len(values):
        present = np.zeros(int(values.max()) + 1, np.bool_)
        for row in range(0, len(values), _ROWS):
            present[values[row : row + _ROWS]] = True
        return np.flatnonzero(present)
    return np.unique(
        np.concatenate([np.unique(values[row : row + _ROWS]) for row in range(0, len(values) or 1, _ROWS)])
    )


def places(values: NDArray[Any], ordered: NDArray[Any]) -> Rows:
    """The place of each value in `ordered`, which holds all of them in ascending order.

    Examples:
        >>> places(np.array(["b", "a", "b"]), np.array(["a", "b"]))
        array([1, 0, 1])
    """
    result = disk_cache.array(values.shape, np.int64)
    for row in range(0, len(values), _ROWS):
        result[row : row + _ROWS] = np.searchsorted(ordered, values[row : row + _ROWS])
    return result


def numbered(
    parts: Sequence[NDArray[Any]], declared: Labels | None, classes: int | None, path: str
) -> tuple[list[Rows], Labels | None]:
    """(class numbers of each part, labels in the order of their numbers or None if the labels are the numbers).

    Declared labels are numbered as declared. Otherwise, whole numbers 0, 1, 2 ... without gaps are the class numbers,
    and with `classes` all whole numbers below it are; other labels are numbered in ascending order.

    Args:
        parts: (examples,) labels, strings or whole numbers.
        declared: labels that the document declares; None finds them.
        classes: number of classes, which may exceed that of the labels; None if unknown.
        path: dotted path of the task.

    Raises:
        SpecError: a label is not among the declared ones.

    Examples:
        >>> numbered([np.array(["no", "yes", "no"])], None, None, "task")
        ([array([0, 1, 0])], ('no', 'yes'))
        >>> numbered([np.array([1, 2, 4])], None, None, "task")
        ([array([0, 1, 2])], (1, 2, 4))
        >>> numbered([np.array([1, 2, 4])], None, 5, "task")
        ([array([1, 2, 4])], None)
    """
    present = np.unique(np.concatenate([different(part) for part in parts]))
    if declared is None:
        whole = present.dtype.kind != "U"
        if whole and (int(present[0]), int(present[-1])) == (0, len(present) - 1):
            return list(parts), None
        if whole and classes is not None and present[0] >= 0 and present[-1] < classes:
            return list(parts), None
        labels = present
    else:
        labels = np.array(declared)
        if (labels.dtype.kind == "U") != (present.dtype.kind == "U") or not np.isin(present, labels).all():
            alike = (labels.dtype.kind == "U") == (present.dtype.kind == "U")
            missing = (present[~np.isin(present, labels)] if alike else present)[0].item()
            key_path = join(path, "labels")
            raise SpecError(f"{key_path} must have every label of the data, got none for {shown(missing)}", key_path)
    order = np.argsort(labels)
    numbers = [order[places(part, labels[order])] for part in parts]
    return numbers, tuple(labels.tolist())
