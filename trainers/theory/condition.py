"""Condition number of the surrogate: exact, or by the papers' bounds.

Charles & Konecny [A], Lemmas 2, 3, 4 and 10, equations (9), (11), (13); [B] Corollaries 13 and 14.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trainers.theory.clients import ClientQuadratics
from trainers.theory.interval import Curvature, log_condition_number
from trainers.theory.surrogate import Surrogate, surrogate
from trainers.theory.weights import Weights

Array = NDArray[np.float64]
Kind = Literal["exact", "mean_extremes", "closed_form"]


def surrogate_condition_number(
    clients: ClientQuadratics, client_lr: Any, weights: Weights, prox: Any = 0.0, kind: Kind = "exact"
) -> Array:
    """Condition number of the surrogate; exact <= mean_extremes <= closed_form, where the latter two hold.

    Args:
        clients: (..., clients, d) quadratics.
        client_lr: (...) client rate, at least 0.
        weights: gradient weights.
        prox: (...) proximal strength.
        kind: "exact" from the mean Hessian; "mean_extremes" ([A] (9)): mean of the clients' largest over mean of their
            smallest eigenvalues; "closed_form" ([A] (11), (13)): from the bounds of all Hessians alone, one problem
            at a time.

    Returns:
        (...) at least 1; inf if the surrogate is not strongly convex.
    """
    if kind == "closed_form":
        curvature = Curvature(float(clients.strong_convexity), float(clients.smoothness))
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(log_condition_number(curvature, float(client_lr), weights, float(prox))))
    distorted = surrogate(clients, client_lr, weights, prox)
    return exact(distorted) if kind == "exact" else mean_extremes(distorted)


def exact(distorted: Surrogate) -> Array:
    """Largest over smallest eigenvalue of the surrogate's Hessian, (...)."""
    eigenvalues = distorted.eigenvalues
    return _ratio(eigenvalues[..., 0], eigenvalues[..., -1])


def mean_extremes(distorted: Surrogate) -> Array:
    """Mean of the clients' largest over mean of their smallest surrogate eigenvalues ([A] (9)), (...)."""
    eigenvalues, weights = distorted.client_eigenvalues, distorted.clients.weights
    lowest = np.sum(weights * eigenvalues.min(axis=-1), axis=-1)
    return _ratio(lowest, np.sum(weights * eigenvalues.max(axis=-1), axis=-1))


def _ratio(smallest: Any, largest: Any) -> Array:
    positive = np.asarray(smallest) > 0
    return np.asarray(np.where(positive, largest / np.where(positive, smallest, 1.0), np.inf))
