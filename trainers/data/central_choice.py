"""The server's own examples, for mixed federated learning: a share of everything, or classes of their own.

"central": {"fraction": 0.1}     this share of each class, or of each client under the natural partition
"central": {"classes": [3, 5]}   all examples of these classes, which no client has then
"central": {"clients": ["a"]}    all examples of these natural clients, or of a share of them, who do not train then
"central": {"path": "own.csv"}   another file with the same columns (trainers/data/table_task.py)
"central": {"spreadout": 0.001}  no examples: a loss of the parameters that the model names, with its weight
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.data import partitions
from trainers.data.partitions import Rows
from trainers.errors import SpecError
from trainers.hyperparameters import join, refuse_unknown
from trainers.problem import Regulariser
from trainers.registry import models
from trainers.spelling import hint
from trainers.values import number, shown

DOC = '{"fraction": 0.1}, {"classes": [..]} or {"clients": [..]}: examples of the server, for mixed federated learning'

_FRACTION, _CLASSES, _CLIENTS = "fraction", "classes", "clients"


def regulariser(value: Any, model: str, path: str) -> Regulariser | None:
    """The server's loss without data in a document, {"spreadout": 0.001}, named as in the model's `REGULARISERS`.

    Args:
        value: the value in the document.
        model: name of an existing model.
        path: dotted path of the value.

    Returns:
        None if the value is for data.

    Raises:
        SpecError: the weight is not a positive number.
    """
    regularisers = models()[model].REGULARISERS
    if not isinstance(value, Mapping) or len(value) != 1 or next(iter(value)) not in regularisers:
        return None
    (name, raw_weight), key_path = next(iter(value.items())), join(path, next(iter(value)))
    weight = number(raw_weight, key_path)
    if not weight > 0:
        raise SpecError(f"{key_path} must be above 0, got {name}={shown(weight)}", key_path)
    return Regulariser(name, weight)


def checked(value: Any, path: str) -> dict[str, Any] | None:
    """What a document says about the server's examples; None if the server has none.

    Args:
        value: the value in the document.
        path: dotted path of the value.

    Raises:
        SpecError: unknown keys, or wrong types or ranges.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping) or len(value) != 1:
        raise SpecError(f'{path} must be like {{"fraction": 0.1}}, got central={shown(value)}', path)
    refuse_unknown(value, (_FRACTION, _CLASSES, _CLIENTS), path)
    (key, choice), key_path = next(iter(value.items())), join(path, next(iter(value)))
    if key == _CLIENTS and isinstance(choice, list | tuple):
        if not choice or any(type(client) not in (str, int) for client in choice) or len(set(choice)) < len(choice):
            raise SpecError(
                f"{key_path} must be a list of different clients, or a share, got {shown(choice)}", key_path
            )
        return {key: [str(client) for client in choice]}
    if key == _CLASSES:
        labels = list(choice) if isinstance(choice, list | tuple) else []
        if not labels or any(type(label) not in (str, int) for label in labels) or len(set(labels)) < len(labels):
            raise SpecError(f"{key_path} must be a list of different labels, got classes={shown(choice)}", key_path)
        return {key: labels}
    share = number(choice, key_path)
    if not 0 < share < 1:
        raise SpecError(f"{key_path} must be in (0, 1), got {key}={shown(share)}", key_path)
    return {key: share}


def taken(
    central: Mapping[str, Any],
    examples: int,
    labels: Rows | None,
    owners: NDArray[Any] | None,
    natural: bool,
    names: Sequence[Any] | None,
    seed: int,
    path: str,
    people: Sequence[Any] | None = None,
) -> NDArray[np.bool_]:
    """(examples for training,) True for examples of the server.

    Args:
        central: from `checked`.
        examples: number of examples for training.
        labels: (examples,) their classes; None without classes.
        owners: (examples,) their natural clients; None without natural clients.
        natural: whether natural clients train.
        names: labels in the order of their classes; None if the class numbers are the labels.
        seed: of the draw.
        path: dotted path of the server's examples.
        people: names of the natural clients, by their numbers; None if the numbers are the names.

    Raises:
        SpecError: the server or the clients would have no example, or a class or client does not exist.
    """
    (key, choice), key_path = next(iter(central.items())), join(path, next(iter(central)))
    if key == _CLASSES:
        if labels is None:
            raise SpecError(f"{key_path} must be left out of data without classes: give fraction", key_path)
        result = np.isin(labels, _numbers(choice, labels, names, key_path))
    elif key == _CLIENTS:
        if owners is None:
            raise SpecError(f"{key_path} must be left out of data without natural clients: give fraction", key_path)
        result = np.isin(owners, _chosen(choice, np.unique(owners), people, seed, key_path))
    else:
        if natural:
            assert owners is not None
            rows, _ = partitions.of_each(owners, choice, seed)
        else:
            rows, _ = partitions.stratified(np.zeros(examples, np.int64) if labels is None else labels, choice, seed)
        result = np.zeros(examples, np.bool_)
        result[rows] = True
    if not result.any():
        raise SpecError(f"{key_path} must give the server an example, got {shown(choice)}", key_path)
    if result.all():
        raise SpecError(f"{key_path} must leave an example to the clients, got {key}={shown(choice)}", key_path)
    return result


def _chosen(choice: Any, present: Rows, people: Sequence[Any] | None, seed: int, key_path: str) -> Rows:
    """The numbers of the natural clients that are the server's."""
    if not isinstance(choice, list):
        return partitions.choose(present, round(choice * len(present)), seed)
    numbers = {str(number if people is None else people[number]): number for number in present.tolist()}
    for name in choice:
        if name not in numbers:
            raise SpecError(f"{key_path}: no client {shown(name)} for training: {hint(name, list(numbers))}", key_path)
    return np.array([numbers[name] for name in choice])


def _numbers(chosen: Sequence[Any], labels: Rows, names: Sequence[Any] | None, key_path: str) -> list[int]:
    """The class numbers of labels."""
    present = np.unique(labels).tolist()
    numbers = {number if names is None else names[number]: number for number in present}
    for label in chosen:
        if label not in numbers:
            raise SpecError(
                f"{key_path}: no class {shown(label)} for training: {hint(str(label), [str(key) for key in numbers])}",
                key_path,
            )
    return [numbers[label] for label in chosen]


def class_numbers(document: Mapping[str, Any]) -> tuple[int, ...]:
    """The class numbers that only the server has, from a task's checked document; () without such classes."""
    chosen = (document.get("central") or {}).get(_CLASSES, ())
    names = document.get("labels")
    return tuple(label if names is None else list(names).index(label) for label in chosen)
