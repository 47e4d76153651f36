"""The best quality that a method reaches within a cost: one step function per seed, and the band over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driftline.results.curves import Array
from driftline.results.points import SmoothedCurve


@dataclass(frozen=True)
class StepFunction:
    """A non-decreasing step function of the cost.

    Attributes:
        cost: Where it rises, (n,), increasing.
        quality: Its oriented value from there on, (n,), increasing.
        start: Its value before the first rise.
    """

    cost: Array
    quality: Array
    start: float

    def at(self, cost: Array) -> Array:
        """Its values at these costs, in the same shape."""
        padded = np.concatenate([[self.start], self.quality])
        return padded[np.searchsorted(self.cost, cost, side="right")]


def best_within(trials: Sequence[SmoothedCurve], start: float) -> StepFunction:
    """Best smoothed quality within a cost, over trials.

    e(c) = max over trials and evaluations with cost <= c of the smoothed quality, and at least `start`, which costs
    nothing. Without trials it is the constant `start`.

    Args:
        trials: Trials of one label and one seed.
        start: Oriented quality of the untrained model.
    """
    cost = np.concatenate([np.zeros(0), *(trial.cost for trial in trials)])
    quality = np.concatenate([np.zeros(0), *(trial.quality for trial in trials)])
    order = np.lexsort((-quality, cost))
    cost, quality = cost[order], quality[order]
    before = np.maximum.accumulate(np.concatenate([[start], quality]))[:-1]
    rises = quality > before
    return StepFunction(cost[rises], quality[rises], start)


@dataclass(frozen=True)
class Band:
    """Median and range of the step functions of several seeds, at the costs where one of these changes.

    Attributes:
        cost: (n,), increasing.
        middle: Median over seeds of the oriented quality, (n,).
        worst: Smallest over seeds, (n,).
        best: Largest over seeds, (n,).
    """

    cost: Array
    middle: Array
    worst: Array
    best: Array


def band(steps: Sequence[StepFunction], first: float, last: float) -> Band:
    """Median, worst and best quality over seeds.

    Args:
        steps: One per seed, at least one.
        first: Cost of one round: where the band begins.
        last: The budget: where it ends.

    Returns:
        The band at `first`, wherever it changes in between, and at `last`.
    """
    inside = np.unique(np.concatenate([step.cost for step in steps]))
    inside = inside[(inside > first) & (inside < last)]
    cost = np.unique(np.concatenate([[first], inside, [last]]))
    table = np.stack([step.at(cost) for step in steps])  # (seeds, n)
    found = Band(cost, np.median(table, axis=0), table.min(axis=0), table.max(axis=0))
    rows = np.stack([found.middle, found.worst, found.best])
    keep = np.ones(len(cost), dtype=bool)
    keep[1:-1] = (np.diff(rows, axis=1)[:, :-1] != 0).any(axis=0)
    return Band(cost[keep], *rows[:, keep])
