"""The four roles of optimizers in a trial: their settings, which optimizers a method takes, and why it refuses others.

    client   turns a client's local gradients into its local steps; starts anew in every round, or continues (`STATE`)
    server   steps along the mean pseudo-gradient; keeps its memory between rounds, like the next two
    central  takes the steps of the server's own branch in mixed federated learning
    merge    steps along the sum of both branches' changes

An optimizer (trainers/optimizers) is elementwise arithmetic on tensors that broadcast over (T, M, P), so one module
serves every role. The module declares differences between roles as data (`DEFAULTS`, `ABSENT`, `REFUSED`). Rates belong
to the method.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from trainers.contracts import Method, Optimizer
from trainers.errors import SpecError
from trainers.hyperparameters import Hyperparameter, describe, join, refuse_unknown, withdrawals
from trainers.registry import methods, optimizers

ROLES = ("client", "server", "central", "merge")
PLAIN = "sgd"
"""The optimizer in roles that a document leaves out: without settings, plain gradient steps."""

STATE = Hyperparameter(
    name="state",
    kind="str",
    default="reset",
    traced=False,
    choices=("reset", "keep"),
    doc="of clients: with keep each goes on with its own memory and number of steps, with reset it starts anew",
)
"""A setting of every client optimizer but PLAIN, which has nothing to keep."""

ALONG = Hyperparameter(
    name="along",
    kind="str",
    default=None,
    optional=True,
    traced=False,
    choices=("gradient", "change"),
    doc="gradient (a sum of gradients), or change (client_lr times it: the papers'); null is change with delta_lr",
)
POWERS: Mapping[str, int] = MappingProxyType({"gradient": 1, "gradient^2": 2})
"""Units of settings that depend on what the server steps along: unit -> power of the gradient."""

ANY, LINEAR = "any", "linear"
"""Which optimizers a method takes in a role; the third value, "none: REASON", takes none and says why."""
_WITHOUT = {
    "client": "its clients take no steps of their own",
    "central": "it has no branch of the server",
    "merge": "it has no branches to merge",
}
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def settings(optimizer: Optimizer, role: str) -> tuple[Hyperparameter, ...]:
    """The settings of an optimizer in a role, with the defaults of that role.

    Args:
        optimizer: the optimizer.
        role: one of ROLES.
    """
    absent, defaults = optimizer.ABSENT.get(role, ()), optimizer.DEFAULTS.get(role, _NOTHING)
    items = [item for item in describe(optimizer.Hyper) if item.name not in absent]
    return tuple(replace(item, default=defaults.get(item.name, item.default)) for item in items)


def has_state(optimizer: Optimizer, role: str) -> bool:
    """Whether an optimizer has the setting STATE in a role.

    Args:
        optimizer: the optimizer.
        role: one of ROLES.
    """
    return role == "client" and optimizer is not optimizers()[PLAIN]


def scaled(described: tuple[Hyperparameter, ...], optimizer: Optimizer) -> bool:
    """Whether an optimizer is adaptive, with settings in units of the gradient.

    Args:
        described: its settings.
        optimizer: the optimizer.
    """
    return not optimizer.LINEAR and any(item.unit in POWERS for item in described)


def taken(method: Method) -> dict[str, str]:
    """Role -> which optimizers a method takes there; every method has a server.

    Args:
        method: the method.
    """
    return {"server": ANY, **method.ROLES}


def lacks(method: Method, role: str) -> str | None:
    """Why a method does not have a role; None if it has the role.

    Args:
        method: the method.
        role: one of ROLES.
    """
    takes = taken(method).get(role)
    if takes is None:
        return _WITHOUT[role]
    return takes.removeprefix("none: ") if takes.startswith("none") else None


def serving(role: str, takes: str = ANY) -> list[str]:
    """Names of the optimizers that can serve a role.

    Args:
        role: one of ROLES.
        takes: ANY or LINEAR.
    """
    can = [name for name, optimizer in optimizers().items() if role not in optimizer.REFUSED]
    return can if takes == ANY else [name for name in can if optimizers()[name].LINEAR]


def refuse_role(role: str, optimizer: str, method: str) -> None:
    """Raises a SpecError if an optimizer cannot serve in a role, or a method does not take it there.

    Args:
        role: one of ROLES.
        optimizer: name of the optimizer.
        method: name of the method.
    """
    key_path = join(role, "name")
    module = optimizers()[optimizer]
    if (reason := lacks(methods()[method], role)) is not None:
        raise SpecError(f"{_takes_no(role, method)}, got {key_path}={optimizer}: {reason}; leave {role} out", key_path)
    takes = taken(methods()[method])[role]
    able = ", ".join(serving(role, takes))
    if (reason := module.REFUSED.get(role)) is not None:
        raise SpecError(f"{key_path} must be one of {able}, got {key_path}={optimizer}: {reason}", key_path)
    if takes != ANY and not module.LINEAR:
        raise SpecError(
            f"method {method} takes {takes} {role} optimizers ({able}), got {key_path}={optimizer}: its directions are "
            "not linear in the gradients",
            key_path,
        )


def refuse_kept_state(method: str) -> None:
    """Raises a SpecError if a method's clients cannot keep the memory of their optimizer.

    Args:
        method: name of the method.
    """
    if taken(methods()[method]).get("client") == LINEAR:
        path = join("client", STATE.name)
        raise SpecError(
            f"{path} must be reset for {method}, got {path}=keep: its clients' steps must be linear in the gradients "
            "of the round, and kept memory holds earlier ones",
            path,
        )


def refuse_method_keys(document: Mapping[str, Any], keys: list[str]) -> None:
    """Raises a SpecError for an unknown key of the method's object, with the reason if the method has withdrawn it.

    Args:
        document: the method's object.
        keys: the valid keys.
    """
    for key in document:
        if key not in keys:
            key_path = join("method", str(key))
            _refuse_withdrawn(key, key_path, document["name"])
    refuse_unknown(document, keys, "method")


def refuse_settings(role: str, document: Mapping[str, Any], keys: list[str]) -> None:
    """Raises a SpecError for an unknown key of an optimizer's object, with the optimizers that have it.

    Args:
        role: role of the optimizer.
        document: its object.
        keys: the valid keys.
    """
    for key in document:
        if key not in keys:
            _refuse_others(role, str(key), document["name"], join(role, str(key)))
    refuse_unknown(document, keys, role)


def refuse_member_keys(member: Mapping[str, Any], keys: list[str], path: str, objects: Mapping[str, Any]) -> None:
    """Raises a SpecError for an unknown key of a member, as the two functions above do for objects.

    Args:
        member: dotted name -> value.
        keys: the valid keys.
        path: dotted path of the member.
        objects: kind of part -> its object.
    """
    for key in member:
        if key in keys:
            continue
        key_path = join(path, str(key))
        _refuse_withdrawn(key, key_path, objects["method"]["name"])
        role, _, name = str(key).partition(".")
        method = objects["method"]["name"]
        if role in ROLES and role not in objects and (reason := lacks(methods()[method], role)) is not None:
            raise SpecError(f"{key_path} must be left out: {_takes_no(role, method)}: {reason}", key_path)
        if role in ROLES and name and role in objects:
            _refuse_others(role, name, objects[role]["name"], key_path)
    refuse_unknown(member, keys, path)


def _takes_no(role: str, method: str) -> str:
    return f"method {method} takes no {role} optimizer"


def _refuse_withdrawn(key: Any, key_path: str, method: str) -> None:
    """Refuses a setting that other methods have and this one has withdrawn."""
    if (reason := withdrawals(methods()[method].Hyper).get(key)) is not None:
        raise SpecError(f"{key_path} must be left out for {method}: {reason}", key_path)


def _refuse_others(role: str, name: str, optimizer: str, key_path: str) -> None:
    """Refuses a setting that other optimizers have in the role, or that on clients belongs to the method."""
    if role == "client" and name == "weight_decay":
        raise SpecError(f"{key_path} must be left out for {optimizer}: on clients it is the method's setting", key_path)
    has = [other for other in serving(role) if name in _names(optimizers()[other], role)]
    if has:
        raise SpecError(f"{key_path} must be left out for {optimizer}: it is a setting of {', '.join(has)}", key_path)


def _names(optimizer: Optimizer, role: str) -> set[str]:
    return {item.name for item in settings(optimizer, role)} | ({STATE.name} if has_state(optimizer, role) else set())
