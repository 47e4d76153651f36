"""The clients' weights: reads and checks those of a task, and makes those of a trial."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.problem import Examples, Problem
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


def weights_under(weighting: str, sizes: NDArray[np.int64] | None, clients: int) -> NDArray[np.float64]:
    """(clients,) weights with sum 1, for a task without weights of its own.

    Args:
        weighting: "examples" weights clients by their numbers of examples, "uniform" equally.
        sizes: (clients,) numbers of examples; None if they cannot be counted, which leaves "uniform".
        clients: size of the population.
    """
    if weighting == "examples" and sizes is not None:
        return np.asarray(sizes / sizes.sum())
    return np.full(clients, 1 / clients)


def weighted(problem: Problem, weighting: str) -> Problem:
    """The problem with the clients' weights under a weighting, and with the optimum that follows from them.

    Args:
        problem: as the task builds it.
        weighting: "examples", or "uniform", which keeps weights that the problem brings.

    Raises:
        SpecError: "examples" for a problem that brings weights.
    """
    train, weights = problem.train, problem.client_weights
    if weights is None:
        weights = weights_under(weighting, train.sizes if isinstance(train, Examples) else None, train.clients)
    elif weighting == "examples":
        raise SpecError('weighting must be uniform for a task with weights of its own, got "examples"', "weighting")
    optimum = problem.optimum(weights) if callable(problem.optimum) else problem.optimum
    return replace(problem, client_weights=weights, optimum=optimum)
