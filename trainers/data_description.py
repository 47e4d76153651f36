"""Describes a user's data: columns, clients, labels by client, probable mistakes, and a task for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import data_source
from trainers.data.column_advice import CLIENTS, advised, words_of
from trainers.data.column_choice import choose_columns
from trainers.data.format_contract import Columns, HasDates, HasLists, HasTexts
from trainers.data.table import Table
from trainers.data.table_cache import load
from trainers.data.table_sequences import NEXT
from trainers.data.table_task import TableTask
from trainers.errors import SpecError
from trainers.target_kinds import Kind
from trainers.tasks import data
from trainers.values import shown

_PATH = "task"
_LONGEST = 40  # characters of a text
_OWNED = 4  # examples of a client in the mean, at least, for a column to look like one of clients


@dataclass(frozen=True)
class ColumnFacts:
    """One column of the training examples.

    Args:
        name: of the column.
        what: what it holds, in words.
        first: the value of the first example, in words.
        strings: number of different strings; None if it does not hold one in each row.
    """

    name: str
    what: str
    first: str
    strings: int | None = None


@dataclass(frozen=True, eq=False)
class Description:
    """A user's data.

    Args:
        kind: kind of the targets.
        task: the task that trains on them, with the keys that differ from the defaults.
        format: name of the format.
        columns: of the training examples.
        sizes: (clients,) training examples of each client.
        people: names of the clients; empty if the examples are spread over clients at random.
        counts: (clients, classes or tags) training examples by label; (clients, 0) for other targets.
        labels: names of the classes or tags.
        test: number of test examples.
        notes: probable mistakes, one line each.
    """

    kind: Kind
    task: Mapping[str, Any]
    format: str
    columns: Sequence[ColumnFacts]
    sizes: NDArray[np.int64]
    people: Sequence[str]
    counts: NDArray[np.int64]
    labels: Sequence[str]
    test: int
    notes: Sequence[str]

    @property
    def skew(self) -> float | None:
        """Mean over the clients of the total variation distance of a client's labels from all; None without labels."""
        if not self.counts.size:
            return None
        shares = self.counts / self.counts.sum(1, keepdims=True).clip(min=1)  # a client may have no tags
        everybody = self.counts.sum(0) / self.counts.sum()
        return float(np.abs(shares - everybody).sum(1).mean() / 2)


def describe(path: str, keys: Mapping[str, Any]) -> Description:
    """Reads a user's data.

    Args:
        path: of a file or folder.
        keys: keys of the task that are given, such as {"targets": "label"}.

    Raises:
        SpecError: the first error: the data are damaged, or no task can be made of them.
    """
    source = data_source.find(path, keys.get("format", data_source.AUTO), _PATH)
    task: dict[str, Any] = {"name": "data", "path": path, **keys}
    advice = advised(source, keys, _PATH)
    task |= {key: value for key, value in advice.items() if key not in keys or key == "inputs"}
    client = task.get("client", "client")
    columns = source.names(_PATH)
    if columns and client not in columns and "client" not in task and "partition" not in keys:
        task |= {"partition": "iid", "clients": CLIENTS}
    if task.get("kind") not in NEXT:
        chosen = {"inputs": None, "targets": None, **task, "client": client}
        choose_columns(chosen, columns, (), _PATH)
        task |= {"inputs": chosen["inputs"], "targets": chosen["targets"]}
        if "model" not in keys and "kind" not in keys:
            task |= _kind(source, chosen["targets"])
    settings = data.parse(task, _PATH)
    unused = [name for name in columns if name not in settings.names.given] if "inputs" in advice else []
    table = load(settings.source, settings.names, settings.sides, settings.given, _PATH)
    if "scale" not in keys and settings.names.sequences is None and (scale := _scale(table)) != "none":
        task["scale"] = scale
        settings = data.parse(task, _PATH)
    return _described(task, settings, table, unused if "inputs" not in keys else [])


