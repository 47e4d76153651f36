"""The surrogate: the loss that a local update method actually minimizes.

One round of local work returns, in expectation, the gradient of sum_i p_i f~_i with f~_i(x) = 0.5 |(Q_i A_i)^(1/2)
(x - c_i)|^2. Charles & Konecny [A], equations (6), (7), (8), Theorem 1, Lemma 11; [B] equations (8), (9), (10),
Theorem 3, Lemma 30.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.theory.clients import ClientQuadratics, solve
from trainers.theory.spectrum import log_distortion
from trainers.theory.warning import TheoryWarning
from trainers.theory.weights import Weights
from trainers.values import shown

Array = NDArray[np.float64]
NAMED_CLIENTS = 5


@dataclass(frozen=True)
class Surrogate:
    """Distorted clients and their mean; build with `surrogate`.

    Hessians are stored divided by exp(log_scale), so that a million local steps neither overflow nor vanish.

    Args:
        clients: the clients.
        signs: (..., clients, d) signs of the distortion's eigenvalues, in the order of the clients' eigenvalues.
        logs: (..., clients, d) logarithms of their absolute values.
        messages: warnings about ill-behaved clients.
    """

    clients: ClientQuadratics
    signs: Array
    logs: Array
    messages: tuple[str, ...] = ()

    @property
    def log_scale(self) -> Array:
        """Logarithm of the largest eigenvalue of a distorted Hessian, (...)."""
        largest = (self.logs + np.log(self.clients.eigenvalues)).max(axis=(-2, -1))
        return np.asarray(np.where(np.isfinite(largest), largest, 0.0))

    @cached_property
    def client_eigenvalues(self) -> Array:
        """Eigenvalues of Q_i A_i divided by exp(log_scale), (..., clients, d), ordered like the clients'."""
        logs = self.logs + np.log(self.clients.eigenvalues)
        return np.asarray(self.signs * np.exp(logs - self.log_scale[..., None, None]))

    @cached_property
    def client_hessians(self) -> Array:
        """Q_i A_i divided by exp(log_scale), (..., clients, d, d)."""
        return self.clients.matrices(self.client_eigenvalues)

    @cached_property
    def scaled_hessian(self) -> Array:
        """Mean of Q_i A_i divided by exp(log_scale), (..., d, d)."""
        return np.asarray(np.einsum("...i,...ijk->...jk", self.clients.weights, self.client_hessians))

    @property
    def hessian(self) -> Array:
        """Hessian of the surrogate, (..., d, d): the mean of Q_i A_i."""
        return self.scaled_hessian * np.exp(self.log_scale)[..., None, None]

    @cached_property
    def optimum(self) -> Array:
        """Stationary point of the surrogate, (..., d); its minimizer if it is convex ([A] Lemma 11)."""
        pulls = np.einsum("...i,...ijk,...ik->...j", self.clients.weights, self.client_hessians, self.clients.centers)
        return solve(self.scaled_hessian, pulls)

    @property
    def distance(self) -> Array:
        """Distance between the surrogate's optimum and the true one, (...)."""
        return np.asarray(np.linalg.norm(self.optimum - self.clients.optimum, axis=-1))

    @property
    def eigenvalues(self) -> Array:
        """Eigenvalues of the surrogate's Hessian divided by exp(log_scale), ascending, (..., d)."""
        return np.asarray(np.linalg.eigvalsh(self.scaled_hessian))

    @property
    def distortions(self) -> Array:
        """The matrices Q_i, (..., clients, d, d)."""
        return self.clients.matrices(self.signs * np.exp(self.logs))

    @property
    def distortion_min(self) -> Array:
        """Smallest eigenvalue of all Q_i (a of [A] Lemma 5), (...)."""
        return np.asarray((self.signs * np.exp(self.logs)).min(axis=(-2, -1)))

    @property
    def distortion_max(self) -> Array:
        """Largest eigenvalue of all Q_i (b of [A] Lemma 5), (...)."""
        return np.asarray((self.signs * np.exp(self.logs)).max(axis=(-2, -1)))

    @property
    def log_distortion_ratio(self) -> Array:
        """log(b / a) of the distortion's extreme eigenvalues, (...); nan if an eigenvalue is not above 0."""
        ratio = self.logs.max(axis=(-2, -1)) - self.logs.min(axis=(-2, -1))
        return np.asarray(np.where((self.signs > 0).all(axis=(-2, -1)), ratio, np.nan))

    def gradient(self, params: Any) -> Array:
        """Gradient of the surrogate at `params` (..., d): what a round returns in expectation ([A] Theorem 1)."""
        gaps = np.asarray(params, float)[..., None, :] - self.clients.centers
        scaled = np.einsum("...i,...ijk,...ik->...j", self.clients.weights, self.client_hessians, gaps)
        return np.asarray(scaled * np.exp(self.log_scale)[..., None])

    def loss(self, params: Any) -> Array:
        """Value of the surrogate at `params` (..., d) ([A] (7), (8)), without constants."""
        gaps = np.asarray(params, float)[..., None, :] - self.clients.centers
        scaled = np.einsum("...i,...ij,...ijk,...ik->...", self.clients.weights, gaps, self.client_hessians, gaps)
        return np.asarray(0.5 * scaled * np.exp(self.log_scale))


