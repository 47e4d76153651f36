"""Splits examples among clients, by the settings that all tasks of labelled examples share.

A task reads its data and chooses the rows for training; `divide` distributes them in the same way for all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import central_choice, partition_choice, partitions, validation_split
from trainers.data.partition_choice import FORMS
from trainers.data.partitions import ClientRows, Rows, taken
from trainers.errors import SpecError
from trainers.hyperparameters import check, describe, join, tunable
from trainers.problem import Examples, Problem
from trainers.registry import model_named, models
from trainers.target_kinds import KINDS, Kind, validating
from trainers.values import shown, step

CLASSIFIED = KINDS["classes"].metrics
PARTITION_DOC = f"how examples are spread over clients: natural, {FORMS}"


@dataclass(frozen=True)
class FederatedKeys:
    """Keys of the documents of all tasks of labelled examples; a task adds its own."""

    clients: int | None = tunable(50, low=1, unit="clients", doc="size of the population")
    partition: Any = tunable("iid", kind="any", doc=f"how examples are spread over clients: {FORMS}")
    split_seed: int = tunable(0, low=0, doc="of everything drawn to make the split")
    central: Any = tunable(None, kind="any", doc=central_choice.DOC)
    validation: float | None = tunable(
        None, low=0, low_open=True, high=1, high_open=True, doc="share of each client's examples, to choose by"
    )
    model: Any = tunable("softmax", kind="any", doc="name of a model, or an object of its name and settings")


@dataclass(frozen=True, eq=False)
class Federated:
    """A checked and split task of examples, as its `parse` returns it.

    Args:
        document: the task with all defaults filled in, JSON-compatible.
        model: name of the model in trainers/models.
        model_settings: settings of the model in the document.
        parts: rows of each client.
        test: rows of each test client; none if nothing is held out.
        central: rows of the server; None if it has none.
        metrics: metrics of an evaluation.
        shape: shape of the inputs of one example; None if unknown.
        outputs: number of classes or tags, or of numbers to predict for one example.
        whole: whether the inputs are whole numbers, such as word ids.
        tokens: number of tokens to predict for an example; 0 for other targets.
        kind: what the targets are.
        notes: probable mistakes in the data, one line each, beginning with the dotted path.
        apart: whether each test client is of the server's population; () if populations are not told apart.
        aside: validation rows that the document names, for each client that has some; no client of `parts` has them.
            None draws the share that the document gives.

    Attributes:
        validation: validation rows of each client that has some; no client of `parts` keeps them. None if `document`
            asks for none.
    """

    document: Mapping[str, Any]
    model: str
    model_settings: Mapping[str, Any]
    parts: Sequence[Rows]
    test: Sequence[Rows]
    central: Rows | None
    metrics: tuple[str, ...] = CLASSIFIED
    shape: tuple[int, ...] | None = None
    outputs: int = 0
    whole: bool = False
    tokens: int = 0
    kind: Kind = "classes"
    notes: tuple[str, ...] = ()
    apart: tuple[bool, ...] = ()
    aside: Sequence[Rows] | None = None
    validation: Sequence[Rows] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        plain = self.metrics
        if plain and (self.central_classes or self.apart):
            object.__setattr__(self, "metrics", (*plain, *KINDS[self.kind].metrics_apart))
        if self.document.get("validation") is None:
            document = {key: value for key, value in self.document.items() if key != "validation"}
            object.__setattr__(self, "document", document)
            return
        validation_split.require_tests(len(self.test))
        parts, rows = self.parts, self.aside
        if rows is None:
            parts, rows = validation_split.set_aside(self.parts, self.document)
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "validation", rows)
        object.__setattr__(self, "metrics", (*map(validating, plain), *self.metrics))

    @cached_property
    def central_classes(self) -> tuple[int, ...]:
        """Class numbers that only the server has."""
        return central_choice.class_numbers(self.document)

    @property
    def clients(self) -> int:
        """Size of the population."""
        return len(self.parts)

    @property
    def dimension(self) -> None:
        """None: the model decides."""

    @property
    def smoothness(self) -> None:
        """None: not known."""

    @property
    def examples(self) -> NDArray[np.int64]:
        """Number of training examples of each client, (clients,)."""
        return ClientRows.of(self.parts).sizes


@dataclass(frozen=True)
class Pool:
    """The examples of a task, before they are split.

    Args:
        labels: (examples,) class of every example; None for a regression.
        rows: rows for training.
        owners: (examples,) natural client of every example; None without natural clients.
        unnatural: why there are no natural clients, as in "must not be natural for digits, whose writers are not
            recorded".
        names: labels in the order of their class numbers; None if the numbers are the labels.
        people: names of the natural clients, by their numbers; None if the numbers are the names.
        server: rows of the server that are not among `rows`; None lets the document choose from `rows`.
    """

    labels: Rows | None
    rows: Rows
    owners: NDArray[Any] | None = None
    unnatural: str = ""
    names: Sequence[Any] | None = None
    people: Sequence[Any] | None = None
    server: Rows | None = None


def divide(values: dict[str, Any], pool: Pool, path: str) -> tuple[ClientRows, Rows | None]:
    """(rows of each client, rows of the server or None), by the settings of `FederatedKeys`.

    `central_choice` says what the server gets. If `clients` is None, there are as many clients as natural ones.

    Args:
        values: checked values of `FederatedKeys`; clients, partition and central are overwritten with their resolved
            values.
        pool: the examples.
        path: dotted path of the task.

    Raises:
        SpecError: the partition is invalid, impossible, or not available for these examples.
    """
    partition = values["partition"] = partition_choice.checked(
        values["partition"],
        None if pool.labels is None else _labels(pool),
        pool.owners is not None,
        pool.unnatural,
        join(path, "partition"),
    )
    central, rows = pool.server, pool.rows
    if central is None:
        values["central"] = central_choice.checked(values["central"], join(path, "central"))
    if central is None and values["central"] is not None:
        server = central_choice.taken(
            values["central"],
            len(rows),
            None if pool.labels is None else _labels(pool),
            None if pool.owners is None else taken(pool.owners, rows),
            partition == "natural",
            pool.names,
            values["split_seed"] + 1,
            join(path, "central"),
            pool.people,
        )
        central, rows = rows[server], rows[~server]
    clients = _clients(values, replace(pool, rows=rows), path)
    if partition == "natural":
        assert pool.owners is not None
        return partitions.natural(taken(pool.owners, rows)).within(rows), central
    labels = np.zeros(len(rows), np.int64) if pool.labels is None else taken(pool.labels, rows)
    try:
        parts = partition_choice.spread(partition, labels, clients, values["split_seed"])
    except ValueError as error:
        about = "clients" if str(error).startswith("clients ") else "partition"
        text = str(error) if about == "clients" else f"partition.{error}"
        raise SpecError(f"{path}.{text}", join(path, about)) from error
    return ClientRows.of(parts).within(rows), central


def choose_model(value: Any, path: str, targets: Sequence[Kind] = ("classes",)) -> tuple[str, dict[str, Any], Any]:
    """The model that a document names: a name, or {"name": ..., settings} for a model with settings.

    Args:
        value: the value from the document.
        path: dotted path of the model, as "task.model".
        targets: kinds of targets that the task has.

    Returns:
        (name, settings with defaults filled in, value for the canonical document).

    Raises:
        SpecError: the model is unknown, its settings are invalid, or it learns other targets.
    """
    keys = dict(value) if isinstance(value, Mapping) else {}
    name = model_named(value)
    if name is None and isinstance(value, Mapping):
        raise SpecError(f"{join(path, 'name')} must be given: one of {', '.join(models())}", join(path, "name"))
    keys.pop("name", None)
    module = models().find(name, path)
    if not set(kinds_of(name)) & set(targets):
        *others, last = (KINDS[target].examples for target in targets)
        kinds = f"{', '.join(others)} or {last}" if others else last
        raise SpecError(f"{path} must be a model of {kinds}, got model={shown(name)}", path)
    train = _trained(keys.pop("train", None), name, join(path, "train"))
    if module.parse is not None:
        settings = module.parse(keys, path)
    elif module.Settings is not None:
        settings = check(module.Settings, keys, path, other_keys=("name",))
        settings = {key: list(item) if isinstance(item, tuple) else item for key, item in settings.items()}
    elif keys:
        raise SpecError(f"{path} must be the name alone: {name} has no settings, got {step(next(iter(keys)))}", path)
    else:
        settings = {}
    settings |= {"train": train} if train else {}
    return name, settings, {"name": name, **settings} if settings else name


def _trained(value: Any, name: str, path: str) -> list[str]:
    """The patterns of the parameters that are trained, such as ["head.*"]; none if all are.

    Raises:
        SpecError: the value is not a list of patterns, or the model has no named parameters.
    """
    if value is None:
        return []
    patterns = [value] if isinstance(value, str) else value
    if (
        not isinstance(patterns, list | tuple)
        or not all(isinstance(pattern, str) and pattern for pattern in patterns)
        or not patterns
    ):
        raise SpecError(
            f'{path} must be a pattern such as "head.*", or a list of patterns, got train={shown(value)}', path
        )
    if not models()[name].PARTS:
        raise SpecError(f"{path} must be left out for the model {name}, which is trained whole", path)
    return list(patterns)


def kinds_of(name: str) -> tuple[Kind, ...]:
    """The kinds of targets that a model learns, its default first; () for a model without examples.

    Args:
        name: name of an existing model.
    """
    targets = models()[name].TARGETS
    if isinstance(targets, tuple):
        return targets
    return tuple(KINDS) if targets == "any" else () if targets == "none" else (targets,)


def examples(
    parts: Sequence[Rows],
    inputs: Callable[[Rows], NDArray[Any]],
    targets: NDArray[Any],
    kind: Kind | None = None,
    central_classes: Sequence[int] = (),
) -> Examples:
    """The examples of clients, concatenated.

    Args:
        parts: rows of each client.
        inputs: maps rows to a new array of their inputs.
        targets: (all examples, ...).
        kind: what the targets are, as in `Examples`.
        central_classes: class numbers that only the server has, which mark test examples of its population.
    """
    parts = ClientRows.of(parts)
    client_targets = taken(targets, parts.rows)
    central = np.isin(client_targets, central_classes) if central_classes else None
    return Examples(inputs(parts.rows), client_targets, parts.offsets, parts.sizes, kind, central)


def held_out(
    settings: Federated,
    inputs: Callable[[Rows], NDArray[Any]],
    targets: NDArray[Any],
    kind: Kind | None = None,
) -> Examples | None:
    """The test examples of a split task, then its validation examples; None without test examples.

    Args:
        settings: the split task.
        inputs: maps rows to a new array of their inputs.
        targets: (all examples, ...).
        kind: what the targets are, as in `Examples`.
    """
    if not len(settings.test):
        return None

    def of(parts: Sequence[Rows]) -> Examples:
        return examples(parts, inputs, targets, kind, settings.central_classes)

    test = validation_split.of_populations(of(settings.test), settings.apart)
    return validation_split.followed(test, None if settings.validation is None else of(settings.validation))


def labelled(settings: Federated, inputs: Callable[[Rows], NDArray[Any]], labels: Rows) -> Problem:
    """The problem of a split task of labelled examples, for its `build`.

    Args:
        settings: the split task; its outputs are the classes.
        inputs: maps rows to a new array of their inputs.
        labels: (all examples,) class of every example.
    """
    return Problem(
        model=settings.model,
        train=examples(settings.parts, inputs, labels),
        test=held_out(settings, inputs, labels),
        central=None if settings.central is None else examples([settings.central], inputs, labels),
        model_settings={"classes": settings.outputs, **settings.model_settings},
    )


def settings_of(keys: type) -> tuple[Any, ...]:
    """The settings of a task in display order: its own first, then those that all tasks share.

    Args:
        keys: a dataclass derived from `FederatedKeys`.
    """
    shared = [item.name for item in describe(FederatedKeys)]
    return tuple(sorted(describe(keys), key=lambda item: shared.index(item.name) if item.name in shared else -1))


def _labels(pool: Pool) -> Rows:
    return np.zeros(len(pool.rows), np.int64) if pool.labels is None else taken(pool.labels, pool.rows)


def _clients(values: dict[str, Any], pool: Pool, path: str) -> int:
    key_path = join(path, "clients")
    owners = 0 if pool.owners is None else len(partitions.natural(taken(pool.owners, pool.rows)))
    if values["partition"] == "natural":
        if values["clients"] not in (None, owners):
            raise SpecError(
                f"{key_path} must be left out for the natural partition, which has {owners}, "
                f"got clients={values['clients']}",
                key_path,
            )
        values["clients"] = owners
    if values["clients"] is None:
        if not owners:
            raise SpecError(f"{key_path} must be given (at least 1): the data has no natural clients", key_path)
        values["clients"] = owners
    return int(values["clients"])
