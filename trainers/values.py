"""Checks numbers from JSON and YAML documents, and formats values for errors."""

from __future__ import annotations

import json
import math
import numbers
import re
from typing import Any

from trainers.errors import SpecError

LARGEST = 2**63 - 1
"""The largest whole number in a document: the largest that fits into a tensor."""

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_MOST_DIGITS = 400  # of a number in a document; the largest float has 309
_SHOWN_LENGTH = 60
_ENCODER = json.JSONEncoder(ensure_ascii=False)


def number(value: Any, path: str) -> float:
    """A finite number as float.

    Strings such as "1e-3" count, since YAML 1.1 loaders read them as strings; booleans, infinities and NaN do not.

    Args:
        value: the value from a document.
        path: dotted path of the value, for the error.

    Raises:
        SpecError: the value is not a finite number.

    Examples:
        >>> number("1e-3", "method.client_lr")
        0.001
    """
    original = value
    if isinstance(value, str) and len(value) <= _MOST_DIGITS and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _wrong(path, "must be a number", original)
    try:
        result = float(value)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise _wrong(path, "must be finite", original)
    return result


def integer(value: Any, path: str, most: float = LARGEST) -> int:
    """A whole number as int; 10.0 and "10" count as 10.

    Args:
        value: the value from a document.
        path: dotted path of the value, for the error.
        most: the largest magnitude; infinity if the caller checks the range.

    Raises:
        SpecError: the value is not a whole number, or is too large.

    Examples:
        >>> integer(10.0, "rounds")
        10
    """
    result: float = value
    if not isinstance(value, int) or isinstance(value, bool):
        try:
            result = number(value, path)
        except SpecError as error:
            raise _wrong(path, "must be a whole number", value) from error
        if result != math.floor(result):
            raise _wrong(path, "must be a whole number", value)
    if result > most:
        raise _wrong(path, f"must be at most {most}", value)
    if result < -most:
        raise _wrong(path, f"must be at least {-most}", value)
    return int(result)


def digits(text: str) -> int:
    """Reads a whole number from the digits in a JSON or YAML document.

    Python itself refuses thousands of digits with a ValueError that says neither where nor why.

    Args:
        text: decimal digits, with or without a sign.

    Raises:
        SpecError: there are too many digits.

    Examples:
        >>> digits("-12")
        -12
    """
    if len(text) > _MOST_DIGITS:
        raise SpecError(f"a number must have at most {_MOST_DIGITS} digits, got {shown(text)} of {len(text)} digits")
    return int(text)


def shown(value: Any) -> str:
    """A value for an error message: JSON if possible, on one line, shortened if long.

    For values of any size the result has at most 60 characters and takes microseconds.

    Examples:
        >>> shown(0.5), shown("a b"), shown(None), shown([1, 2])
        ('0.5', '"a b"', 'null', '[1, 2]')
        >>> shown("fedavg" * 100_000)
        '"fedavgfedavgfedavgfedavgfedavgfedavgfedavgfedavgfedavgf ...'
    """
    if isinstance(value, float) and math.isfinite(value) and value == math.floor(value) and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, str):
        value = value[: _SHOWN_LENGTH + 1]
    if isinstance(value, int) and abs(value) >= 10**_SHOWN_LENGTH:
        return f"a number of about {int(value.bit_length() * math.log10(2)) + 1} digits"
    text = ""
    try:
        for piece in _ENCODER.iterencode(value):  # piece by piece, so that a long list is not encoded in full
            text += piece[: _SHOWN_LENGTH + 1]
            if len(text) > _SHOWN_LENGTH:
                break
    except (TypeError, ValueError, RecursionError):  # not JSON, or contains a number of thousands of digits
        text = _written(value)
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")  # lone surrogates cannot be printed
    return text if len(text) <= _SHOWN_LENGTH else text[: _SHOWN_LENGTH - 4] + " ..."


def step(key: Any) -> str:
    """A key for a dotted path: like `shown`, without quotation marks.

    Examples:
        >>> step("client_lr"), step(3)
        ('client_lr', '3')
    """
    text = shown(key)
    return text.removeprefix('"').removesuffix('"') if isinstance(key, str) else text


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


def _wrong(path: str, rule: str, value: Any) -> SpecError:
    name = f"{last(path)}=" if path else ""
    return SpecError(f"{path} {rule}, got {name}{shown(value)}", path)


def _written(value: Any) -> str:
    """The representation in Python of a value that is not JSON."""
    try:
        return " ".join(repr(value).split())
    except (ValueError, RecursionError):
        return f"a {type(value).__name__}"
