"""The task of a user's data in any format: its keys, its checks, its split and its problem."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trainers.data import partitions
from trainers.data.columns import Names, TablePart
from trainers.data.data_source import AUTO, DataSource, find, formats
from trainers.data.federated import (
    CLASSIFIED,
    PARTITION_DOC,
    Federated,
    FederatedKeys,
    Pool,
    choose_model,
    divide,
    examples,
    targets_of,
)
from trainers.data.folder import VARIABLE
from trainers.data.partitions import Rows
from trainers.data.table import Table, forget, load
from trainers.data.table_notes import class_notes, input_notes
from trainers.errors import MissingDataError, SpecError
from trainers.hyperparameters import check, join, tunable
from trainers.problem import WHOLE, Examples, Problem
from trainers.values import shown

_CLIENT = "client"
_TEST_FRACTION = 0.2
_SPARSE = 100  # largest number of classes without an example that is accepted without `classes`


@dataclass(frozen=True)
class TableKeys(FederatedKeys):
    """The keys of a document."""

    path: str = tunable(doc=f"the .npz file, from the current directory or ${VARIABLE}")
    inputs: str = tunable("x", doc="name of the array of inputs, (examples, ...)")
    targets: str = tunable("y", doc="name of the array of classes (or of numbers, for models of numbers)")
    kind: str | None = tunable(
        None, choices=("classes", "numbers"), doc="of the targets; null is what the model learns"
    )
    client: str | None = tunable(_CLIENT, doc="name of the array that says whose each example is")
    test: Any = tunable(None, kind="any", doc="name of a true/false array, or names of arrays as an object")
    test_fraction: float | None = tunable(
        None, low=0, high=1, high_open=True, doc="held out where no test is given; 0.2"
    )
    classes: int | None = tunable(None, low=2, doc="number of classes; null is 1 + the largest")
    sha256: str | None = tunable(None, doc="of the file; another file is refused")
    clients: int | None = tunable(None, low=1, unit="clients", doc="size of the population; null is the natural one")
    partition: Any = tunable("natural", kind="any", doc=PARTITION_DOC)


@dataclass(frozen=True)
class _HeldOutKeys:
    """Names of separate arrays for testing."""

    inputs: str = tunable(doc="name of the array of inputs")
    targets: str = tunable(doc="name of the array of targets")
    client: str | None = tunable(None, doc="name of the array that says whose each example is")


@dataclass(frozen=True, eq=False, kw_only=True)
class TableTask(Federated):
    """A checked task.

    Args:
        source: the data.
        names: names of the columns.
        test_names: names of separate columns for testing; None without them.
        classes: number of classes; None for a regression.
        sha256: hash of the data.
        path: dotted path of the task.
    """

    source: DataSource
    names: Names
    test_names: Names | None
    classes: int | None
    sha256: str
    path: str


def parse(document: Mapping[str, Any], path: str, keys: type[TableKeys]) -> TableTask:
    """The task that a document describes, with its split; reads and checks all of its data.

    Args:
        document: {"name": ..., "path": ..., ...}; the name is that of a format, or the format is a key.
        path: dotted path of the document, as "task".
        keys: the keys of the document.

    Raises:
        SpecError: unknown keys, wrong types or ranges, or columns that are missing or invalid.
        MissingDataError: there is no such file.
    """
    given = {key: value for key, value in document.items() if key != "name"}
    values = check(keys, given, path, known=("name",))
    model, model_settings, values["model"] = choose_model(values["model"], join(path, "model"), ("classes", "numbers"))
    kind = values["kind"] = _kind(values["kind"], model, join(path, "kind"))
    classified = kind == "classes"
    source = find(values["path"], _format(document), path)
    if "format" in values:
        values["format"] = source.name
    names, test_names = _names(values, source, path)
    table = load(source, names, test_names, classified, path)
    if values["sha256"] not in (None, table.sha256):
        place = join(path, "sha256")
        raise SpecError(f"{place} must be that of the file, {table.sha256}, got {shown(values['sha256'])}", place)
    values["sha256"] = table.sha256
    classes = values["classes"] = _classes(table, values["classes"], path) if classified else None
    labels = table.main.targets if classified else None
    owners = table.main.clients
    rows, test = _held_out(values, table, labels, path)
    parts, central = divide(values, Pool(labels, rows, owners, unnatural="data without a client column"), path)
    metrics = () if not test else CLASSIFIED if classified else CLASSIFIED[:1]
    notes = list(input_notes(table, model, join(path, "inputs")))
    if classes is not None:
        notes += class_notes(table, classes, rows, test, path)
    return TableTask(
        document={"name": document["name"], **values},
        model=model,
        model_settings={**({"vocabulary": table.tokens} if table.tokens else {}), **model_settings},
        parts=parts,
        test=test,
        central=central,
        metrics=metrics,
        shape=table.main.inputs.shape[1:],
        whole=table.main.inputs.dtype.kind in WHOLE,
        notes=tuple(notes),
        kind=kind,
        outputs=classes or math.prod(table.main.targets.shape[1:]),
        source=source,
        names=names,
        test_names=test_names,
        classes=classes,
        sha256=table.sha256,
        path=path,
    )


def stamp(document: Mapping[str, Any]) -> Hashable:
    """A value that changes when the document's data change; None if there are none.

    Args:
        document: {"name": ..., "path": ..., ...}, not checked yet.
    """
    try:
        return find(document["path"], _format(document), "").stamp()
    except (KeyError, TypeError, OSError, SpecError):  # which `parse` reports
        return None


def build(settings: TableTask, dtype: str) -> Problem:
    """The problem to train on; inputs have the same shape as in the file.

    Args:
        settings: from `parse`.
        dtype: type of inputs that are not whole numbers, "float32" or "float64".

    Raises:
        SpecError: the file has changed since `parse`.
    """
    classified, title = settings.classes is not None, settings.source.path.name
    try:
        table = load(settings.source, settings.names, settings.test_names, classified, settings.path)
    except OSError as error:
        raise MissingDataError(f"{settings.path}.path: no file {title} any more", settings.path) from error
    if table.sha256 != settings.sha256:
        raise SpecError(f"{settings.path}.path must not change, got another {title}: start again")
    held_out = table.main if table.test is None else table.test
    counts = {"classes": settings.classes} if classified else {}
    problem = Problem(
        model=settings.model,
        train=_examples(table.main, settings.parts, classified, dtype),
        test=_examples(held_out, settings.test, classified, dtype) if settings.test else None,
        central=None if settings.central is None else _examples(table.main, (settings.central,), classified, dtype),
        model_settings={**counts, **settings.model_settings},
    )
    forget(table)
    return problem


def _examples(part: TablePart, groups: Sequence[Rows], classified: bool, dtype: str) -> Examples:
    def inputs(rows: Rows) -> NDArray[Any]:
        chosen = part.inputs[rows]
        return chosen if chosen.dtype.kind in WHOLE else chosen.astype(dtype, copy=False)

    return examples(groups, inputs, part.targets, "classes" if classified else "numbers")


def _format(document: Mapping[str, Any]) -> Any:
    """The name of the format: that of the task, or the key, or `AUTO`."""
    return document["name"] if document["name"] in formats() else document.get("format", AUTO)


def _kind(given: str | None, model: str, path: str) -> Literal["classes", "numbers"]:
    """What the targets are: what the model learns; of a model that learns any, classes unless the document says so."""
    learns = targets_of(model)
    if given is not None and learns not in (given, "any"):
        raise SpecError(f"{path} must be {learns} for the model {model}, got kind={shown(given)}", path)
    return "numbers" if "numbers" in (given, learns) else "classes"


def _names(values: dict[str, Any], source: DataSource, path: str) -> tuple[Names, Names | None]:
    """Names of the columns, and of those for testing. A client column is required only if the partition needs it."""
    client, optional = values["client"], values["client"] == _CLIENT and values["partition"] != "natural"
    if values["test"] is None and source.format.has_test(source.path):
        own = {key: values[key] for key in ("inputs", "targets", "client") if values[key] is not None}
        values["test"] = {key: f"{name}_test" for key, name in own.items()}
    test, place = values["test"], join(path, "test")
    if test is not None and values["test_fraction"] is not None:
        raise SpecError(f"{path}.test_fraction must not be given beside test, got both: leave one out", place)
    if test is None or isinstance(test, str):
        return Names(values["inputs"], values["targets"], client, optional, test), None
    if not isinstance(test, Mapping):
        raise SpecError(f"{place} must be the name of an array or an object of names, got test={shown(test)}", place)
    values["test"] = check(_HeldOutKeys, test, place)
    return Names(values["inputs"], values["targets"], client, optional), Names(**values["test"])


def _classes(table: Table, given: int | None, path: str) -> int:
    parts = [table.main] if table.test is None else [table.main, table.test]
    largest = max(int(part.targets.max()) for part in parts)
    if given is not None:
        if largest >= given:
            place = join(path, "classes")
            raise SpecError(f"{place} must be above the largest class, {largest}, got classes={given}", place)
        return given
    place = join(path, "targets")
    different = len(np.unique(np.concatenate([np.unique(part.targets) for part in parts])))
    if different < 2:
        raise SpecError(f"{place} must hold at least two classes, got one: give classes if there are more", place)
    if largest + 1 > different + _SPARSE:
        raise SpecError(
            f"{place} must be numbered from 0 on, got {different} classes up to {largest}: number them anew, "
            "or give classes",
            place,
        )
    return largest + 1


def _held_out(values: dict[str, Any], table: Table, labels: Rows | None, path: str) -> tuple[Rows, Sequence[Rows]]:
    """(rows for training, rows of each test client)."""
    owners, everything = table.main.clients, np.arange(len(table.main.targets))
    if table.test is not None:
        return everything, _grouped(np.arange(len(table.test.targets)), table.test.clients)
    if table.mask is not None:
        return everything[~table.mask], _grouped(everything[table.mask], owners)
    fraction = values["test_fraction"]
    if fraction is None:
        fraction = values["test_fraction"] = _TEST_FRACTION
    if not fraction:
        return everything, ()
    seed = values["split_seed"]
    if values["partition"] == "natural" and owners is not None:
        test, rest = partitions.of_each(owners, fraction, seed)
    else:
        groups = np.zeros(len(everything), np.int64) if labels is None else labels
        test, rest = partitions.stratified(groups, fraction, seed)
    if not len(test) or not len(rest):
        place = join(path, "test_fraction")
        raise SpecError(
            f"{place} must set an example aside and leave one, got test_fraction={shown(fraction)} of "
            f"{len(everything)} examples (each client keeps at least one)",
            place,
        )
    return rest, _grouped(test, owners)


def _grouped(rows: Rows, owners: Rows | None) -> Sequence[Rows]:
    if owners is None:
        return (rows,)
    return partitions.natural(owners[rows]).within(rows)
