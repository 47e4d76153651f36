"""The server's own quadratic loss in mixed federated learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    """Checks the central loss.

    Args:
        hessian: (d, d) symmetric positive definite.
        center: (d,).

    Raises:
        SpecError: as for clients.
    """
    single = client_quadratics(np.asarray(hessian, float)[None], np.asarray(center, float)[None])
    return CentralQuadratic(single.hessians[0], single.centers[0], single)
