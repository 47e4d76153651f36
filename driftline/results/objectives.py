"""What the sampler maximises: tail quality and speed. Both are larger when better, whatever the metric."""

from __future__ import annotations

import numpy as np

from driftline.errors import InvalidSpec
from driftline.results.curves import TrialCurve
from driftline.results.points import SmoothedCurve, progress
from trainers import shown

FIRST_COST: dict[str, float] = {"rounds": 1.0, "bytes": 1.0, "client_gradients": 1.0, "seconds": 1e-3}
"""Where speed starts to count: one round, one byte, one gradient, a millisecond. The same for every trial, so that
of two trials with equal curves over rounds the one with cheaper rounds is the faster."""


def quality(curve: TrialCurve, metric: str, rounds: int) -> float:
    """Tail quality: the last value of the smoothed metric, its sign turned when the metric falls.

    Args:
        curve: A trial that did not diverge.
        metric: What is chosen as quality.
        rounds: Budget of a trial in rounds; sets the smoothing window (`points.window`).

    Raises:
        InvalidSpec: The trial never reported the metric.
    """
    return _found(curve, metric, "rounds", rounds).tail


def speed(curve: TrialCurve, metric: str, cost: str, rounds: int) -> float:
    """Mean smoothed quality over log10 cost.

    (1 / (log10 c_end - log10 c_first)) · integral of the quality over log10 cost from c_first (`FIRST_COST`) to c_end,
    the cost at the last evaluation; between two evaluations the quality is the earlier one's. Never the settling
    cost, which a frozen trial would minimise: a frozen trial's speed is the quality it started with.

    Args:
        curve: A trial that did not diverge.
        metric: What is chosen as quality.
        cost: What is chosen as cost, see `curves.COSTS`.
        rounds: Budget of a trial in rounds; sets the smoothing window.

    Returns:
        A value in the range of the oriented quality. With a single evaluation, that evaluation.

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
