"""Columns of a user's data: the checks that are the same for every format."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.class_labels import different, places
from trainers.data.embeddings import Widths
from trainers.data.format_contract import Columns, HasDates, HasLists, HasTexts
from trainers.data.histories import Histories, sortable
from trainers.data.partitions import Rows
from trainers.data.tags import TagLists
from trainers.data.words import Sentences, Words
from trainers.errors import SpecError
from trainers.spelling import hint
from trainers.target_kinds import Kind
from trainers.values import shown

_LARGEST = float(np.finfo(np.float32).max)
_LABELS = "fiubU"  # kinds of numpy types


@dataclass(frozen=True)
class Names:
    """Names of the columns of examples.

    Args:
        inputs: column of inputs; or columns, whose numbers and categories are one example's features.
        targets: column of classes or numbers.
        client: column with the client of each example; None without clients.
        client_optional: the data need not have the client column.
        mask: column that marks test examples; None without such a column.
        validation: column that marks examples for validation; None without such a column.
        groups: column with the group of each example's class; None without such a column.
        sequences: settings of inputs that are texts or items of histories; None if they are neither. The targets of
            sentences and histories are the next words or items.
        order: column that orders the rows of a client; None without one.
        embeddings: widths of the columns of categories that are embedded; None makes all one-hot.
    """

    inputs: str | tuple[str, ...]
    targets: str
    client: str | None = None
    client_optional: bool = False
    mask: str | None = None
    validation: str | None = None
    groups: str | None = None
    sequences: Words | Histories | None = None
    order: str | None = None
    embeddings: Widths = None

    @property
    def features(self) -> tuple[str, ...]:
        """The columns of inputs."""
        return (self.inputs,) if isinstance(self.inputs, str) else self.inputs

    @property
    def given(self) -> tuple[str, ...]:
        """All names."""
        others = (self.targets, self.client, self.mask, self.validation, self.groups, self.order)
        return tuple(name for name in (*self.features, *others) if name is not None)


@dataclass(frozen=True, eq=False)
class ColumnPart:
    """Training or test examples, column by column.

    Args:
        features: (examples, ...) each, finite numbers as in the data, or strings; or one column of texts.
        targets: (examples,) class labels, or (examples,) or (examples, outputs) finite numbers, or tags; or the texts.
        clients: (examples,) client ids, numbered in the order of the clients' names; None without a client column.
        people: names of the clients, in order; empty without a client column.
        order: (examples,) what orders the rows of a client; None without such a column.
    """

    features: tuple[NDArray[Any] | Sentences, ...]
    targets: NDArray[Any] | TagLists | Sentences
    clients: Rows | None
    people: NDArray[Any]
    order: NDArray[Any] | None = None


class ColumnReader:
    """Reads and checks columns.

    Args:
        columns: of a format.
        title: name of the file or folder, for errors.
    """

    def __init__(self, columns: Columns, title: str) -> None:
        self.columns, self.title = columns, title

    def part(
        self,
        names: Names,
        places: Mapping[str, str],
        kind: Kind,
        separator: str | None,
    ) -> ColumnPart:
        """The examples in these columns.

        Args:
            names: of the columns.
            places: "inputs", "targets", "client", "order" -> dotted path of the setting.
            kind: what the targets are.
            separator: between the tags of a text; None without one.

        Raises:
            SpecError: a column is missing or invalid.
        """
        single = isinstance(names.inputs, str)
        features: tuple[NDArray[Any] | Sentences, ...]
        if kind == "pairs":
            features = (self._plain(names.features[0], places["inputs"], "whole numbers or strings", "iuU"),)
        elif names.sequences is None:
            features = tuple(self._inputs(name, places["inputs"], 2 if single else 1) for name in names.features)
        else:
            features = (self._texts(names.features[0], places["inputs"]),)
        first = names.features[0]
        for name, column in zip(names.features, features, strict=True):
            _as_long(column, len(features[0]), name, first, places["inputs"])
        targets: NDArray[Any] | TagLists | Sentences
        if kind in ("tokens", "pairs"):
            targets = features[0]
        elif kind == "tags":
            targets = self._tags(names.targets, places["targets"], separator)
        else:
            targets = (self._classes if kind == "classes" else self._numbers)(names.targets, places["targets"])
        _as_long(targets, len(features[0]), names.targets, first, places["targets"])
        clients, people = None, np.zeros(0, "U1")
        if names.client is not None and (names.client in self.columns.names or not names.client_optional):
            people, clients = self._clients(names.client, places["client"])
            _as_long(clients, len(features[0]), names.client, first, places["client"])
        order = None
        if names.order is not None:
            order = self._order(names.order, places["order"])
            _as_long(order, len(features[0]), names.order, first, places["order"])
        return ColumnPart(features, targets, clients, people, order)

    def mask(self, name: str, examples: int, key_path: str) -> NDArray[np.bool_]:
        """(examples,) the column that marks examples for testing or validation.

        Raises:
            SpecError: the column is missing or invalid.
        """
        mask = self._array(name, key_path)
        if mask.ndim != 1 or not (mask.dtype.kind == "b" or (mask.dtype.kind in "iu" and np.isin(mask, (0, 1)).all())):
            raise _refusal(name, f"must be 1-D, true or false, got {_facts(mask)}", key_path)
        _as_long(mask, examples, name, "the inputs", key_path)
        mask = mask.astype(np.bool_)
        if mask.all() or not mask.any():
            which = "all" if mask.all() else "none"
            raise _refusal(name, f"must mark some examples, got {which} of them marked", key_path)
        return mask

    def groups(self, name: str, examples: int, key_path: str) -> Rows:
        """(examples,) the column with the groups of the classes, numbered in their order.

        Raises:
            SpecError: the column is missing or invalid.
        """
        array = self._array(name, key_path)
        if array.ndim != 1 or array.dtype.kind not in "iuU":
            rule = "must be 1-D, a whole number or string for each example"
            raise _refusal(name, f"{rule}, got {_facts(array)}", key_path)
        _as_long(array, examples, name, "the inputs", key_path)
        return ranked(array)[1]

    def _array(self, name: str, key_path: str, advice: str = "") -> NDArray[Any]:
        if name not in self.columns.names:
            suggestion = hint(name, self.columns.names)
            raise SpecError(f"{key_path}: no column {shown(name)} in {self.title}: {suggestion}{advice}", key_path)
        return self.columns.array(name, key_path)

    def _numeric(self, name: str, key_path: str, what: str, kinds: str = "fiub") -> NDArray[Any]:
        array = self._array(name, key_path)
        if array.dtype.kind not in kinds:
            raise _refusal(name, f"must hold {what}, got {_facts(array)}", key_path)
        if not array.size:
            raise _refusal(name, f"must hold examples, got {_facts(array)}", key_path)
        if array.dtype.kind == "f" and not np.isfinite((array.min(), array.max())).all():
            row = int(np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(1))[0])
            raise _refusal(name, f"must be finite, got NaN or infinity in row {row}", key_path)
        return array

    def _inputs(self, name: str, key_path: str, axes: int) -> NDArray[Any]:
        array = self._numeric(name, key_path, "numbers or strings", _LABELS)
        if array.dtype.kind == "U" and array.ndim:
            return array
        if array.ndim < axes:
            advice = f"reshape it to {(*array.shape, 1)}" + (f", or give the list [{name}]" if array.ndim else "")
            raise _refusal(
                name, f"must have an axis of examples and one of features, got {_facts(array)}: {advice}", key_path
            )
        return _small(array, name, key_path)

    def _numbers(self, name: str, key_path: str) -> NDArray[Any]:
        array = self._numeric(name, key_path, "numbers")
        if array.ndim not in (1, 2):
            shape = "(examples,) or (examples, outputs)"
            raise _refusal(name, f"must have shape {shape}, got {_facts(array)}", key_path)
        return _small(array, name, key_path)

    def _classes(self, name: str, key_path: str) -> NDArray[Any]:
        what = "whole numbers or strings, one for each class"
        array = self._numeric(name, key_path, what, _LABELS)
        if array.ndim != 1:
            raise _refusal(name, f"must be 1-D, got {_facts(array)}", key_path)
        if array.dtype.kind == "U":
            return array
        if array.dtype.kind == "f" and (array != np.floor(array)).any():
            value = float(array[array != np.floor(array)][0])
            raise _refusal(
                name, f'must hold {what}, got {value:g}: for numbers to predict, set model to "linear"', key_path
            )
        if max(-float(array.min()), float(array.max())) >= 2**63:
            value = float(array.max() if array.max() >= 2**63 else array.min())
            raise _refusal(name, f"must hold {what}, got {value:g}", key_path)
        return array.astype(np.int64, copy=False)

    def _tags(self, name: str, key_path: str, separator: str | None) -> TagLists:
        if isinstance(self.columns, HasLists) and name in self.columns.names:
            lists = self.columns.lists(name, key_path, separator)
            if lists is not None:
                return lists
        array = self._numeric(name, key_path, "tags", _LABELS)
        if array.dtype.kind == "U" and array.ndim == 1 and separator is None:
            key = f"{key_path.rpartition('.')[0]}.separator"
            raise SpecError(f'{key} must be given for a column of text, such as "|" for {shown("a|b")}: got none', key)
        if array.dtype.kind == "U" and array.ndim == 1 and separator is not None:
            return TagLists.of_texts(array, separator)
        if array.ndim == 2 and array.dtype.kind != "U" and np.isin(array, (0, 1)).all():
            return TagLists.of_matrix(array)
        if array.ndim == 1 and array.dtype.kind in "iu" and separator is not None:  # every text has one tag, a number
            return TagLists(array, np.ones(len(array), np.int64))
        raise _refusal(
            name,
            f"must hold lists of tags, text with a separator, or a matrix (examples, "
            f"tags) of 0 and 1, got {_facts(array)}",
            key_path,
        )

    def _plain(self, name: str, key_path: str, what: str, kinds: str) -> NDArray[Any]:
        array = self._numeric(name, key_path, what, kinds)
        if array.ndim != 1:
            raise _refusal(name, f"must be 1-D, got {_facts(array)}", key_path)
        return array

    def _order(self, name: str, key_path: str) -> NDArray[Any]:
        dates = None
        if isinstance(self.columns, HasDates) and name in self.columns.names:
            dates = self.columns.dates(name, key_path)
        order = self._plain(name, key_path, "numbers, dates or strings", "iufUM") if dates is None else dates
        return sortable(order, f"{key_path}: column {shown(name)}", key_path)

    def _texts(self, name: str, key_path: str) -> Sentences:
        if isinstance(self.columns, HasTexts) and name in self.columns.names:
            texts = self.columns.texts(name, key_path)
            if texts is not None:
                return Sentences.of(texts)
        array = self._numeric(name, key_path, "strings, for the key words", "U")
        if array.ndim not in (1, 2):
            raise _refusal(name, f"must hold a text an example, got {_facts(array)}", key_path)
        return Sentences.of(array.tolist())

    def _clients(self, name: str, key_path: str) -> tuple[NDArray[Any], Rows]:
        without = ' (without such a column, set client to null, partition to "iid" and clients to their number)'
        array = self._array(name, key_path, without)
        whole = array.dtype.kind != "f" or bool((np.isfinite(array) & (array == np.floor(array))).all())
        if array.ndim != 1 or array.dtype.kind not in "iufUSb" or not whole:
            raise _refusal(
                name,
                "must be 1-D, a whole number or string for each example, "
                f"got {_facts(array)}{'' if whole else ' with other numbers'}",
                key_path,
            )
        return ranked(array)


def ranked(values: NDArray[Any]) -> tuple[NDArray[Any], Rows]:
    """(distinct values in order, place of each value among them); little memory if the values are in order."""
    if len(values) == 0 or not (values[1:] >= values[:-1]).all():
        ordered = different(values)
        return ordered, places(values, ordered)
    first = np.append(True, values[1:] != values[:-1])
    numbers = np.cumsum(first, dtype=np.int64)
    numbers -= 1
    return np.array(values[first]), numbers


def _refusal(name: str, problem: str, key_path: str) -> SpecError:
    return SpecError(f"{key_path}: column {shown(name)} {problem}", key_path)


def _as_long(array: Sized, examples: int, name: str, reference: str, key_path: str) -> None:
    if len(array) != examples:
        raise _refusal(
            name,
            f"must have one row for each example of {reference}, got {len(array)} rows and {examples} examples",
            key_path,
        )


def _small(array: NDArray[Any], name: str, key_path: str) -> NDArray[Any]:
    largest = max(abs(float(array.min())), abs(float(array.max())))
    if largest > _LARGEST:
        raise _refusal(name, f"must stay below 3.4e38, got {largest:g}: scale it", key_path)
    return array


def _facts(array: NDArray[Any]) -> str:
    return f"{array.dtype} of shape {array.shape}"
