"""Recognises logs of items and texts in columns that a document does not describe, and gives keys for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np

from trainers.data.column_choice import CLIENT, INPUTS, TARGETS
from trainers.data.data_source import DataSource
from trainers.data.format_contract import Columns, HasDates, HasTexts
from trainers.errors import SpecError
from trainers.hyperparameters import join

CLIENTS = 10
"""Number of clients of data without a client column."""

_PEOPLE = (CLIENT, "user", "userid", "person", "customer", "customerid", "visitor", "visitorid", "session", "sessionid")
_ITEMS = ("item", "movie", "film", "product", "book", "song", "track", "artist", "article", "video", "game", "page")
_TIMES = ("timestamp", "time", "date", "datetime", "at", "order")
_CONTEXT = {"pairs": 10, "tokens": 20}
_WORDS, _FEWEST = 10_000, 100  # words of the vocabulary, at most and, for bags, at least
_BAGS = 2**30  # bytes of bags of words, at most
_TEXT = 4  # mean number of words from which on strings are texts
_LONG_TEXT = 6  # mean number of words beside columns of other kinds: names and addresses are shorter
_HELD_OUT = 0.2  # of the people of a log
_LSTM = {"name": "lstm", "embedding": 32, "width": 64, "depth": 1}


def advised(source: DataSource, document: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Keys of a task for data that look like a log of items or like texts; {} for others.

    A log has a column named like people, one named like items, and no labels. Texts are strings of at least four words
    in the mean, or six if other columns than clients and labels hold no texts. Without a column of labels, the task is
    to predict each word from the words before it.

    Args:
        source: the data.
        document: keys of the task that are given, which are kept.
        path: dotted path of the task.

    Raises:
        SpecError: the data are damaged.
    """
    if document.keys() & {"kind", "model", "words", "episodes"}:
        return {}
    columns = source.names(path)
    target = document.get("targets") or next((name for name in TARGETS if name in columns), None)
    if target is None and (log := _log(columns, document)):
        return {**log, **({} if source.has_test else _held_out(source, log["client"], path))}
    if isinstance(document.get("inputs"), list) and len(document["inputs"]) > 1:
        return {}
    named = [document["inputs"]] if isinstance(document.get("inputs"), str) else document.get("inputs")
    if named is None and any(name in INPUTS and name != target for name in columns):
        return {}
    return _texts(source, columns, named, target, document.get("client", CLIENT), path)


def words_of(columns: Columns, name: str, key_path: str) -> tuple[float, int] | None:
    """(mean number of words, number of texts) of a column; None if it does not hold texts.

    Args:
        columns: of a format.
        name: of the column.
        key_path: dotted path of the setting that names it, for errors.
    """
    texts: Any = None
    if isinstance(columns, HasTexts):
        texts = columns.texts(name, key_path)
    else:
        array = columns.array(name, key_path)
        texts = array.tolist() if array.dtype.kind == "U" and array.ndim == 1 else None
    if texts is None:
        return None
    counts = [len(text.split() if isinstance(text, str) else text) for text in texts]
    return (mean(counts), len(counts)) if counts and mean(counts) >= _TEXT else None


def _log(columns: Sequence[str], document: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of a log of items; {} if the names of the columns do not suggest one."""
    person = document.get("client") or _first(columns, _PEOPLE)
    inputs = document.get("inputs")
    inputs = inputs[0] if isinstance(inputs, list) and len(inputs) == 1 else inputs
    items = [f"{item}{ending}" for item in _ITEMS for ending in ("id", "")]
    item = _first([name for name in columns if name != person], items) if inputs is None else inputs
    time = _first([name for name in columns if name not in (person, item)], _TIMES)
    if (
        not isinstance(item, str)
        or person not in columns
        or item not in columns
        or (inputs is not None and time is None)
    ):
        return {}
    order = {} if time is None else {"order": time}
    return {
        "kind": "pairs",
        "inputs": item,
        "client": person,
        **order,
        "context": _CONTEXT["pairs"],
        "model": "dual_encoder",
    }


def _held_out(source: DataSource, person: str, path: str) -> dict[str, Any]:
    """Holds people out for testing; {} if there are too few, so that items of each person are held out."""
    people = source.format.read(source.path, [person], join(path, "path")).array(person, join(path, "client"))
    return {"test": {"clients": _HELD_OUT}} if round(_HELD_OUT * len(np.unique(people))) else {}


def _texts(
    source: DataSource, columns: Sequence[str], named: Sequence[str] | None, target: str | None, client: str, path: str
) -> dict[str, Any]:
    """Keys for the column of texts with the most words an example; {} without texts."""
    key_path = join(path, "inputs")
    texts: dict[str, tuple[float, int]] = {}
    names = [name for name in named or columns if name not in (target, client)]
    if not set(names) <= set(columns):
        return {}
    read = source.format.read(source.path, names, join(path, "path"))
    for name in names:
        try:
            if isinstance(read, HasDates) and read.dates(name, key_path) is not None:
                continue
            words = words_of(read, name, key_path)
        except SpecError:
            continue  # which `parse` reports if the column is used
        if words is not None:
            texts[name] = words
    if not texts:
        return {}
    name = max(texts, key=lambda column: texts[column])
    if named is None and len(texts) < len(names) and texts[name][0] < _LONG_TEXT:
        return {}
    if target is None:
        return {
            "kind": "tokens",
            "inputs": name,
            "words": _WORDS,
            "context": _CONTEXT["tokens"],
            "model": dict(_LSTM),
        }
    return {"inputs": name, "words": max(_FEWEST, min(_WORDS, _BAGS // (4 * texts[name][1])))}


def _first(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """The column for the first of these names that one has, compared by letters alone and in lower case."""
    plain = {re.sub(r"[^a-z]", "", name.lower()): name for name in reversed(columns)}
    return next((plain[name] for name in names if name in plain), None)
