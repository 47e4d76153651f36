"""Tags: any number of labels of an example, from lists, from text with a separator, or from a matrix of 0 and 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.class_labels import Labels
from trainers.data.partitions import Rows
from trainers.errors import SpecError
from trainers.hyperparameters import join
from trainers.values import shown

_MOST = 2**32  # examples x tags, one byte each


@dataclass(frozen=True, eq=False)
class TagLists:
    """The tags of examples.

    Args:
        values: tags of all examples, one example after the other, strings or whole numbers.
        counts: (examples,) number of tags of each.
        width: number of tags if they are the columns of a matrix; None if the values are their names.
    """

    values: NDArray[Any]
    counts: Rows
    width: int | None = None

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def shape(self) -> tuple[int, ...]:
        """(examples,), or (examples, tags) of a matrix."""
        return (len(self),) if self.width is None else (len(self), self.width)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the tags."""
        return self.values.dtype

    @classmethod
    def of_matrix(cls, matrix: NDArray[Any]) -> TagLists:
        """The columns of a matrix (examples, tags) that hold 1."""
        columns = np.nonzero(matrix)[1]
        return cls(columns, np.count_nonzero(matrix, axis=1).astype(np.int64), matrix.shape[1])

    @classmethod
    def of_texts(cls, texts: NDArray[Any], separator: str) -> TagLists:
        """The parts of each text, without spaces around them; an empty part is no tag."""
        split = [[part.strip() for part in text.split(separator) if part.strip()] for text in texts.tolist()]
        counts = np.array([len(parts) for parts in split], np.int64)
        return cls(np.array([part for parts in split for part in parts], np.str_), counts)


@dataclass(frozen=True)
class Tags:
    """What a document says about its tags.

    Args:
        labels: in the order of their numbers; None finds them in the data.
        most: how many to keep, the most frequent; None is all.
        separator: between the tags of a text; None if they come as lists or as a matrix.
    """

    labels: Labels | None = None
    most: int | None = None
    separator: str | None = None


def numbered(parts: Sequence[TagLists], settings: Tags, path: str) -> tuple[list[NDArray[np.bool_]], Labels | None]:
    """((examples, tags) of each part, True for tags of the example; the tags in the order of their numbers).

    The tags are None if they are the columns of a matrix. Without given labels, they are in ascending order, and `most`
    keeps the most frequent tags of the first part, ties in ascending order. With `most`, other tags are left out.

    Args:
        parts: training, then test examples.
        settings: what the document says.
        path: dotted path of the task.

    Raises:
        SpecError: there are no tags, too many, or one that is not among the given labels.

    Examples:
        >>> numbered([TagLists(np.array(["b", "a", "b"]), np.array([2, 0, 1]))], Tags(), "task")
        ([array([[ True,  True],
               [False, False],
               [False,  True]])], ('a', 'b'))
    """
    key_path = join(path, "targets")
    if not len(parts[0].values):
        raise SpecError(f"{key_path} must hold tags, got none in all {len(parts[0])} examples", key_path)
    width = parts[0].width
    labels: Labels | None = None
    if width is not None:
        if settings.labels is not None or settings.most is not None:
            key = "labels" if settings.labels is not None else "tags"
            raise SpecError(f"{join(path, key)} must be left out for a matrix, whose columns are the tags", path)
        tags = np.arange(width)
    else:
        tags = np.array(settings.labels) if settings.labels is not None else _kept(parts, settings.most)
        labels = tuple(tags.tolist())
    if sum(map(len, parts)) * len(tags) > _MOST:
        raise SpecError(
            f"{key_path}: examples x tags must be at most {_MOST}, got {sum(map(len, parts))} x {len(tags)}: "
            "give tags, the number of the most frequent ones to keep",
            key_path,
        )
    return [_matrix(part, tags, settings, path) for part in parts], labels


def _kept(parts: Sequence[TagLists], most: int | None) -> NDArray[Any]:
    if most is None:
        return np.unique(np.concatenate([np.unique(part.values) for part in parts if len(part.values)]))
    names, counts = np.unique(parts[0].values, return_counts=True)
    return np.sort(names[np.argsort(-counts, kind="stable")[:most]])


def _matrix(part: TagLists, tags: NDArray[Any], settings: Tags, path: str) -> NDArray[np.bool_]:
    matrix = np.zeros((len(part), len(tags)), np.bool_)
    if not len(part.values):
        return matrix
    if (part.values.dtype.kind == "U") != (tags.dtype.kind == "U"):
        key_path = join(path, "labels")
        raise SpecError(
            f"{key_path} must have every tag of the data, got none for {shown(part.values[0].item())}", key_path
        )
    order = np.argsort(tags)
    places = np.searchsorted(tags, part.values, sorter=order).clip(max=len(tags) - 1)
    numbers, rows = order[places], np.repeat(np.arange(len(part)), part.counts)
    matches = tags[numbers] == part.values
    if settings.most is None and not matches.all():
        key_path = join(path, "labels")
        missing = part.values[~matches][0].item()
        raise SpecError(f"{key_path} must have every tag of the data, got none for {shown(missing)}", key_path)
    matrix[rows[matches], numbers[matches]] = True
    return matrix
