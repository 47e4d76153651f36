"""The targets of a user's data: their kind, and the keys of a document that only one kind has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from trainers.data import class_labels
from trainers.data.federated import kinds_of
from trainers.data.partitions import Rows
from trainers.data.table import Classes, Labelling, Table
from trainers.data.tags import Tags
from trainers.data.words import OTHERS
from trainers.errors import SpecError
from trainers.hyperparameters import join
from trainers.values import shown

TableKind = Literal["classes", "numbers", "tags", "tokens", "pairs"]

TABLE_KINDS: tuple[TableKind, ...] = ("classes", "numbers", "tags", "tokens", "pairs")
KEYS_OF_TAGS = ("separator", "tags", "at")
_AT = {"tags": 5, "pairs": 10}  # the figures of Reddi and others 2021, and of Augenstein and others 2022


def kind_of(chosen: str | None, model: str, path: str) -> TableKind:
    """What the targets are: the first kind that the model learns, unless the document says another one."""
    learns = [kind for kind in TABLE_KINDS if kind in kinds_of(model)]
    for kind in learns:
        if chosen in (None, kind):
            return kind
    raise SpecError(f"{path} must be {' or '.join(learns)} for the model {model}, got kind={shown(chosen)}", path)


def refuse_keys_of_others(values: Mapping[str, Any], kind: str, path: str) -> None:
    """Raises a SpecError for a key that only another kind of targets has."""
    others = KEYS_OF_TAGS if kind != "pairs" else tuple(key for key in KEYS_OF_TAGS if key != "at")
    for key in ("classes",) if kind == "tags" else others:
        if values[key] is not None:
            key_path = join(path, key)
            advice = "give tags" if kind == "tags" else "they need kind: tags"
            raise SpecError(
                f"{key_path} must be left out for {kind}, got {key}={shown(values[key])}: {advice}", key_path
            )


def labelling(values: Mapping[str, Any], kind: str, path: str) -> Labelling:
    """What the document says about its classes or tags."""
    if kind in ("numbers", "tokens", "pairs"):
        return None
    labels = class_labels.checked(values["labels"], path)
    if kind == "classes":
        return Classes(labels, values["classes"])
    if values["separator"] == "":
        key_path = join(path, "separator")
        raise SpecError(f'{key_path} must be a string such as "|", got an empty one', key_path)
    return Tags(labels, values["tags"], values["separator"])


def at_of(at: int | None, outputs: int, kind: str, path: str) -> int:
    """The k of precision and recall at k."""
    if at is not None and at > outputs:
        key_path, what = join(path, "at"), "tags" if kind == "tags" else "items"
        raise SpecError(f"{key_path} must be at most {outputs}, the number of {what}, got at={at}", key_path)
    return min(_AT[kind], outputs) if at is None else at


def require_tags(table: Table, rows: Rows, test: Sequence[Rows], path: str) -> None:
    """Raises a SpecError if no training example, or no test example, has a tag: recall would have no value."""
    held_out = table.main if table.test is None else table.test
    parts = [("targets", table.main.targets[rows])]
    parts += [("test", held_out.targets[np.concatenate(test)])] if len(test) else []
    for key, targets in parts:
        if not targets.any():
            key_path = join(path, key)
            raise SpecError(f"{key_path} must have examples with tags, got none in {len(targets)} examples", key_path)


def require_words(table: Table, test: Sequence[Rows], path: str) -> None:
    """Raises a SpecError if no test example has a word that is known: accuracy would have no value."""
    held_out = table.main if table.test is None else table.test
    targets = held_out.targets[np.concatenate(test)]
    if not (targets >= OTHERS).any():
        key_path = join(path, "test")
        raise SpecError(f"{key_path} must have words that are known, got none in {len(targets)} texts", key_path)


def classes_of(table: Table, classes: int | None, path: str) -> int:
    """The number of classes: as given, else the largest class plus one.

    Args:
        table: the examples.
        classes: of the document; None finds it.
        path: dotted path of the task.

    Raises:
        SpecError: there are more classes than given, or only one.
    """
    parts = [part for part in (table.main, table.test, table.server, table.validation) if part is not None]
    largest = len(table.labels) - 1 if table.labels else max(int(part.targets.max()) for part in parts)
    if classes is not None:
        if largest >= classes:
            key_path = join(path, "classes")
            raise SpecError(f"{key_path} must be above the largest class, {largest}, got classes={classes}", key_path)
        return classes
    if not largest:
        key_path = join(path, "targets")
        raise SpecError(f"{key_path} must hold at least two classes, got one: give classes if there are more", key_path)
    return largest + 1
