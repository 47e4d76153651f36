"""From a curve to a point: smoothed quality, its tail, and the cost from which it stays near the tail.

Inside results a quality is *oriented*: the metric times -1 when it falls, so that larger is always better.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftline.results.curves import Array, TrialCurve
from driftline.results.directions import sign

SMOOTHING_FRACTION = 1 / 20  # of the budget's rounds
SMOOTHING_LONGEST = 100  # rounds; what the papers average over
SETTLED_WITHIN = 0.05  # of the way from the start to the trial's own tail
COUNTS_FROM = 0.5  # of the way from the trial's start to the study's best tail


@dataclass(frozen=True)
class SmoothedCurve:
    """One trial's smoothed quality over its cost.

    Attributes:
        cost: Cost at each evaluation, (evaluations,), non-decreasing.
        quality: Smoothed oriented quality, (evaluations,).
        start: Oriented quality of the first evaluation, not smoothed.
    """

    cost: Array
    quality: Array
    start: float

    @property
    def tail(self) -> float:
        """The last smoothed quality."""
        return float(self.quality[-1])

    @property
    def settles(self) -> float:
        """Cost from which the quality stays within 5 % of the way from the start to the tail.

        The way is measured from the first evaluation. A frozen trial settles at its first evaluation.
        """
        away = np.abs(self.quality - self.tail) > SETTLED_WITHIN * abs(self.tail - self.start)
        last = np.flatnonzero(away)
        return float(self.cost[last[-1] + 1 if last.size else 0])

    def counts(self, best: float) -> bool:
        """Whether its tail has come at least half of the way from its start to the study's best tail.

        False for a frozen model, which settles at once without having learned anything.
        """
        way = best - self.start
        return way > 0 and self.tail - self.start >= COUNTS_FROM * way


def window(rounds: int) -> int:
    """Number of rounds that are averaged: a twentieth of the budget, at least 1 and at most 100.

    Args:
        rounds: Budget of a trial, in rounds.

    Examples:
        >>> window(10), window(200), window(5000)
        (1, 10, 100)
    """
    return int(min(max(rounds * SMOOTHING_FRACTION, 1), SMOOTHING_LONGEST))


def smooth(rounds: Array, values: Array, width: int) -> Array:
    """Trailing mean over the evaluations that fell in the last `width` rounds, the present one included.

    s_j = mean of v_i over all i with r_j - width < r_i <= r_j. Evaluations may be sparse: a window that holds one
    evaluation gives that evaluation. `width` 1 changes nothing.

    Args:
        rounds: Rounds of the evaluations, (n,), increasing.
        values: Their values, (n,), finite.
        width: Rounds, at least 1.

    Returns:
        Smoothed values, (n,).

    Examples:
        >>> smooth(np.array([0.0, 1.0, 2.0, 10.0]), np.array([4.0, 2.0, 0.0, 1.0]), 2).tolist()
        [4.0, 3.0, 1.0, 1.0]
    """
    total = values.astype(np.float64, copy=True)
    if bool((np.diff(rounds) == 1).all()):  # the usual case needs no search for neighbours; same order of sums
        for back in range(1, min(width, len(values))):
            total[back:] += values[:-back]
        held: Array = np.minimum(np.arange(1.0, len(values) + 1), width)
        return total / held
    count = np.ones(len(values))
    for back in range(1, min(width, len(values))):
        near = np.zeros(len(values), dtype=bool)
        near[back:] = rounds[back:] - rounds[:-back] < width
        if not near.any():
            break
        total[back:] += np.where(near[back:], values[:-back], 0.0)
        count += near
    return total / count


def progress(curve: TrialCurve, metric: str, cost: str, rounds: int) -> SmoothedCurve | None:
    """A trial's smoothed, oriented quality over its cost.

    Args:
        curve: The trial.
        metric: Metric chosen as quality.
        cost: Chosen cost, one of `curves.COSTS`.
        rounds: Budget of a trial in rounds; sets the window.

    Returns:
        The smoothed curve; None if the metric was never evaluated.
    """
    return curve.computed(f"progress {metric} {cost} {rounds}", lambda: _progress(curve, metric, cost, rounds))


def _progress(curve: TrialCurve, metric: str, cost: str, rounds: int) -> SmoothedCurve | None:
    at, values = curve.metric(metric)
    if not at.size:
        return None
    oriented = sign(metric) * values
    return SmoothedCurve(curve.cost(cost, at), smooth(at, oriented, window(rounds)), float(oriented[0]))
