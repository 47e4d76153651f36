"""Methods with memory of clients or the server between rounds: stored variates, FedDyn, Mime.

Closed forms on quadratics with all clients in every round (derived): with Hessians A_i, b_i = A_i c_i and S_i =
sum_(j < K) (I - client_lr A_i)^j, local work whose first gradient is r_i sums to S_i r_i. r_i and all memory are affine
in the state z, which consists of the model and then the memory, vectors of d numbers each.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.theory.clients import ClientQuadratics
from trainers.theory.rounds.affine import AffineRound
from trainers.theory.rounds.local import geometric_sums

Array = NDArray[np.float64]
LARGEST = 240
"""Largest number of elements in the state; beyond it, eigenvalues of the round take longer than the trials."""


def stored_scaffold(
    clients: ClientQuadratics, *, client_lr: float, local_steps: int, correction: float, variate_update: str
) -> AffineRound:
    """SCAFFOLD with stored variates v_i, with state (x, v_1, ..., v_N); finds the optimum for correction 1.

    r_i = A_i x - b_i + correction (v - v_i), v = sum_i p_i v_i; v_i becomes S_i r_i / K - correction (v - v_i), or
    A_i x - b_i with variate_update "gradient".
    """
    model, *variates = _parts(clients, len(clients.weights))
    slopes, pulls = _slopes(clients, model)
    mean = np.einsum("i,ijk->jk", clients.weights, np.array(variates))
    corrections = correction * (mean - np.array(variates))
    sums = geometric_sums(clients, client_lr, local_steps)
    moves, offsets = sums @ (slopes + corrections), np.einsum("ijk,ik->ij", sums, pulls)
    if variate_update == "gradient":
        return _round(clients, moves, offsets, [slopes], [-pulls])
    return _round(clients, moves, offsets, [moves / local_steps - corrections], [-offsets / local_steps])


def feddyn(clients: ClientQuadratics, *, client_lr: float, local_steps: int, prox: float) -> AffineRound:
    """FedDyn, with state (x, a_1, ..., a_N), where a_i are the dual variables; finds the optimum for prox above 0.

    r_i = A_i x - b_i - prox a_i, and S_i includes prox; a_i becomes a_i + client_lr S_i r_i, and the pseudo-gradient is
    sum_i p_i (S_i r_i + a_i / client_lr) with the new a_i.
    """
    model, *gone = _parts(clients, len(clients.weights))
    slopes, pulls = _slopes(clients, model)
    sums = geometric_sums(clients, client_lr, local_steps, prox)
    moves = sums @ (slopes - prox * np.array(gone))
    offsets = np.einsum("ijk,ik->ij", sums, pulls)
    steps = 2 * moves + np.array(gone) / client_lr
    return _round(clients, steps, 2 * offsets, [np.array(gone) + client_lr * moves], [-client_lr * offsets])


def mimelite(
    clients: ClientQuadratics, *, client_lr: float, local_steps: int, momentum: float = 0.9, corrected: bool = False
) -> AffineRound:
    """State (x, m): r_i = (1 - momentum) (A_i x - b_i) + momentum m, with rate (1 - momentum) client_lr in S_i.

    m becomes (1 - momentum) (A x - b) + momentum m. Momentum 0 is FedAvg. `corrected` replaces A_i x - b_i by A x - b
    in r_i too, as in Mime, which finds the optimum.
    """
    model, memory = _parts(clients, 1)
    slopes, pulls = _slopes(clients, model)
    mean, mean_pull = np.einsum("i,ijk->jk", clients.weights, slopes), clients.weights @ pulls
    sums = geometric_sums(clients, (1 - momentum) * client_lr, local_steps)
    if corrected:
        slopes, pulls = np.broadcast_to(mean, slopes.shape), np.broadcast_to(mean_pull, pulls.shape)
    moves = sums @ ((1 - momentum) * slopes + momentum * memory)
    offsets = (1 - momentum) * np.einsum("ijk,ik->ij", sums, pulls)
    kept = (1 - momentum) * mean + momentum * memory
    return _round(clients, moves, offsets, [kept[None]], [-(1 - momentum) * mean_pull[None]])


def mime(clients: ClientQuadratics, *, client_lr: float, local_steps: int, momentum: float = 0.9) -> AffineRound:
    """MimeLite with corrected local gradients; momentum 0 is SCAFFOLD."""
    return mimelite(clients, client_lr=client_lr, local_steps=local_steps, momentum=momentum, corrected=True)


def reusing_fedga(
    clients: ClientQuadratics, *, client_lr: float, local_steps: int, displacement: float, prox: float
) -> AffineRound:
    """FedGA with the last round's mean local gradient, state (x, m): r_i = A_i (x + u_i) - b_i, m becomes q / K.

    u_i = displacement (A_i x - b_i - m). At the fixed point m is 0.
    """
    model, memory = _parts(clients, 1)
    slopes, pulls = _slopes(clients, model)
    sums = geometric_sums(clients, client_lr, local_steps, prox)
    bent = slopes + displacement * clients.hessians @ (slopes - memory)
    bent_pulls = pulls + displacement * np.einsum("ijk,ik->ij", clients.hessians, pulls)
    moves, offsets = sums @ bent, np.einsum("ijk,ik->ij", sums, bent_pulls)
    mean, mean_offset = np.einsum("i,ijk->jk", clients.weights, moves), clients.weights @ offsets
    return _round(clients, moves, offsets, [mean[None] / local_steps], [-mean_offset[None] / local_steps])


def _parts(clients: ClientQuadratics, remembered: int) -> list[Array]:
    """Matrices (d, s) that extract each part of the state: first the model."""
    size = (1 + remembered) * clients.dimension
    if size > LARGEST:
        raise SpecError(
            f"the state of a method must have at most {LARGEST} numbers for a closed form, got {size} (the model and "
            f"{remembered} vectors of {clients.dimension}): take fewer clients, or look at measured curves alone",
            "method.name",
        )
    return list(np.eye((1 + remembered) * clients.dimension).reshape(1 + remembered, clients.dimension, -1))


def _slopes(clients: ClientQuadratics, model: Array) -> tuple[Array, Array]:
    """((clients, d, s), (clients, d)): the gradients at the model are the first times the state minus the second."""
    return clients.hessians @ model, np.einsum("ijk,ik->ij", clients.hessians, clients.centers)


def _round(
    clients: ClientQuadratics, moves: Array, offsets: Array, kept: list[Array], shifts: list[Array]
) -> AffineRound:
    """The round whose pseudo-gradient is the mean of moves z - offsets, and whose new memory is kept z + shifts.

    Args:
        clients: clients of the problem.
        moves: (clients, d, s).
        offsets: (clients, d).
        kept: (n, d, s) each.
        shifts: (n, d) each.
    """
    d, size = moves.shape[1:]
    carry = np.vstack([np.eye(d, size), *(rows.reshape(-1, size) for rows in kept)])
    shift = np.concatenate([np.zeros(d), *(rows.reshape(-1) for rows in shifts)])
    gradient = np.einsum("i,ijk->jk", clients.weights, moves)
    return AffineRound(gradient, clients.weights @ offsets, carry, shift)
