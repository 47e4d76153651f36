"""Translates documents of version 0.1 to today's names.

In version 0.1 the optimizers of clients, of the server's branch and of the merge were settings of the method
(`client_optimizer`, `client_beta1`, `central_momentum`, ...). Today they are parts of a trial, like the server's. The
setting `merge`, "sum" or "mean", is now `merge_by`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.errors import SpecError

_BRANCHED = ("parallel_training", "two_way_transfer")
_SETTINGS = {
    "client": {name: name for name in ("momentum", "beta1", "beta2", "epsilon")},
    "central": {"momentum": "beta1", "epsilon": "epsilon"},
    "merge": {"momentum": "beta1", "epsilon": "epsilon"},
}
"""Role -> setting -> its name today. The momentum of sgd is still `momentum`."""
_NULLS = {
    "client": {"momentum": 0.9, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
    "client rmsprop": {"beta2": 0.99},
    "client adagrad": {"epsilon": 1e-10},
    "central": {"momentum": 0.9, "epsilon": 1e-5},
    "central sgd": {"momentum": 0.0},
    "central adagrad": {"momentum": 0.0},
}
"""Values that null stood for, if a member overrides a shared value with null."""


def trial(document: Mapping[str, Any]) -> dict[str, Any]:
    """Translates a trial document of version 0.1; a document with today's names is returned unchanged.

    Args:
        document: has a method, and may have members.

    Examples:
        >>> trial({"method": {"name": "fedavg", "client_optimizer": "adam", "client_beta1": 0.8}, "rounds": 1})
        {'method': {'name': 'fedavg'}, 'rounds': 1, 'client': {'name': 'adam', 'beta1': 0.8}}
    """
    translated, old = dict(document), document.get("method")
    if not isinstance(old, Mapping):
        return translated
    translated["method"] = {"name": old["name"]} if "name" in old else {}
    for key, value in old.items():
        part, name = _place(key, old)
        if part == "method":
            translated["method"][name] = value
        elif value is not None:
            translated[part] = {"name": _optimizer(part, old), **translated.get(part, {}), name: value}
    if isinstance(document.get("members"), list | tuple):
        translated["members"] = [_member(member, old) for member in document["members"]]
    return translated


def hyperparameters(method: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Translates the hyperparameters of a trial of version 0.1 to today's dotted names.

    Names of optimizers are left out, since they are not hyperparameters today; so is null, which meant an optimizer's
    default.

    Args:
        method: name of the method.
        values: name -> value, with client_optimizer, central_optimizer and merge_optimizer if they are not sgd.

    Examples:
        >>> hyperparameters("fedavg", {"client_lr": 0.1, "client_optimizer": "momentum", "client_momentum": 0.5})
        {'client_lr': 0.1, 'client.momentum': 0.5}
    """
    old = {"name": method, **values}
    translated = {}
    for key, value in values.items():
        part, name = _place(key, old)
        if part == "method":
            translated[name] = value
        elif name != "name" and value is not None:
            translated[f"{part}.{name}"] = value
    return translated


def entry(document: Mapping[str, Any]) -> dict[str, Any]:
    """Translates an entry of a study of version 0.1; an entry with today's names is returned unchanged.

    Args:
        document: has a name or preset, and may have space and start.

    Raises:
        SpecError: the space has several optimizers, which need one entry each.

    Examples:
        >>> entry({"name": "fedavg", "space": {"client_lr": 0.1, "client_optimizer": "adam", "client_beta1": 0.8}})
        {'name': 'fedavg', 'space': {'client_lr': 0.1}, 'client': {'name': 'adam', 'space': {'beta1': 0.8}}}
    """
    translated, space = dict(document), document.get("space")
    method = str(document.get("name", "fedavg"))
    optimizers = {}
    if isinstance(space, Mapping):
        names = {f"{role}_optimizer": role for role in _SETTINGS}
        optimizers = {key: _one(form, f"space.{key}") for key, form in space.items() if key in names}
        old = {"name": method, **{key: form for key, form in space.items() if key not in optimizers}, **optimizers}
        translated["space"] = {}
        for key, form in old.items():
            part, name = _place(key, old)
            if part != "method":
                held = translated.setdefault(part, {"name": _optimizer(part, old), "space": {}})
                if name != "name" and form is not None:
                    held["space"][name] = form
            elif key != "name" or key in space:
                translated["space"][name] = form
    if isinstance(document.get("start"), list | tuple):
        translated["start"] = [
            hyperparameters(method, {**optimizers, **point}) if isinstance(point, Mapping) else point
            for point in document["start"]
        ]
    return translated


def new_name(key: object, method: Any) -> str | None:
    """Today's name of a hyperparameter of version 0.1; None if the key is unknown or has the same name today.

    Args:
        key: the old name.
        method: the method's part of the trial document.

    Examples:
        >>> new_name("central_momentum", {"name": "parallel_training", "central_optimizer": "adam"})
        'central.beta1'
    """
    if not isinstance(key, str):
        return None
    part, name = _place(key, method if isinstance(method, Mapping) else {})
    if part == "method":
        return f"method.{name}" if name != key else None
    return f"{part}.{name}"


def _place(key: str, method: Mapping[str, Any]) -> tuple[str, str]:
    """(part, name in that part) of a key that belonged to the method."""
    role, _, name = key.partition("_")
    if role in _SETTINGS and name == "optimizer":
        return role, "name"
    if role in _SETTINGS and name in _SETTINGS[role]:
        plain = name == "momentum" and _optimizer(role, method) == "sgd"
        return role, name if plain else _SETTINGS[role][name]
    return "method", "merge_by" if key == "merge" and method.get("name") in _BRANCHED else key


def _optimizer(role: str, method: Mapping[str, Any]) -> str:
    return str(method.get(f"{role}_optimizer") or "sgd")


def _member(member: Any, method: Mapping[str, Any]) -> Any:
    """A member of a pack; null overrides the value that the method gives to all members."""
    if not isinstance(member, Mapping):
        return member
    translated = {}
    for key, value in member.items():
        part, name = _place(key, method)
        if part == "method":
            translated[name] = value
        elif value is not None:
            translated[f"{part}.{name}"] = value
        elif method.get(key) is not None:
            translated[f"{part}.{name}"] = _null(part, key.partition("_")[2], _optimizer(part, method))
    return translated


def _null(role: str, setting: str, optimizer: str) -> float:
    kind = "client" if role == "client" else "central"
    return {**_NULLS[kind], **_NULLS.get(f"{kind} {optimizer}", {})}[setting]


def _one(form: Any, path: str) -> Any:
    """The single value in a form of a space."""
    options = form.get("choice") if isinstance(form, Mapping) else [form]
    if not isinstance(options, list | tuple) or len(options) != 1 or not isinstance(options[0], str):
        raise SpecError(f"{path} must have one value, got {form!r}: make an entry for each optimizer", path)
    return options[0]
