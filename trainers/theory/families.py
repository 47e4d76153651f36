"""Quadratic problems with known solutions: the papers' examples, the exact worst case and the counterexamples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.theory.clients import ClientQuadratics, client_quadratics
from trainers.theory.interval import Curvature, log_distortion_ratio
from trainers.theory.spectrum import log_distortion
from trainers.theory.weights import Weights

Array = NDArray[np.float64]


def tight_condition(curvature: Curvature) -> ClientQuadratics:
    """One client diag(L, mu) around 0: the bounds (11) and (13) on the condition number are equalities ([A] B.3)."""
    return client_quadratics([np.diag([curvature.smoothness, curvature.strong_convexity])], [[0.0, 0.0]])


def far_apart(first_weight: float) -> ClientQuadratics:
    """Hessians 4 and 1, minimizers 1 and -1 ([A] C.2).

    If only the last step counts and client_lr is 1/8, the distance tends to 8 p / (3 p + 1) as K grows.

    Args:
        first_weight: weight p of the first client, in (0, 1).
    """
    return client_quadratics([[[4.0]], [[1.0]]], [[1.0], [-1.0]], [first_weight, 1 - first_weight])


def worst_case(
    curvature: Curvature, client_lr: float, weights: Weights, prox: float = 0.0, center_bound: float = 1.0
) -> ClientQuadratics:
    """Two clients in three dimensions on which theory and simulation agree exactly (derived).

    The surrogate's condition number is [A] (11) or (13), and its optimum is 2 C suboptimality away from the true one.

    Args:
        curvature: bounds of the Hessians, which are attained.
        client_lr: below 1 / (smoothness + prox).
        weights: gradient weights for which the problem is the worst case.
        prox: proximal strength.
        center_bound: C.
    """
    low, high = curvature.strong_convexity, curvature.smoothness
    if client_lr * (high + prox) >= 1:
        raise SpecError(
            f"client_lr must be below 1 / (L + prox) = {1 / (high + prox):g}, got client_lr={client_lr:g}", "client_lr"
        )
    share = 1 / (1 + np.exp(-log_distortion_ratio(curvature, client_lr, weights, prox) / 2))
    first = share * low / (share * low + (1 - share) * high)
    hessians = [np.diag([high, high, low]), np.diag([low, high, low])]
    centers = [[-center_bound, 0.0, 0.0], [center_bound, 0.0, 0.0]]
    return client_quadratics(hessians, centers, [first, 1 - first])


def two_clients() -> ClientQuadratics:
    """Hessians 1 and 2, minimizers 1 and 1/2, optimum 2/3 ([B] section 4, first example)."""
    return client_quadratics([[[1.0]], [[2.0]]], [[1.0], [0.5]])


def continuum(clients: int = 1000) -> ClientQuadratics:
    """Hessian i, minimizer 1/i, i in [0.5, 2] with density 8 i / 15, at quantile midpoints ([B] section 4, second).

    Args:
        clients: number of quantiles; the optimum tends to 1 / 1.4 as it grows.
    """
    quantiles = (np.arange(clients) + 0.5) / clients
    hessians = np.sqrt(0.25 + 3.75 * quantiles)
    return client_quadratics(hessians[:, None, None], 1 / hessians[:, None])


def continuum_optimum(client_lr: float, weights: Weights) -> float:
    """Surrogate optimum E[q(i)] / E[i q(i)] of the exact continuum, by Gauss-Legendre quadrature.

    Args:
        client_lr: client rate, at least 0. Above 1/2 some clients are ill-behaved, above about 1.05 the mean is.
        weights: gradient weights; a single step gives 1 / 1.4.
    """
    nodes, shares = np.polynomial.legendre.leggauss(400)
    hessians = 1.25 + 0.75 * nodes
    sign, log = log_distortion(hessians, client_lr, weights)
    density = shares * hessians * sign * np.exp(log - log.max())
    return float(density.sum() / (density * hessians).sum())


def rotated_pair(smoothness: float, angle: float) -> ClientQuadratics:
    """Two clients in the plane, I + (L - 1) v v' with v at +- angle / 2: the counterexample to [A] Lemma 5 (derived).

    Args:
        smoothness: L, with strong convexity 1.
        angle: between the steep directions, in radians.
    """
    first = np.array([np.cos(angle / 2), np.sin(angle / 2)])
    second = first * [1, -1]
    hessians = [np.eye(2) + (smoothness - 1) * np.outer(v, v) for v in (first, second)]
    return client_quadratics(hessians, [first, -second])


def steep_coordinates(smoothness: float, clients: int) -> ClientQuadratics:
    """Client i is steep in coordinate i, where its minimizer lies: commuting Hessians that also violate [A] Lemma 5.

    Args:
        smoothness: L, with strong convexity 1.
        clients: number of clients and of dimensions.
    """
    hessians = np.tile(np.eye(clients), (clients, 1, 1))
    steps = np.arange(clients)
    hessians[steps, steps, steps] = smoothness
    return client_quadratics(hessians, np.eye(clients))


def random_spectrum(curvature: Curvature, dimension: int, generator: np.random.Generator) -> Array:
    """Eigenvalues of b1 B'B + b2 I with standard normal B, scaled to attain both bounds ([A] D.1).

    Args:
        curvature: bounds of the spectrum, which are attained.
        dimension: at least 2.
        generator: source of randomness.

    Returns:
        (dimension,) ascending.
    """
    square = generator.standard_normal((dimension, dimension))
    raw = np.linalg.eigvalsh(square.T @ square)
    span = curvature.smoothness - curvature.strong_convexity
    return np.asarray(curvature.strong_convexity + span * (raw - raw[0]) / (raw[-1] - raw[0]))


def random_clients(
    generator: np.random.Generator, problems: int, clients: int, dimension: int, smoothness: Array
) -> ClientQuadratics:
    """Many random problems at once: rotated Hessians with log-uniform spectra in [1, smoothness], minimizers in a ball.

    Every Hessian has an eigenvalue at one of the two bounds.

    Args:
        generator: source of randomness.
        problems: number of problems.
        clients: number of clients of each problem.
        dimension: d.
        smoothness: (problems,) at least 1.
    """
    shape = (problems, clients, dimension)
    bases, _ = np.linalg.qr(generator.standard_normal((*shape, dimension)))
    spectra = np.exp(generator.uniform(size=shape) * np.log(smoothness)[:, None, None])
    spectra[..., 0] = np.where(generator.uniform(size=shape[:2]) < 0.5, 1.0, smoothness[:, None])
    hessians = (bases * spectra[..., None, :]) @ np.swapaxes(bases, -1, -2)
    directions = generator.standard_normal(shape)
    lengths = np.where(generator.uniform(size=shape[:2]) < 0.5, 1.0, generator.uniform(size=shape[:2]))
    centers = directions / np.linalg.norm(directions, axis=-1, keepdims=True) * lengths[..., None]
    return client_quadratics(hessians, centers, generator.dirichlet(np.ones(clients), size=problems))
