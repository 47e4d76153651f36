"""The theory's prediction for a setting of a quadratic trial: the limit and rate of its measured curve."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.problem import Problem, Quadratics
from trainers.theory.clients import ClientQuadratics
from trainers.theory.rates import rate as best_rate_of
from trainers.theory.rounds.affine import AffineRound, with_server
from trainers.theory.rounds.central import CentralQuadratic
from trainers.theory.rounds.methods import (
    LINEAR_SERVERS,
    affine_round,
    fixed_point,
    optimum,
    server_momentum,
    server_rate,
)
from trainers.theory.warning import TheoryWarning

Array = NDArray[np.float64]
SYMMETRY = 1e-10


@dataclass(frozen=True)
class SettingPoint:
    """The prediction for a setting, with exact gradients and all clients.

    Args:
        rate: spectral radius of the round with this server, 1 or more if it diverges; None for servers that are not
            linear (Adagrad, Adam, ...).
        best_rate: the rate with the best server_lr and momentum of the same kind of server; None if unknown.
        distance: distance between the method's fixed point and the optimum of the loss.
        surrogate_optimum: (d,) the fixed point.
        optimum: (d,) optimum of the loss.
        messages: warnings of the theory.
    """

    rate: float | None
    best_rate: float | None
    distance: float
    surrogate_optimum: Array
    optimum: Array
    messages: tuple[str, ...] = ()


def setting_point(
    problem: Problem | Quadratics | ClientQuadratics,
    method: Mapping[str, Any],
    server: Mapping[str, Any] | None = None,
    central: CentralQuadratic | None = None,
) -> SettingPoint:
    """Rate, distance and surrogate optimum of one setting.

    Args:
        problem: quadratic clients, with the weights of the trial (the task's weights if all clients take part, equal
            weights if clients are sampled uniformly).
        method: name and hyperparameters as in a trial document, server_lr or delta_lr included.
        server: {"name": "sgd", "momentum": 0.9, "nesterov": True} or another server; None is plain SGD.
        central: the server's own loss, for mixed methods.

    Raises:
        SpecError: the method has no closed form, a hyperparameter is unknown or missing, or the problem is not
            quadratic.

    Examples:
        >>> from trainers.theory.families import two_clients
        >>> method = {"name": "fedavg", "client_lr": 0.25, "server_lr": 0.5, "local_steps": 2}
        >>> point = setting_point(two_clients(), method)
        >>> round(point.rate, 6), round(point.distance, 6)
        (0.1875, 0.017544)
    """
    server = server or {"name": "sgd"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TheoryWarning)
        affine = affine_round(method, problem, central)
        limit = fixed_point(method, problem, central)
        true = optimum(method, problem, central)
    messages = tuple(dict.fromkeys(str(entry.message) for entry in caught if entry.category is TheoryWarning))
    rate: float | None = None
    best: float | None = None
    if server.get("name", "sgd") in LINEAR_SERVERS:
        form = server_momentum(server)
        whole = with_server(affine, server_rate(method), *form)
        rate = whole.rate
        if affine.carry is not None:  # if other steps move the model too, the limit depends on the server's momentum
            limit = whole.fixed_point
        best = _best_rate(affine, *form)
    return SettingPoint(rate, best, float(np.linalg.norm(limit - true)), limit, true, messages)


def _best_rate(affine: AffineRound, momentum: float, nesterov: bool) -> float | None:
    """The best rate by [A] Table 2, if a round is gradient descent on a surrogate function; else None."""
    if not np.isfinite(affine.gradient).all():
        return None
    symmetric = affine.carry is None and np.allclose(affine.gradient, affine.gradient.T, rtol=0, atol=_size(affine))
    if not symmetric:
        return None
    eigenvalues = np.linalg.eigvalsh((affine.gradient + affine.gradient.T) / 2)
    if not eigenvalues[0] > 0:
        return None
    kind = "sgd" if momentum == 0 else "nesterov" if nesterov else "heavy_ball"
    return float(best_rate_of(kind, eigenvalues[-1] / eigenvalues[0]))


def _size(affine: AffineRound) -> float:
    return SYMMETRY * float(np.abs(affine.gradient).max())
