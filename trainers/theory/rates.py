"""Convergence of server optimizers on quadratics: best linear rates, and the parameters that reach them.

Charles & Konecny [A], Theorem 3 and Table 2; parameters from Lessard, Recht & Packard, "Analysis and Design of
Optimization Algorithms via Integral Quadratic Constraints", Proposition 1. Functions of log(condition number) are
accurate at both ends, for rates of 1e-20 and for condition numbers beyond 1e308.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.spelling import hint
from trainers.values import shown

Array = NDArray[np.float64]
SERVERS = ("sgd", "nesterov", "heavy_ball")
LARGE = 300.0  # above this logarithm, 3 kappa + 1 rounds to 3 kappa


@dataclass(frozen=True)
class ServerParameters:
    """The parameters of a server optimizer that reach its best rate.

    Args:
        server_lr: multiplies the pseudo-gradient.
        momentum: 0 is plain SGD.
        nesterov: momentum in Nesterov's form.
        rate: the resulting asymptotic linear rate.
    """

    server_lr: float
    momentum: float
    nesterov: bool
    rate: float


def rate(server: str, condition_number: Any) -> Array:
    """Best linear rate ([A] Table 2) for a condition number of at least 1.

    sgd (k - 1) / (k + 1); nesterov 1 - 2 / sqrt(3 k + 1); heavy_ball (sqrt(k) - 1) / (sqrt(k) + 1). 1 gives 0.

    Args:
        server: "sgd", "nesterov" or "heavy_ball".
        condition_number: any shape.

    Examples:
        >>> [round(float(rate(server, 10.0)), 6) for server in SERVERS]
        [0.818182, 0.640789, 0.519494]
    """
    return rate_from_log(server, np.log(np.asarray(condition_number, float)))


def rate_from_log(server: str, log_condition_number: Any) -> Array:
    """Best linear rate as a function of u = log(condition number).

    sgd tanh(u / 2); nesterov 1 - 2 / sqrt(3 exp(u) + 1); heavy_ball tanh(u / 4). inf gives 1.

    Args:
        server: "sgd", "nesterov" or "heavy_ball".
        log_condition_number: any shape, at least 0.

    Raises:
        SpecError: the server is unknown.
    """
    log = np.asarray(log_condition_number, float)
    if server == "sgd":
        return np.asarray(np.tanh(log / 2))
    if server == "heavy_ball":
        return np.asarray(np.tanh(log / 4))
    if server == "nesterov":
        capped = np.minimum(log, LARGE)
        root = np.sqrt(3 * np.exp(capped) + 1)
        return np.asarray(np.where(log > LARGE, 1.0, 3 * np.expm1(capped) / (root * (root + 2))))
    raise unknown_server(server)


def condition_number_of_rate(server: str, best_rate: Any) -> Array:
    """The condition number at which a server has the given best rate; the inverse of `rate`.

    Args:
        server: "sgd", "nesterov" or "heavy_ball".
        best_rate: any shape, in [0, 1).

    Examples:
        >>> round(float(condition_number_of_rate("nesterov", rate("nesterov", 7.0))), 9)
        7.0
    """
    value = np.asarray(best_rate, float)
    if server == "sgd":
        return np.asarray((1 + value) / (1 - value))
    if server == "heavy_ball":
        return np.asarray(((1 + value) / (1 - value)) ** 2)
    if server == "nesterov":
        return np.asarray(((2 / (1 - value)) ** 2 - 1) / 3)
    raise unknown_server(server)


def best_parameters(server: str, smallest: float, largest: float) -> ServerParameters:
    """The parameters that reach the best rate on a quadratic with Hessian eigenvalues in [smallest, largest].

    Args:
        server: "sgd", "nesterov" or "heavy_ball".
        smallest: smallest eigenvalue of the surrogate's Hessian, above 0.
        largest: largest eigenvalue of the surrogate's Hessian.

    Raises:
        SpecError: the server is unknown, or not 0 < smallest <= largest.

    Examples:
        >>> best_parameters("sgd", 1.0, 3.0)
        ServerParameters(server_lr=0.5, momentum=0.0, nesterov=False, rate=0.5)
    """
    if not 0 < smallest <= largest:
        raise SpecError(f"eigenvalues must satisfy 0 < smallest <= largest, got {shown(smallest)} and {shown(largest)}")
    condition = largest / smallest
    best = float(rate(server, condition))
    if server == "sgd":
        return ServerParameters(2 / (largest + smallest), 0.0, False, best)
    if server == "nesterov":
        root = np.sqrt(3 * condition + 1)
        return ServerParameters(4 / (3 * largest + smallest), float((root - 2) / (root + 2)), True, best)
    return ServerParameters(float(4 / (np.sqrt(largest) + np.sqrt(smallest)) ** 2), best**2, False, best)


def asymptotic_rate(eigenvalues: Any, server_lr: float, momentum: float = 0.0, nesterov: bool = False) -> float:
    """Spectral radius of the server's iteration on a quadratic, for any parameters.

    sgd |1 - server_lr e|; heavy ball the roots of z^2 - (1 + momentum - server_lr e) z + momentum; Nesterov those of
    z^2 - (1 + momentum)(1 - server_lr e) z + momentum (1 - server_lr e).

    Args:
        eigenvalues: (d,) eigenvalues of the surrogate's Hessian.
        server_lr: multiplies the gradient.
        momentum: 0 is plain SGD.
        nesterov: momentum in Nesterov's form.

    Examples:
        >>> round(asymptotic_rate([1.0, 3.0], 0.5), 12)
        0.5
    """
    kept = 1 - server_lr * np.asarray(eigenvalues, float)
    trace = (1 + momentum) * kept if nesterov else kept + momentum
    product = momentum * kept if nesterov else np.full_like(kept, momentum)
    root = np.sqrt((trace**2 - 4 * product).astype(complex))
    return float(np.maximum(np.abs(trace + root), np.abs(trace - root)).max() / 2)


def unknown_server(server: str) -> SpecError:
    """The error for a server optimizer without a known best rate."""
    return SpecError(
        f"server must be one of {', '.join(SERVERS)}, got {shown(server)}; {hint(server, SERVERS)}", "server"
    )
