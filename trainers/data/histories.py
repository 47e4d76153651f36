"""Histories of items, such as the films that people watched: the next item of each, from those before it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.partitions import Rows
from trainers.errors import SpecError
from trainers.hyperparameters import join
from trainers.values import shown

_MOST = 2**32  # bytes of `NextItems.before`
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_UNSORTED = re.compile(
    r"(?<![\d./-])(\d{1,2}[-./]\d{1,2}[-./]\d\d|\d{1,2}[-/]\d{4}(?!\d))|\d ?[ap]\.?m(?![a-z])|"
    r"(?<![a-z])(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|"
    r"nov(ember)?|dec(ember)?)(?![a-z])",
    re.I,
)
"""Times whose strings do not sort in the order of time: with the year last, names of months, or am and pm."""
_FINER = re.compile(r"(?<=[.,]\d{6})\d+")
"""Digits of a fraction of a second below a microsecond, which `datetime` drops."""


@dataclass(frozen=True)
class Histories:
    """What a document says about its histories.

    Args:
        context: how many of the latest items before the next one are kept.
    """

    context: int


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
    """Examples: an item and the items before it.

    Args:
        before: (examples, context) numbers of items from 1 on, the latest last; 0 where there is none.
        items: (examples,) numbers of items, from 0 on.
        rows: (examples,) row of the log that holds the item.
    """

    before: NDArray[np.int32]
    items: NDArray[np.int32]
    rows: Rows


def numbered(logs: Sequence[Log], settings: Histories, path: str) -> tuple[list[NextItems], int]:
    """(the examples of each log, number of different items); the first item of each client is no example.

    Args:
        logs: of training, then of test.
        settings: what the document says.
        path: dotted path of the task.

    Raises:
        SpecError: no client of a log has two items, all items are the same, or the examples need too much memory.

    Examples:
        >>> log = Log(np.array(["b", "a", "c", "a"]), np.array([0, 0, 0, 1]), np.array([2, 1, 3, 1]))
        >>> [examples], count = numbered([log], Histories(3), "task")
        >>> examples.before, examples.items, count
        (array([[0, 0, 1],
               [0, 1, 2]], dtype=int32), array([1, 2], dtype=int32), 3)
    """
    key_path, rows = join(path, "inputs"), sum(len(log.items) for log in logs)
    if rows * settings.context * 4 > _MOST:
        most, key_path = _MOST // (4 * rows), join(path, "context")
        raise SpecError(
            f"{key_path} must be at most {most} for {rows} items, {_MOST // 2**30} GiB of numbers, got "
            f"context={settings.context}",
            key_path,
        )
    items = [log.items for log in logs]
    if np.result_type(*items).kind == "f":  # signed and unsigned whole numbers, which floats would round
        items = [log_items.astype(np.object_) for log_items in items]
    names = np.unique(np.concatenate([np.unique(log_items) for log_items in items]))
    examples = [
        _of(log, np.searchsorted(names, log_items).astype(np.int32), settings.context)
        for log, log_items in zip(logs, items, strict=True)
    ]
    if not all(len(log_examples.rows) for log_examples in examples):
        raise SpecError(f"{key_path} must hold two items of a client, got one of each client", key_path)
    if len(names) == 1:
        raise SpecError(f"{key_path} must hold two different items, got one", key_path)
    return examples, len(names)


def sortable(order: NDArray[Any], what: str, key_path: str) -> NDArray[Any]:
    """Values that sort as meant: numbers, numbers in place of dates, and strings whose order is that of their meaning.

    The strings 9 and 10 do not sort as meant, nor do 01/05/2024, 01-May-2024 or 09:00 PM.

    Args:
        order: (rows,) numbers, dates, or strings; strings that begin like dates of ISO 8601 are dates, with or
            without a time, its fractions and an offset from UTC.
        what: the column, for errors.
        key_path: dotted path of the setting that names it, for errors.

    Raises:
        SpecError: strings do not sort as meant, or dates are missing, invalid or have an offset in some rows only.

    Examples:
        >>> sortable(np.array(["2024-05-01T10:00:00+02:00", "2024-05-01T09:00:00Z"]), "order", "task.order").argsort()
        array([0, 1])
    """
    if order.dtype.kind == "M":
        if (missing := np.isnat(order)).any():
            raise SpecError(f"{what} must have a date in every row, got none in row {missing.argmax()}", key_path)
        return order.astype(np.int64)
    if order.dtype.kind != "U":
        return order
    if _DATE.match(str(order[0])):
        return _instants(order, what, key_path)
    lengths = np.char.str_len(order)
    odd = order[lengths != lengths[0]]
    if len(odd) or _UNSORTED.search(str(order[0])):
        got = " and ".join(shown(str(value)) for value in (order[0], *odd[:1]))
        rule = "numbers, dates such as 2024-01-31T10:00:00, or strings of one length that sort as meant"
        raise SpecError(f"{what} must hold {rule}, got {got}", key_path)
    return order


def _instants(texts: NDArray[np.str_], what: str, key_path: str) -> NDArray[np.int64]:
    """(rows,) rank of each instant among the distinct instants."""
    different, places = np.unique(texts, return_inverse=True)
    instants = []
    for text in different.tolist():
        finer = _FINER.search(text)
        try:
            instants.append((datetime.fromisoformat(text), finer.group().rstrip("0") if finer else ""))
        except ValueError as error:
            raise SpecError(
                f"{what} must hold dates of ISO 8601, as its first row does, got {shown(text)}", key_path
            ) from error
    zoned = [date.tzinfo is not None for date, _ in instants]
    if any(zoned) and not all(zoned):
        bare = different[zoned.index(False)]
        rule = "an offset from UTC in all rows or in none"
        raise SpecError(f"{what} must have {rule}, got {shown(str(bare))} beside others", key_path)
    numbers = {instant: number for number, instant in enumerate(sorted(set(instants)))}
    return np.array([numbers[instant] for instant in instants], np.int64)[places]


def _of(log: Log, items: NDArray[np.int32], context: int) -> NextItems:
    keys = (log.clients,) if log.order is None else (log.order, log.clients)
    rows = np.lexsort(keys)  # stable: rows of equal order stay in theirs
    items, clients = items[rows], log.clients[rows]
    first = np.append(True, clients[1:] != clients[:-1])
    places = np.arange(len(rows)) - np.maximum.accumulate(np.where(first, np.arange(len(rows)), 0))
    chosen = np.flatnonzero(places)
    before = np.zeros((len(chosen), context), np.int32)
    for back in range(1, min(context, int(places.max())) + 1):
        has_item = places[chosen] >= back
        before[has_item, context - back] = items[chosen[has_item] - back] + 1
    return NextItems(before, items[chosen], rows[chosen])
