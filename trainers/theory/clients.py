"""Quadratic clients, checked and decomposed: the input of every closed form of the theory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.problem import Problem, Quadratics
from trainers.values import shown

Array = NDArray[np.float64]
SYMMETRY_TOLERANCE = 1e-8


@dataclass(frozen=True)
class ClientQuadratics:
    """Clients with losses 0.5 (x - center)' hessian (x - center), and their weights; build with `client_quadratics`.

    Leading axes, written ..., hold many problems of the same shape at once.

    Args:
        hessians: (..., clients, d, d) symmetric positive definite.
        centers: (..., clients, d) minimizers of the clients.
        weights: (..., clients) at least 0, with sum 1.
        eigenvalues: (..., clients, d) eigenvalues of the Hessians, ascending.
        eigenvectors: (..., clients, d, d) eigenvectors in columns.
    """

    hessians: Array
    centers: Array
    weights: Array
    eigenvalues: Array
    eigenvectors: Array

    @property
    def dimension(self) -> int:
        """Number of parameters d."""
        return int(self.centers.shape[-1])

    @property
    def strong_convexity(self) -> Array:
        """Smallest Hessian eigenvalue of all clients, (...)."""
        return np.asarray(self.eigenvalues.min(axis=(-2, -1)))

    @property
    def smoothness(self) -> Array:
        """Largest Hessian eigenvalue of all clients, (...)."""
        return np.asarray(self.eigenvalues.max(axis=(-2, -1)))

    @property
    def condition_number(self) -> Array:
        """Smoothness over strong convexity (kappa0), (...)."""
        return self.smoothness / self.strong_convexity

    @cached_property
    def hessian(self) -> Array:
        """Hessian of the mean loss, (..., d, d)."""
        return np.asarray(np.einsum("...i,...ijk->...jk", self.weights, self.hessians))

    @cached_property
    def optimum(self) -> Array:
        """Minimizer of the mean loss, (..., d)."""
        pulls = np.einsum("...i,...ijk,...ik->...j", self.weights, self.hessians, self.centers)
        return solve(self.hessian, pulls)

    @property
    def center_bound(self) -> Array:
        """Largest norm of a client's minimizer (C of [A] assumption 2), (...)."""
        return np.asarray(np.linalg.norm(self.centers, axis=-1).max(axis=-1))

    @property
    def center_spread(self) -> Array:
        """Root of the weighted mean squared distance of the minimizers from their mean ([B] assumption 3), (...)."""
        mean = np.einsum("...i,...ij->...j", self.weights, self.centers)
        squares = np.sum((self.centers - mean[..., None, :]) ** 2, axis=-1)
        return np.asarray(np.sqrt(np.sum(self.weights * squares, axis=-1)))

    @property
    def hessian_spread(self) -> Array:
        """Root of the weighted mean squared spectral distance of the Hessians from their mean ([B] assumption 3)."""
        gaps = np.linalg.norm(self.hessians - self.hessian[..., None, :, :], ord=2, axis=(-2, -1))
        return np.asarray(np.sqrt(np.sum(self.weights * gaps**2, axis=-1)))

    def loss(self, params: Any) -> Array:
        """Mean loss without constants at `params` (..., d)."""
        gaps = np.asarray(params, float)[..., None, :] - self.centers
        return np.asarray(0.5 * np.einsum("...i,...ij,...ijk,...ik->...", self.weights, gaps, self.hessians, gaps))

    def matrices(self, values: Any) -> Array:
        """Matrices (..., clients, d, d) with the clients' eigenvectors and the given eigenvalues (..., clients, d)."""
        vectors = self.eigenvectors
        return np.asarray((vectors * np.asarray(values)[..., None, :]) @ np.swapaxes(vectors, -1, -2))


