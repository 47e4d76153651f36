"""For each cost, the configuration to run and the round to stop at, chosen on some seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driftline.results.curves import Array
from driftline.results.runs import Runs, together
from driftline.results.scale import ROUNDING, Axis, Scale

LEAST_FOR_ERRORS = 3
"""With fewer choosing seeds there is no standard error, and any difference counts."""

MOST_COSTS = 2000
"""Most costs at which a choice is made. Of more costs, this number is taken, evenly spread on a logarithmic axis."""

_WINDOW = 64  # costs that are compared at once
_MOST_DIFFERENCES = 2**20  # differences between rounds that are in memory at once

UNTRAINED = -1
"""The choice at costs that pay for no round of any configuration."""


@dataclass(frozen=True)
class Span:
    """The costs for which something is recommended.

    Attributes:
        first: Cost of the cheapest first round.
        last: Largest cost that configurations of every label reach, those left out all of whose runs diverged.
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
        if span.last <= span.first:
            return float(values[-1])
        edges = np.log10(np.clip(np.append(self.cost, span.last), span.first, span.last))
        return float(np.dot(values, np.diff(edges)) / (edges[-1] - np.log10(span.first)))


def recommend(runs: Sequence[Runs], seeds: Sequence[int], axis: Axis, span: Span) -> Recommendations:
    """Chooses a configuration and a stopping round for each cost.

    Costs are scanned upwards. A configuration is judged by the best mean merit (over the choosing seeds) of the rounds
    that a cost pays for. The choice moves to another configuration only if the mean of the paired differences exceeds
    its standard error; of several such configurations, to the best. The stopping round is the earliest whose mean is
    within one standard error (of the paired differences) of the configuration's best so far. With fewer than
    `LEAST_FOR_ERRORS` choosing seeds these standard errors count as 0. The cost is the mean over the choosing seeds.
    A configuration is never recommended at or beyond a round at which it had diverged on a choosing seed.

    Args:
        runs: The configurations, in the order in which ties are resolved.
        seeds: Positions of the choosing seeds in the runs, at least one.
        axis: Gives the merit of a quality.
        span: Costs of interest.
    """
    candidates = _candidates(runs, seeds, axis)
    costs = decision_costs([each.cost for each in candidates])
    costs = costs[costs <= span.last]
    begin = max(int(np.searchsorted(costs, span.first, side="right")) - 1, 0)
    if not costs.size or costs[begin] > span.first:
        costs = np.append(span.first, costs)
    else:
        costs = np.append(span.first, costs[begin + 1 :])
    paid = _paid(candidates, costs)
    merits = np.empty((*paid.shape, len(seeds)))
    for each, row, merit in zip(candidates, paid, merits, strict=True):
        merit[:] = each.best_merits(row)
    which = _scan(merits, paid > 0)
    column = np.zeros(len(costs), dtype=np.int64)
    for number in np.unique(which[which >= 0]):
        at = which == number
        column[at] = candidates[number].stops()[paid[number, at] - 1]
    changes = np.append(True, (np.diff(which) != 0) | (np.diff(column) != 0))
    return Recommendations(costs[changes], which[changes], column[changes])


def decision_costs(costs: Sequence[Array]) -> Array:
    """The costs at which a choice can change: all of these, or `MOST_COSTS` of them.

    Args:
        costs: Costs of the rounds of each configuration, positive.
    """
    distinct = np.unique(np.concatenate([np.zeros(0), *costs]))
    if len(distinct) <= MOST_COSTS:
        return distinct
    wanted = np.geomspace(distinct[0], distinct[-1], MOST_COSTS)
    before = np.maximum(np.searchsorted(distinct, wanted[:-1], side="right") - 1, 0)
    return np.asarray(distinct[np.unique(np.append(before, len(distinct) - 1))])


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


