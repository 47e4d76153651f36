"""Speed against final quality: where a configuration settles, and where it ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftline.results.curves import Array
from driftline.results.runs import Runs
from driftline.results.scale import Axis

SETTLED_WITHIN = 0.05
"""Share of the way from start to end within which a run has settled, on the scale of the axis."""

LEARNED_FROM = 0.5
"""Share of the way from the start to the study's best end that a configuration must come, to be in a Pareto set."""


@dataclass(frozen=True)
class Settled:
    """Where a configuration settles and ends, over the seeds on which it did not diverge.

    Attributes:
        cost: Settling cost for each of these seeds, (n,).
        end: Last smoothed quality for each of these seeds, in the metric's unit, (n,).
        way: Median over these seeds of the way from start to end, on the axis.
    """

    cost: Array
    end: Array
    way: float

    def learned(self, best: float) -> bool:
        """Whether it has come at least half of the longest way in the study; a frozen model has not."""
        return best > 0 and self.way >= LEARNED_FROM * best


def settling_cost(cost: Array, quality: Array, start: float, axis: Axis) -> float:
    """Cost from which the quality stays within 5 % of the way from start to end.

    The way is measured on the scale of the axis: logarithmic for losses. A frozen run settles at its first round.

    Args:
        cost: Cost at each round, (n,), at least one.
        quality: Smoothed quality at each round, (n,).
        start: Quality of the untrained model.
        axis: Gives the merit of a quality.
    """
    merit = axis.merit(quality)
    way = abs(merit[-1] - float(axis.merit(np.array(start))))
    away = np.flatnonzero(np.abs(merit - merit[-1]) > SETTLED_WITHIN * way)
    return float(cost[away[-1] + 1 if away.size else 0])


def settled(runs: Runs, axis: Axis) -> Settled | None:
    """Where a configuration settles and ends; None if it diverged on every seed."""
    seeds = np.flatnonzero(runs.diverged >= len(runs.rounds))
    if not seeds.size or not len(runs.rounds):
        return None
    rows = [(runs.cost[seed], runs.quality[seed], float(runs.start[seed])) for seed in seeds]
    end = runs.quality[seeds, -1]
    way = axis.merit(end) - axis.merit(runs.start[seeds])
    return Settled(np.array([settling_cost(*row, axis) for row in rows]), end, float(np.median(way)))
