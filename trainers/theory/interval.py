"""Extreme values of the surrogate's eigenvalues over all Hessian eigenvalues between strong_convexity and smoothness.

If the surrogate's eigenvalue e q(e) grows with e, the extreme values are those at both ends, which gives [A] (11) and
(13). Otherwise extremes inside the interval count too. This is the limit of a dense spectrum, which the papers'
simulated MAML curves approach (spectra of random matrices in high dimension).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.theory.spectrum import log_distortion, log_one_minus_exp
from trainers.theory.weights import Weights
from trainers.values import shown

Array = NDArray[np.float64]
GRID = 2001
REFINEMENTS = 6


@dataclass(frozen=True)
class Curvature:
    """Bounds of all clients' Hessians.

    Args:
        strong_convexity: lower bound of their eigenvalues (mu), above 0.
        smoothness: upper bound of their eigenvalues (L), at least strong_convexity.
    """

    strong_convexity: float
    smoothness: float

    def __post_init__(self) -> None:
        if not 0 < self.strong_convexity < np.inf:
            raise SpecError(f"mu must be above 0 and finite, got mu={shown(self.strong_convexity)}", "mu")
        if not self.strong_convexity <= self.smoothness < np.inf:
            raise SpecError(
                f"L must be finite and at least mu={shown(self.strong_convexity)}, got L={shown(self.smoothness)}; "
                "mu is the smallest and L the largest curvature",
                "L",
            )

    @property
    def log_condition_number(self) -> float:
        """Logarithm of smoothness / strong_convexity (kappa0)."""
        return float(np.log(self.smoothness) - np.log(self.strong_convexity))


def log_condition_number(curvature: Curvature, client_lr: float, weights: Weights, prox: float = 0.0) -> float:
    """Logarithm of the largest over the smallest eigenvalue that the surrogate can have; inf if it is not convex.

    [A] (11) for all steps and client_lr <= 1 / (smoothness + prox); [A] (13) for the last step and client_lr <=
    1 / (K smoothness + prox); the dense-spectrum limit otherwise. No local work (client_lr = 0 or one step) gives the
    condition number of the loss for any prox.

    Args:
        curvature: bounds of the Hessians.
        client_lr: client rate, at least 0.
        weights: gradient weights.
        prox: proximal strength, at least 0.

    Examples:
        >>> from trainers.theory.weights import all_steps
        >>> round(float(np.exp(log_condition_number(Curvature(1, 10), 0.05, all_steps(10)))), 6)
        2.489697
    """
    low, high = curvature.strong_convexity, curvature.smoothness
    largest_shift = client_lr * (high + prox)
    if client_lr == 0 or weights.local_steps == 1:
        return curvature.log_condition_number
    if weights.pattern == "all" and largest_shift <= 1:
        return _log_ratio_of_all_steps(low, high, client_lr, weights.local_steps, prox)
    if _vanishes(curvature, client_lr, weights, prox):
        return np.inf
    if weights.pattern == "last":
        candidates = [low, high]
        peak = peak_of_last_step(client_lr, weights.local_steps, prox)
        if low < peak < high:
            candidates.append(peak)
        sign, log = _log_eigenvalue(np.array(candidates), client_lr, weights, prox)
        return float(log.max() - log.min()) if (sign > 0).all() else np.inf
    extremes = extreme_logs(lambda e: _log_eigenvalue(e, client_lr, weights, prox), curvature)
    return extremes[1] - extremes[0] if extremes else np.inf


def log_distortion_ratio(curvature: Curvature, client_lr: float, weights: Weights, prox: float = 0.0) -> float:
    """Logarithm of b / a, the extreme eigenvalues that a distortion matrix can have ([A] Lemmas 5, 6, [B] Lemma 6).

    The distortion falls with the eigenvalue if client_lr <= 1 / (smoothness + prox). nan if it is not positive.

    Args:
        curvature: bounds of the Hessians.
        client_lr: client rate, at least 0.
        weights: gradient weights.
        prox: proximal strength, at least 0.
    """
    ends = np.array([curvature.strong_convexity, curvature.smoothness])
    if client_lr == 0 or weights.local_steps == 1:
        return 0.0
    if client_lr * (curvature.smoothness + prox) <= 1:
        logs = log_distortion(ends, client_lr, weights, prox)[1]
        return float(logs[0] - logs[1])
    if _vanishes(curvature, client_lr, weights, prox):
        return np.nan
    extremes = extreme_logs(lambda e: log_distortion(e, client_lr, weights, prox), curvature)
    return extremes[1] - extremes[0] if extremes else np.nan


def _vanishes(curvature: Curvature, client_lr: float, weights: Weights, prox: float) -> bool:
    """Whether some eigenvalue has client_lr (e + prox) = 1, where only the first gradient is left, with weight 0."""
    low, high = client_lr * (curvature.strong_convexity + prox), client_lr * (curvature.smoothness + prox)
    first = weights.pattern == "all" or (weights.pattern == "listed" and weights.values[0] > 0)
    return low <= 1 <= high and not first


def peak_of_last_step(client_lr: float, local_steps: int, prox: float = 0.0) -> float:
    """The Hessian eigenvalue at which psi is largest: (1 - client_lr prox) / (client_lr K)."""
    return (1 - client_lr * prox) / (client_lr * local_steps)


def extreme_logs(log_value: Callable[[Array], tuple[Array, Array]], curvature: Curvature) -> tuple[float, float] | None:
    """Smallest and largest logarithm of a function over the interval, on a refined grid; None if it is not positive.

    Args:
        log_value: returns sign and logarithm of the function at eigenvalues (n,).
        curvature: ends of the interval.
    """
    low, high = curvature.strong_convexity, curvature.smoothness
    grid = np.union1d(np.linspace(low, high, GRID), np.clip(np.geomspace(low, high, GRID), low, high))
    smallest = _refined(lambda e: _signed_log(log_value, e), grid, -1.0)
    largest = _refined(lambda e: _signed_log(log_value, e), grid, 1.0)
    return (smallest, largest) if np.isfinite(smallest) else None


def _signed_log(log_value: Callable[[Array], tuple[Array, Array]], eigenvalues: Array) -> Array:
    sign, log = log_value(eigenvalues)
    return np.asarray(np.where(sign > 0, log, -np.inf))


def _refined(value: Callable[[Array], Array], grid: Array, direction: float) -> float:
    """Maximum of direction * value, refined around the best grid point, times direction."""
    values = direction * value(grid)
    for _ in range(REFINEMENTS):
        best = int(np.argmax(values))
        if np.isinf(values[best]):
            break
        grid = np.linspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], GRID // 20)
        values = direction * value(grid)
    return direction * float(values.max())


def _log_eigenvalue(eigenvalues: Array, client_lr: float, weights: Weights, prox: float) -> tuple[Array, Array]:
    sign, log = log_distortion(eigenvalues, client_lr, weights, prox)
    return sign, log + np.log(eigenvalues)


def _log_ratio_of_all_steps(low: float, high: float, client_lr: float, steps: int, prox: float) -> float:
    """log(phi(high) / phi(low)); small powers are treated separately, so that a ratio near 1 keeps its digits."""
    shifts = client_lr * (np.array([low, high]) + prox)
    with np.errstate(divide="ignore"):
        exponents = steps * np.log1p(-shifts)
    if exponents[0] > -1:
        ends = np.array([low, high])
        logs = log_distortion(ends, client_lr, Weights("all", steps), prox)[1] + np.log(ends)
        return float(logs[1] - logs[0])
    powers = log_one_minus_exp(exponents)
    limit = np.log1p(prox * (high - low) / (low * (high + prox)))  # for infinitely many steps
    return float(limit + max(powers[1] - powers[0], 0.0))