@dataclass(frozen=True)
class _Candidate:
    """A configuration as the choosing seeds see it.

    Attributes:
        cost: Mean cost of its admissible rounds, (rounds,), non-decreasing.
        merit: (seeds, rounds).
        best: For each round, the index of the best mean so far; the earliest of equals.
    """

    cost: Array
    merit: Array
    best: NDArray[np.int64]

    def best_merits(self, paid: NDArray[np.int64]) -> Array:
        """(costs, seeds) merit of the best round that each cost pays for; undefined where a cost pays for no round."""
        if not len(self.best):
            return np.zeros((len(paid), len(self.merit)))
        return self.merit[:, self.best[np.maximum(paid - 1, 0)]].T

    def stops(self) -> NDArray[np.int64]:
        """For each number of rounds that is paid for, less one: index of the round to stop at."""
        bests, place = np.unique(self.best, return_inverse=True)
        stops, rounds = np.empty(len(bests), dtype=np.int64), np.arange(len(self.best))
        most = max(1, _MOST_DIFFERENCES // max(1, self.merit.size))
        for first in range(0, len(bests), most):
            some = bests[first : first + most]
            loss, error = _paired(self.merit[:, some, None] - self.merit[:, None, :], axis=0)
            stops[first : first + most] = np.argmax((loss <= error) & (rounds <= some[:, None]), axis=1)
        return stops[place]


def _candidates(runs: Sequence[Runs], seeds: Sequence[int], axis: Axis) -> list[_Candidate]:
    """The configurations as these seeds see them, in the same order."""
    by_position: dict[int, _Candidate] = {}
    for positions in together(runs, lambda each: (len(each.rounds), each.limit(seeds))):
        some = [runs[position] for position in positions]
        limit = some[0].limit(seeds)
        quality, cost = (
            np.stack(parts).take(seeds, axis=1)[..., :limit]
            for parts in zip(*((each.quality, each.cost) for each in some), strict=True)
        )
        merit = axis.merit(quality)
        mean = merit.mean(axis=1)
        rises = np.ones_like(mean, dtype=bool)
        rises[:, 1:] = mean[:, 1:] > np.maximum.accumulate(mean, axis=1)[:, :-1]
        best = np.maximum.accumulate(np.where(rises, np.arange(limit), 0), axis=1)
        by_position |= zip(positions, map(_Candidate, cost.mean(axis=1), merit, best), strict=True)
    return [by_position[position] for position in range(len(runs))]


def _paid(candidates: Sequence[_Candidate], costs: Array) -> NDArray[np.int64]:
    """How many rounds of each configuration a cost pays for: (configurations, costs)."""
    known: dict[bytes, NDArray[np.int64]] = {}  # many configurations cost the same
    rows = []
    for each in candidates:
        key = each.cost.tobytes()
        if key not in known:
            known[key] = np.searchsorted(each.cost, costs, side="right")
        rows.append(known[key])
    return np.stack(rows)


def _paired(differences: Array, axis: int) -> tuple[Array, Array]:
    """Mean of paired differences over the seeds, and its standard error, which a mean equal to it does not exceed."""
    count = differences.shape[axis]
    mean = differences.sum(axis=axis, keepdims=True) / count
    flat = mean.squeeze(axis)
    if count < LEAST_FOR_ERRORS:
        return flat, np.zeros_like(flat)
    rest = differences - mean
    return flat, np.sqrt((rest * rest).sum(axis=axis) / (count - 1)) * ((1 + ROUNDING) / np.sqrt(count))


def _scan(merits: Array, paid: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The chosen configuration at each cost.

    Args:
        merits: (configurations, costs, seeds).
        paid: (configurations, costs), whether a cost pays for a round of a configuration.
    """
    count = merits.shape[1]
    which = np.full(count, UNTRAINED, dtype=np.int64)
    means = np.where(paid, merits.mean(axis=2), -np.inf)
    some = np.flatnonzero(paid.any(axis=0))
    if not some.size:
        return which
    at = int(some[0])
    current = int(np.argmax(means[:, at]))
    which[at:] = current
    while at < count:
        window = slice(at, at + _WINDOW)
        gain, error = _paired(merits[:, window] - merits[current, window], axis=2)
        better = paid[:, window] & (gain > error)
        later = np.flatnonzero(better.any(axis=0))
        if later.size:
            at += int(later[0])
            current = int(np.argmax(np.where(better[:, later[0]], means[:, at], -np.inf)))
            which[at:] = current
        else:
            at += _WINDOW
    return which
