"""Methods that are local work with gradient weights: each client returns q(A_i) A_i (x - c_i).

Charles & Konecny [A], Table 1 and Theorems 1 and 2; exact MAML with proximal inner steps is derived.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trainers.theory.clients import ClientQuadratics
from trainers.theory.rounds.affine import AffineRound
from trainers.theory.spectrum import log_distortion
from trainers.theory.surrogate import Surrogate, surrogate
from trainers.theory.weights import Weights, all_steps, as_weights, last_step

Array = NDArray[np.float64]


def local_update(
    clients: ClientQuadratics,
    *,
    client_lr: float,
    gradient_weights: Weights | str | Sequence[float],
    prox: float = 0.0,
) -> AffineRound:
    """Any gradient weights ([A] Algorithms 1 and 2)."""
    return of_surrogate(surrogate(clients, client_lr, as_weights(gradient_weights), prox))


def fedavg(clients: ClientQuadratics, *, client_lr: float, local_steps: int) -> AffineRound:
    """All steps count; also Reptile, local SGD and Lookahead."""
    return of_surrogate(surrogate(clients, client_lr, all_steps(local_steps)))


def fedprox(clients: ClientQuadratics, *, client_lr: float, local_steps: int, prox: float) -> AffineRound:
    """All steps count, with a pull to the broadcast model; prox 0 is FedAvg."""
    return of_surrogate(surrogate(clients, client_lr, all_steps(local_steps), prox))


def fedsgd(clients: ClientQuadratics, *, local_steps: int = 1, client_lr: float = 0.0) -> AffineRound:
    """All gradients at the broadcast model: local_steps times the gradient of the loss; client_lr is not used."""
    return of_surrogate(surrogate(clients, 0.0, all_steps(local_steps)))


def fomaml(clients: ClientQuadratics, *, client_lr: float, local_steps: int, prox: float = 0.0) -> AffineRound:
    """Only the gradient of the last of local_steps steps counts, including its pull."""
    return of_surrogate(surrogate(clients, client_lr, last_step(local_steps), prox))


def maml(clients: ClientQuadratics, *, client_lr: float, local_steps: int, prox: float = 0.0) -> AffineRound:
    """The gradient through local_steps exact adaptation steps: J A (J (x - c)), J = I - client_lr Q A.

    Without prox J = (I - client_lr A)^K, so the method is local work of which only step 2 K + 1 counts ([A] Theorem 2).
    """
    if prox == 0:
        return of_surrogate(surrogate(clients, client_lr, last_step(2 * local_steps + 1)))
    signs, logs = log_distortion(clients.eigenvalues, client_lr, all_steps(local_steps), prox)
    adapted = 1 - client_lr * clients.eigenvalues * signs * np.exp(logs)
    with np.errstate(divide="ignore"):
        return of_surrogate(Surrogate(clients, np.abs(np.sign(adapted)), 2 * np.log(np.abs(adapted))))


def of_surrogate(distorted: Surrogate) -> AffineRound:
    """The round whose pseudo-gradient is the surrogate's gradient."""
    return AffineRound(distorted.hessian, distorted.hessian @ distorted.optimum)


def geometric_sums(clients: ClientQuadratics, client_lr: float, local_steps: int, prox: float = 0.0) -> Array:
    """S_i = sum_(j < K) (I - client_lr (A_i + prox))^j, (clients, d, d): the distortion when all steps count."""
    signs, logs = log_distortion(clients.eigenvalues, client_lr, all_steps(local_steps), prox)
    return clients.matrices(signs * np.exp(logs))
