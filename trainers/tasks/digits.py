"""Handwritten digits over clients: 1797 pictures of 8 x 8, a fifth of each digit held out as the test set.

    {"name": "digits", "clients": 50, "partition": {"dirichlet": 0.3}, "split_seed": 0, "model": "softmax"}

The data comes with scikit-learn. `partition` is "iid", "by_label", {"dirichlet": concentration} or
{"classes_per_client": c} (trainers/data/partitions.py); "natural" has no meaning here, the writers are not recorded.
`"central": {"fraction": 0.1}` gives the server that part of the training examples, for mixed federated learning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import digits, partitions
from trainers.errors import MissingDataError, SpecError
from trainers.hyper import check, hyper, join, refuse_unknown
from trainers.problem import Examples, Problem
from trainers.registry import models
from trainers.scalars import integer, number, shown
from trainers.spelling import hint

DTYPE = "float32"
BATCHING = "shuffled"
METRICS = ("test_loss", "test_accuracy")
TEST_FRACTION = 0.2
_OTHER_MODELS = ("linear", "quadratic")  # their targets are not classes
_NAMED = ("iid", "by_label", "natural")
_WITH_NUMBER = ("dirichlet", "classes_per_client")
_FORMS = 'iid, by_label, {"dirichlet": concentration}, {"classes_per_client": number}'


@dataclass(frozen=True)
class Keys:
    """What a document may say."""

    clients: int = hyper(50, low=1, unit="clients")
    partition: Any = hyper("iid", kind="any")
    split_seed: int = hyper(0, low=0)
    central: Any = hyper(None, kind="any")
    model: str = hyper("softmax")


@dataclass(frozen=True, eq=False)
class Settings:
    """A checked digits task.

    Args:
        document: the task with all defaults filled in, JSON-able.
        model: name of the model in trainers/models.
        parts: rows of each client.
        test: rows held out.
        central: rows of the server; None where it has none.
    """

    document: Mapping[str, Any]
    model: str
    parts: tuple[NDArray[np.int64], ...]
    test: NDArray[np.int64]
    central: NDArray[np.int64] | None

    @property
    def clients(self) -> int:
        """Size of the population."""
        return len(self.parts)

    @property
    def dimension(self) -> None:
        """The model decides."""

    @property
    def examples(self) -> NDArray[np.int64]:
        """Number of training examples of each client, (clients,)."""
        return np.array([len(part) for part in self.parts])


def parse(document: Mapping[str, Any], path: str) -> Settings:
    """The task that a document describes, with its split.

    Args:
        document: {"name": "digits", ...}.
        path: dotted place of the document, as "task".

    Raises:
        SpecError: unknown keys, wrong types or ranges, a partition that is impossible.
        MissingDataError: the data is not installed.
    """
    values = check(Keys, {key: value for key, value in document.items() if key != "name"}, path, known=("name",))
    place = join(path, "model")
    models().find(values["model"], place)
    if values["model"] in _OTHER_MODELS:
        raise SpecError(f"{place} must be a model of labelled examples, got model={shown(values['model'])}", place)
    partition = _partition(values["partition"], join(path, "partition"))
    fraction = _fraction(values["central"], join(path, "central"))
    try:
        _, labels = digits.load()
    except MissingDataError as error:
        raise MissingDataError(f"{path}: {error}", path) from error
    seed = values["split_seed"]
    test, rest = partitions.stratified(labels, TEST_FRACTION, seed)
    central = None
    if fraction is not None:
        aside, kept = partitions.stratified(labels[rest], fraction, seed + 1)
        central, rest = rest[aside], rest[kept]
        if not len(central):
            raise SpecError(f"{path}.central.fraction must give the server an example, got {fraction:g}", path)
    try:
        parts = _spread(partition, labels[rest], values["clients"], seed)
    except ValueError as error:
        raise SpecError(f"{path}: {error}", join(path, "partition")) from error
    filled = {"name": "digits", **values, "partition": partition}
    filled["central"] = None if fraction is None else {"fraction": fraction}
    return Settings(filled, values["model"], tuple(rest[part] for part in parts), test, central)


def build(settings: Settings, dtype: str) -> Problem:
    """The problem to train on.

    Args:
        settings: from `parse`.
        dtype: of the pictures, "float32" or "float64".
    """
    return Problem(
        model=settings.model,
        train=_examples(settings.parts, dtype),
        test=_examples([settings.test], dtype),
        central=None if settings.central is None else _examples([settings.central], dtype),
        model_settings={"classes": digits.CLASSES},
    )


def _examples(parts: Any, dtype: str) -> Examples:
    pictures, labels = digits.load()
    rows = np.concatenate(parts)
    sizes = np.array([len(part) for part in parts], dtype=np.int64)
    return Examples(pictures[rows].astype(dtype), labels[rows], np.cumsum(sizes) - sizes, sizes)


def _partition(value: Any, path: str) -> Any:
    """The partition as a document says it, checked: a name or {kind: number}."""
    if value == "natural":
        raise SpecError(f"{path} must not be natural for digits, whose writers are not recorded: use {_FORMS}", path)
    if isinstance(value, str):
        if value not in _NAMED:
            raise SpecError(f"{path}: no partition {shown(value)}: {hint(value, _NAMED + _WITH_NUMBER)}", path)
        return value
    if not isinstance(value, Mapping) or len(value) != 1:
        raise SpecError(f"{path} must be one of {_FORMS}, got partition={shown(value)}", path)
    refuse_unknown(value, _WITH_NUMBER, path)
    if "dirichlet" in value:
        concentration = number(value["dirichlet"], join(path, "dirichlet"))
        if concentration <= 0:
            place = join(path, "dirichlet")
            raise SpecError(f"{place} must be above 0, got dirichlet={shown(concentration)}", place)
        return {"dirichlet": concentration}
    classes = integer(value["classes_per_client"], join(path, "classes_per_client"))
    if not 1 <= classes <= digits.CLASSES:
        place = join(path, "classes_per_client")
        raise SpecError(f"{place} must be in [1, {digits.CLASSES}], got classes_per_client={classes}", place)
    return {"classes_per_client": classes}


def _fraction(value: Any, path: str) -> float | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise SpecError(f'{path} must be like {{"fraction": 0.1}}, got central={shown(value)}', path)
    refuse_unknown(value, ("fraction",), path)
    place = join(path, "fraction")
    fraction = number(value["fraction"], place)
    if not 0 < fraction < 1:
        raise SpecError(f"{place} must be in (0, 1), got fraction={shown(fraction)}", place)
    return fraction


def _spread(partition: Any, labels: NDArray[np.int64], clients: int, seed: int) -> list[NDArray[np.int64]]:
    if partition == "iid":
        return partitions.iid(labels, clients, seed)
    if partition == "by_label":
        return partitions.by_label(labels, clients, seed)
    if "dirichlet" in partition:
        return partitions.dirichlet(labels, clients, partition["dirichlet"], seed)
    return partitions.classes_per_client(labels, clients, partition["classes_per_client"], seed)
