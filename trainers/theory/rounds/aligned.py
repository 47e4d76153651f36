"""Methods that align the clients' gradients or correct their drift: FedGA, GradAlign, SCAFFOLD, linear scaling.

Closed forms on quadratics (derived, checked numerically): with Hessians A_i, b_i = A_i c_i, weighted means A and b, and
S_i = sum_(j < K) (I - client_lr A_i)^j, the mean pseudo-gradient is affine in the model. With more than one local step
its matrix is not symmetric, so there is no surrogate function.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainers.theory.clients import ClientQuadratics
from trainers.theory.rounds.affine import AffineRound
from trainers.theory.rounds.local import geometric_sums
from trainers.theory.rounds.remembered import reusing_fedga, stored_scaffold

Array = NDArray[np.float64]


def fedga(
    clients: ClientQuadratics,
    *,
    client_lr: float,
    local_steps: int,
    displacement: float,
    prox: float = 0.0,
    reuse_mean_gradient: bool = False,
) -> AffineRound:
    """sum_i p_i S_i A_i (I + displacement (A_i - A)), pull sum_i p_i S_i (b_i + displacement A_i (b_i - b)).

    Displacement 0 is FedAvg. Biased, except in limit cases. With prox, S_i is that of A_i + prox.
    """
    if reuse_mean_gradient:
        return reusing_fedga(
            clients, client_lr=client_lr, local_steps=local_steps, displacement=displacement, prox=prox
        )
    pulls = np.einsum("ijk,ik->ij", clients.hessians, clients.centers)
    mean_pull = clients.weights @ pulls
    sums = geometric_sums(clients, client_lr, local_steps, prox)
    steered = np.eye(clients.dimension) + displacement * (clients.hessians - clients.hessian)
    gradient = np.einsum("i,ijk,ikl,ilm->jm", clients.weights, sums, clients.hessians, steered, optimize=True)
    turned = pulls + displacement * np.einsum("ijk,ik->ij", clients.hessians, pulls - mean_pull)
    return AffineRound(gradient, np.einsum("i,ijk,ik->j", clients.weights, sums, turned))


def gradalign(clients: ClientQuadratics, *, displacement: float, client_lr: float = 0.0) -> AffineRound:
    """FedGA with one local step: gradient descent on loss + displacement * misalignment; client_lr is not used."""
    return fedga(clients, client_lr=0.0, local_steps=1, displacement=displacement)


def scaffold(
    clients: ClientQuadratics,
    *,
    client_lr: float,
    local_steps: int,
    correction: float = 1.0,
    variates: str = "fresh",
    variate_update: str = "path",
) -> AffineRound:
    """sum_i p_i S_i (A_i + correction (A - A_i)); correction 1 is SCAFFOLD, which finds the optimum, 0 is FedAvg."""
    if variates == "stored":
        return stored_scaffold(
            clients,
            client_lr=client_lr,
            local_steps=local_steps,
            correction=correction,
            variate_update=variate_update,
        )
    pulls = np.einsum("ijk,ik->ij", clients.hessians, clients.centers)
    sums = geometric_sums(clients, client_lr, local_steps)
    steered = clients.hessians + correction * (clients.hessian - clients.hessians)
    turned = pulls + correction * (clients.weights @ pulls - pulls)
    gradient = np.einsum("i,ijk,ikl->jl", clients.weights, sums, steered)
    return AffineRound(gradient, np.einsum("i,ijk,ik->j", clients.weights, sums, turned))


def regularized_gd(clients: ClientQuadratics, *, misalignment_weight: float) -> AffineRound:
    """Gradient descent on loss + misalignment_weight * misalignment: A + weight D, D = sum_i p_i (A_i - A)^2."""
    pulls = np.einsum("ijk,ik->ij", clients.hessians, clients.centers)
    gaps = clients.hessians - clients.hessian
    mean_pull = clients.weights @ pulls
    spread = np.einsum("i,ijk,ikl->jl", clients.weights, gaps, gaps)
    turned = np.einsum("i,ijk,ik->j", clients.weights, gaps, pulls - mean_pull)
    return AffineRound(clients.hessian + misalignment_weight * spread, mean_pull + misalignment_weight * turned)


def linear_scaling(clients: ClientQuadratics) -> AffineRound:
    """The gradient of the sum of the losses, n A for n clients."""
    count = len(clients.weights)
    pulls = np.einsum("i,ijk,ik->j", clients.weights, clients.hessians, clients.centers)
    return AffineRound(count * clients.hessian, count * pulls)


def aligned_linear_scaling(clients: ClientQuadratics, *, client_lr: float) -> AffineRound:
    """The matrix sum_i v_i A_i (I - client_lr (n A - v_i A_i) / 2) for n clients, with v_i = n p_i.

    client_lr 0 is linear scaling.
    """
    count = len(clients.weights)
    relative = count * clients.weights
    pulls = np.einsum("ijk,ik->ij", clients.hessians, clients.centers)
    others = client_lr / 2 * (count * clients.hessian - relative[:, None, None] * clients.hessians)
    gradient = np.einsum("i,ijk,ikl->jl", clients.weights, clients.hessians, np.eye(clients.dimension) - others)
    turned = pulls - client_lr / 2 * np.einsum(
        "ijk,ik->ij", clients.hessians, relative @ pulls - relative[:, None] * pulls
    )
    return AffineRound(count * gradient, count * (clients.weights @ turned))
