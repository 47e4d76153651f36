"""Categories that a model learns a vector for, in place of one-hot features.

    "embeddings": 8                        of every column of strings
    "embeddings": {"city": 8, "job": 4}    of these columns; other columns of strings stay one-hot

A feature then holds the number of the example's category, from 1 on; the model has a table of vectors. Categories are
those of the training examples; any other category has the number 0, whose vector is zero.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.partitions import Rows
from trainers.errors import SpecError
from trainers.hyperparameters import join
from trainers.registry import models
from trainers.spelling import hint
from trainers.values import integer, shown

MOST_EMBEDDED = 2**20
"""Categories of a column; single precision holds their numbers exactly."""

Widths = int | tuple[tuple[str, int], ...] | None
"""Length of a vector: one for all columns of strings, or one for each column; None embeds no column."""

_WIDEST = 8192


@dataclass(frozen=True)
class Embedding:
    """A feature that is the number of a category.

    Args:
        feature: index of the feature.
        categories: number of categories.
        width: length of a category's vector.
    """

    feature: int
    categories: int
    width: int


def checked(value: Any, model: str, path: str) -> Widths:
    """The widths that a document asks for.

    Args:
        value: the value in the document.
        model: name of the model.
        path: dotted path of the value.

    Raises:
        SpecError: the value is neither a width nor an object of widths, or the model takes no categories.
    """
    if value is None:
        return None
    if not models()[model].EMBEDDINGS:
        alternatives = ", ".join(name for name in models() if models()[name].EMBEDDINGS)
        raise SpecError(
            f"{path} must be left out for the model {model}, which has no vectors: use {alternatives}", path
        )
    if not isinstance(value, Mapping):
        return _width(value, path)
    if not value or not all(isinstance(name, str) for name in value):
        raise SpecError(f'{path} must be a width, or widths by column such as {{"city": 8}}, got {shown(value)}', path)
    return tuple((name, _width(width, join(path, name))) for name, width in value.items())


def require_columns(widths: Widths, inputs: Sequence[str], path: str) -> None:
    """Raises a SpecError if a column with a width is not among the inputs."""
    for name, _ in widths if isinstance(widths, tuple) else ():
        if name not in inputs:
            raise SpecError(f"{path} must name columns of inputs, got {shown(name)}: {hint(name, inputs)}", path)


def width_of(widths: Widths, name: str, column: NDArray[Any], key_path: str) -> int | None:
    """The width of a column; None if it is not embedded.

    Raises:
        SpecError: a column with a width of its own has no categories.
    """
    if not isinstance(widths, tuple):
        return widths if column.dtype.kind == "U" else None
    width = dict(widths).get(name)
    if width is not None and (column.dtype.kind not in "Uiub" or column.ndim > 1):
        rule = "must hold a string or a whole number an example to have a width in embeddings"
        raise SpecError(
            f"{key_path}: column {shown(name)} {rule}, got {column.dtype} of shape {column.shape}", key_path
        )
    return width


class UnseenCategories:
    """Replaces the numbers of categories that no training example has by 0.

    Args:
        embedded: features that are numbers of categories.
        inputs: (examples, features).
        rows: rows of all training examples.
    """

    def __init__(self, embedded: Sequence[Embedding], inputs: NDArray[Any], rows: Rows) -> None:
        self._seen = {}
        for embedding in embedded:
            seen = np.zeros(embedding.categories + 1, np.bool_)
            seen[inputs[rows, embedding.feature].astype(np.int64)] = True
            if not seen[1:].all():
                self._seen[embedding.feature] = seen

    def __bool__(self) -> bool:
        return bool(self._seen)

    @property
    def digest(self) -> str:
        """A hash that identifies the replaced categories."""
        sha256 = hashlib.sha256()
        for feature, seen in self._seen.items():
            sha256.update(f"{feature} {np.flatnonzero(seen).tolist()}".encode())
        return sha256.hexdigest()

    def without(self, inputs: NDArray[Any]) -> NDArray[Any]:
        """Replaces numbers in inputs (examples, features) in place, and returns the inputs."""
        for feature, seen in self._seen.items():
            inputs[:, feature] *= seen[inputs[:, feature].astype(np.int64)]
        return inputs


def _width(value: Any, path: str) -> int:
    width = integer(value, path)
    if not 1 <= width <= _WIDEST:
        raise SpecError(f"{path} must be in [1, {_WIDEST}], got {shown(value)}", path)
    return width
