"""Expected squared distances of FedAvg and Reptile with noisy gradients, round by round.

Charles & Konecny [B], section 7: Lemmas 23, 25, Theorems 26, 27, 29, Corollary 28. All steps count, there is no prox,
the server uses SGD, and rounds are numbered from 1. The papers' variance ignores the sampling of clients, so it holds
for full participation; pass `cohort_variance` for sampled clients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.theory.clients import ClientQuadratics
from trainers.theory.distance_bounds import corollary_20, largest_rate_of_corollary_19
from trainers.theory.interval import Curvature
from trainers.theory.spectrum import phi

Array = NDArray[np.float64]
LN2 = float(np.log(2.0))


@dataclass(frozen=True)
class Noise:
    """The noise of a round's pseudo-gradient.

    Args:
        gradient_noise: bound on the standard deviation of a client's example gradient (G).
        clients_per_round: M.
        batch_size: examples per local step (B).
        cohort_variance: bound on the mean squared distance of a client's surrogate gradient from the mean; 0 with full
            participation (the papers omit it).
    """

    gradient_noise: float
    clients_per_round: int = 1
    batch_size: int = 1
    cohort_variance: float = 0.0

    def variance(self, local_steps: int) -> float:
        """K G^2 / (M B) + cohort_variance / M ([B] Lemma 23, second term added)."""
        gradient_variance = local_steps * self.gradient_noise**2 / (self.clients_per_round * self.batch_size)
        return gradient_variance + self.cohort_variance / self.clients_per_round


def contraction(
    curvature: Curvature, client_lr: float, local_steps: int, server_lr: float, noise: Noise, distance_sq: Any
) -> Array:
    """(1 - server_lr m) distance_sq + server_lr^2 variance after one round ([B] Lemma 25), m = phi(mu).

    Args:
        curvature: bounds of the Hessians.
        client_lr: below 1 / smoothness.
        local_steps: K.
        server_lr: at most `largest_server_lr`.
        noise: noise of the pseudo-gradient.
        distance_sq: expected squared distance to the surrogate's optimum before the round.
    """
    low = _checked_ends(curvature, client_lr, local_steps, server_lr)
    return (1 - server_lr * low) * np.asarray(distance_sq, float) + server_lr**2 * noise.variance(local_steps)


def largest_server_lr(curvature: Curvature, client_lr: float, local_steps: int) -> float:
    """phi(mu) / phi(L)^2: the largest server_lr for which [B] Lemma 25 and Theorem 26 hold."""
    low, high = _ends(curvature, client_lr, local_steps)
    return low / high**2


def theorem_26(
    curvature: Curvature,
    client_lr: float,
    local_steps: int,
    server_lr: float,
    noise: Noise,
    start_sq: float,
    rounds: Any,
) -> Array:
    """(1 - server_lr m)^t start_sq + server_lr variance / m after t rounds at fixed rates ([B] Theorem 26).

    Args:
        curvature: bounds of the Hessians.
        client_lr: below 1 / smoothness.
        local_steps: K.
        server_lr: at most `largest_server_lr`.
        noise: noise of the pseudo-gradient.
        start_sq: squared distance of the start to the surrogate's optimum.
        rounds: t, any shape.
    """
    low = _checked_ends(curvature, client_lr, local_steps, server_lr)
    kept = np.exp(np.asarray(rounds, float) * np.log1p(-server_lr * low))
    return np.asarray(kept * start_sq + server_lr * noise.variance(local_steps) / low)


@dataclass(frozen=True)
class DecayingServerRate:
    """server_lr of round t is numerator / (offset + t), t = 1, 2, ... ([B] Theorems 27 and 29)."""

    numerator: float
    offset: float

    def at(self, rounds: Any) -> Array:
        """The rate of round t, any shape."""
        return self.numerator / (self.offset + np.asarray(rounds, float))


def decaying_server_rate(curvature: Curvature, client_lr: float, local_steps: int) -> DecayingServerRate:
    """Numerator 2 / phi(mu), offset 2 phi(L)^2 / phi(mu)^2: the schedule of [B] Theorem 27 at a fixed client_lr."""
    low, high = _ends(curvature, client_lr, local_steps)
    return DecayingServerRate(2 / low, 2 * (high / low) ** 2)


def theorem_27(
    curvature: Curvature, client_lr: float, local_steps: int, noise: Noise, start_sq: float, rounds: Any
) -> Array:
    """Bound v / (b + t) with v = max(4 variance / phi(mu)^2, (b + 1) start_sq) ([B] Theorem 27).

    Bounds the expected squared distance of x_t to the surrogate's optimum, with x_1 the start, under
    `decaying_server_rate`.

    Args:
        curvature: bounds of the Hessians.
        client_lr: below 1 / smoothness.
        local_steps: K.
        noise: noise of the pseudo-gradient.
        start_sq: squared distance of the start to the surrogate's optimum.
        rounds: t, any shape, from 1.
    """
    low, _ = _ends(curvature, client_lr, local_steps)
    offset = decaying_server_rate(curvature, client_lr, local_steps).offset
    value = max(4 * noise.variance(local_steps) / low**2, (offset + 1) * start_sq)
    return value / (offset + np.asarray(rounds, float))


def corollary_28(
    clients: ClientQuadratics, epsilon: float, local_steps: int, noise: Noise, start_sq: float, rounds: Any
) -> Array:
    """Squared distance to the true optimum: twice Theorem 27 plus twice the square of Corollary 20 ([B] Corollary 28).

    Args:
        clients: (clients, d) quadratics.
        epsilon: in [0, 1 - exp(-K)]; client_lr is `largest_rate_of_corollary_19`.
        local_steps: K.
        noise: noise of the pseudo-gradient.
        start_sq: squared distance of the start to the surrogate's optimum.
        rounds: t, any shape, from 1.
    """
    client_lr = float(largest_rate_of_corollary_19(clients, epsilon, local_steps))
    curvature = Curvature(float(clients.strong_convexity), float(clients.smoothness))
    if client_lr * curvature.smoothness >= 1:
        raise SpecError(
            f"epsilon must keep client_lr below 1 / L, got epsilon={epsilon:g} with K={local_steps}", "epsilon"
        )
    first = theorem_27(curvature, client_lr, local_steps, noise, start_sq, rounds)
    return 2 * first + 2 * float(corollary_20(clients, epsilon)) ** 2


def both_rates_decay(curvature: Curvature, local_steps: int, rounds: Any) -> tuple[Array, Array]:
    """client_lr and server_lr of rounds t = 1, 2, ... ([B] Theorem 29), the schedule `theory_1_over_t`.

    client_lr = min(1 / (L (b + t)), log 2 / (K mu)), server_lr = 3 / (phi_mu(client_lr) (b + t)), b = 3 kappa0^2.

    Args:
        curvature: bounds of the Hessians.
        local_steps: K.
        rounds: t, any shape.
    """
    times = 3 * (curvature.smoothness / curvature.strong_convexity) ** 2 + np.asarray(rounds, float)
    client_lr = np.minimum(1 / (curvature.smoothness * times), LN2 / (local_steps * curvature.strong_convexity))
    return client_lr, 3 / (phi(curvature.strong_convexity, client_lr, local_steps) * times)


def theorem_29(
    curvature: Curvature,
    local_steps: int,
    noise: Noise,
    center_spread: float,
    start_sq: float,
    rounds: Any,
    corrected: bool = True,
) -> Array:
    """(2 v + 16 (center_spread kappa0 (K - 1))^2) / (b + t), v = max(18 G^2 / (mu^2 K M B), (b + 1) start_sq).

    [B] Theorem 29 uses Corollary 22, which lacks the factor K - 1; so does the printed theorem (corrected=False).

    Args:
        curvature: bounds of the Hessians.
        local_steps: K.
        noise: noise of the pseudo-gradient.
        center_spread: spread of the clients' minimizers.
        start_sq: squared distance of the start to the optimum of the first round's surrogate.
        rounds: t, any shape, from 1.
        corrected: whether to include the factor K - 1.
    """
    condition = curvature.smoothness / curvature.strong_convexity
    offset = 3 * condition**2
    spread = noise.variance(local_steps) / (local_steps * curvature.strong_convexity) ** 2
    value = max(18 * spread, (offset + 1) * start_sq)
    drift = 16 * (center_spread * condition) ** 2 * ((local_steps - 1) ** 2 if corrected else 1)
    return (2 * value + drift) / (offset + np.asarray(rounds, float))


def _ends(curvature: Curvature, client_lr: float, local_steps: int) -> tuple[float, float]:
    if client_lr * curvature.smoothness >= 1:
        raise SpecError(
            f"client_lr must be below 1 / L = {1 / curvature.smoothness:g} for this rate, got client_lr={client_lr:g}",
            "client_lr",
        )
    ends = phi(np.array([curvature.strong_convexity, curvature.smoothness]), client_lr, local_steps)
    return float(ends[0]), float(ends[1])


def _checked_ends(curvature: Curvature, client_lr: float, local_steps: int, server_lr: float) -> float:
    low, high = _ends(curvature, client_lr, local_steps)
    if not 0 < server_lr <= low / high**2 * (1 + 1e-12):
        raise SpecError(
            f"server_lr must be above 0 and at most {low / high**2:g} for this rate, got server_lr={server_lr:g}",
            "server_lr",
        )
    return low
