"""Gradient weights: how much each local gradient of a client counts.

Weights are stored by pattern, so that a million local steps need no list: all equal (FedAvg, Reptile, FedProx), only
the last step (FOMAML, MAML), or any list. Charles & Konecny, "Convergence and Accuracy Trade-Offs in Federated
Learning and Meta-Learning", equation (5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trainers.errors import SpecError
from trainers.values import integer, number, shown

MOST_STEPS = 10**15


@dataclass(frozen=True)
class Weights:
    """Gradient weights of one client; build them with `all_steps`, `last_step`, `listed` or `as_weights`.

    Args:
        pattern: "all" (every step counts `scale`), "last" (only the last step counts, `scale`) or "listed".
        local_steps: number of local steps, at least 1; with one step "all" and "last" are the same.
        scale: common factor of the patterns "all" and "last", above 0.
        values: the list of the pattern "listed"; its last number is above 0.
    """

    pattern: Literal["all", "last", "listed"]
    local_steps: int
    scale: float = 1.0
    values: tuple[float, ...] = ()

    @property
    def total(self) -> float:
        """Sum of the weights: the distortion when the client rate is 0."""
        if self.pattern == "all":
            return self.scale * self.local_steps
        return self.scale if self.pattern == "last" else float(np.sum(self.values))


def all_steps(local_steps: int) -> Weights:
    """Every step counts 1: FedAvg, Reptile, FedProx.

    Examples:
        >>> all_steps(10).total
        10.0
    """
    return Weights("all", _steps(local_steps))


def last_step(local_steps: int) -> Weights:
    """Only step K counts: FOMAML with K - 1 adaptation steps. MAML with J adaptation steps is K = 2 J + 1.

    Examples:
        >>> last_step(10).total
        1.0
    """
    steps = _steps(local_steps)
    return Weights("all" if steps == 1 else "last", steps)


def listed(values: Sequence[float]) -> Weights:
    """Any weights, at least 0, not all 0; trailing zeros are dropped, since steps after the last weight do not matter.

    Args:
        values: (local_steps,) weights of steps 1, 2, ...

    Raises:
        SpecError: a weight is negative or not finite, or no weight is above 0.

    Examples:
        >>> listed([1, 1, 1]) == all_steps(3), listed([0, 0, 1, 0]) == last_step(3)
        (True, True)
    """
    weights = [number(value, "gradient_weights") for value in values]
    if any(weight < 0 for weight in weights):
        raise SpecError(f"gradient_weights must not be negative, got {shown(list(values))}", "gradient_weights")
    while weights and weights[-1] == 0:
        weights.pop()
    if not weights:
        raise SpecError(f"gradient_weights must have one above 0, got {shown(list(values))}", "gradient_weights")
    if all(weight == weights[-1] for weight in weights):
        return Weights("all", len(weights), weights[-1])
    if not any(weights[:-1]):
        return Weights("last", len(weights), weights[-1])
    return Weights("listed", len(weights), values=tuple(weights))


def as_weights(value: Weights | str | Sequence[float]) -> Weights:
    """Parses weights: "1:K" (K ones), "K" (only step K), "1,0.5,2" or a list of numbers.

    Args:
        value: weights, a string or a list.

    Raises:
        SpecError: the value is none of these.

    Examples:
        >>> as_weights("1:10") == all_steps(10), as_weights("10") == last_step(10), as_weights("1,1") == all_steps(2)
        (True, True, True)
    """
    if isinstance(value, Weights):
        return value
    if not isinstance(value, str):
        return listed(value)
    if "," in value:
        return listed([number(part.strip(), "gradient_weights") for part in value.split(",") if part.strip()])
    first, colon, last = value.partition(":")
    if not colon:
        return last_step(integer(value.strip(), "gradient_weights"))
    if first.strip() != "1":
        raise SpecError(
            f"gradient_weights must be 1:K, K or a comma list, got {shown(value)}; write 1:{last or 'K'}",
            "gradient_weights",
        )
    return all_steps(integer(last.strip(), "gradient_weights"))


def _steps(local_steps: int) -> int:
    if not 1 <= local_steps <= MOST_STEPS:
        raise SpecError(
            f"local_steps must be at least 1 and at most {MOST_STEPS}, got local_steps={local_steps}", "local_steps"
        )
    return int(local_steps)
