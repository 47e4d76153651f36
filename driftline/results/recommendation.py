"""For each cost, the configuration to run and the round to stop at: the best mean merit so far on some seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driftline.results.curves import Array
from driftline.results.runs import Runs, together
from driftline.results.scale import Axis, Scale

UNTRAINED = -1
"""The choice at costs that pay for no round of any configuration."""


@dataclass(frozen=True)
class Span:
    """The costs for which something is recommended.

    Attributes:
        first: Cost of the cheapest first round.
        last: Largest cost that configurations of every label reach, without labels all of whose runs diverged.
    """

    first: float
    last: float


@dataclass(frozen=True)
class Recommendations:
    """What to run for each cost: constant from one cost to the next.

    Attributes:
        cost: Where the recommendation changes, (n,), increasing; the first is the beginning of the span.
        which: Index of the configuration among the runs, or `UNTRAINED`, (n,).
        column: Index of its stopping round, (n,).
    """

    cost: Array
    which: NDArray[np.int64]
    column: NDArray[np.int64]


@dataclass(frozen=True)
class Steps:
    """A step function of the cost.

    Attributes:
        cost: Where it changes, (n,), increasing.
        quality: Its value from there on, in the metric's unit, (n,).
    """

    cost: Array
    quality: Array

    def at(self, cost: Array) -> Array:
        """Its values at these costs, none of them before the first."""
        return self.quality[np.searchsorted(self.cost, cost, side="right") - 1]

    def area(self, scale: Scale, span: Span) -> float:
        """Mean of the scaled value over the logarithm of the cost, from the first to the last cost of the span."""
        values = scale.scaled(self.quality)
        widths = log_widths(self.cost, span)
        return float(np.dot(values, widths) / widths.sum())


def log_widths(cost: Array, span: Span) -> Array:
    """Share of the span's logarithmic length from each of these costs to the next; of a span of one cost, the last."""
    if span.last <= span.first:
        return np.append(np.zeros(len(cost) - 1), 1.0)
    edges = np.log10(np.clip(np.append(cost, span.last), span.first, span.last))
    return np.asarray(np.diff(edges) / (np.log10(span.last) - np.log10(span.first)))


def recommend(runs: Sequence[Runs], seeds: Sequence[int], axis: Axis, span: Span) -> Recommendations:
    """Chooses a configuration and a stopping round for each cost.

    Takes the round, of all rounds that a cost pays for, with the best mean merit over the choosing seeds; of equals (to
    12 digits) the one with fewer rounds, then the configuration that comes first. With more budget, the
    mean merit never gets worse. The cost is the mean over the choosing seeds. A configuration is never recommended at
    or beyond a round at which it had diverged on a choosing seed.

    Args:
        runs: The configurations, in the order in which ties are resolved.
        seeds: Positions of the choosing seeds in the runs, at least one.
        axis: Gives the merit of a quality.
        span: Costs of interest.
    """
    which, column, rounds, cost, merit = _improvements(runs, seeds, axis)
    best_first = np.lexsort((which, rounds, -merit))
    rank = np.empty(len(best_first), dtype=np.int64)
    rank[best_first] = np.arange(len(best_first))
    by_cost = np.argsort(cost, kind="stable")
    by_cost = by_cost[cost[by_cost] <= span.last]
    chosen = best_first[np.minimum.accumulate(rank[by_cost])]
    costs = np.maximum(cost[by_cost], span.first)
    which, column = which[chosen], column[chosen]
    last_of_cost = np.append(np.diff(costs) > 0, True)[: len(costs)]
    costs, which, column = costs[last_of_cost], which[last_of_cost], column[last_of_cost]
    if not len(costs) or costs[0] > span.first:
        costs, which, column = np.append(span.first, costs), np.append(UNTRAINED, which), np.append(0, column)
    changes = np.append(True, (np.diff(which) != 0) | (np.diff(column) != 0))
    return Recommendations(costs[changes], which[changes], column[changes])


def follow(chosen: Recommendations, runs: Sequence[Runs], seed: int, untrained: float) -> Steps:
    """The quality of the recommendations on one seed.

    Args:
        chosen: From `recommend`.
        runs: The same configurations.
        seed: Position of the seed in these runs.
        untrained: Quality where no round is paid for.
    """
    pairs = zip(chosen.which.tolist(), chosen.column.tolist(), strict=True)
    quality = [untrained if which == UNTRAINED else float(runs[which].quality[seed, column]) for which, column in pairs]
    return Steps(chosen.cost, np.array(quality))


def _improvements(
    runs: Sequence[Runs], seeds: Sequence[int], axis: Axis
) -> tuple[NDArray[np.int64], NDArray[np.int64], Array, Array, Array]:
    """Where the mean merit of each configuration is better than in all its rounds before.

    Returns:
        Index of the configuration, index of the round, number of rounds, mean cost, mean merit: (n,) each.
    """
    parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0))]
    for positions in together(runs, lambda run: (len(run.rounds), run.limit(seeds))):
        group = [runs[position] for position in positions]
        limit = group[0].limit(seeds)
        if not limit:
            continue
        quality, cost = (
            np.stack(values).take(seeds, axis=1)[..., :limit]
            for values in zip(*((run.quality, run.cost) for run in group), strict=True)
        )
        merit = axis.without_rounding(axis.merit(quality).mean(axis=1))
        rises = np.ones_like(merit, dtype=bool)
        rises[:, 1:] = merit[:, 1:] > np.maximum.accumulate(merit, axis=1)[:, :-1]
        of, column = np.nonzero(rises)
        rounds = np.stack([run.rounds[:limit] for run in group])
        at = of, column
        parts.append((np.array(positions)[of], column, rounds[at], cost.mean(axis=1)[at], merit[at]))
    which, column, rounds, cost, merit = (np.concatenate(values) for values in zip(*parts, strict=True))
    return which, column, rounds, cost, merit
