"""Reads and checks the clients' weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.values import number, shown

_ROUNDING = 1e-6


def client_weights(value: Any, clients: int, path: str) -> NDArray[np.float64]:
    """(clients,) weights of all clients, at least 0, with sum 1.

    Weights whose sum is within 1e-6 of 1 are normalised.

    Args:
        value: the value from the document.
        clients: number of clients.
        path: dotted path of the value, for the error.

    Raises:
        SpecError: the value is not a list of `clients` numbers, has a negative number, or has another sum.
    """
    if not isinstance(value, (list, tuple)):
        raise SpecError(f"{path} must be a list of {clients} numbers, got {shown(value)}", path)
    if len(value) != clients:
        raise SpecError(f"{path} must have one weight per client: {clients} clients, got {len(value)} weights", path)
    weights = np.array([number(item, f"{path}.{index}") for index, item in enumerate(value)])
    if weights.min() < 0:
        index = int(weights.argmin())
        raise SpecError(f"{path}.{index} must be at least 0, got {weights[index]:g}", f"{path}.{index}")
    try:
        total = math.fsum(weights)
    except OverflowError:
        raise SpecError(f"{path} must sum to 1, got a sum above the largest float", path) from None
    if abs(total - 1) > _ROUNDING:
        raise SpecError(f"{path} must sum to 1, got a sum of {total:.9g}: divide each weight by it", path)
    return np.asarray(weights / total, dtype=np.float64)
