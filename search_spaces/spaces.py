"""The default spaces of methods, optimizers and schedules, which their modules in `trainers` state as `SPACE`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Literal

from search_spaces.parameters import Choice, Float, Parameter, Space, from_json, is_fixed
from trainers import REGISTRIES, ROLES, Configured, Hyperparameter, Registry, SpecError, hint, shown

Kind = Literal["methods", "client", "server", "central", "merge", "schedules"]
"""Kind of a space; for optimizers, their role."""
KINDS: tuple[Kind, ...] = ("methods", "client", "server", "central", "merge", "schedules")
SERVERS: Mapping[str, str] = MappingProxyType(
    {"fedavgm": "sgd", "fedadam": "adam", "fedyogi": "yogi", "fedadagrad": "adagrad"}
)
"""Preset -> its server optimizer; the method is always fedavg."""


@cache
def names(kind: Kind) -> tuple[str, ...]:
    """The methods, optimizers or schedules that have a default space, sorted."""
    registry = _registry(kind)
    return tuple(name for name in registry if registry.constant(name, "SPACE") is not None)


def default(kind: Kind, name: str) -> Space:
    """A fresh copy of the default space: the plug-in's `SPACE`, adjusted to the role if it is an optimizer.

    Args:
        kind: One of KINDS.
        name: As in trainers.

    Raises:
        SpecError: No default space has this name.

    Examples:
        >>> default("server", "sgd")["momentum"].contains(0.9)
        True
    """
    registry = _registry(kind)
    if name not in registry:
        raise SpecError(f"no {registry.word} {shown(name)}: {preset_of(kind, name) or hint(name, registry)}")
    forms, absent = registry.constant(name, "SPACE"), ()
    if forms is None:
        raise SpecError(f"no default space for {registry.word} {shown(name)}: give it a space")
    if kind in ROLES:
        forms = forms | (registry.constant(name, "SPACES") or {}).get(kind, {})
        absent = (registry.constant(name, "ABSENT") or {}).get(kind, ())
    return {key: from_json(form, f"{name}.SPACE.{key}") for key, form in forms.items() if key not in absent}


def preset_of(kind: str, name: object) -> str | None:
    """What to write instead of a method's name if Driftline has it as a preset of FedAvg; None for other names.

    Args:
        kind: "methods" or "method"; other kinds have no presets.
        name: As given.

    Examples:
        >>> preset_of("methods", "FedAdam")
        'it is fedavg with server adam: write {preset: fedadam}'
    """
    plain = str(name).lower().replace("-", "").replace("_", "")
    if kind not in ("method", "methods"):
        return None
    if plain in SERVERS:
        return f"it is fedavg with server {SERVERS[plain]}: write {{preset: {plain}}}"
    return "write {preset: fedadam}, fedyogi, fedadagrad or fedavgm" if plain == "fedopt" else None


def check(parameter: Parameter, item: Hyperparameter, path: str) -> None:
    """Raises a SpecError if a space contains a value that its hyperparameter does not accept.

    Every option, end and extra point must be of the declared kind and in the declared range. A hyperparameter of whole
    numbers refuses `Float` even with whole ends. None is not checked here, because one of two alternatives may be None.

    Args:
        parameter: The search space of the hyperparameter.
        item: The hyperparameter that the method, optimizer or schedule declares.
        path: Dotted place of the parameter, for errors.

    Examples:
        >>> check(Float(1, 5), Hyperparameter(name="local_steps", kind="int", default=1), "space")
        Traceback (most recent call last):
        trainers.errors.SpecError: space: local_steps is a whole number; use int
    """
    if not isinstance(parameter, Choice) and item.kind != "any":
        if item.choices or item.kind not in ("float", "int"):
            lists = {"floats": "a list of numbers", "ints": "a list of whole numbers"}
            raise SpecError(f"{path}: {item.name} is {lists.get(item.kind) or item.wanted()}; use choice", path)
        if item.kind == "int" and isinstance(parameter, Float):
            raise SpecError(f"{path}: {item.name} is a whole number; use int", path)
    for value in parameter.ends():
        if value is not None:
            item.check(value, path)


def grid_size(space: dict[str, Parameter]) -> int:
    """Number of configurations in a grid over the space.

    Examples:
        >>> grid_size(default("methods", "fedavg"))
        324
    """
    size = 1
    for parameter in space.values():
        size *= len(parameter.grid())
    return size


def free(space: dict[str, Parameter]) -> tuple[str, ...]:
    """Names of the parameters that are not fixed, sorted."""
    return tuple(sorted(name for name, parameter in space.items() if not is_fixed(parameter)))


def dimensions(spaces: Iterable[dict[str, Parameter]]) -> tuple[str, ...]:
    """Names of the parameters that are free in any of these spaces, sorted."""
    return tuple(sorted({name for space in spaces for name in free(space)}))


def _registry(kind: Kind) -> Registry[Configured]:
    return REGISTRIES[{"methods": "method", "schedules": "schedule"}.get(kind, kind)]()
