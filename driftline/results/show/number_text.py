"""How numbers are written for people."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any

from trainers import cost_named

_LISTED = 10  # values of a list that are shown in full


def number(value: float, digits: int = 4) -> str:
    """A number to `digits` significant digits, without trailing zeros; from 100,000 on with k, M, G or T.

    Examples:
        >>> number(0.953125), number(42.0), number(12345.6), number(1234567.0), number(2.5e-7), number(0.0)
        ('0.9531', '42', '12350', '1.235M', '2.5e-07', '0')
    """
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e5, "k")):
        if limit <= abs(value) < 1e15:
            return f"{_rounded(value / (1e3 if letter == 'k' else limit), digits)}{letter}"
    return f"{value:.0f}" if float(value).is_integer() and abs(value) < 1e15 else _rounded(value, digits)


def _rounded(value: float, digits: int) -> str:
    text = f"{value:.{digits}g}"
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e5 else text  # 12350, not 1.235e+04


def banded(value: float, low: float, high: float) -> str:
    """A number with its band in brackets (three digits), or alone when there is no band.

    Examples:
        >>> banded(0.5, 0.4, 0.62), banded(0.5, 0.5, 0.5)
        ('0.5 (0.4-0.62)', '0.5')
    """
    if low == high:
        return number(value)
    dash = " to " if min(low, high) < 0 else "-"
    return f"{number(value)} ({number(low, 3)}{dash}{number(high, 3)})"


def plain(value: Any) -> str:
    """A hyperparameter's value: numbers to four digits, true, false and null as in YAML, everything else as it is.

    Of a list of more than ten values, the first three, the last one and their count.

    Examples:
        >>> plain(0.123456), plain(True), plain("sgd"), plain([1, 0.123456])
        ('0.1235', 'true', 'sgd', '[1, 0.1235]')
        >>> plain(list(range(1000)))
        '[0, 1, 2, ..., 999] (1000 values)'
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, list | tuple):
        if len(value) <= _LISTED:
            return f"[{', '.join(map(plain, value))}]"
        return f"[{', '.join(map(plain, value[:3]))}, ..., {plain(value[-1])}] ({len(value)} values)"
    return number(value) if isinstance(value, int | float) else str(value)


def hyperparameters_text(values: Mapping[str, Any], inactive: Collection[str] = ()) -> str:
    """The values, sorted by name; beside ``server_lr`` the step on the server in the terms of other frameworks.

    Args:
        values: A configuration.
        inactive: Its hyperparameters that change nothing.

    Examples:
        >>> hyperparameters_text({"client_lr": 0.5, "server_lr": 2.0, "server.momentum": 0.9})
        'client_lr 0.5, server.momentum 0.9, server_lr 2 (delta_lr 4)'
        >>> hyperparameters_text({"client_lr": 0.5, "local_steps": 1, "server_lr": 2.0}, {"client_lr"})
        'client_lr any, local_steps 1, server_lr 2'
    """
    ratio = None if "client_lr" in inactive else delta_lr(values)
    step = "" if ratio is None else f" (delta_lr {plain(ratio)})"
    return ", ".join(
        f"{name} any" if name in inactive else f"{name} {plain(value)}{step if name == 'server_lr' else ''}"
        for name, value in sorted(values.items())
    )


def delta_lr(values: Mapping[str, Any]) -> float | None:
    """server_lr / client_lr, which multiplies the mean change of the clients' models: 1 moves to their mean.

    server_lr itself multiplies the sum of a client's gradients.
    """
    server, client = values.get("server_lr"), values.get("client_lr")
    if not isinstance(server, int | float) or not isinstance(client, int | float) or client <= 0:
        return None
    return None if "delta_lr" in values else server / client


def whole_range(first: float, end: float, cost: str) -> str:
    """``17 to 66``: the whole numbers from one cost up to, but without, another, or both costs for a cost in seconds.

    "" if there is no whole number between them.

    Examples:
        >>> whole_range(17.2, 67.0, "rounds"), whole_range(17.2, 17.9, "rounds"), whole_range(0.125, 0.5, "time")
        ('18 to 66', '', '0.125 to 0.5')
    """
    if cost_named(cost).whole:
        first, end = math.ceil(first), math.ceil(end) - 1
    return f"{number(first, 3)} to {number(end, 3)}" if first <= end else ""
