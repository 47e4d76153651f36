"""Speed against final quality: where a configuration settles, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driftline.results.curves import Array, TrialCurve
from driftline.results.runs import Runs, runs_of_all, together
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


def settling_cost(cost: Array, quality: Array, start: Array | float, axis: Axis) -> Array:
    """Cost from which the quality stays within 5 % of the way from start to end.

    The way is measured on the scale of the axis: logarithmic for losses. A frozen run settles at its first round.

    Args:
        cost: Cost at each round, (..., n), at least one.
        quality: Smoothed quality at each round, (..., n).
        start: Quality of the untrained model, (...).
        axis: Gives the merit of a quality.
    """
    merit = axis.merit(quality)
    end = merit[..., -1:]
    away = np.abs(merit - end) > SETTLED_WITHIN * np.abs(end - axis.merit(np.asarray(start))[..., None])
    after = np.where(away.any(axis=-1), away.shape[-1] - np.argmax(away[..., ::-1], axis=-1), 0)
    return np.asarray(np.take_along_axis(cost, after[..., None], axis=-1)[..., 0])


def settled(runs: Runs, axis: Axis) -> Settled | None:
    """Where a configuration settles and ends; None if it diverged on every seed."""
    return settled_all([runs], axis)[0]


def settled_all(runs: Sequence[Runs], axis: Axis) -> list[Settled | None]:
    """Where each of many configurations settles and ends; None for one that diverged on every seed."""
    settlings: list[Settled | None] = [None] * len(runs)
    for positions in together(runs, lambda run: (len(run.rounds), tuple(run.diverged.tolist()))):
        group = [runs[position] for position in positions]
        seeds = np.flatnonzero(group[0].diverged >= len(group[0].rounds))
        if not seeds.size or not len(group[0].rounds):
            continue
        cost, quality, start = (
            np.stack(parts).take(seeds, axis=1)
            for parts in zip(*((run.cost, run.quality, run.start) for run in group), strict=True)
        )
        costs, end = settling_cost(cost, quality, start, axis), quality[..., -1]
        ways = np.median(axis.merit(end) - axis.merit(start), axis=1).tolist()
        for position, *of in zip(positions, costs, end, ways, strict=True):
            settlings[position] = Settled(*of)
    return settlings


def settled_trials(curves: Sequence[TrialCurve], metric: str, cost: str, axis: Axis) -> list[Settled | None]:
    """Where each trial settles and ends by itself; None if it diverged or never reported the metric."""
    runs = runs_of_all([(curve.configuration, [curve]) for curve in curves], metric, cost)
    settlings = iter(settled_all([run for run in runs if run is not None], axis))
    return [None if run is None else next(settlings) for run in runs]
