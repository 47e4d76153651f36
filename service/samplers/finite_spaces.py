"""Configurations of a small space that nobody has tried, so that a search repeats none while there are others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from search_spaces.constraints import Constraint, all_hold
from search_spaces.parameters import Choice, Float, Parameter, Space
from service.samplers.sampler import Hyperparameters

LARGEST = 10_000
"""Most configurations of a space that is listed in full."""


def count(space: Space) -> float:
    """The number of configurations of a space; infinite with a range of real numbers.

    Examples:
        >>> from search_spaces.parameters import Int
        >>> count({"a": Choice((1, 2)), "b": Int(1, 3, also=(9,))})
        8.0
    """
    return math.prod((float(_size(parameter)) for parameter in space.values()), start=1.0)


def unused(
    space: Space, constraints: Sequence[Constraint], tried: Collection[Mapping[str, Any]]
) -> Hyperparameters | None:
    """The first configuration that breaks no constraint and was not tried; None if the space is large or has no other.

    Args:
        space: Parameters by dotted name.
        constraints: What the configuration must satisfy.
        tried: Configurations to leave out.
    """
    if count(space) > LARGEST:
        return None
    for values in itertools.product(*(_values(parameter) for parameter in space.values())):
        hyperparameters = dict(zip(space, values, strict=True))
        if hyperparameters not in tried and all_hold(constraints, hyperparameters):
            return hyperparameters
    return None


def _size(parameter: Parameter) -> float:
    if isinstance(parameter, Choice):
        return len(parameter.options)
    return math.inf if isinstance(parameter, Float) else parameter.high - parameter.low + 1 + len(parameter.also)


def _values(parameter: Parameter) -> Sequence[Any]:
    if isinstance(parameter, Choice):
        return parameter.options
    assert not isinstance(parameter, Float)
    return (*parameter.also, *range(parameter.low, parameter.high + 1))
