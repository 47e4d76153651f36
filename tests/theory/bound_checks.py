"""Checks every bound of the papers on one setting: which apply, which hold, and an error if a proven one does not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainers.theory.clients import ClientQuadratics
from trainers.theory.distance_bounds import (
    corollary_20,
    corollary_22,
    corollary_22_corrected,
    lemma_5,
    lemma_12,
    theorem_4,
    theorem_16,
    theorem_17,
    theorem_21,
)
from trainers.theory.interval import Curvature, log_condition_number
from trainers.theory.surrogate import Surrogate, surrogate
from trainers.theory.weights import Weights

ROUNDING = 1e-9


class BoundViolation(ArithmeticError):
    """A proven bound was exceeded: the numbers, or this code, are wrong."""


@dataclass(frozen=True)
class BoundCheck:
    """The evaluation of one bound.

    Args:
        name: such as "Theorem 17".
        bound: value of the bound.
        distance: the distance that it bounds.
        sound: whether the statement is proven; others are only reported.
        kept: whether the distance is within the bound, up to rounding.
    """

    name: str
    bound: float
    distance: float
    sound: bool
    kept: bool


def bound_checks(clients: ClientQuadratics, client_lr: float, weights: Weights, prox: float = 0.0) -> list[BoundCheck]:
    """The bounds that apply to a setting of one problem.

    Args:
        clients: (clients, d) quadratics.
        client_lr: client rate; beyond 1 / (smoothness + prox) no bound applies.
        weights: gradient weights.
        prox: proximal strength; above 0 only the statements of [A] apply.

    Examples:
        >>> from trainers.theory.clients import client_quadratics
        >>> from trainers.theory.weights import all_steps
        >>> two = client_quadratics([[[1.0]], [[2.0]]], [[1.0], [0.5]])
        >>> [check.name for check in bound_checks(two, 0.25, all_steps(2)) if not check.kept]
        []
    """
    low, high = float(clients.strong_convexity), float(clients.smoothness)
    if client_lr * (high + prox) >= 1:
        return []
    distorted = surrogate(clients, client_lr, weights, prox)
    distance = float(distorted.distance)
    named = [
        ("Lemma 12", lemma_12(distorted), clients.dimension == 1),
        ("Lemma 5", lemma_5(distorted), clients.dimension == 1),
    ]
    if weights.pattern == "all" or (weights.pattern == "last" and client_lr * (weights.local_steps * high + prox) < 1):
        closed = np.exp(log_condition_number(Curvature(low, high), client_lr, weights, prox))
        named.append(("Theorem 4", theorem_4(clients.center_bound, high / low, closed), clients.dimension == 1))
    if prox == 0:
        named.append(("Theorem 16", theorem_16(clients, client_lr, weights), True))
    if prox == 0 and weights.pattern == "all" and client_lr > 0:
        steps = weights.local_steps
        named += [
            ("Theorem 17", theorem_17(clients, client_lr, steps), True),
            ("Corollary 20", corollary_20(clients, -float(np.expm1(-client_lr * steps * high))), True),
            ("Theorem 21", theorem_21(clients, 0.0, client_lr, steps), True),
            ("Corollary 22", corollary_22(clients, 0.0, client_lr), False),
            ("Corollary 22, corrected", corollary_22_corrected(clients, 0.0, client_lr, steps), True),
        ]
    slack = ROUNDING * _length(distorted)
    return [
        BoundCheck(name, float(bound), distance, sound, distance <= float(bound) * (1 + ROUNDING) + slack)
        for name, bound, sound in named
    ]


def require_sound_bounds(clients: ClientQuadratics, client_lr: float, weights: Weights, prox: float = 0.0) -> None:
    """Checks that every proven bound that applies holds; arguments as in `bound_checks`.

    Raises:
        BoundViolation: a proven bound does not hold.
    """
    for check in bound_checks(clients, client_lr, weights, prox):
        if check.sound and not check.kept:
            raise BoundViolation(
                f"{check.name} must bound the distance {check.distance:.6g}, got bound {check.bound:.6g}"
            )


def _length(distorted: Surrogate) -> float:
    return float(distorted.clients.center_bound + np.linalg.norm(distorted.clients.optimum))
