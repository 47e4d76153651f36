"""The features of an example, from several columns: numbers as they are, categories one-hot."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.partitions import Rows
from trainers.errors import SpecError
from trainers.values import shown

MOST_CATEGORIES = 1000
_DATE = re.compile(r"((19|20)\d\d[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./](19|20)\d\d)([ T,]+\d{1,2}:\d\d.*)?")
"""A date in digits, with or without a time; formats read those of ISO 8601 as dates themselves."""
_NARROW = 2  # bytes of whole numbers that single precision holds exactly


def joined(
    parts: Sequence[Sequence[NDArray[Any]]], names: Sequence[str], place: str
) -> tuple[list[NDArray[Any]], NDArray[np.bool_]]:
    """(features (examples, features) of each part, True for features that are one-hot), in the order of the columns.

    Args:
        parts: columns of training, then test examples, in one order; numbers (examples, ...) or strings (examples,).
        names: of the columns.
        place: dotted path of the setting, for errors.

    Raises:
        SpecError: a column has too many categories, or dates, or a part has strings where another has numbers.

    Examples:
        >>> joined([[np.array([1.5, 2.0]), np.array(["b", "a"])]], ["size", "kind"], "task.inputs")
        ([array([[1.5, 0. , 1. ],
               [2. , 1. , 0. ]])], array([False,  True,  True]))
    """
    widths, categories = [], []
    for number, name in enumerate(names):
        columns = [part[number] for part in parts]
        known = _categories(columns, name, place)
        categories.append(known)
        widths.append(len(known) if known is not None else int(np.prod(columns[0].shape[1:])))
    onehot = np.repeat([known is not None for known in categories], widths)
    dtype = np.float32 if all(_single(column) for column in parts[0]) else np.float64
    features = []
    for part in parts:
        matrix = np.zeros((len(part[0]), sum(widths)), dtype)
        end = 0
        for column, known, width in zip(part, categories, widths, strict=True):
            start, end = end, end + width
            if known is not None:
                matrix[np.arange(len(column)), start + np.searchsorted(known, column)] = 1
            else:
                matrix[:, start:end] = column.reshape(len(column), -1)
        features.append(matrix)
    return features, onehot


def _categories(columns: Sequence[NDArray[Any]], name: str, place: str) -> Rows | None:
    kinds = {column.dtype.kind == "U" for column in columns}
    if len(kinds) > 1:
        raise SpecError(f"{place}: column {shown(name)} must hold strings in all files or in none, got both", place)
    if not kinds.pop():
        return None
    if any(column.ndim > 1 for column in columns):
        raise SpecError(f"{place}: column {shown(name)} must hold one string an example: give it alone", place)
    known = np.unique(np.concatenate([np.unique(column) for column in columns]))
    filled = [str(one) for one in known if one]
    if filled and all(map(_DATE.fullmatch, filled)):
        raise SpecError(
            f"{place}: column {shown(name)} must hold numbers or categories, got dates such as {shown(filled[0])}: "
            "leave it out, or store a number such as the days since a first day",
            place,
        )
    if len(known) > MOST_CATEGORIES:
        raise SpecError(
            f"{place}: column {shown(name)} must have at most {MOST_CATEGORIES} categories, got {len(known)}, such as "
            f"{shown(str(known[0]))}: leave it out of inputs, or store numbers",
            place,
        )
    return known


def _single(column: NDArray[Any]) -> bool:
    kind, size = column.dtype.kind, column.dtype.itemsize
    return kind in "bU" or (kind in "iu" and size <= _NARROW) or (kind == "f" and size <= np.float32().itemsize)
