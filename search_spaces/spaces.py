"""The default spaces, found by name: one module for every method, optimizer and schedule.

A module holds ``default() -> Space``, an optimizer's ``default(role) -> Space``, and, beside it, the papers' grids as
functions. Nothing has to be registered: a file in methods/, optimizers/ or schedules/ is found. Names that begin with
"_" are private.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import Literal

from search_spaces.parameters import Choice, Float, Parameter, Space, is_fixed
from trainers import ROLES, Hyperparameter, SpecError, hint, shown

Kind = Literal["methods", "client", "server", "central", "merge", "schedules"]
"""Of optimizers the role."""
KINDS: tuple[Kind, ...] = ("methods", "client", "server", "central", "merge", "schedules")
_WORDS = {"methods": "method", "schedules": "schedule"}


@cache
def names(kind: Kind) -> tuple[str, ...]:
    """The methods, optimizers or schedules that have a default space, sorted."""
    package = importlib.import_module(f"search_spaces.{_folder(kind)}")
    return tuple(sorted(found.name for found in pkgutil.iter_modules(package.__path__) if found.name[0] != "_"))


def default(kind: Kind, name: str) -> Space:
    """A fresh copy of the default space.

    Args:
        kind: one of KINDS.
        name: As in trainers.

    Raises:
        SpecError: There is none under this name.

    Examples:
        >>> default("server", "sgd")["momentum"].contains(0.9)
        True
    """
    if name not in names(kind):
        word = _WORDS.get(kind, "optimizer")
        raise SpecError(f"no default space for {word} {shown(name)}: {hint(name, names(kind))}")
    module = importlib.import_module(f"search_spaces.{_folder(kind)}.{name}")
    space: Space = module.default(kind) if kind in ROLES else module.default()
    return space


def check(parameter: Parameter, item: Hyperparameter, path: str) -> None:
    """Raises a SpecError where a space would try a value that its hyperparameter cannot take.

    The declared kind decides: a range of real numbers holds values that no whole number takes, though its ends are
    whole. Every option, end and extra point must be of the kind and in the range. None is left to the trial, where one
    of two alternatives may be None.

    Args:
        parameter: What may be tried.
        item: What the method, optimizer or schedule declares.
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
    """Number of configurations of a grid over the space.

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


def _folder(kind: Kind) -> str:
    return "optimizers" if kind in ROLES else kind