def surrogate(clients: ClientQuadratics, client_lr: Any, weights: Weights, prox: Any = 0.0) -> Surrogate:
    """The surrogate of local work with these hyperparameters.

    Args:
        clients: (..., clients, d) quadratics.
        client_lr: (...) client rate, at least 0; 0 gives a multiple of the true loss.
        weights: gradient weights; a single local step also gives a multiple of the true loss.
        prox: (...) proximal strength, at least 0; 0 is no proximal term.

    Returns:
        The surrogate. Beyond client_lr = 1 / (smoothness + prox) of a client it is computed with a `TheoryWarning` that
        names the clients.

    Raises:
        SpecError: client_lr or prox is negative or not finite.

    Examples:
        >>> from trainers.theory.clients import client_quadratics
        >>> from trainers.theory.weights import all_steps
        >>> two = client_quadratics([[[1.0]], [[2.0]]], [[1.0], [0.5]])
        >>> round(float(surrogate(two, 0.25, all_steps(2)).optimum[0]), 6)  # (4 - 3 c) / (6 - 5 c)
        0.684211
    """
    rate = checked(client_lr, "client_lr")[..., None, None]
    pull = checked(prox, "prox")[..., None, None]
    signs, logs = log_distortion(clients.eigenvalues, rate, weights, pull)
    messages = ill_behaved(clients, rate, pull, signs)
    for message in messages:
        warnings.warn(message, TheoryWarning, stacklevel=2)
    return Surrogate(clients, signs, logs, messages)


def checked(value: Any, name: str) -> Array:
    """A hyperparameter as an array; SpecError if it is negative or not finite."""
    array = np.asarray(value, float)
    if not np.isfinite(array).all() or (array < 0).any():
        raise SpecError(f"{name} must be at least 0 and finite, got {name}={shown(array.min().item())}", name)
    return array


def ill_behaved(clients: ClientQuadratics, rate: Array, pull: Array, signs: Array) -> tuple[str, ...]:
    """A message with the first few clients outside the range of the theory ([A] Lemma 1); () if there are none."""
    shift = rate * (clients.eigenvalues[..., -1:] + pull)
    beyond = np.argwhere(shift[..., 0] >= 1)
    if not len(beyond):
        return ()
    lost = np.broadcast_to((signs <= 0).any(axis=-1), shift.shape[:-1])
    named = []
    for index in beyond[:NAMED_CLIENTS]:
        value = shift[(*index, 0)]
        state = ", its surrogate is not convex" if lost[tuple(index)] else ""
        named.append(f"client {index[-1]} (client_lr * (smoothness + prox) = {value:.6g}{state})")
    more = f" and {len(beyond) - NAMED_CLIENTS} more" if len(beyond) > NAMED_CLIENTS else ""
    return (f"client_lr must be below 1 / (smoothness + prox) of every client, got {'; '.join(named)}{more}",)
