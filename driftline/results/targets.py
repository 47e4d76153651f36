"""What it costs a trial to reach a quality: the same round numbers as targets for all trials of a metric."""

from __future__ import annotations

import math

import numpy as np

from driftline.results.runs import Runs
from driftline.results.scale import Axis

DECADES = 4
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)


def targets(start: float, axis: Axis) -> list[float]:
    """The qualities to reach from an untrained model's, easiest first.

    Args:
        start: Quality of the untrained model.
        axis: On a logarithm, the targets are 1, 2 and 5 times powers of ten, at most `DECADES` below the start. A
            metric that rises and is a share has `SHARES`; other metrics have none.

    Examples:
        >>> targets(2.3, Axis(rising=False, floor=1e-12))[:6]
        [2.0, 1.0, 0.5, 0.2, 0.1, 0.05]
        >>> targets(0.65, Axis(rising=True))
        [0.7, 0.8, 0.9, 0.95, 0.98, 0.99]
    """
    if axis.rising:
        return [share for share in SHARES if share > start] if 0 <= start <= 1 else []
    if not axis.logarithmic or not start > 0:
        return []
    top = math.floor(math.log10(start))
    steps = [float(f"{digit}e{power}") for power in range(top, top - DECADES - 1, -1) for digit in (5, 2, 1)]
    return [step for step in steps if start * 10.0**-DECADES <= step < start]


def costs_to_targets(runs: Runs, axis: Axis) -> dict[float, float]:
    """The cost at which a trial's smoothed quality first reaches each target; targets that it misses are left out.

    Args:
        runs: The trial, as the only seed.
        axis: As for `targets`.

    Returns:
        Target to cost, easiest target first.
    """
    target_qualities = targets(float(runs.start[0]), axis)
    if not target_qualities:
        return {}
    merit = np.maximum.accumulate(axis.merit(runs.quality[0]))
    firsts = np.searchsorted(merit, axis.merit(np.array(target_qualities)))
    costs = runs.cost[0, firsts[firsts < len(merit)]].tolist()
    return dict(zip(target_qualities, costs, strict=False))
