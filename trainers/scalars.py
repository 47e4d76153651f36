"""Numbers as they come from JSON and YAML documents: checked, and shown in errors."""

from __future__ import annotations

import json
import math
import numbers
import re
from typing import Any

from trainers.errors import SpecError

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_SHOWN_LENGTH = 60


def number(value: Any, path: str) -> float:
    """A finite number as float.

    Texts such as "1e-3" count, since YAML 1.1 loaders read that as text; booleans, infinities and NaN do not.

    Args:
        value: as it came from a document.
        path: dotted place of the value, for the error.

    Raises:
        SpecError: not a finite number.

    Examples:
        >>> number("1e-3", "method.client_lr")
        0.001
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise SpecError(f"{path} must be a number, got {last(path)}={shown(value)}", path)
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise SpecError(f"{path} must be finite, got {last(path)}={shown(value)}", path)
    return result


def integer(value: Any, path: str) -> int:
    """A whole number as int; 10.0 and "10" count as 10.

    Args:
        value: as it came from a document.
        path: dotted place of the value, for the error.

    Raises:
        SpecError: not a whole number.

    Examples:
        >>> integer(10.0, "rounds")
        10
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        result = number(value, path)
    except SpecError as error:
        raise SpecError(f"{path} must be a whole number, got {last(path)}={shown(value)}", path) from error
    if result != math.floor(result):
        raise SpecError(f"{path} must be a whole number, got {last(path)}={shown(value)}", path)
    return int(result)


def shown(value: Any) -> str:
    """A value as it stands in an error message: JSON where it can be, on one line, cut when long.

    Examples:
        >>> shown(0.5), shown("a b"), shown(None), shown([1, 2])
        ('0.5', '"a b"', 'null', '[1, 2]')
    """
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = " ".join(repr(value).split())
    if isinstance(value, float) and math.isfinite(value) and value == math.floor(value) and abs(value) < 1e15:
        text = str(int(value))
    return text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 4] + " ..."


def last(path: str) -> str:
    """The last name of a dotted path, with the list indices that follow it.

    Examples:
        >>> last("members.3.client_lr"), last("init.0"), last("task.hessians.0.1.1")
        ('client_lr', 'init.0', 'hessians.0.1.1')
    """
    names = path.split(".")
    first = len(names) - 1
    while first > 0 and names[first].isdigit():
        first -= 1
    return ".".join(names[first:])
