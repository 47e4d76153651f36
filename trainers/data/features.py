"""The features of an example, from several columns: numbers as they are, categories one-hot or to be embedded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers import disk_cache
from trainers.data.class_labels import different
from trainers.data.embeddings import MOST_EMBEDDED, Embedding, Widths, width_of
from trainers.errors import SpecError
from trainers.values import shown

MOST_CATEGORIES = 1000
_ROWS = 2**14  # at once
_DATE = re.compile(r"((19|20)\d\d[-./]\d{1,2}[-./]\d{1,2}|\d{1,2}[-./]\d{1,2}[-./](19|20)\d\d)([ T,]+\d{1,2}:\d\d.*)?")
"""A date in digits, with or without a time; formats read those of ISO 8601 as dates themselves."""
_NARROW = 2  # bytes of whole numbers that single precision holds exactly


@dataclass(frozen=True, eq=False)
class Features:
    """The features of examples.

    Args:
        parts: (examples, features) of training, then of test examples.
        kept: (features,) True for those that no scale changes: one-hot ones, and numbers of categories.
        embedded: features that are numbers of categories, in order.
    """

    parts: list[NDArray[Any]]
    kept: NDArray[np.bool_]
    embedded: tuple[Embedding, ...] = ()


def joined(
    parts: Sequence[Sequence[NDArray[Any]]], names: Sequence[str], key_path: str, widths: Widths = None
) -> Features:
    """The features, in the order of the columns.

    Args:
        parts: columns of training, then test examples, in one order; numbers (examples, ...) or strings (examples,).
        names: of the columns.
        key_path: dotted path of the setting, for errors.
        widths: of columns that are to be embedded; None makes all categories one-hot.

    Raises:
        SpecError: a column has too many categories, or dates, or a part has strings where another has numbers.

    Examples:
        >>> columns = [[np.array([1.5, 2.0]), np.array(["b", "a"])]]
        >>> joined(columns, ["size", "kind"], "task.inputs").parts
        [array([[1.5, 0. , 1. ],
               [2. , 1. , 0. ]])]
        >>> joined(columns, ["size", "kind"], "task.inputs", 8).parts
        [array([[1.5, 2. ],
               [2. , 1. ]])]
    """
    widest, column_categories, embedded = [0], [], []
    for number, name in enumerate(names):
        columns = [part[number] for part in parts]
        width = width_of(widths, name, columns[0], key_path)
        categories = _categories(columns, name, key_path, width is not None)
        column_categories.append(categories)
        if categories is not None and width is not None:
            embedded.append(Embedding(widest[-1], len(categories), width))
            widest.append(widest[-1] + 1)
        else:
            widest.append(
                widest[-1] + (len(categories) if categories is not None else int(np.prod(columns[0].shape[1:])))
            )
    kept = np.repeat([categories is not None for categories in column_categories], np.diff(widest))
    looked_up = {embedding.feature for embedding in embedded}
    dtype = np.float32 if all(map(_single, parts[0])) else np.float64
    features = []
    for part in parts:
        matrix = disk_cache.array((len(part[0]), widest[-1]), dtype)
        for first in range(0, len(matrix), _ROWS):
            rows = matrix[first : first + _ROWS]
            for column, categories, start, end in zip(part, column_categories, widest, widest[1:], strict=False):
                values = column[first : first + _ROWS]
                if categories is None:
                    rows[:, start:end] = values.reshape(len(values), -1)
                elif start in looked_up:
                    rows[:, start] = _numbers(categories, values)
                else:
                    rows[np.arange(len(values)), start + np.searchsorted(categories, values)] = 1
        features.append(matrix)
    return Features(features, kept, tuple(embedded))


def _numbers(categories: NDArray[Any], column: NDArray[Any]) -> NDArray[np.int64]:
    """The number of each value's category, from 1 on; 0 for values that are no category."""
    if np.result_type(categories, column).kind == "f":  # signed and unsigned, which floats would round
        categories, column = categories.astype(np.object_), column.astype(np.object_)
    places = np.searchsorted(categories, column).clip(max=len(categories) - 1)
    return np.where(categories[places] == column, places + 1, 0)


def _categories(columns: Sequence[NDArray[Any]], name: str, key_path: str, embedded: bool) -> NDArray[Any] | None:
    """The categories of a column, of the training examples alone if embedded; None for a column of numbers."""
    kinds = {column.dtype.kind == "U" for column in columns}
    if len(kinds) > 1:
        raise SpecError(
            f"{key_path}: column {shown(name)} must hold strings in all files or in none, got both", key_path
        )
    if not kinds.pop() and not embedded:
        return None
    if any(column.ndim > 1 for column in columns):
        alone = "give it alone" + (", without embeddings" if embedded else "")
        raise SpecError(f"{key_path}: column {shown(name)} must hold one string an example: {alone}", key_path)
    categories = np.unique(np.concatenate([different(column) for column in columns[: 1 if embedded else None]]))
    strings = categories.dtype.kind == "U"
    filled = [str(category) for category in categories if category] if strings else []
    if filled and all(map(_DATE.fullmatch, filled)):
        raise SpecError(
            f"{key_path}: column {shown(name)} must hold numbers or categories, got dates such as {shown(filled[0])}: "
            "leave it out, or store a number such as the days since a first day",
            key_path,
        )
    most = MOST_EMBEDDED if embedded else MOST_CATEGORIES
    if len(categories) > most:
        advice = ("leave it out of inputs" if embedded else "give it a width in embeddings, leave it out of inputs") + (
            ", or store numbers" if strings else " or of embeddings"
        )
        raise SpecError(
            f"{key_path}: column {shown(name)} must have at most {most} categories, got {len(categories)}, such as "
            f"{shown(categories[0].item())}: {advice}",
            key_path,
        )
    return categories


def _single(column: NDArray[Any]) -> bool:
    kind, size = column.dtype.kind, column.dtype.itemsize
    return kind in "bU" or (kind in "iu" and size <= _NARROW) or (kind == "f" and size <= np.float32().itemsize)
