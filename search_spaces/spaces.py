"""The default spaces, found by name: one module for every method, server optimizer and schedule.

A module holds ``default() -> Space`` and, beside it, the papers' grids as functions. Nothing has to be registered: a
file in methods/, server/ or schedules/ is found. Names that begin with "_" are private.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Literal

from search_spaces.parameters import Parameter, Space, is_fixed
from trainers.errors import SpecError
from trainers.spelling import hint

Kind = Literal["methods", "server", "schedules"]
KINDS: tuple[Kind, ...] = ("methods", "server", "schedules")
_WORDS = {"methods": "method", "server": "server optimizer", "schedules": "schedule"}


@cache
def names(kind: Kind) -> tuple[str, ...]:
    """The methods, server optimizers or schedules that have a default space, sorted."""
    package = importlib.import_module(f"search_spaces.{kind}")
    return tuple(sorted(found.name for found in pkgutil.iter_modules(package.__path__) if found.name[0] != "_"))


def default(kind: Kind, name: str) -> Space:
    """A fresh copy of the default space.

    Args:
        kind: "methods", "server" or "schedules".
        name: As in trainers.

    Raises:
        SpecError: There is none under this name.

    Examples:
        >>> default("server", "sgd")["momentum"].contains(0.9)
        True
    """
    if name not in names(kind):
        raise SpecError(f"no default space for {_WORDS[kind]} {name!r}: {hint(name, names(kind))}")
    space: Space = importlib.import_module(f"search_spaces.{kind}.{name}").default()
    return space


def grid_size(space: dict[str, Parameter]) -> int:
    """Number of settings of a grid over the space.

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
