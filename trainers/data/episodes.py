"""Few-shot tasks: examples of many classes as a population of small tasks, as in meta-learning.

    "episodes": {"ways": 5, "shots": 1, "queries": 15, "test_clients": 100}

A client is a task: `ways` classes, numbered anew in the order in which they are drawn, and shots + queries examples of
each. Training clients have training classes, test clients have held-out classes. Client i depends on the seed and on i
alone, so that a smaller population is a part of a larger one.

Source: N-way K-shot tasks of "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks" (Finn, Abbeel, Levine
2017), section 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data.partitions import ClientRows, Rows
from trainers.errors import SpecError
from trainers.hyperparameters import check, join, tunable
from trainers.problem import MOST_CLIENTS, Examples
from trainers.values import shown

CLIENTS = 1000
"""Number of training clients by default."""

_MOST = 2**32  # numbers of all examples of a population


@dataclass(frozen=True)
class Episodes:
    """How classes become tasks."""

    ways: int = tunable(5, low=2, unit="classes", doc="of a task")
    shots: int = tunable(1, low=1, unit="examples of each class", doc="to learn from")
    queries: int = tunable(15, low=1, unit="examples of each class", doc="to be measured on")
    test_clients: int = tunable(100, low=1, high=MOST_CLIENTS, unit="tasks", doc="of held-out classes")

    @property
    def each(self) -> int:
        """Examples of each class of a task."""
        return self.shots + self.queries

    @property
    def labels(self) -> Rows:
        """(examples of a task,) class number of each."""
        return np.repeat(np.arange(self.ways), self.each)

    def to_json(self) -> dict[str, Any]:
        """The object for a document."""
        return asdict(self)


def checked(value: Any, path: str) -> Episodes:
    """The episodes that a document asks for.

    Args:
        value: the value from the document.
        path: dotted path of the episodes.

    Raises:
        SpecError: unknown keys, wrong types or ranges.
    """
    if not isinstance(value, Mapping):
        raise SpecError(f'{path} must be like {{"ways": 5, "shots": 1, "queries": 15}}, got {shown(value)}', path)
    return Episodes(**check(Episodes, value, path))


def draw(labels: Rows, rows: Rows, few_shot: Episodes, clients: int, seed: Sequence[int], path: str) -> ClientRows:
    """The examples of each task, class by class, in the order of `Episodes.labels`.

    Args:
        labels: (all examples,) class of every example.
        rows: the examples to draw from; classes with fewer than shots + queries of these are left out.
        few_shot: what a task is made of.
        clients: number of tasks.
        seed: whole numbers, at least 0.
        path: dotted path of the episodes.

    Raises:
        SpecError: there are too few classes.
    """
    order = rows[np.argsort(labels[rows], kind="stable")]
    present, first, counts = np.unique(labels[order], return_index=True, return_counts=True)
    usable = np.flatnonzero(counts >= few_shot.each)
    if len(usable) < few_shot.ways:
        key_path = join(path, "ways")
        raise SpecError(
            f"{key_path} must be at most {len(usable)}, the classes with shots + queries = {few_shot.each} examples "
            f"among {len(present)}, got ways={few_shot.ways}",
            key_path,
        )
    chosen = np.empty((clients, few_shot.ways, few_shot.each), np.int64)
    for client in range(clients):
        generator = np.random.default_rng([*seed, client])
        for way, index in enumerate(generator.permutation(usable)[: few_shot.ways]):
            drawn = generator.permutation(counts[index])[: few_shot.each]
            chosen[client, way] = order[first[index] + drawn]
    sizes = np.full(clients, few_shot.ways * few_shot.each)
    return ClientRows(chosen.reshape(-1), sizes)


def left_out(labels: Rows, rows: Rows, few_shot: Episodes) -> int:
    """The number of classes that have too few examples for a task."""
    counts = np.unique(labels[rows], return_counts=True)[1]
    return int((counts < few_shot.each).sum())


def seeds(split_seed: int) -> tuple[list[int], list[int]]:
    """Seeds of the training and of the test clients."""
    return [split_seed, 20], [split_seed, 21]  # numbers that trainers/data/partitions.py does not use


def require_room(few_shot: Episodes, clients: int, shape: Sequence[int], path: str) -> None:
    """Raises a SpecError if a population is too large: each task has its own copy of its examples.

    Args:
        few_shot: what a task is made of.
        clients: number of training clients.
        shape: of the inputs of one example.
        path: dotted path of the task.
    """
    numbers = few_shot.ways * few_shot.each * math.prod(shape)
    for key, count in (("clients", clients), ("episodes.test_clients", few_shot.test_clients)):
        if numbers * count > _MOST:
            key_path = join(path, key)
            raise SpecError(
                f"{key_path} must be at most {max(_MOST // numbers, 1)}: tasks x numbers of a task must be at most "
                f"{_MOST}, got {count} x {numbers}",
                key_path,
            )


def examples(parts: Sequence[Rows], inputs: Callable[[Rows], NDArray[Any]], few_shot: Episodes) -> Examples:
    """The examples of tasks, with the classes of each numbered from 0.

    Args:
        parts: rows of each task, from `draw`.
        inputs: maps rows to a new array of their inputs.
        few_shot: what a task is made of.
    """
    parts = ClientRows.of(parts)
    return Examples(inputs(parts.rows), np.tile(few_shot.labels, len(parts)), parts.offsets, parts.sizes, "classes")