def client_quadratics(hessians: Any, centers: Any, client_weights: Any = None) -> ClientQuadratics:
    """Checks Hessians, centers and weights, and decomposes the Hessians.

    Args:
        hessians: (..., clients, d, d) symmetric positive definite.
        centers: (..., clients, d).
        client_weights: (..., clients) at least 0, not all 0; scaled to sum 1; None is uniform.

    Raises:
        SpecError: a shape does not fit, a value is not finite, a matrix is not symmetric positive definite, or the
            weights are negative or all 0.

    Examples:
        >>> two = client_quadratics([[[1.0]], [[2.0]]], [[1.0], [0.5]])
        >>> round(float(two.optimum[0]), 6)
        0.666667
    """
    matrices, points = _finite(hessians, "hessians"), _finite(centers, "centers")
    if matrices.ndim < 3 or matrices.shape[-1] != matrices.shape[-2]:
        raise SpecError(f"hessians must have shape (clients, d, d), got shape {matrices.shape}", "hessians")
    if points.shape != matrices.shape[:-1]:
        raise SpecError(f"centers must have shape {matrices.shape[:-1]} as the hessians, got {points.shape}", "centers")
    if matrices.shape[-3] == 0 or matrices.shape[-1] == 0:
        raise SpecError(f"hessians must have at least one client and dimension, got shape {matrices.shape}", "hessians")
    transposed = np.swapaxes(matrices, -1, -2)
    scale = np.abs(matrices).max(axis=(-2, -1), keepdims=True)
    crooked = np.abs(matrices - transposed) > SYMMETRY_TOLERANCE * scale
    if crooked.any():
        client = int(np.argwhere(crooked)[0][-3])
        raise SpecError(f"hessians must be symmetric, got client {client} with an asymmetric one", f"hessians.{client}")
    matrices = matrices / 2 + transposed / 2
    eigenvalues, eigenvectors = np.linalg.eigh(matrices)
    low = eigenvalues[..., 0]
    if not np.all(low > 0):
        index = np.argwhere(~(low > 0))[0]
        smallest = f"smallest eigenvalue {low[tuple(index)]:g}"
        raise SpecError(
            f"hessians must be positive definite, got client {index[-1]} with {smallest}",
            f"hessians.{index[-1]}",
        )
    return ClientQuadratics(matrices, points, _weights(client_weights, points.shape[:-1]), eigenvalues, eigenvectors)


def clients_of(problem: ClientQuadratics | Quadratics | Problem) -> ClientQuadratics:
    """The clients of a quadratic problem.

    Args:
        problem: clients (returned unchanged), the quadratics of a task (uniform weights), or a whole problem.

    Raises:
        SpecError: the problem is not quadratic.
    """
    if isinstance(problem, ClientQuadratics):
        return problem
    if isinstance(problem, Quadratics):
        return client_quadratics(problem.hessians, problem.centers)
    if not isinstance(problem.train, Quadratics):
        raise SpecError(f"task must be quadratic for its theory, got a task with model {problem.model!r}", "task")
    return client_quadratics(problem.train.hessians, problem.train.centers, problem.client_weights)


def solve(matrix: Array, right: Array) -> Array:
    """Solution (..., d) of matrix x = right; SpecError if the matrix is singular."""
    try:
        solution = np.linalg.solve(matrix, right[..., None])[..., 0]
    except np.linalg.LinAlgError:
        raise SpecError(
            "the Hessian of this setting must be invertible, got a singular one; take a lower rate"
        ) from None
    return np.asarray(solution)


def _finite(values: Any, name: str) -> Array:
    try:
        array = np.asarray(values, float)
    except (TypeError, ValueError):
        raise SpecError(f"{name} must be an array of numbers, got {shown(values)}", name) from None
    if not np.isfinite(array).all():
        raise SpecError(f"{name} must be finite, got {shown(array[~np.isfinite(array)][0].item())}", name)
    return array


def _weights(client_weights: Any, shape: tuple[int, ...]) -> Array:
    if client_weights is None:
        return np.full(shape, 1.0 / shape[-1])
    weights = _finite(client_weights, "client_weights")
    if weights.shape[-1:] != shape[-1:]:
        raise SpecError(
            f"client_weights must have one number for each of {shape[-1]} clients, got shape {weights.shape}",
            "client_weights",
        )
    if (weights < 0).any():
        raise SpecError(f"client_weights must not be negative, got {weights.min():g}", "client_weights")
    total = weights.sum(axis=-1, keepdims=True)
    if not (total > 0).all():
        raise SpecError("client_weights must have one above 0, got only zeros", "client_weights")
    return np.broadcast_to(weights / total, shape).copy()
