"""The default spaces, found by name: one module for every method, optimizer and schedule.

A module defines ``default() -> Space`` (for an optimizer ``default(role) -> Space``), and the papers' grids as further
functions. Nothing has to be registered: a file in methods/, optimizers/ or schedules/ is found. Names that begin with
"_" are private.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Literal

from search_spaces.parameters import Choice, Float, Parameter, Space, is_fixed
from trainers import REGISTRIES, ROLES, Hyperparameter, SpecError, hint, shown

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
    package = importlib.import_module(f"search_spaces.{_folder(kind)}")
    return tuple(sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.name[0] != "_"))


def default(kind: Kind, name: str) -> Space:
    """A fresh copy of the default space.

    Args:
        kind: One of KINDS.
        name: As in trainers.

    Raises:
        SpecError: No default space has this name.

    Examples:
        >>> default("server", "sgd")["momentum"].contains(0.9)
        True
    """
    if name not in names(kind):
        registry = REGISTRIES[{"methods": "method", "schedules": "schedule"}.get(kind, kind)]()
        if name in registry:
            raise SpecError(f"no default space for {registry.word} {shown(name)}: give it a space")
        raise SpecError(f"no {registry.word} {shown(name)}: {preset_of(kind, name) or hint(name, registry)}")
    module = importlib.import_module(f"search_spaces.{_folder(kind)}.{name}")
    space: Space = module.default(kind) if kind in ROLES else module.default()
    return space


def preset_of(kind: str, name: object) -> str | None:
    """What to write for the name of an entry that is FedAvg with a server optimizer here; None for other names.

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
    numbers refuses `Float` even with whole ends. None is left to the trial: one of two alternatives may be None.

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


def _folder(kind: Kind) -> str:
    return "optimizers" if kind in ROLES else kind
