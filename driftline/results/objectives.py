"""What the sampler maximises: tail quality and speed. Both are larger when better, whatever the metric."""

from __future__ import annotations

import numpy as np

from driftline.errors import InvalidSpec
from driftline.results.curves import TrialCurve
from driftline.results.points import SmoothedCurve, progress
from trainers import shown

FIRST_COST: dict[str, float] = {"rounds": 1.0, "bytes": 1.0, "client_gradients": 1.0, "seconds": 1e-3}
"""The cost from which speed counts: one round, one byte, one gradient, a millisecond. It is the same for all trials, so
that of two trials with equal curves over rounds, the one with cheaper rounds is faster."""


def quality(curve: TrialCurve, metric: str, rounds: int) -> float:
    """Tail quality: the last value of the smoothed metric, negated if the metric falls.

    Args:
        curve: A trial that did not diverge.
        metric: Metric chosen as quality.
        rounds: Budget of a trial in rounds; sets the smoothing window (`points.window`).

    Raises:
        InvalidSpec: The trial never reported the metric.
    """
    return _found(curve, metric, "rounds", rounds).tail


def speed(curve: TrialCurve, metric: str, cost: str, rounds: int) -> float:
    """Mean smoothed quality over log10 cost.

    (1 / (log10 c_end - log10 c_first)) · integral of the quality over log10 cost from c_first (`FIRST_COST`) to c_end,
    the cost at the last evaluation; between two evaluations the quality is the earlier one's. The settling cost would
    not do as an objective, because a frozen trial minimises it; a frozen trial's speed is its initial quality.

    Args:
        curve: A trial that did not diverge.
        metric: Metric chosen as quality.
        cost: Chosen cost, one of `curves.COSTS`.
        rounds: Budget of a trial in rounds; sets the smoothing window.

    Returns:
        A value in the range of the oriented quality. With a single evaluation, its quality.

    Raises:
        InvalidSpec: The trial never reported the metric, or did not count the cost.
    """
    found = _found(curve, metric, cost, rounds)
    first = FIRST_COST[cost]
    end = float(found.cost[-1])
    if end <= first:
        return found.tail
    edges = np.log10(np.append(np.maximum(found.cost, first), end))
    return float(np.dot(found.quality, np.diff(edges)) + found.quality[0] * (edges[0] - np.log10(first))) / float(
        np.log10(end / first)
    )


def values(curve: TrialCurve, metric: str, cost: str, rounds: int) -> dict[str, float]:
    """``{"quality", "speed"}`` of a trial that did not diverge; see `quality` and `speed`."""
    return {"quality": quality(curve, metric, rounds), "speed": speed(curve, metric, cost, rounds)}


def _found(curve: TrialCurve, metric: str, cost: str, rounds: int) -> SmoothedCurve:
    found = progress(curve, metric, cost, rounds)
    if found is None:
        known = ", ".join(sorted(set(curve.columns) - {"round"})) or "nothing"
        raise InvalidSpec(
            "objective.quality", f"must be a metric that trials report, got {shown(metric)} (reported: {known})"
        )
    return found
