"""Histories of items, such as the films that people watched: the next item of each, from those before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.partitions import Rows
from trainers.errors import SpecError
from trainers.hyperparameters import join


@dataclass(frozen=True)
class Histories:
    """What a document says about its histories.

    Args:
        context: items before the next one, the latest.
        order: column that orders the rows of a client; None is the order of the data.
    """

    context: int
    order: str | None = None


@dataclass(frozen=True, eq=False)
class Log:
    """Rows of items, in any order.

    Args:
        items: (rows,) names or numbers of items.
        clients: (rows,) client of each.
        order: (rows,) what orders the rows of a client; None is the order of the rows.
    """

    items: NDArray[Any]
    clients: Rows
    order: NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class NextItems:
    """Examples: an item and those before it.

    Args:
        before: (examples, context) numbers of items from 1 on, the latest last; 0 where there is none.
        items: (examples,) numbers of items, from 0 on.
        rows: (examples,) row of the log that each is about.
    """

    before: NDArray[np.int32]
    items: NDArray[np.int32]
    rows: Rows


def numbered(logs: Sequence[Log], given: Histories, path: str) -> tuple[list[NextItems], int]:
    """(the examples of each log, number of different items); the first item of each client is no example.

    Args:
        logs: of training, then of test.
        given: what the document says.
        path: dotted path of the task.

    Raises:
        SpecError: no client of a log has two items.

    Examples:
        >>> log = Log(np.array(["b", "a", "c", "a"]), np.array([0, 0, 0, 1]), np.array([2, 1, 3, 1]))
        >>> [examples], count = numbered([log], Histories(3), "task")
        >>> examples.before, examples.items, count
        (array([[0, 0, 1],
               [0, 1, 2]], dtype=int32), array([1, 2], dtype=int32), 3)
    """
    names = np.unique(np.concatenate([np.unique(log.items) for log in logs]))
    examples = [_of(log, np.searchsorted(names, log.items).astype(np.int32), given.context) for log in logs]
    if not all(len(one.rows) for one in examples):
        place = join(path, "inputs")
        raise SpecError(f"{place} must hold two items of a client, got one of each client", place)
    return examples, len(names)


def _of(log: Log, items: NDArray[np.int32], context: int) -> NextItems:
    keys = (log.clients,) if log.order is None else (log.order, log.clients)
    rows = np.lexsort(keys)  # stable: rows of equal order stay in theirs
    items, clients = items[rows], log.clients[rows]
    first = np.append(True, clients[1:] != clients[:-1])
    places = np.arange(len(rows)) - np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
    chosen = np.flatnonzero(places)
    before = np.zeros((len(chosen), context), np.int32)
    for back in range(1, context + 1):
        there = places[chosen] >= back
        before[there, context - back] = items[chosen[there] - back] + 1
    return NextItems(before, items[chosen], rows[chosen])
