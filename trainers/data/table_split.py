"""Splits a user's examples into training examples and the examples of each test client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainers.data import partitions
from trainers.data.partitions import Rows, taken
from trainers.data.table import Table, TablePart
from trainers.errors import SpecError
from trainers.hyperparameters import join
from trainers.spelling import hint
from trainers.values import number, shown

_TEST_FRACTION = 0.2


def held_out_clients(
    values: dict[str, Any], table: Table, labels: Rows | None, path: str
) -> tuple[Rows, Sequence[Rows]]:
    """(rows for training, rows of each test client).

    Args:
        values: checked values of the document; test_fraction is overwritten with its resolved value.
        table: the examples.
        labels: (examples of table.main,) their classes; None for other targets.
        path: dotted path of the task.

    Raises:
        SpecError: no example would be left for training or for testing, or a named client does not exist.
    """
    owners, everything = table.main.clients, partitions.every_row(len(table.main.targets))
    if table.marked is not None:
        everything = everything[~table.marked]
    if table.test is not None:
        return everything, grouped(np.arange(len(table.test.targets)), table.test.clients)
    if table.mask is not None:
        if table.marked is not None and (table.mask & table.marked).any():
            key_path = join(path, "validation")
            raise SpecError(f"{key_path} must mark no test examples, got {(table.mask & table.marked).sum()}", key_path)
        tested = table.mask[everything]
        return everything[~tested], grouped(everything[tested], owners)
    if isinstance(values["test"], Mapping):
        people, key_path = np.arange(len(table.main.people)), join(path, "test.clients")
        chosen = chosen_clients(values["test"]["clients"], table.main, people, values["split_seed"], key_path)
        held_out = np.isin(taken(owners, everything), chosen) if owners is not None else everything < 0
        if not held_out.any():
            key_path = join(path, "validation")
            raise SpecError(f"{key_path} must leave a test example, got all of the clients of test", key_path)
        return everything[~held_out], grouped(everything[held_out], owners)
    fraction = values["test_fraction"]
    if fraction is None:
        fraction = values["test_fraction"] = _TEST_FRACTION
    if not fraction:
        return everything, ()
    seed = values["split_seed"]
    if values["partition"] == "natural" and owners is not None:
        test, rest = partitions.of_each(taken(owners, everything), fraction, seed)
    else:
        groups = np.zeros(len(everything), np.int64) if labels is None else taken(labels, everything)
        test, rest = partitions.stratified(groups, fraction, seed)
    if not len(test) or not len(rest):
        key_path = join(path, "test_fraction")
        raise SpecError(
            f"{key_path} must set an example aside and leave one, got test_fraction={shown(fraction)} of "
            f"{len(everything)} examples (each client keeps at least one)",
            key_path,
        )
    if table.marked is not None:
        test, rest = everything[test], everything[rest]
    return rest, grouped(test, owners)


def server_rows(values: Mapping[str, Any], table: Table, classified: bool, path: str) -> tuple[Rows, Rows | None]:
    """(rows of the server's own file for training, rows for testing or None).

    The share for testing is test_fraction, by default 0.2.

    Args:
        values: checked values of the document.
        table: the examples, with those of the server.
        classified: whether targets are classes.
        path: dotted path of the task.

    Raises:
        SpecError: nothing would be left for training.
    """
    assert table.server is not None
    targets = table.server.targets
    fraction = values["test_fraction"]
    fraction = _TEST_FRACTION if fraction is None else fraction
    groups = targets if classified else np.zeros(len(targets), np.int64)
    test, rest = partitions.stratified(groups, fraction, values["split_seed"] + 1)
    if not len(rest):
        key_path = join(path, "central.path")
        raise SpecError(f"{key_path} must leave the server an example to train on, got {len(targets)}", key_path)
    return rest, test if len(test) else None


def server_population(
    central: Mapping[str, Any] | None, table: Table, rows: Rows | None, test: Sequence[Rows]
) -> tuple[bool, ...]:
    """Whether the server has the training examples of each test client; () if unknown, or the same for all of them.

    Args:
        central: the checked value of the document.
        table: the examples.
        rows: rows of the server.
        test: rows of each test client.
    """
    tested = table.main if table.test is None else table.test
    if central is None or "clients" not in central or rows is None or table.main.clients is None:
        return ()
    if tested.clients is None:
        return ()
    people = set(map(str, table.main.people[np.unique(table.main.clients[rows])].tolist()))
    of_server = tuple(str(tested.people[tested.clients[client_rows[0]]]) in people for client_rows in test)
    return of_server if any(of_server) and not all(of_server) else ()


def chosen_clients(value: Any, part: TablePart, people: Rows, seed: int, key_path: str) -> Rows:
    """Client ids that a document sets aside: a random share, or clients by name.

    Args:
        value: the value in the document.
        part: the examples.
        people: client ids to choose from.
        seed: of the draw.
        key_path: dotted path of the value.

    Raises:
        SpecError: there is no client column, a named client does not exist, or none or all clients are set aside.
    """
    if part.clients is None:
        raise SpecError(
            f"{key_path} must be left out of data without a client column, got clients={shown(value)}", key_path
        )
    if isinstance(value, list | tuple):
        names = [str(name) for name in value]
        present = part.people[people].astype(str)
        for name in names:
            if name not in present:
                raise SpecError(f"{key_path}: no client {shown(name)}: {hint(name, present.tolist())}", key_path)
        chosen = people[np.isin(present, names)]
    else:
        fraction = number(value, key_path)
        if not 0 < fraction < 1:
            raise SpecError(f"{key_path} must be in (0, 1), or a list of names, got clients={shown(value)}", key_path)
        chosen = partitions.choose(people, round(fraction * len(people)), seed)
    if not 0 < len(chosen) < len(people):
        raise SpecError(
            f"{key_path} must set a client aside and leave one, got clients={shown(value)} of {len(people)}", key_path
        )
    return chosen


def grouped(rows: Rows, owners: Rows | None) -> Sequence[Rows]:
    """The rows of each client; of a single client without a client column.

    Args:
        rows: rows of the data.
        owners: (examples of the data,) client id of each; None without a client column.
    """
    if owners is None:
        return (rows,)
    return partitions.natural(owners[rows]).within(rows)
