"""Explicit bounds, with constants, for one round and many rounds of one-way gradient transfer.

Augenstein et al., "Mixed Federated Learning: Joint Decentralized and Centralized Learning", appendix D. The step is
effective_step = client_lr delta_lr local_steps. f is the sum of both weighted losses, and has the smoothness of each
part. sigma^2 and sigma_c^2 bound the variances of a client's gradient and of the central gradient. The drift bound is
that of the proof of lemma D.11; its statement has other constants (12, 3 instead of 16, 2), of which the second loses a
term. D.12 assumes, as the paper does, that the whole loss has the smoothness of its parts.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class OneWay:
    """A setting of one-way transfer.

    Args:
        client_lr: above 0.
        delta_lr: server_lr / client_lr.
        local_steps: K.
        clients_per_round: S.
        smoothness: of the clients' losses and of the server's loss.
        strong_convexity: of all these losses; 0 is convex only.
        client_gradient_variance: sigma^2.
        central_gradient_variance: sigma_c^2.
    """

    client_lr: float
    delta_lr: float
    local_steps: int
    clients_per_round: int
    smoothness: float
    strong_convexity: float = 0.0
    client_gradient_variance: float = 0.0
    central_gradient_variance: float = 0.0

    @property
    def effective_step(self) -> float:
        """client_lr delta_lr local_steps."""
        return self.client_lr * self.delta_lr * self.local_steps

    @property
    def _noise(self) -> float:
        cohort = 2 * self.client_gradient_variance / (self.local_steps * self.clients_per_round)
        return cohort + self.central_gradient_variance

    def move(self, drift: float, slope_sq: float) -> float:
        """Lemma D.9: mean squared length of a round's step.

        Args:
            drift: E_t of the round.
            slope_sq: squared norm of the gradient of f at the start of the round.
        """
        step = self.effective_step
        return 4 * step**2 * self.smoothness**2 * drift + 2 * step**2 * self._noise + 2 * step**2 * slope_sq

    def distance(self, distance_sq: float, gap: float, drift: float) -> float:
        """Lemma D.10 (effective_step at most 1 / (8 smoothness)): mean squared distance to the minimizer after a round.

        Args:
            distance_sq: squared distance before the round.
            gap: f minus its minimum before the round.
            drift: E_t of the round.
        """
        step = self.effective_step
        kept = (1 - 1.5 * self.strong_convexity * step) * distance_sq
        return kept - step * gap + 5 / 16 * drift + 2 * step**2 * self._noise

    def drift(self, gap: float) -> float:
        """Lemma D.11 as proven (client_lr at most 1 / smoothness): E_t as a function of f minus its minimum."""
        squared = (self.local_steps * self.client_lr) ** 2
        noise = self.client_gradient_variance / self.local_steps + 2 * self.central_gradient_variance
        return squared * (16 * self.smoothness * gap + 2 * noise)

    def loss(self, gap: float, slope_sq: float, drift: float) -> float:
        """Lemma D.12 (effective_step at most 1 / (18 smoothness)): f minus its minimum after a round.

        Args:
            gap: f minus its minimum before the round.
            slope_sq: squared norm of the gradient of f before the round.
            drift: E_t of the round.
        """
        step, bend = self.effective_step, self.smoothness
        return gap - 4 / 9 * step * slope_sq + bend / 27 * drift + self._noise * bend * step**2

    def drift_by_slope(self, slope_sq: float) -> float:
        """Lemma D.13 (delta_lr at least 1, effective_step at most 1 / (18 smoothness)): E_t by the squared gradient."""
        step = self.effective_step
        noise = self.client_gradient_variance / self.local_steps + 4 * self.central_gradient_variance
        return (4 * step / (9 * self.smoothness) * slope_sq + 2 * step**2 * noise) / self.delta_lr**2

    def recursion(self, distance_sq: float, gap: float) -> float:
        """A whole round (delta_lr above sqrt(5 S / 8)): mean squared distance to the minimizer after it.

        Args:
            distance_sq: squared distance before the round.
            gap: f minus its minimum before the round.
        """
        step, cohort = self.effective_step, self.clients_per_round
        noise = 5 * self.client_gradient_variance / (self.local_steps * cohort) + 3 * self.central_gradient_variance
        kept = (1 - 1.5 * self.strong_convexity * step) * distance_sq
        return kept - (cohort - 1) / cohort * step * gap + noise * step**2


def best_convex_step(rounds: int, smoothness: float, noise: float, initial_distance_sq: float) -> float:
    """The effective_step for which `convex_bound` holds: min(1 / (8 smoothness), D / sqrt(noise rounds)).

    Args:
        rounds: T + 1.
        smoothness: smoothness of the parts.
        noise: 5 sigma^2 / (K S) + 3 sigma_c^2.
        initial_distance_sq: D^2.
    """
    least = 1 / (8 * smoothness)
    return least if noise == 0 else min(least, math.sqrt(initial_distance_sq / (noise * rounds)))


def convex_bound(
    rounds: int, clients_per_round: int, smoothness: float, noise: float, initial_distance_sq: float
) -> float:
    """Mean of f minus its minimum, at the mean of the models before `rounds` rounds with `best_convex_step`.

    S / (S - 1) (8 smoothness D^2 / rounds + 2 sqrt(noise) D / sqrt(rounds)): the paper's form, whose second term is
    sqrt(20 sigma^2 + 12 K S sigma_c^2) D / sqrt(K S rounds). For a single client the bound is infinite.

    Args:
        rounds: T + 1.
        clients_per_round: S.
        smoothness: smoothness of the parts.
        noise: 5 sigma^2 / (K S) + 3 sigma_c^2.
        initial_distance_sq: D^2.
    """
    if clients_per_round == 1:
        return math.inf
    first = 8 * smoothness * initial_distance_sq / rounds
    second = 2 * math.sqrt(noise * initial_distance_sq / rounds)
    return clients_per_round / (clients_per_round - 1) * (first + second)


def best_non_convex_step(rounds: int, smoothness: float, noise: float, initial_gap: float) -> float:
    """The effective_step for which `non_convex_bound` holds.

    Args:
        rounds: T + 1.
        smoothness: smoothness of the parts.
        noise: 3 sigma^2 / (K S) + 2 sigma_c^2.
        initial_gap: F.
    """
    least = 1 / (18 * smoothness)
    return least if noise == 0 else min(least, math.sqrt(initial_gap / (noise * smoothness * rounds)))


def non_convex_bound(rounds: int, smoothness: float, noise: float, initial_gap: float) -> float:
    """Bound on the smallest mean squared gradient of f over `rounds` rounds with `best_non_convex_step`.

    54 smoothness F / rounds + 6 sqrt(noise smoothness F / rounds).

    Args:
        rounds: T + 1.
        smoothness: smoothness of the parts.
        noise: 3 sigma^2 / (K S) + 2 sigma_c^2.
        initial_gap: F.
    """
    return 54 * smoothness * initial_gap / rounds + 6 * math.sqrt(noise * smoothness * initial_gap / rounds)
