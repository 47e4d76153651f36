"""Bounds on the distance between the surrogate's optimum and the true one.

Theorems 16, 17, 21 and Corollaries 19, 20 of Charles & Konecny [B], section 6, hold in any dimension. In [A], section
4.3, Lemma 12 (one dimension) holds; Lemma 5 and Theorem 4 do not hold in two dimensions or more. [B] Corollary 22 does
not hold for many local steps. These three are only for reports (`counterexamples`). All of [B] assumes prox = 0 and
client_lr below 1 / smoothness.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.theory.clients import ClientQuadratics
from trainers.theory.spectrum import distortion, phi
from trainers.theory.surrogate import Surrogate
from trainers.theory.weights import Weights

Array = NDArray[np.float64]


def lemma_12(distorted: Surrogate) -> Array:
    """2 C (sqrt b - sqrt a) / (sqrt b + sqrt a) ([A] Lemma 12, d = 1; tight). In any dimension: the conjecture of [A].

    Args:
        distorted: the surrogate; the bound is nan if a distortion is not positive.
    """
    return np.asarray(2 * distorted.clients.center_bound * np.tanh(distorted.log_distortion_ratio / 4))


def lemma_5(distorted: Surrogate) -> Array:
    """8 C (sqrt b - sqrt a) / (sqrt b + sqrt a) ([A] Lemma 5): false for d >= 2, for reports only."""
    return 4 * lemma_12(distorted)


def theorem_4(center_bound: Any, condition_number: Any, surrogate_condition_number: Any) -> Array:
    """8 C (sqrt kappa0 - sqrt kappa) / (sqrt kappa0 + sqrt kappa) ([A] Theorem 4): false for d >= 2, for reports only.

    Args:
        center_bound: largest norm of a client's minimizer (C).
        condition_number: kappa0.
        surrogate_condition_number: kappa by [A] (11) or (13).
    """
    gap = np.log(np.asarray(condition_number, float)) - np.log(np.asarray(surrogate_condition_number, float))
    return np.asarray(8 * np.asarray(center_bound, float) * np.tanh(gap / 4))


def corollary_1(rate: Any, rounds: Any, start_distance: Any, limit_distance: Any) -> Array:
    """rate^T |x_0 - surrogate optimum| + bound on the distance of the optima ([A] Corollary 1).

    Holds for plain SGD servers if `limit_distance` is a valid bound (Theorem 16 or 17), so in general not with [A]
    Theorem 4. With momentum the first term holds only up to a factor that grows with T.

    Args:
        rate: linear rate.
        rounds: T.
        start_distance: distance from the start to the surrogate's optimum.
        limit_distance: bound on the distance between the optima.
    """
    power = np.asarray(rate, float) ** np.asarray(rounds, float)
    return np.asarray(power * np.asarray(start_distance, float) + np.asarray(limit_distance, float))


def theorem_16(clients: ClientQuadratics, client_lr: Any, weights: Weights) -> Array:
    """(L center_spread / mu) (1 + hessian_spread / mu) (1 - x) / x, x = q(L) / sum of weights ([B] (20), (21)).

    Args:
        clients: (..., clients, d) quadratics.
        client_lr: (...) below 1 / smoothness; 0 gives 0.
        weights: gradient weights.
    """
    low, high = clients.strong_convexity, clients.smoothness
    kept = distortion(high, client_lr, weights) / weights.total
    return high * _spread(clients) / low * (1 - kept) / kept


def theorem_17(clients: ClientQuadratics, client_lr: Any, local_steps: int) -> Array:
    """center_spread (1 + hessian_spread / mu) (K L - phi(L)) / phi(mu), if all steps count ([B] Theorem 17).

    Args:
        clients: (..., clients, d) quadratics.
        client_lr: (...) below 1 / smoothness; 0 gives 0.
        local_steps: K.
    """
    low, high = clients.strong_convexity, clients.smoothness
    lost = local_steps * high - phi(high, client_lr, local_steps)
    return _spread(clients) * lost / phi(low, client_lr, local_steps)


def largest_rate_of_corollary_19(clients: ClientQuadratics, epsilon: float, local_steps: int) -> Array:
    """log(1 / (1 - epsilon)) / (K L): up to this client_lr the surrogate keeps 1 - epsilon ([B] Corollary 19), (...).

    Args:
        clients: (..., clients, d) quadratics.
        epsilon: in [0, 1 - exp(-K)].
        local_steps: K.

    Raises:
        SpecError: epsilon is outside its range.
    """
    if not 0 <= epsilon <= -np.expm1(-float(local_steps)):
        raise SpecError(f"epsilon must be in [0, 1 - exp(-K)] with K={local_steps}, got epsilon={epsilon:g}", "epsilon")
    return np.asarray(-np.log1p(-epsilon) / (local_steps * clients.smoothness))


def corollary_20(clients: ClientQuadratics, epsilon: float) -> Array:
    """center_spread (1 + hessian_spread / mu) (L / mu) epsilon / (1 - epsilon) ([B] Corollary 20).

    Args:
        clients: (..., clients, d) quadratics.
        epsilon: as in `largest_rate_of_corollary_19`, for client_lr up to that rate and if all steps count; 1 (the
            rounded value for many steps) gives inf.
    """
    with np.errstate(divide="ignore"):
        return np.asarray(_spread(clients) * clients.condition_number * np.divide(epsilon, 1 - epsilon))


def theorem_21(clients: ClientQuadratics, lower_lr: Any, higher_lr: Any, local_steps: int) -> Array:
    """Distance between the surrogate optima of two client rates, if all steps count ([B] Theorem 21).

    center_spread (1 + phi_L(higher) / phi_mu(higher)) (phi_L(lower) - phi_L(higher)) / phi_mu(lower).

    Args:
        clients: (..., clients, d) quadratics.
        lower_lr: (...) at least 0.
        higher_lr: (...) at least lower_lr and below 1 / smoothness.
        local_steps: K.
    """
    low, high = clients.strong_convexity, clients.smoothness
    ratio = phi(high, higher_lr, local_steps) / phi(low, higher_lr, local_steps)
    change = phi(high, lower_lr, local_steps) - phi(high, higher_lr, local_steps)
    return clients.center_spread * (1 + ratio) * change / phi(low, lower_lr, local_steps)


def corollary_22(clients: ClientQuadratics, lower_lr: Any, higher_lr: Any) -> Array:
    """2 center_spread (L^3 / mu^2) (higher - lower) as printed ([B] Corollary 22): false for many local steps."""
    low, high = clients.strong_convexity, clients.smoothness
    change = np.asarray(higher_lr, float) - np.asarray(lower_lr, float)
    return np.asarray(2 * clients.center_spread * high**3 / low**2 * change)


def corollary_22_corrected(clients: ClientQuadratics, lower_lr: Any, higher_lr: Any, local_steps: int) -> Array:
    """[B] Corollary 22 with the missing factor K - 1 (derived): follows from Theorem 21, holds for any K."""
    return corollary_22(clients, lower_lr, higher_lr) * (local_steps - 1)


def _spread(clients: ClientQuadratics) -> Array:
    return clients.center_spread * (1 + clients.hessian_spread / clients.strong_convexity)