def _described(task: Mapping[str, Any], settings: TableTask, table: Table, unused: Sequence[str]) -> Description:
    parts = settings.parts
    classes, tagged = settings.classes or 0, settings.kind == "tags"
    if tagged:
        classes = settings.outputs
        counts = np.array([table.main.targets[rows].sum(0) for rows in parts])
    else:
        histograms = [np.bincount(table.main.targets[rows], minlength=classes) for rows in parts] if classes else []
        counts = np.array(histograms)
    natural = settings.document["partition"] == "natural" and table.main.clients is not None
    owners = [int(table.main.clients[rows[0]]) for rows in parts] if natural and table.main.clients is not None else []
    names = dict.fromkeys(
        (*settings.names.features, settings.names.targets, settings.names.client, settings.names.order)
    )
    columns = settings.source.reader((settings.names,), _PATH).columns
    labels = settings.document["labels"] or range(classes)
    facts = [
        _tag_facts(name, table.main.targets[0], labels)
        if tagged and name == settings.names.targets
        else _facts(columns, name)
        for name in names
        if name is not None and name in columns.names
    ]
    notes = list(settings.notes)
    if unused:
        notes.append(f"task.inputs: not used: {', '.join(unused)}; give inputs or targets for another task")
    if len(parts) == 1:
        notes.append("task: there is one client, so that no models are averaged")
    if not natural:
        owner = _likely_owner([column for column in facts if column.name in settings.names.features], settings.examples)
        advice = "" if owner is None else f"; if {owner} does, set client: {owner}"
        spread = f"so they are spread over {len(parts)} clients at random"
        notes.append(f"task.client: no column says whose an example is, {spread}{advice}")
    return Description(
        kind=settings.kind,
        task=task,
        format=settings.source.name,
        columns=facts,
        sizes=settings.examples,
        people=[str(table.main.people[owner]) for owner in owners],
        counts=counts.reshape(len(parts), classes),
        labels=[str(label) for label in labels],
        test=sum(len(rows) for rows in settings.test),
        notes=notes,
    )


def _kind(source: data_source.DataSource, targets: str) -> Mapping[str, str]:
    """Keys of the task that follow from the targets: tags if they are lists, a regression if some are fractions."""
    columns, key_path = source.format.read(source.path, (targets,), f"{_PATH}.path"), f"{_PATH}.targets"
    if targets not in columns.names:
        return {}  # `parse` reports the error
    try:
        lists = columns.lists(targets, key_path, None) if isinstance(columns, HasLists) else None
    except SpecError:
        lists = None  # numbers, or an error that `parse` reports
    if lists is not None and (lists.dtype.kind == "U" or len(np.unique(lists.counts)) > 1):
        return {"kind": "tags", "model": "logistic"}
    array = columns.array(targets, key_path)
    fractions = array.dtype.kind == "f" and bool((np.isfinite(array) & (array != np.floor(array))).any())
    return {"model": "linear"} if fractions else {}


def _scale(table: Table) -> str:
    """Bytes of images become [0, 1], other numbers are standardised; strings and one-hot columns stay."""
    inputs = table.main.inputs
    if table.tokens or (table.kept is not None and table.kept.all()):
        return "none"
    if inputs.ndim > 2:
        largest = float(inputs.max())
        return "unit" if inputs.dtype == np.uint8 or largest > 1 else "none"
    return "standardise"


def _likely_owner(columns: Sequence[ColumnFacts], sizes: NDArray[np.int64]) -> str | None:
    """The column with the most different strings, if each of them has `_OWNED` examples in the mean; None without one.

    Args:
        columns: those of inputs.
        sizes: of the clients, in examples.
    """
    most = int(sizes.sum()) / _OWNED
    strings = {column.strings: column.name for column in columns if column.strings and 1 < column.strings <= most}
    return strings[max(strings)] if strings else None


def _tag_facts(name: str, first: NDArray[np.bool_], labels: Sequence[Any]) -> ColumnFacts:
    tags = [labels[number] for number in np.flatnonzero(first).tolist()]
    return ColumnFacts(name, f"{len(labels)} different tags", shown(tags))


def _facts(columns: Columns, name: str) -> ColumnFacts:
    if isinstance(columns, HasDates) and columns.dates(name, _PATH) is not None:
        return ColumnFacts(name, "dates or times", "")
    if (words := words_of(columns, name, _PATH)) is not None:
        texts = columns.texts(name, _PATH) if isinstance(columns, HasTexts) else None
        first = next(iter(texts)) if texts is not None else columns.array(name, _PATH)[0]
        return ColumnFacts(name, f"texts of {words[0]:.1f} words in the mean", _cut(first))
    array = columns.array(name, _PATH)
    example = array[0]
    if array.dtype.kind not in "fiub":
        different = len(np.unique(array))
        first = shown(str(example) if not example.shape else example.tolist())
        return ColumnFacts(name, f"{different} different strings", first, None if example.shape else different)
    lowest, highest = f"{array.min():g}", f"{array.max():g}"
    shape = "" if array.ndim == 1 else " of " + " x ".join(map(str, array.shape[1:]))
    kind = "true or false" if array.dtype.kind == "b" else f"numbers{shape}, {lowest} to {highest}"
    first = f"{example:g}" if array.ndim == 1 else f"{example.reshape(-1)[0]:g} ..."
    return ColumnFacts(name, kind, first)


def _cut(text: str | Sequence[str]) -> str:
    """The beginning of a text, quoted."""
    whole = text if isinstance(text, str) else " ".join(text)
    return shown(whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]}...")
