"""The partition that a document names: its forms, its checks, and the clients that it makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trainers.data import client_shares, partitions
from trainers.data.client_shares import Shares
from trainers.data.partitions import Rows
from trainers.errors import SpecError
from trainers.hyperparameters import join, refuse_unknown
from trainers.spelling import hint
from trainers.values import integer, number, shown

FORMS = 'iid, by_label, {"dirichlet": concentration}, {"classes_per_client": number}, {"shards": number}, {"sizes": ..}'
_NAMED = ("iid", "by_label", "natural")
_KINDS = ("dirichlet", "classes_per_client", "shards")
_SIZED = ("dirichlet", "classes_per_client")  # kinds that take sizes
_LAWS = ("power_law", "dirichlet")
_UNEQUAL, _EQUAL = "unequal", "equal"
_LEVELS = 2


def checked(value: Any, labels: Rows | None, natural: bool, unnatural: str, path: str) -> Any:
    """The partition, a name or an object, with numbers as int or float and without defaults.

    Args:
        value: the value in the document.
        labels: (examples,) class of every example; None without classes.
        natural: whether there are natural clients.
        unnatural: why there are none, as in "data without a client column".
        path: dotted path of the partition.

    Raises:
        SpecError: it is invalid, or not available for these examples.
    """
    sized = '{"sizes": ..}'
    forms = FORMS if labels is not None else f"iid, {sized}"
    forms = f"natural, {forms}" if natural else forms
    if value == "natural" and not natural:
        raise SpecError(f"{path} must not be natural for {unnatural}: use {forms}", path)
    if isinstance(value, str) and value not in _NAMED + _KINDS:
        raise SpecError(f"{path}: no partition {shown(value)}: {hint(value, _NAMED + _KINDS)}", path)
    if value not in _NAMED and not (isinstance(value, Mapping) and value):
        raise SpecError(f"{path} must be one of {forms}, got partition={shown(value)}", path)
    if (
        labels is None
        and value not in ("iid", "natural")
        and not (isinstance(value, Mapping) and set(value) <= {"sizes"})
    ):
        raise SpecError(f"{path} must be {forms} without labels, got partition={shown(value)}", path)
    if isinstance(value, str):
        return value
    kinds = [kind for kind in _KINDS if kind in value]
    refuse_unknown(value, (*_KINDS, "sizes", *(("groups",) if "dirichlet" in value else ())), path)
    if len(kinds) > 1:
        raise SpecError(f"{path} must have one of {', '.join(_KINDS)}, got {' and '.join(kinds)}", path)
    result: dict[str, Any] = {}
    if labels is None:
        assert not kinds
    elif kinds == ["dirichlet"]:
        result = _dirichlet(value, labels, path)
    elif kinds == ["classes_per_client"]:
        most = len(np.unique(labels))
        result["classes_per_client"] = _count(value, "classes_per_client", most, path)
    elif kinds:
        result["shards"] = _count(value, "shards", None, path)
    sizes = _sizes(value.get("sizes", _EQUAL), kinds, "groups" in value, join(path, "sizes"))
    return {**result, **({} if sizes == _EQUAL else {"sizes": sizes})} or "iid"


def group_column(value: Any) -> str | None:
    """The column that an unchecked partition names for the groups of its classes; None without one."""
    groups = value.get("groups") if isinstance(value, Mapping) else None
    return groups if isinstance(groups, str) else None


def grouped_classes(labels: Rows, groups: Rows, path: str) -> list[list[int]]:
    """The classes of each group.

    Args:
        labels: (examples,) class numbers.
        groups: (examples,) number of the group of the example's class.
        path: dotted path of the setting that names the column.

    Raises:
        SpecError: a class is in two groups.

    Examples:
        >>> grouped_classes(np.array([2, 0, 1, 0]), np.array([1, 0, 1, 0]), "task.partition.groups")
        [[0], [1, 2]]
    """
    pairs = np.unique(np.stack([groups, labels], 1), axis=0)
    classes, times = np.unique(pairs[:, 1], return_counts=True)
    if (times > 1).any():
        raise SpecError(
            f"{path} must be the same for all examples of a class, got {times.max()} for class "
            f"{classes[times.argmax()]}",
            path,
        )
    return [pairs[pairs[:, 0] == group, 1].tolist() for group in np.unique(groups)]


def spread(partition: Any, labels: Rows, clients: int, seed: int) -> Sequence[Rows]:
    """The rows of each client.

    Args:
        partition: from `checked`, not natural.
        labels: (examples,) class of every example.
        clients: number of clients.
        seed: seed of everything drawn.

    Raises:
        ValueError: the partition is impossible for these examples; the error is a rule that begins with a key.
    """
    if partition == "iid":
        return partitions.iid(labels, clients, seed)
    if partition == "by_label":
        return partitions.by_label(labels, clients, seed)
    sizes = partition.get("sizes")
    shares = _shares(sizes, clients, seed)
    if "shards" in partition:
        return partitions.shards(labels, clients, partition["shards"], seed)
    if "classes_per_client" in partition:
        return partitions.classes_per_client(labels, clients, partition["classes_per_client"], seed, shares)
    if "dirichlet" not in partition:
        return partitions.iid(labels, clients, seed, shares)
    concentration = partition["dirichlet"]
    if sizes == _UNEQUAL:
        return partitions.dirichlet_of_labels(labels, clients, concentration, seed)
    if "groups" not in partition:
        return partitions.dirichlet(labels, clients, concentration, seed, shares)
    outer, inner = concentration
    groups = [np.array(group) for group in partition["groups"]]
    return partitions.dirichlet(labels, clients, outer, seed, shares, (inner, groups))


def _shares(sizes: Any, clients: int, seed: int) -> Shares | None:
    if not isinstance(sizes, Mapping):
        return None
    ((law, value),) = sizes.items()
    draw = client_shares.power_law if law == "power_law" else client_shares.dirichlet
    return draw(clients, value, seed)


def _dirichlet(value: Mapping[str, Any], labels: Rows, path: str) -> dict[str, Any]:
    key_path = join(path, "dirichlet")
    if "groups" not in value:
        return {"dirichlet": _positive(value["dirichlet"], "dirichlet", key_path)}
    levels = value["dirichlet"]
    if not isinstance(levels, list | tuple) or len(levels) != _LEVELS:
        rule = "must be two concentrations with groups, of the groups and of the classes within one"
        raise SpecError(f"{key_path} {rule}, as in [0.1, 10], got dirichlet={shown(levels)}", key_path)
    groups = _groups(value["groups"], labels, join(path, "groups"))
    return {"dirichlet": [_positive(level, "dirichlet", key_path) for level in levels], "groups": groups}


def _groups(value: Any, labels: Rows, path: str) -> list[list[int]]:
    rule = "must be lists of class numbers, or with the tasks data and npz a column"
    if not isinstance(value, list | tuple) or not value or not all(isinstance(group, list | tuple) for group in value):
        raise SpecError(f"{path} {rule}, got groups={shown(value)}", path)
    groups = [[integer(label, path) for label in group] for group in value]
    everything = [label for group in groups for label in group]
    missing = np.setdiff1d(labels, everything)
    if len(set(everything)) < len(everything) or len(missing):
        got = f"none for class {missing[0]}" if len(missing) else "a class twice"
        raise SpecError(f"{path} must hold every class once, got {got}", path)
    return groups


def _sizes(value: Any, kinds: Sequence[str], grouped: bool, path: str) -> Any:
    """Equal, unequal, or {law: number}."""
    if value == _EQUAL:
        return value
    if value == _UNEQUAL:
        if kinds != ["dirichlet"] or grouped:
            raise SpecError(f"{path} must be unequal only with one concentration dirichlet, got sizes=unequal", path)
        return value
    if not isinstance(value, Mapping) or len(value) != 1:
        forms = 'equal, unequal, {"power_law": exponent} or {"dirichlet": concentration}'
        raise SpecError(f"{path} must be {forms}, got sizes={shown(value)}", path)
    refuse_unknown(value, _LAWS, path)
    if kinds and kinds[0] not in _SIZED:
        raise SpecError(f"{path} must be left out with {kinds[0]}, whose clients have equal shares", path)
    ((law, parameter),) = value.items()
    return {law: _positive(parameter, law, join(path, law))}


def _positive(value: Any, name: str, path: str) -> float:
    result = number(value, path)
    if result <= 0:
        raise SpecError(f"{path} must be above 0, got {name}={shown(result)}", path)
    return result


def _count(value: Mapping[str, Any], name: str, most: int | None, path: str) -> int:
    key_path = join(path, name)
    count = integer(value[name], key_path)
    if count < 1 or (most is not None and count > most):
        rule = "at least 1" if most is None else f"in [1, {most}]"
        raise SpecError(f"{key_path} must be {rule}, got {name}={count}", key_path)
    return count
