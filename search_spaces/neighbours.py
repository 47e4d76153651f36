"""Values close to a given one."""

from __future__ import annotations

from typing import Any

import numpy as np

from search_spaces.parameters import Choice, Parameter, is_fixed
from search_spaces.values import is_real, same

WIDTH = 0.1
"""Standard deviation of a move within a range, as a share of the range on its own scale."""

KEPT = 0.75
"""Probability that an option or an extra point is kept."""


def near(parameter: Parameter, value: Any, generator: np.random.Generator) -> Any:
    """A random value close to one of the parameter's values.

    In a range the move is normal with standard deviation `WIDTH` on the range's scale, cut off at its ends. An option
    or extra point is kept with probability `KEPT`. Otherwise, an option among more than two numbers moves to the next
    smaller or larger one, and anything else to a random value of the space.

    Args:
        parameter: Its range or choices.
        value: A value that the parameter allows.
        generator: Source of randomness.

    Examples:
        >>> from search_spaces.parameters import Float
        >>> [round(near(Float(1, 100, log=True), 10, np.random.default_rng(seed)), 1) for seed in (0, 1)]
        [10.6, 11.7]
    """
    if is_fixed(parameter):
        return value
    if isinstance(parameter, Choice):
        if generator.random() < KEPT:
            return next(option for option in parameter.options if same(option, value))
        if len(parameter.options) > 2 and all(is_real(option) for option in parameter.options):
            options = sorted(parameter.options)
            index = options.index(value) + (1 if generator.random() < 0.5 else -1)
            return options[index if 0 <= index < len(options) else options.index(value)]
        return parameter.sample(generator)
    if value in parameter.also:
        return value if generator.random() < KEPT else parameter.sample(generator)
    moved = parameter.place(value) + WIDTH * float(generator.standard_normal())
    return parameter.at(min(max(moved, 0.0), 1.0))
