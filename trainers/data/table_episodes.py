"""Few-shot tasks from a user's data: their keys, the held-out classes, and the classes left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from trainers.data import episodes, partitions
from trainers.data.episodes import CLIENTS, Episodes
from trainers.data.partitions import ClientRows, Rows
from trainers.data.table import Table
from trainers.errors import SpecError
from trainers.hyperparameters import join
from trainers.values import shown

_TEST_FRACTION = 0.2


def asked(values: dict[str, Any], document: Mapping[str, Any], kind: str, path: str) -> Episodes | None:
    """The episodes that a document asks for, with the keys that they determine filled in; None without them.

    Raises:
        SpecError: the episodes are invalid, or another key conflicts with them.
    """
    key_path = join(path, "episodes")
    if values["episodes"] is None:
        return None
    if kind != "classes":
        raise SpecError(f"{key_path} must be left out for {kind}: tasks are made of classes", key_path)
    few_shot = episodes.checked(values["episodes"], key_path)
    nothing = (None,)
    kept = {"client": (None, "client"), "partition": ("natural",), "central": nothing, "validation": nothing}
    for key, allowed in kept.items():
        if key in document and values[key] not in allowed:
            refused_path = join(path, key)
            raise SpecError(
                f"{refused_path} must be left out beside episodes, whose clients are tasks, got {key}", refused_path
            )
    values["episodes"], values["client"] = few_shot.to_json(), None
    values["clients"] = values["clients"] or CLIENTS
    return few_shot


def split(values: dict[str, Any], table: Table, few_shot: Episodes, path: str) -> tuple[ClientRows, Sequence[Rows]]:
    """(rows of each training task, rows of each test task), of different classes.

    Args:
        values: checked values of the document; test_fraction is overwritten with its resolved value.
        table: the examples.
        few_shot: what a task is made of.
        path: dotted path of the task.

    Raises:
        SpecError: there are too few classes, or a class is on both sides.
    """
    episodes.require_room(few_shot, values["clients"], table.main.inputs.shape[1:], path)
    key_path, seed = join(path, "episodes"), values["split_seed"]
    labels, everything = table.main.targets, np.arange(len(table.main.targets))
    tested, train, test = labels, everything, everything[:0]
    if table.test is not None:
        tested, test = table.test.targets, np.arange(len(table.test.targets))
    elif table.mask is not None:
        train, test = everything[~table.mask], everything[table.mask]
    else:
        held_out = np.isin(labels, _classes(values, table, path))
        train, test = everything[~held_out], everything[held_out]
    if len(shared := np.intersect1d(labels[train], tested[test])):
        test_path = join(path, "test")
        raise SpecError(
            f"{test_path} must have other classes than training, got class {_named(table, int(shared[0]))}", test_path
        )
    own_seed, test_seed = episodes.seeds(seed)
    parts = episodes.draw(labels, train, few_shot, values["clients"], own_seed, key_path)
    if not len(test):
        return parts, ()
    return parts, episodes.draw(tested, test, few_shot, few_shot.test_clients, test_seed, join(path, "test"))


def notes(table: Table, few_shot: Episodes, path: str) -> Iterator[str]:
    """Notes on classes that have too few examples for a task."""
    sides = [("targets", table.main), *([] if table.test is None else [("test", table.test)])]
    for key, part in sides:
        if few := episodes.left_out(part.targets, np.arange(len(part.targets)), few_shot):
            yield (
                f"{join(path, key)}: {few} classes have fewer than shots + queries = {few_shot.each} examples: no task "
                "has them"
            )


def _classes(values: dict[str, Any], table: Table, path: str) -> Rows:
    """The class numbers to hold out, where one set holds all examples."""
    present = np.unique(table.main.targets)
    test, key_path = values["test"], join(path, "test")
    if test is not None:
        if "classes" not in test:
            raise SpecError(
                f'{key_path} must hold out classes beside episodes, as {{"classes": [..]}}, got test={shown(test)}',
                key_path,
            )
        key_path = join(key_path, "classes")
        labels = test["classes"]
        if not isinstance(labels, list | tuple) or not labels:
            raise SpecError(f"{key_path} must be a list of labels, got classes={shown(labels)}", key_path)
        numbers = {_label(table, int(number)): int(number) for number in present}
        for label in labels:
            if type(label) not in (str, int) or label not in numbers:
                raise SpecError(f"{key_path}: no class {shown(label)} in the data", key_path)
        return np.unique([numbers[label] for label in labels])
    fraction = values["test_fraction"]
    if fraction is None:
        fraction = values["test_fraction"] = _TEST_FRACTION
    return partitions.choose(present, round(fraction * len(present)), values["split_seed"])


def _label(table: Table, number: int) -> Any:
    return number if table.labels is None else table.labels[number]


def _named(table: Table, number: int) -> str:
    return shown(_label(table, number))
