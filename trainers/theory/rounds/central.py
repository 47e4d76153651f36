"""The server's own quadratic loss in mixed federated learning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.problem import Quadratics
from trainers.theory.clients import ClientQuadratics, client_quadratics

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CentralQuadratic:
    """0.5 (x - center)' hessian (x - center); build with `central_quadratic`.

    Args:
        hessian: (d, d) symmetric positive definite.
        center: (d,).
        clients: the same loss as a single client.
    """

    hessian: Array
    center: Array
    clients: ClientQuadratics


def central_quadratic(hessian: Any, center: Any) -> CentralQuadratic:
    """Builds and checks a central loss.

    Args:
        hessian: (d, d) symmetric positive definite.
        center: (d,).

    Raises:
        SpecError: see `client_quadratics`.
    """
    single = client_quadratics(np.asarray(hessian, float)[None], np.asarray(center, float)[None])
    return CentralQuadratic(single.hessians[0], single.centers[0], single)


def central_of(losses: Quadratics) -> CentralQuadratic:
    """The server's loss from a task, where it is the loss of a single client.

    Args:
        losses: losses of one client.
    """
    return central_quadratic(losses.hessians[0], losses.centers[0])


def scaled(clients: ClientQuadratics, weight: float) -> ClientQuadratics:
    """The losses times a weight.

    Args:
        clients: the clients.
        weight: at least 0.
    """
    return replace(clients, hessians=weight * clients.hessians, eigenvalues=weight * clients.eigenvalues)


def weighted_central(central: CentralQuadratic, weight: float) -> CentralQuadratic:
    """The server's loss times a weight.

    Args:
        central: the loss.
        weight: at least 0; 0 is no loss.
    """
    return CentralQuadratic(weight * central.hessian, central.center, scaled(central.clients, weight))
