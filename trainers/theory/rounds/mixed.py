"""Mixed federated learning: the clients' losses plus a loss of the server.

Augenstein et al., "Mixed Federated Learning: Joint Decentralized and Centralized Learning", Algorithms 1 and 2; closed
forms on quadratics (derived, checked numerically) for rounds with all clients. Losses include their weights. S_i is as
in `aligned`; S_c is the same sum for the central Hessian C over the central steps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainers.theory.clients import ClientQuadratics, client_quadratics
from trainers.theory.rounds.affine import AffineRound
from trainers.theory.rounds.central import CentralQuadratic
from trainers.theory.rounds.local import fedavg, geometric_sums

Array = NDArray[np.float64]


def parallel_training(
    clients: ClientQuadratics,
    central: CentralQuadratic,
    *,
    client_lr: float,
    local_steps: int,
    central_lr: float,
    central_steps: int | None = None,
    merge_lr: float = 1.0,
) -> AffineRound:
    """Both branches start at the model; merge_lr scales the sum of their changes. Biased for more than one step."""
    steps = local_steps if central_steps is None else central_steps
    federated = fedavg(clients, client_lr=client_lr, local_steps=local_steps)
    moved = merge_lr * central_lr * geometric_sums(central.clients, central_lr, steps)[0] @ central.hessian
    identity = np.eye(clients.dimension)
    return AffineRound(
        federated.gradient,
        federated.pull,
        carry=identity - moved,
        shift=moved @ central.center,
        inject=merge_lr * identity,
    )


def one_way_transfer(
    clients: ClientQuadratics, central: CentralQuadratic, *, client_lr: float, local_steps: int
) -> AffineRound:
    """The central gradient at the round's model is added to every local gradient.

    The pseudo-gradient is sum_i p_i S_i (A_i (x - c_i) + C (x - c)). If clients have equal Hessians, as the paper's IID
    clients do, or take one local step, it finds the optimum if it is stable. With unequal Hessians drift remains.
    """
    sums = geometric_sums(clients, client_lr, local_steps)
    pulls = np.einsum("ijk,ik->ij", clients.hessians, clients.centers) + central.hessian @ central.center
    gradient = np.einsum("i,ijk,ikl->jl", clients.weights, sums, clients.hessians + central.hessian)
    return AffineRound(gradient, np.einsum("i,ijk,ik->j", clients.weights, sums, pulls))


def pooled_training(
    clients: ClientQuadratics, central: CentralQuadratic, *, client_lr: float, local_steps: int
) -> AffineRound:
    """Gradient descent on the whole loss, local_steps steps per round; finds the optimum if it is stable."""
    hessian = clients.hessian + central.hessian
    pull = clients.hessian @ clients.optimum + central.hessian @ central.center
    pooled = client_quadratics(hessian[None], np.linalg.solve(hessian, pull)[None])
    return fedavg(pooled, client_lr=client_lr, local_steps=local_steps)


def all_on_client(
    clients: ClientQuadratics, central: CentralQuadratic, *, client_lr: float, local_steps: int
) -> AffineRound:
    """FedAvg with the server's loss added to that of every client: only the drift of FedAvg remains."""
    hessians = clients.hessians + central.hessian
    pulls = np.einsum("ijk,ik->ij", clients.hessians, clients.centers) + central.hessian @ central.center
    joined = client_quadratics(hessians, np.linalg.solve(hessians, pulls[..., None])[..., 0], clients.weights)
    return fedavg(joined, client_lr=client_lr, local_steps=local_steps)


def two_way_transfer(
    clients: ClientQuadratics,
    central: CentralQuadratic,
    *,
    client_lr: float,
    local_steps: int,
    central_lr: float,
    central_steps: int | None = None,
    merge_lr: float = 1.0,
    warm_start: bool = False,
) -> AffineRound:
    """State (x, central_correction a, federated_correction b); each branch is corrected by the other's mean gradient.

    Clients follow A_i (x - c_i) + a, the server C (x - c) + b. Then a becomes the mean of the central gradients without
    b, and b the mean of the clients' gradients without a. It finds the optimum if one-way transfer does. a and b start
    at 0, or with warm_start at the gradients of the initial model.
    """
    d = clients.dimension
    steps = local_steps if central_steps is None else central_steps
    identity, zero = np.eye(d), np.zeros((d, d))
    sums = geometric_sums(clients, client_lr, local_steps)
    mean_sum = np.einsum("i,ijk->jk", clients.weights, sums)
    federated = fedavg(clients, client_lr=client_lr, local_steps=local_steps)
    gradient = np.hstack([federated.gradient, mean_sum, zero])
    central_sum = geometric_sums(central.clients, central_lr, steps)[0]
    central_gradient = np.hstack([central_sum @ central.hessian, zero, central_sum])
    central_pull = central_sum @ central.hessian @ central.center
    rate = merge_lr * central_lr
    carry = np.vstack(
        [
            np.hstack([identity, zero, zero]) - rate * central_gradient,
            central_gradient / steps - np.hstack([zero, zero, identity]),
            gradient / local_steps - np.hstack([zero, identity, zero]),
        ]
    )
    shift = np.concatenate([rate * central_pull, -central_pull / steps, -federated.pull / local_steps])
    begin = None
    if warm_start:
        pulls = np.einsum("i,ijk,ik->j", clients.weights, clients.hessians, clients.centers)
        offsets = np.concatenate([np.zeros(d), -central.hessian @ central.center, -pulls])
        begin = (np.vstack([identity, central.hessian, clients.hessian]), offsets)
    inject = np.vstack([merge_lr * identity, zero, zero])
    return AffineRound(gradient, federated.pull, carry, shift, inject, begin)
