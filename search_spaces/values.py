"""JSON values: which are numbers, and when two are the same."""

from __future__ import annotations

import json
import math
from collections.abc import Hashable
from typing import Any

import numpy as np

from trainers import SpecError, number


def is_real(value: Any) -> bool:
    """Whether the value is a finite number; booleans and strings are not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def rounded(value: float) -> float:
    """The value to 12 significant digits, so that a grid's 0.01 is 0.01."""
    return float(f"{value:.12g}")


def is_json(value: Any) -> bool:
    """Whether JSON can hold the value: no NaN, no infinity, no set."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def plain(value: Any) -> Any:
    """The value, with NumPy numbers and strings that hold a number converted to plain numbers, also inside lists.

    Examples:
        >>> plain("1e-3"), plain("10"), plain("once"), plain([1, "2.5"]), plain(np.float64(0.5))
        (0.001, 10, 'once', [1, 2.5], 0.5)
    """
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, str):
        try:
            as_number = number(value, "")
        except SpecError:
            return value
        return int(as_number) if as_number == math.floor(as_number) and set(value) <= set("+-0123456789") else as_number
    return value


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values in which 1 is 1.0 but true is not 1.

    Examples:
        >>> same(1, 1.0), same(1, True), same([1, 2], (1, 2))
        (True, False, True)
    """
    return identity(one) == identity(other)


def identity(value: Any) -> Hashable:
    """A hashable value that is equal for two JSON values exactly if they are the `same`; for use in sets."""
    if isinstance(value, list | tuple):
        return tuple(identity(item) for item in value)
    if isinstance(value, dict):
        return frozenset((name, identity(item)) for name, item in value.items())
    return (bool, value) if isinstance(value, bool) else (None, value)
