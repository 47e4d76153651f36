"""The trade-off between convergence and accuracy: rate against suboptimality, as points and as closed-form curves.

Charles & Konecny [A], section 5 and equation (17); the closed forms in u = log(condition number) are derived: with
kappa0 = smoothness / strong_convexity every setting of client_lr, prox and gradient weights lies on one curve

    suboptimality = tanh((log kappa0 - u) / 4),   rate = tanh(u / 2) (sgd), tanh(u / 4) (heavy ball),

and the setting determines the point u in [0, log kappa0].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.theory.interval import Curvature, log_condition_number, log_distortion_ratio
from trainers.theory.rates import condition_number_of_rate, rate_from_log
from trainers.theory.surrogate import checked
from trainers.theory.weights import Weights

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TradeoffPoint:
    """The trade-off of one setting.

    Args:
        condition_number: of the surrogate in the worst case; inf if it overflows or the surrogate is not convex.
        log_condition_number: its logarithm.
        rate: best linear rate of the server optimizer (rho); 1 if the surrogate is not convex.
        suboptimality: distance between the optima over its largest value (Delta), in [0, 1]; nan if undefined.
        messages: warnings about values outside the range of the theory.
    """

    condition_number: float
    log_condition_number: float
    rate: float
    suboptimality: float
    messages: tuple[str, ...] = ()


def tradeoff_point(
    curvature: Curvature, client_lr: float, weights: Weights, server: str = "sgd", prox: float = 0.0
) -> TradeoffPoint:
    """Rate and suboptimality of a setting, in the worst case over all clients with this curvature.

    The suboptimality is (sqrt b - sqrt a) / (sqrt b + sqrt a), with the extreme eigenvalues a, b of the distortion
    ([A] Lemma 5). It equals [A] (17) where (17) holds, and the papers' simulated MAML curves elsewhere.

    Args:
        curvature: bounds of the Hessians.
        client_lr: client rate, at least 0.
        weights: gradient weights.
        server: "sgd", "nesterov" or "heavy_ball", with its best parameters.
        prox: proximal strength, at least 0.

    Raises:
        SpecError: a hyperparameter is negative, or the server is unknown.

    Examples:
        >>> from trainers.theory.weights import all_steps
        >>> point = tradeoff_point(Curvature(1, 10), 0.05, all_steps(10))
        >>> round(point.condition_number, 6), round(point.rate, 6), round(point.suboptimality, 6)
        (2.489697, 0.426884, 0.334251)
    """
    client_lr, prox = float(checked(client_lr, "client_lr")), float(checked(prox, "prox"))
    log = log_condition_number(curvature, client_lr, weights, prox)
    ratio = log_distortion_ratio(curvature, client_lr, weights, prox)
    messages = []
    if client_lr * (curvature.smoothness + prox) >= 1 and weights.local_steps > 1:
        messages.append(
            "client_lr must be below 1 / (L + prox) for the theory to hold, got "
            f"client_lr * (L + prox) = {client_lr * (curvature.smoothness + prox):.6g}"
        )
    if np.isinf(log):
        messages.append("the surrogate of some client with this curvature is not strongly convex: no linear rate")
    with np.errstate(over="ignore"):
        condition = float(np.exp(log))
    if client_lr == 0 or weights.local_steps == 1:
        condition = curvature.smoothness / curvature.strong_convexity
    return TradeoffPoint(condition, log, float(rate_from_log(server, log)), float(np.tanh(ratio / 4)), tuple(messages))


def suboptimality(condition_number: Any, surrogate_condition_number: Any) -> Array:
    """(sqrt kappa0 - sqrt kappa) / (sqrt kappa0 + sqrt kappa) = tanh(log(kappa0 / kappa) / 4) ([A] (17)).

    Args:
        condition_number: kappa0 of the loss.
        surrogate_condition_number: kappa of the surrogate by [A] (11) or (13); kappa0 gives 0.

    Examples:
        >>> round(float(suboptimality(10.0, 1.0)), 6)
        0.519494
    """
    gap = np.log(np.asarray(condition_number, float)) - np.log(np.asarray(surrogate_condition_number, float))
    return np.asarray(np.tanh(gap / 4))


def suboptimality_from_distortion(distortion_min: Any, distortion_max: Any) -> Array:
    """(sqrt b - sqrt a) / (sqrt b + sqrt a) from the extreme eigenvalues a, b of the distortion ([A] Lemma 5).

    Examples:
        >>> float(suboptimality_from_distortion(1.0, 9.0))
        0.5
    """
    low, high = np.sqrt(np.asarray(distortion_min, float)), np.sqrt(np.asarray(distortion_max, float))
    return np.asarray((high - low) / (high + low))


def frontier(server: str, curvature: Curvature, best_rate: Any) -> Array:
    """The curve of a server optimizer: suboptimality as a function of the best rate.

    sgd: 2 atanh(rate) + 4 atanh(suboptimality) = log kappa0. heavy_ball: suboptimality = (s - rate) / (1 - s rate),
    symmetric in both, with s = `one_shot_suboptimality`.

    Args:
        server: "sgd", "nesterov" or "heavy_ball".
        curvature: bounds of the Hessians.
        best_rate: any shape, from 0 to the server's rate on the loss itself.

    Examples:
        >>> ten = Curvature(1, 10)
        >>> round(float(frontier("heavy_ball", ten, 0.0)), 6), round(float(frontier("heavy_ball", ten, 0.4)), 6)
        (0.519494, 0.150838)
    """
    log = np.log(condition_number_of_rate(server, best_rate))
    return np.tanh((curvature.log_condition_number - log) / 4)


def one_shot_suboptimality(curvature: Curvature) -> float:
    """(sqrt kappa0 - 1) / (sqrt kappa0 + 1): suboptimality s of one-shot averaging, which has rate 0."""
    return float(np.tanh(curvature.log_condition_number / 4))


def smallest_condition_number(curvature: Curvature, prox: float = 0.0) -> float:
    """L (mu + prox) / (mu (L + prox)): the limit of infinitely many steps that all count; 1 without prox (derived)."""
    low, high = curvature.strong_convexity, curvature.smoothness
    return high * (low + prox) / (low * (high + prox))
