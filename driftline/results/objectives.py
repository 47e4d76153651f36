"""What the sampler maximises: final quality and speed. Both are larger when better, whatever the metric."""

from __future__ import annotations

import numpy as np

from driftline.errors import InvalidSpec
from driftline.results.curves import Array, TrialCurve
from driftline.study.directions import sign
from trainers import cost_named, shown


def quality(curve: TrialCurve, metric: str) -> float:
    """Final quality: the last value of the smoothed metric, negated if the metric falls.

    Args:
        curve: A trial that did not diverge.
        metric: Metric chosen as quality.

    Raises:
        InvalidSpec: The trial never reported the metric.
    """
    return float(_smoothed(curve, metric)[1][-1])


def speed(curve: TrialCurve, metric: str, cost: str) -> float:
    """Mean smoothed quality over log10 cost.

    (1 / (log10 c_end - log10 c_first)) · integral of the quality over log10 cost from c_first (`Cost.first`) to c_end,
    the cost at the last evaluation; between two evaluations the quality is the earlier one's. The settling cost would
    not do as an objective, because a frozen trial minimises it; a frozen trial's speed is its initial quality.

    Args:
        curve: A trial that did not diverge.
        metric: Metric chosen as quality.
        cost: Chosen cost, one of `trainers.COSTS`.

    Returns:
        A value in the range of the oriented quality. With a single evaluation, its quality.

    Raises:
        InvalidSpec: The trial never reported the metric, or did not count the cost.
    """
    at, values = _smoothed(curve, metric)
    costs = curve.cost(cost, at)
    first, end = cost_named(cost).first, float(costs[-1])
    if end <= first:
        return float(values[-1])
    edges = np.log10(np.append(np.maximum(costs, first), end))
    whole = float(np.dot(values, np.diff(edges)) + values[0] * (edges[0] - np.log10(first)))
    return whole / float(np.log10(end / first))


def values(curve: TrialCurve, metric: str, cost: str) -> dict[str, float]:
    """``{"quality", "speed"}`` of a trial that did not diverge; see `quality` and `speed`."""
    return {"quality": quality(curve, metric), "speed": speed(curve, metric, cost)}


def _smoothed(curve: TrialCurve, metric: str) -> tuple[Array, Array]:
    """Rounds of the evaluations, and the smoothed, oriented metric."""
    at, _, smoothed = curve.smoothed(metric)
    if not at.size:
        reported = ", ".join(sorted(set(curve.columns) - {"round"})) or "nothing"
        raise InvalidSpec(
            "objective.quality", f"must be a metric that trials report, got {shown(metric)} (reported: {reported})"
        )
    return at, sign(metric) * smoothed
