"""Your own data, without code: arrays in an .npz file, one of which names the client of each example.

    {"name": "npz", "path": "mine.npz", "inputs": "x", "targets": "y", "client": "client", "model": "softmax"}

    numpy.savez("mine.npz", x=inputs, y=labels, client=names)

`inputs` names an array (examples, ...) of numbers, which are used unscaled; a model of word ids gets whole numbers.
`targets` names class numbers (examples,) from 0 on, or, for "linear" and other models of numbers, numbers (examples,)
or (examples, outputs). `client` names whole numbers or strings (examples,).

Test examples are those that a true/false array marks, `"test": "is_test"`; or separate arrays,
`"test": {"inputs": "x_test", "targets": "y_test", "client": "client_test"}` (client is optional); otherwise
`test_fraction`, 0.2 by default, of each client's examples (of each class if the partition is not natural).

The default is the natural partition, with one client for each value in the client array. The others are as in the task
digits (a regression has "iid" only), and need no client array if `clients` is given. A relative path is looked up in
the current directory, then in $DATA_DIR. If `sha256` is given, a file with another hash is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import partitions
from trainers.data.federated import (
    CLASSIFIED,
    PARTITION_DOC,
    Federated,
    FederatedKeys,
    Pool,
    choose_model,
    divide,
    examples,
    settings_of,
    targets_of,
)
from trainers.data.folder import VARIABLE, locate
from trainers.data.partitions import Rows
from trainers.data.table import Names, Table, TablePart, forget, load
from trainers.errors import MissingDataError, SpecError
from trainers.hyperparameters import check, join, tunable
from trainers.problem import WHOLE, Problem
from trainers.registry import models
from trainers.values import shown

__all__ = ["Settings"]

DTYPE = "float32"
BATCHING = "shuffled"
METRICS = ("test_loss", "test_accuracy")
_CLIENT = "client"
_TEST_FRACTION = 0.2
_SPARSE = 100  # largest number of classes without an example that is accepted without `classes`


_IMAGE_AXES = 4  # axes
_SHOWN = 5  # classes in a note
_HALF_BYTE, _BYTE = 128, 255
_SMALL = 10  # images of whole numbers up to this, such as one-hot planes, are scaled
_LOOKED_AT = 1000  # examples


@dataclass(frozen=True)
class _ArrayKeys(FederatedKeys):
    """The keys of a document."""

    path: str = tunable(doc=f"the .npz file, from the current directory or ${VARIABLE}")
    inputs: str = tunable("x", doc="name of the array of inputs, (examples, ...)")
    targets: str = tunable("y", doc="name of the array of classes (or of numbers, for models of numbers)")
    client: str | None = tunable(_CLIENT, doc="name of the array that says whose each example is")
    test: Any = tunable(None, kind="any", doc="name of a true/false array, or names of arrays as an object")
    test_fraction: float | None = tunable(
        None, low=0, high=1, high_open=True, doc="held out where no test is given; 0.2"
    )
    classes: int | None = tunable(None, low=2, doc="number of classes; null is 1 + the largest")
    sha256: str | None = tunable(None, doc="of the file; another file is refused")
    clients: int | None = tunable(None, low=1, unit="clients", doc="size of the population; null is the natural one")
    partition: Any = tunable("natural", kind="any", doc=PARTITION_DOC)


SETTINGS = settings_of(_ArrayKeys)


@dataclass(frozen=True)
class _HeldOutKeys:
    """Names of separate arrays for testing."""

    inputs: str = tunable(doc="name of the array of inputs")
    targets: str = tunable(doc="name of the array of targets")
    client: str | None = tunable(None, doc="name of the array that says whose each example is")


@dataclass(frozen=True, eq=False, kw_only=True)
class Settings(Federated):
    """A checked task.

    Args:
        file: absolute path.
        names: names of the arrays.
        test_names: names of separate arrays for testing; None without them.
        classes: number of classes; None for a regression.
        sha256: hash of the file.
        path: dotted path of the task.
    """

    file: Path
    names: Names
    test_names: Names | None
    classes: int | None
    sha256: str
    path: str


def parse(document: Mapping[str, Any], path: str) -> Settings:
    """The task that a document describes, with its split; reads and checks all of its data.

    Args:
        document: {"name": "npz", "path": ..., ...}.
        path: dotted path of the document, as "task".

    Raises:
        SpecError: unknown keys, wrong types or ranges, or arrays that are missing or invalid.
        MissingDataError: there is no such file.
    """
    given = {key: value for key, value in document.items() if key != "name"}
    values = check(_ArrayKeys, given, path, known=("name",))
    model, model_settings, values["model"] = choose_model(values["model"], join(path, "model"), ("classes", "numbers"))
    classified = targets_of(model) == "classes"
    file = _file(values["path"], join(path, "path"))
    names, test_names = _names(values, path)
    table = load(file, names, test_names, classified, path)
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
    notes = list(_scale_notes(table.main, model, join(path, "inputs")))
    if classes is not None:
        notes += _class_notes(table, classes, rows, test, path)
    return Settings(
        document={"name": "npz", **values},
        model=model,
        model_settings=model_settings,
        parts=parts,
        test=test,
        central=central,
        metrics=metrics,
        shape=table.main.inputs.shape[1:],
        whole=table.main.inputs.dtype.kind in WHOLE,
        notes=tuple(notes),
        outputs=classes or math.prod(table.main.targets.shape[1:]),
        file=file,
        names=names,
        test_names=test_names,
        classes=classes,
        sha256=table.sha256,
        path=path,
    )


def stamp(document: Mapping[str, Any]) -> Any:
    """A value that changes when the document's file changes; None if there is no file.

    Args:
        document: {"name": "npz", ...}, not checked yet.
    """
    name = document.get("path")
    file = locate(name) if isinstance(name, str) else None
    return None if file is None else (str(file), file.stat().st_mtime_ns, file.stat().st_size)


def build(settings: Settings, dtype: str) -> Problem:
    """The problem to train on; inputs have the same shape as in the file.

    Args:
        settings: from `parse`.
        dtype: type of inputs that are not whole numbers, "float32" or "float64".

    Raises:
        SpecError: the file has changed since `parse`.
    """
    classified = settings.classes is not None
    try:
        table = load(settings.file, settings.names, settings.test_names, classified, settings.path)
    except OSError as error:
        raise MissingDataError(f"{settings.path}.path: no file {settings.file.name} any more", settings.path) from error
    if table.sha256 != settings.sha256:
        raise SpecError(f"{settings.path}.path must not change, got another {settings.file.name}: start again")
    held_out = table.main if table.test is None else table.test
    counts = {"classes": settings.classes} if classified else {}
    problem = Problem(
        model=settings.model,
        train=_examples(table.main, settings.parts, dtype),
        test=_examples(held_out, settings.test, dtype) if settings.test else None,
        central=None if settings.central is None else _examples(table.main, (settings.central,), dtype),
        model_settings={**counts, **settings.model_settings},
    )
    forget(table)
    return problem


def _examples(part: TablePart, groups: Sequence[Rows], dtype: str) -> Any:
    def inputs(rows: Rows) -> NDArray[Any]:
        chosen = part.inputs[rows]
        return chosen if chosen.dtype.kind in WHOLE else chosen.astype(dtype, copy=False)

    return examples(groups, inputs, part.targets)


def _file(name: str, place: str) -> Path:
    file = locate(name)
    if file is None:
        where = "" if Path(name).is_absolute() else f" in the current directory or in ${VARIABLE}"
        advice = f"give its path or set {VARIABLE}; a service looks on its own computer"
        raise MissingDataError(f"{place}: no file {shown(name)}{where}: {advice}", place)
    return file


def _names(values: dict[str, Any], path: str) -> tuple[Names, Names | None]:
    """Names of the arrays, and of those for testing. A client array is required only if the partition needs it."""
    test, place = values["test"], join(path, "test")
    if test is not None and values["test_fraction"] is not None:
        raise SpecError(f"{path}.test_fraction must not be given beside test, got both: leave one out", place)
    client, optional = values["client"], values["client"] == _CLIENT and values["partition"] != "natural"
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


def _class_notes(table: Table, classes: int, rows: Rows, test: Sequence[Rows], path: str) -> Iterator[str]:
    """What is probably not meant about the classes: some have no example, or none to learn from."""
    held_out = table.main if table.test is None else table.test
    tested = np.unique(held_out.targets[np.concatenate(test)]) if len(test) else np.zeros(0, np.int64)
    trained = np.unique(table.main.targets[rows])
    everywhere = np.union1d(trained, tested)
    empty = classes - len(everywhere)
    if empty:
        first = int(everywhere[0])
        why = f"the classes begin at {first}" if first else f"{len(everywhere)} of {classes} classes have examples"
        named = np.setdiff1d(np.arange(min(classes, len(everywhere) + _SHOWN)), everywhere)  # the first empty ones
        which = _listed(named, empty)
        yield f"{join(path, 'targets')}: {why}: no example of class {which}; number them from 0 without gaps"
    unseen = np.setdiff1d(tested, trained)
    if len(unseen):
        yield f"{join(path, 'test')}: class {_listed(unseen, len(unseen))} is tested and never trained"


def _listed(first: Rows, count: int) -> str:
    """The first few of `count` classes by number."""
    more = "" if count <= _SHOWN else f" and {count - _SHOWN} more"
    return ", ".join(map(str, first[:_SHOWN].tolist())) + more


def _scale_notes(part: TablePart, model: str, place: str) -> Iterator[str]:
    """A note on images whose numbers are 0 to 255 (or to another whole number), which no model scales."""
    inputs = part.inputs
    built_in = models().built_in(model)  # another model may take word ids
    images = inputs.ndim > 2 if built_in else inputs.ndim == _IMAGE_AXES
    if not (images or built_in) or inputs.min() < 0:
        return
    largest = float(inputs.max())
    of_bytes = _HALF_BYTE <= largest <= _BYTE
    if (of_bytes or (images and largest > _SMALL)) and bool((inputs[:_LOOKED_AT] % 1 == 0).all()):
        what, end = "images" if images else "inputs", _BYTE if of_bytes else largest
        yield f"{place}: {what} are whole numbers in 0..{end:g}, which no model scales: divide them by {end:g}"


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
