"""Quadratic client losses: random ones, and small instances from the papers with known solutions.

Sources: "Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021) for the
random Hessians (appendix D.1) and the worst case; "On the Outsized Importance of Learning Rates in Local Update
Methods" (Charles, Konecny 2020), section 4, for the two toy populations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from trainers.problem import Quadratics

Array = NDArray[np.float64]


def random(
    clients: int, dimension: int, strong_convexity: float, smoothness: float, center_spread: float, data_seed: int
) -> Quadratics:
    """Clients with random Hessians whose extreme eigenvalues are exactly strong_convexity and smoothness.

    hessian = b1 B'B + b2 I with standard normal B, and b1 and b2 such that the extreme eigenvalues fit. In one
    dimension the single eigenvalue is uniform between the two. Centers are normal around 0.

    Args:
        clients: number of clients.
        dimension: number of parameters.
        strong_convexity: smallest eigenvalue, above 0.
        smoothness: largest eigenvalue, at least strong_convexity.
        center_spread: root mean square distance of a center from 0.
        data_seed: the same numbers always give the same problem.

    Source: the random matrices of the simulated frontiers in the second paper; the centers are not from a paper.
    """
    generator = np.random.default_rng([data_seed, 0x9AD])
    hessians = np.empty((clients, dimension, dimension))
    centers = np.empty((clients, dimension))
    for client in range(clients):
        if dimension == 1:
            hessians[client] = generator.uniform(strong_convexity, smoothness)
        else:
            factor = generator.standard_normal((dimension, dimension))
            eigenvalues, vectors = np.linalg.eigh(factor.T @ factor)
            slope = (smoothness - strong_convexity) / (eigenvalues[-1] - eigenvalues[0])
            scaled = strong_convexity + slope * (eigenvalues - eigenvalues[0])
            product = (vectors * scaled) @ vectors.T
            hessians[client] = (product + product.T) / 2
        centers[client] = generator.standard_normal(dimension) * center_spread / math.sqrt(dimension)
    return Quadratics(hessians, centers, np.zeros(clients))


def two_clients() -> Quadratics:
    """Two clients in one dimension with hessians 1 and 2 and centers 1 and 1/2; the optimum is 2/3."""
    return Quadratics(np.array([[[1.0]], [[2.0]]]), np.array([[1.0], [0.5]]), np.zeros(2))


def continuum(clients: int) -> Quadratics:
    """A finite population that approximates clients i in [0.5, 2] of density 8i/15 with losses 0.5 i x^2 - x.

    The clients lie at the midpoints of equal shares of the distribution, i_j = sqrt(0.25 + 3.75 (j + 0.5) / clients).
    For the continuum the optimum is 5/7 and the mean of the clients' minimizers is 0.8.

    Args:
        clients: number of clients.
    """
    curvature = np.sqrt(0.25 + 3.75 * (np.arange(clients) + 0.5) / clients)
    return Quadratics(curvature[:, None, None], 1 / curvature[:, None], -0.5 / curvature)


def worst_case(
    strong_convexity: float,
    smoothness: float,
    center_bound: float,
    client_lr: float,
    gradient_weights: Sequence[float],
    prox: float,
) -> tuple[Quadratics, Array]:
    """Two clients in three dimensions that attain the trade-off of the theory exactly.

    The Hessians are diag(L, L, mu) and diag(mu, L, mu), the centers (-C, 0, 0) and (C, 0, 0). With the returned weights
    the limit of the method is 2 C Delta away from the optimum, and with server_lr = 2 / (q(L) L + q(mu) mu) its rate is
    rho: the bounds of the first paper are tight.

    Args:
        strong_convexity: mu, above 0.
        smoothness: L, above mu.
        center_bound: C, above 0.
        client_lr: the method's client_lr for which the instance is the worst case.
        gradient_weights: (local_steps,) the method's weights.
        prox: the method's proximal strength.

    Returns:
        (losses, client weights (2,)).

    Raises:
        ValueError: the method distorts one of the two curvatures to 0 or below: client_lr is too large.
    """
    low = distortion(smoothness, client_lr, gradient_weights, prox)
    high = distortion(strong_convexity, client_lr, gradient_weights, prox)
    if min(low, high) <= 0:
        raise ValueError(
            f"client_lr must be small enough for positive distortions of both curvatures, got client_lr={client_lr}, "
            f"with distortion {low:.6g} at smoothness and {high:.6g} at strong_convexity"
        )
    share = math.sqrt(high) / (math.sqrt(low) + math.sqrt(high))
    first = share * strong_convexity / (share * strong_convexity + (1 - share) * smoothness)
    hessians = np.stack(
        [
            np.diag([smoothness, smoothness, strong_convexity]),
            np.diag([strong_convexity, smoothness, strong_convexity]),
        ]
    )
    centers = np.array([[-center_bound, 0.0, 0.0], [center_bound, 0.0, 0.0]])
    return Quadratics(hessians, centers, np.zeros(2)), np.array([first, 1 - first])


def distortion(eigenvalue: float, client_lr: float, gradient_weights: Sequence[float], prox: float) -> float:
    """The factor by which local work distorts a curvature: sum_k weight_k (1 - client_lr (eigenvalue + prox))^k.

    Args:
        eigenvalue: eigenvalue of the client's Hessian.
        client_lr: the client's rate.
        gradient_weights: (local_steps,), with k from 0.
        prox: proximal strength.

    Examples:
        >>> distortion(10.0, 0.05, [1, 1], 0.0)
        1.5
    """
    factor = 1 - client_lr * (eigenvalue + prox)
    total = 0.0
    for weight in reversed(gradient_weights):
        total = total * factor + weight
    return total


def optimum(losses: Quadratics, client_weights: Array | None) -> Array:
    """The minimizer of the weighted mean loss, (d,).

    Args:
        losses: the clients' quadratics.
        client_weights: (clients,) sum 1; None is uniform.
    """
    clients = losses.clients
    weights = np.full(clients, 1 / clients) if client_weights is None else client_weights
    hessian = np.einsum("i,ijk->jk", weights, losses.hessians)
    slope = np.einsum("i,ijk,ik->j", weights, losses.hessians, losses.centers)
    return np.asarray(np.linalg.solve(hessian, slope), dtype=np.float64)
