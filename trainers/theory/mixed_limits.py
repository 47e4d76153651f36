"""Step size limits of the theorems of mixed federated learning, and the numbers of rounds that they guarantee.

Augenstein et al., "Mixed Federated Learning: Joint Decentralized and Centralized Learning", definition 4.2, tables 1, 3
and 4, theorems B.1 (parallel training), B.2 (one-way transfer) and B.3 (two-way transfer). Losses include their
weights; smoothness is that of every client's loss and of the server's loss. The conditions are sufficient but far from
necessary, and the paper's own experiments (delta_lr 1) do not meet those of one-way transfer. A setting that violates
them therefore causes a warning, never an error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.errors import SpecError
from trainers.spelling import hint
from trainers.theory.clients import ClientQuadratics
from trainers.theory.rounds.central import CentralQuadratic, scaled, weighted_central
from trainers.values import shown

Array = NDArray[np.float64]
CONVEXITIES = ("strongly_convex", "convex", "non_convex")
_ONE_WAY = {"strongly_convex": 8.0, "convex": 8.0, "non_convex": 18.0}
_TWO_WAY = {"strongly_convex": 81.0, "convex": 81.0, "non_convex": 24.0}
THEOREMS = {"parallel_training": "B.1", "one_way_transfer": "B.2", "two_way_transfer": "B.3"}


def rate_limit(
    method: str,
    smoothness: float,
    local_steps: int,
    *,
    convexity: str = "strongly_convex",
    merge_lr: float = 1.0,
    dissimilarity_factor_sq: float = 1.0,
    strong_convexity: float = 0.0,
) -> float:
    """The largest server_lr (client_lr delta_lr), and central_lr if the method has one, in the method's theorem.

    parallel_training  1 / (6 (1 + B^2) smoothness local_steps merge_lr)
    one_way_transfer   1 / (8 smoothness local_steps), with 18 in place of 8 for losses that are not convex
    two_way_transfer   1 / (81 smoothness local_steps merge_lr), and 1 / (15 strong_convexity local_steps merge_lr) for
                       losses that are strongly convex; 24 in place of 81 for losses that are not convex

    Args:
        method: "parallel_training", "one_way_transfer" or "two_way_transfer".
        smoothness: of all parts of the loss, above 0.
        local_steps: at least 1.
        convexity: "strongly_convex", "convex" or "non_convex".
        merge_lr: at least 1 in the theorems; with merge_by "mean" half of the given value.
        dissimilarity_factor_sq: B^2, at least 1.
        strong_convexity: 0 is unknown.

    Raises:
        SpecError: the method or convexity is unknown.

    Examples:
        >>> rate_limit("one_way_transfer", 1.0, 2) == 1 / 16
        True
    """
    _known(method, convexity)
    steps = smoothness * local_steps
    if method == "parallel_training":
        return 1 / (6 * (1 + dissimilarity_factor_sq) * steps * merge_lr)
    if method == "one_way_transfer":
        return 1 / (_ONE_WAY[convexity] * steps)
    limit = 1 / (_TWO_WAY[convexity] * steps * merge_lr)
    if convexity == "strongly_convex" and strong_convexity > 0:
        limit = min(limit, 1 / (15 * strong_convexity * local_steps * merge_lr))
    return limit


def least_delta_lr(clients_per_round: int, *, convexity: str = "strongly_convex") -> float:
    """The delta_lr that one-way transfer must exceed, sqrt(5 S / 8), or reach if the loss is not convex, sqrt(S).

    Args:
        clients_per_round: S.
        convexity: as in `rate_limit`.

    Examples:
        >>> least_delta_lr(100, convexity="non_convex")
        10.0
    """
    _known("one_way_transfer", convexity)
    return math.sqrt(clients_per_round) if convexity == "non_convex" else math.sqrt(5 * clients_per_round / 8)


@dataclass(frozen=True, kw_only=True)
class Difficulty:
    """The constants of a problem in table 1.

    Args:
        smoothness: above 0.
        strong_convexity: above 0 for "strongly_convex".
        client_gradient_variance: sigma^2, of one client's gradient.
        central_gradient_variance: sigma_c^2.
        client_heterogeneity: sigma_f^2, mean squared distance of the clients' gradients from their mean; 0 is iid.
        dissimilarity_offset: G.
        dissimilarity_factor: B, at least 1.
        initial_distance_sq: D^2, for "convex".
        initial_gap: F, for "non_convex".
    """

    smoothness: float
    strong_convexity: float = 0.0
    client_gradient_variance: float = 0.0
    central_gradient_variance: float = 0.0
    client_heterogeneity: float = 0.0
    dissimilarity_offset: float = 0.0
    dissimilarity_factor: float = 1.0
    initial_distance_sq: float = 1.0
    initial_gap: float = 1.0


def rounds_to(
    method: str, problem: Difficulty, tolerance: float, *, convexity: str, clients_per_round: int, local_steps: int
) -> float:
    """Rounds to a tolerance by table 1, without constant factors: only ratios of methods and settings are meaningful.

    The leading term is that of noise, (sigma^2 + S sigma_c^2 + K sigma_f^2) / (K S ...), with K S sigma_c^2 for one-way
    transfer, which takes one central gradient per round. Parallel training adds a term in G, and B^2 to the last term.

    Args:
        method: as in `rate_limit`.
        problem: constants of the problem.
        tolerance: of the loss minus its minimum; of the squared norm of its gradient for "non_convex".
        convexity: as in `rate_limit`.
        clients_per_round: S, at least 1.
        local_steps: K, at least 2 in the theorems.

    Raises:
        SpecError: the method or convexity is unknown, or strong_convexity is 0 for "strongly_convex".
    """
    _known(method, convexity)
    cohort, steps, constants = clients_per_round, local_steps, problem
    batches = steps * cohort if method == "one_way_transfer" else cohort
    noise = (
        constants.client_gradient_variance
        + batches * constants.central_gradient_variance
        + steps * constants.client_heterogeneity
    )
    noise /= steps * cohort
    parallel = method == "parallel_training"
    factor_sq = constants.dissimilarity_factor**2 if parallel else 1.0
    offset = constants.dissimilarity_offset if parallel else 0.0
    smoothness = constants.smoothness
    if convexity == "strongly_convex":
        if not constants.strong_convexity > 0:
            raise SpecError(
                f"strong_convexity must be above 0, got {shown(constants.strong_convexity)}", "strong_convexity"
            )
        bent = offset * math.sqrt(smoothness) / math.sqrt(tolerance)
        linear = factor_sq * smoothness * math.log(1 / tolerance)
        return (noise / tolerance + bent + linear) / constants.strong_convexity
    if convexity == "convex":
        first = noise * constants.initial_distance_sq / tolerance**2
        last = factor_sq * smoothness * constants.initial_distance_sq / tolerance
    else:
        first = noise * smoothness * constants.initial_gap / tolerance**2
        last = factor_sq * smoothness * constants.initial_gap / tolerance
    return float(first + offset * math.sqrt(smoothness) / tolerance**1.5 + last)


def dissimilarity(federated: Any, central: Any, federated_weight: float) -> tuple[float, float]:
    """Estimates of G^2 (for B = 1) and B^2 (for G = 0) from the gradients of both weighted parts at one model.

    |a|^2 / w + |b|^2 / (1 - w) - |a + b|^2   and   (|a|^2 / w + |b|^2 / (1 - w)) / |a + b|^2

    Args:
        federated: (d,) gradient a of the clients' loss.
        central: (d,) gradient b of the server's loss.
        federated_weight: w in (0, 1).

    Examples:
        >>> dissimilarity([1.0, 0.0], [0.0, 1.0], 0.5)
        (2.0, 2.0)
    """
    first, second = np.asarray(federated, float), np.asarray(central, float)
    weight, central_weight = federated_weight, 1 - federated_weight
    whole = float(((first + second) ** 2).sum())
    gap = first / weight - second / central_weight
    offset = weight * central_weight * float((gap**2).sum())  # the difference above, without cancellation
    return offset, 1 + offset / whole if whole > 0 else math.inf


@dataclass(frozen=True)
class QuadraticParts:
    """Both weighted parts of a mixed quadratic loss; build with `parts`.

    Args:
        clients: part of the clients.
        central: part of the server.
        federated_weight: in (0, 1).
    """

    clients: ClientQuadratics
    central: CentralQuadratic
    federated_weight: float

    @property
    def smoothness(self) -> float:
        """Largest curvature of any client's and of the server's part."""
        return max(float(self.clients.smoothness), float(self.central.clients.smoothness))

    @property
    def strong_convexity(self) -> float:
        """Smallest curvature of any client's and of the server's part."""
        return min(float(self.clients.strong_convexity), float(self.central.clients.strong_convexity))

    @property
    def optimum(self) -> Array:
        """(d,) minimizer of the sum."""
        pull = self.clients.hessian @ self.clients.optimum + self.central.hessian @ self.central.center
        return np.asarray(np.linalg.solve(self.clients.hessian + self.central.hessian, pull))

    def gradients(self, params: Any) -> tuple[Array, Array]:
        """(d,) gradients of the clients' and of the server's part."""
        point = np.asarray(params, float)
        federated = self.clients.hessian @ (point - self.clients.optimum)
        return federated, self.central.hessian @ (point - self.central.center)

    @property
    def least_factor_sq(self) -> float:
        """The smallest B^2 for which (G, B) holds for some G, which is determined far from the minimizer.

        The largest eigenvalue of A^2 / w + C^2 / (1 - w) relative to (A + C)^2; 1 if both parts have equal Hessians.
        """
        largest = max(self.clients.hessian.max(), self.central.hessian.max())  # without it, squares may overflow
        first, second = self.clients.hessian / largest, self.central.hessian / largest
        weight = self.federated_weight
        whole = np.linalg.inv(first + second)
        parts = first @ first / weight + second @ second / (1 - weight)
        return float(np.linalg.eigvals(whole @ whole @ parts).real.max())

    def offset_sq(self, factor_sq: float) -> float:
        """The smallest G^2 for a given B^2 above `least_factor_sq`.

        With e the vector from the minimizer and r the clients' gradient at the minimizer, the condition is
        |A e + r|^2 / w + |C e - r|^2 / (1 - w) - B^2 |(A + C) e|^2 <= G^2. The left side is a concave quadratic in e,
        whose maximum has a closed form.

        Args:
            factor_sq: B^2.
        """
        first, second, weight = self.clients.hessian, self.central.hessian, self.federated_weight
        gradient = self.gradients(self.optimum)[0]
        whole = first + second
        bend = factor_sq * whole @ whole - first @ first / weight - second @ second / (1 - weight)
        slope = first @ gradient / weight - second @ gradient / (1 - weight)
        at = float(gradient @ gradient) * (1 / weight + 1 / (1 - weight))
        if not np.linalg.eigvalsh((bend + bend.T) / 2)[0] > 0:
            raise SpecError(
                f"factor_sq must be above {self.least_factor_sq:.6g}, the least B^2 of these losses, got {factor_sq:g}",
                "factor_sq",
            )
        return at + float(slope @ np.linalg.solve(bend, slope))


def parts(clients: ClientQuadratics, central: CentralQuadratic, federated_weight: float) -> QuadraticParts:
    """Both parts of the loss federated_weight (clients' mean) + (1 - federated_weight) (server's loss).

    Args:
        clients: the unweighted clients' part.
        central: the unweighted server's part.
        federated_weight: in (0, 1).
    """
    central_weight = 1 - federated_weight
    return QuadraticParts(
        scaled(clients, federated_weight), weighted_central(central, central_weight), federated_weight
    )


def _known(method: str, convexity: str) -> None:
    if method not in THEOREMS:
        raise SpecError(f"no theorem for method {shown(method)}: {hint(method, THEOREMS)}", "method.name")
    if convexity not in CONVEXITIES:
        raise SpecError(f"convexity must be one of {', '.join(CONVEXITIES)}, got {shown(convexity)}", "convexity")
