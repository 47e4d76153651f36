"""Which configurations of a search are run again on fresh seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from driftline.results.curves import Array, TrialCurve
from driftline.results.runs import Runs, axis_of_runs, runs_of_all
from driftline.results.scale import Axis

MOST_COSTS = 2000
"""Most costs at which configurations are compared; more are thinned evenly on a logarithmic axis."""

_CHOSEN = ("COMPLETE", "STOPPED")
_LAST = ("DIVERGED", "FAILED", "CANCELLED")


def to_confirm(search: Sequence[TrialCurve], metric: str, cost: str, count: int) -> list[int]:
    """The configurations of a label to run again on fresh seeds, first choices first.

    Together they dominate the largest area in the search: the mean over log10 cost of the best merit that any of them
    reaches within a cost. Trials that were stopped at a rung count as far as they went. Configurations are added
    greedily, the lower number first among equals; when none adds area, the greedy choice starts again on the rest.
    Configurations without a finite evaluation after round 0, then diverged and failed ones, follow only if there are
    too few others, so that every label confirms the same number.

    Args:
        search: The finished search trials of one label.
        metric: Metric chosen as quality.
        cost: Chosen cost.
        count: How many.
    """
    ordered = sorted(search, key=lambda curve: curve.configuration)
    all_runs = runs_of_all([(curve.configuration, [curve]) for curve in ordered], metric, cost)
    with_runs = zip(ordered, all_runs, strict=True)
    runs = [run for curve, run in with_runs if curve.state in _CHOSEN and run is not None and len(run.rounds)]
    chosen = greedy(runs, count, axis_of_runs(metric, runs)) if runs else []
    judged = {run.configuration for run in runs}
    left = [curve for curve in ordered if curve.configuration not in judged]
    rest = [curve.configuration for state in (*_CHOSEN, *_LAST) for curve in left if curve.state == state]
    return [*chosen, *rest][:count]


def greedy(runs: Sequence[Runs], count: int, axis: Axis) -> list[int]:
    """Numbers of the configurations that together dominate the largest area, added one by one; see `to_confirm`.

    Args:
        runs: Configurations on one seed, by increasing number.
        count: How many.
        axis: Gives the merit of a quality.
    """
    cost = decision_costs([run.cost[0] for run in runs])
    widths = np.log10(np.append(cost[1:], cost[-1]) / cost) if len(cost) > 1 else np.ones(1)  # one cost: its quality
    start = float(np.mean([axis.merit(run.start) for run in runs]))
    reached = np.stack([_best_within(run, cost, start, axis) for run in runs])  # (configurations, costs)
    chosen: list[int] = []
    left = np.ones(len(runs), dtype=bool)
    while len(chosen) < min(count, len(runs)):
        best = np.full(len(cost), start)
        while len(chosen) < min(count, len(runs)):
            gains = np.where(left, np.maximum(reached - best, 0.0) @ widths, -np.inf)
            index = int(np.argmax(gains))
            if gains[index] <= 0 and best.max() > start:
                break
            chosen.append(index)
            left[index] = False
            best = np.maximum(best, reached[index])
    return [runs[index].configuration for index in chosen]


def decision_costs(costs: Sequence[Array]) -> Array:
    """The distinct costs, increasing; at most `MOST_COSTS` of them.

    Args:
        costs: Costs of the rounds of each configuration, positive.
    """
    distinct = np.unique(np.concatenate([np.zeros(0), *costs]))
    if len(distinct) <= MOST_COSTS:
        return distinct
    targets = np.geomspace(distinct[0], distinct[-1], MOST_COSTS)
    before = np.maximum(np.searchsorted(distinct, targets[:-1], side="right") - 1, 0)
    return np.asarray(distinct[np.unique(np.append(before, len(distinct) - 1))])


def _best_within(runs: Runs, cost: Array, start: float, axis: Axis) -> Array:
    best = np.maximum.accumulate(np.append(start, axis.merit(runs.quality[0])))
    return np.asarray(best[np.searchsorted(runs.cost[0], cost, side="right")])
