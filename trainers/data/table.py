"""The examples of a user's data: inputs, targets and clients, fully checked before training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import class_labels, histories, tags, words
from trainers.data.class_labels import Labels
from trainers.data.columns import ColumnPart, Names
from trainers.data.data_source import DataSource
from trainers.data.embeddings import Embedding
from trainers.data.features import joined
from trainers.data.partitions import Rows
from trainers.data.tags import TagLists, Tags
from trainers.data.vocabulary import numbered
from trainers.data.words import Sentences
from trainers.errors import SpecError
from trainers.hyperparameters import join
from trainers.target_kinds import Kind
from trainers.values import shown


@dataclass(frozen=True, eq=False)
class TablePart:
    """Training or test examples.

    Args:
        inputs: (examples, ...) finite numbers as in the data.
        targets: (examples,) class numbers or numbers of items, or (examples,) or (examples, outputs) finite numbers, or
            (examples, tags) booleans, or (examples, context) tokens.
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
        server: examples of the server from a file of its own; None without one.
        validation: examples for validation from a file of their own; None without one.
        marked: (examples of main,) True for examples for validation; None without such a column.
        mask: (examples of main,) True for test examples; None without such a column.
        sha256: hash of the data.
        tokens: number of different tokens if inputs were strings, with those of `words`, or of items in histories; else
            0.
        labels: labels in the order of their class numbers, or tags in that of their numbers; None if labels are the
            numbers, or targets are numbers to predict.
        kept: (features,) True for features that no scale changes, one-hot ones and numbers of categories; None if
            inputs come from one column.
        embedded: features that are numbers of categories.
        groups: (examples of main,) group of the example's class; None without such a column.
        lowest: smallest number of the inputs of `main`.
        highest: largest number of the inputs of `main`.
        key: its name in the cache; None if it is not kept there.
    """

    main: TablePart
    test: TablePart | None
    mask: NDArray[np.bool_] | None
    sha256: str
    server: TablePart | None = None
    validation: TablePart | None = None
    marked: NDArray[np.bool_] | None = None
    tokens: int = 0
    labels: Labels | None = None
    kept: NDArray[np.bool_] | None = None
    embedded: tuple[Embedding, ...] = ()
    groups: Rows | None = None
    lowest: float = 0.0
    highest: float = 0.0
    key: str | None = None

    def side(self, name: str) -> TablePart:
        """The examples of a side that exists: "main", "test", "server" or "validation"."""
        sides = {"main": self.main, "test": self.test, "server": self.server, "validation": self.validation}
        part = sides[name]
        assert part is not None
        return part


@dataclass(frozen=True)
class Classes:
    """What a document says about its classes.

    Args:
        labels: in the order of the class numbers; None finds them in the data.
        count: number of classes; None finds it.
    """

    labels: Labels | None = None
    count: int | None = None


Labelling = Classes | Tags | None
"""What a document says about its classes or its tags; None if targets are numbers to predict."""


SideNames = tuple[tuple[str, Names], ...]
"""Sides of a table besides "main", and the names of their columns."""

_KEYS_OF_SIDES = {"test": "test", "server": "central", "validation": "validation"}


def read(source: DataSource, names: Names, sides: SideNames, labelling: Labelling, path: str) -> Table:
    """The checked examples of a data set.

    Args:
        source: the data.
        names: names of the columns.
        sides: names of the columns of other sides, in separate columns or other files.
        labelling: what the targets are.
        path: dotted path of the task.

    Raises:
        SpecError: the data has another format, or a column is missing or invalid.
    """
    kind: Kind = "numbers"
    if isinstance(names.sequences, histories.Histories):
        kind = "pairs"
    elif names.sequences is not None and names.sequences.context is not None:
        kind = "tokens"
    elif labelling is not None:
        kind = "classes" if isinstance(labelling, Classes) else "tags"
    separator = labelling.separator if isinstance(labelling, Tags) else None
    reader = source.reader((names, *(side_names for _, side_names in sides)), path)
    keys = ("inputs", "targets", "client", "order")
    column_parts = [reader.part(names, {key: join(path, key) for key in keys}, kind, separator)]
    mask = marked = None
    for side, side_names in sides:
        key_path = join(path, _KEYS_OF_SIDES[side])
        column_parts.append(reader.part(side_names, {key: join(key_path, key) for key in keys}, kind, separator))
        _require_alike(column_parts[0], column_parts[-1], path, key_path)
    if names.mask is not None:
        mask = reader.mask(names.mask, len(column_parts[0].targets), join(path, "test"))
    if names.validation is not None:
        marked = reader.mask(names.validation, len(column_parts[0].targets), join(path, "validation"))
    groups = None
    if names.groups is not None:
        groups = reader.groups(names.groups, len(column_parts[0].targets), join(path, "partition.groups"))
    vocabulary_size = 0
    if isinstance(names.sequences, histories.Histories):
        places = [join(path, key) for key in ("client", *(f"{_KEYS_OF_SIDES[side]}.client" for side, _ in sides))]
        column_parts, vocabulary_size, rows = _in_histories(column_parts, names.sequences, places, path)
        mask = None if mask is None else _mask_of(mask[rows], join(path, "test"))
        marked = None if marked is None else _mask_of(marked[rows], join(path, "validation"))
    elif names.sequences is not None:
        column_parts, vocabulary_size = _in_words(column_parts, names.sequences, path)
    inputs, tokens, kept, embedded = _inputs(column_parts, names, join(path, "inputs"))
    if names.embeddings is not None and not embedded:
        key_path = join(path, "embeddings")
        rule = 'be left out without columns of strings, or name columns, as in {"zip": 8}'
        raise SpecError(f"{key_path} must {rule}, got embeddings={shown(names.embeddings)}", key_path)
    targets, labels = _targets(column_parts, labelling, path)
    parts = [
        TablePart(part_inputs, part_targets, part.clients, part.people)
        for part_inputs, part_targets, part in zip(inputs, targets, column_parts, strict=True)
    ]
    by_side = dict(zip((side for side, _ in sides), parts[1:], strict=True))
    return Table(
        main=parts[0],
        test=by_side.get("test"),
        mask=mask,
        sha256=source.digest(),
        server=by_side.get("server"),
        validation=by_side.get("validation"),
        marked=marked,
        tokens=tokens or vocabulary_size,
        labels=labels,
        kept=kept,
        embedded=embedded,
        groups=groups,
        lowest=float(inputs[0].min()),
        highest=float(inputs[0].max()),
    )


def _targets(parts: list[ColumnPart], labelling: Labelling, path: str) -> tuple[Sequence[NDArray[Any]], Labels | None]:
    """(targets of each part, labels in the order of their numbers)."""
    if isinstance(labelling, Tags):
        return tags.numbered([part.targets for part in parts if isinstance(part.targets, TagLists)], labelling, path)
    arrays = [part.targets for part in parts if isinstance(part.targets, np.ndarray)]
    if labelling is None:
        return arrays, None
    return class_labels.numbered(arrays, labelling.labels, labelling.count, path)


def _require_alike(main: ColumnPart, test: ColumnPart, path: str, key_path: str) -> None:
    for main_column, test_column in zip(main.features, test.features, strict=True):
        if main_column.shape[1:] != test_column.shape[1:]:
            raise SpecError(
                f"{key_path}.inputs must have examples of shape {main_column.shape[1:]} as {path}.inputs has, "
                f"got {test_column.shape[1:]}",
                f"{key_path}.inputs",
            )
    if test.targets.shape[1:] != main.targets.shape[1:]:
        raise SpecError(
            f"{key_path}.targets must have as many numbers an example as {path}.targets, "
            f"got shapes {test.targets.shape} and {main.targets.shape}",
            f"{key_path}.targets",
        )
    pairs = [
        ("inputs", main_column.dtype, test_column.dtype)
        for main_column, test_column in zip(main.features, test.features, strict=True)
    ]
    for key, main_type, test_type in (*pairs, ("targets", main.targets.dtype, test.targets.dtype)):
        if (main_type.kind == "U") != (test_type.kind == "U"):
            raise SpecError(
                f"{key_path}.{key} must hold {main_type} as {path}.{key} does, got {test_type}", f"{key_path}.{key}"
            )


def _in_words(parts: list[ColumnPart], settings: words.Words, path: str) -> tuple[list[ColumnPart], int]:
    """(the parts with numbers in place of texts, number of different tokens; 0 for bags)."""
    texts = [column for part in parts for column in part.features if isinstance(column, Sentences)]
    encoded_parts = words.numbered(texts, settings, path)
    numbers = [
        replace(part, features=(encoded.inputs,), targets=part.targets if encoded.targets is None else encoded.targets)
        for part, encoded in zip(parts, encoded_parts, strict=True)
    ]
    if encoded_parts[0].targets is None:
        return numbers, 0
    return numbers, words.OTHERS + min(settings.count, len(texts[0].known))


def _in_histories(
    parts: list[ColumnPart], settings: histories.Histories, places: Sequence[str], path: str
) -> tuple[list[ColumnPart], int, Rows]:
    """(the parts with examples in place of rows, number of different items, row of each example of the first part)."""
    logs: list[histories.Log] = []
    for part, key_path in zip(parts, places, strict=True):
        if part.clients is None:
            raise SpecError(f"{key_path} must be a column for pairs, which are of a client's items, got none", key_path)
        logs.append(histories.Log(np.asarray(part.features[0]), part.clients, part.order))
    numbered_logs, count = histories.numbered(logs, settings, path)
    examples = [
        replace(
            part, features=(numbered_log.before,), targets=numbered_log.items, clients=log.clients[numbered_log.rows]
        )
        for part, log, numbered_log in zip(parts, logs, numbered_logs, strict=True)
    ]
    return examples, count, numbered_logs[0].rows


def _mask_of(mask: NDArray[np.bool_], key_path: str) -> NDArray[np.bool_]:
    """The mask of examples of histories, checked to mark some of them and not all."""
    if mask.all() or not mask.any():
        what = "all" if mask.all() else "none"
        raise SpecError(
            f"{key_path} must mark some items, and not clients' first alone, got {what} of others", key_path
        )
    return mask


def _inputs(
    parts: list[ColumnPart], names: Names, key_path: str
) -> tuple[list[NDArray[Any]], int, NDArray[np.bool_] | None, tuple[Embedding, ...]]:
    """(inputs of each part, number of different tokens of strings, `kept` and `embedded` of `Table`)."""
    features = [tuple(column for column in part.features if isinstance(column, np.ndarray)) for part in parts]
    if not isinstance(names.inputs, str):
        joined_features = joined(features, names.features, key_path, names.embeddings)
        return joined_features.parts, 0, joined_features.kept, joined_features.embedded
    columns = [arrays[0] for arrays in features]
    if columns[0].dtype.kind == "U":
        return *numbered(columns, key_path), None, ()
    return columns, 0, None, ()
