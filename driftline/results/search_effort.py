"""What to expect of a search of k trials, from all trials of searches that learn nothing.

A sampler that learns nothing draws its configurations independently of all results, so that any k of the N that were
tried are a search of k trials. The mean over all of these subsets (a complete U-statistic) uses every trial, where
N / k separate searches would each use k. Sorted by merit, the best first, configuration j (from 0) is the best of k
with probability

    C(N - 1 - j, k - 1) / C(N, k),

so the mean is a weighted sum, and leaving one configuration out gives its jackknife variance. Configurations of one
search share their seeds; their influences are therefore also added up by search, and the larger variance counts.

Source: "A Class of Statistics with Asymptotically Normal Distribution" (Hoeffding 1948); "The Jackknife Estimate of
Variance" (Efron, Stein 1981), by which the variance is overestimated rather than underestimated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftline.results.cross_fitting import untrained
from driftline.results.curves import Array
from driftline.results.paired_tests import Test
from driftline.results.recommendation import UNTRAINED, Span, recommend
from driftline.results.runs import Runs
from driftline.results.scale import Scale

FREEDOM = 1.5
"""Degrees of freedom for each of N / k - 1: with more, replays find too often that a method differs from itself."""


@dataclass(frozen=True)
class Side:
    """All configurations of a label, chosen on some seeds and followed on another one.

    Attributes:
        merit: The best merit of each configuration in the rounds that a cost pays for, on the choosing seeds, (N, G).
        value: The scaled quality of the same round on the seed left out, (N, G).
    """

    merit: Array
    value: Array


@dataclass(frozen=True)
class Expected:
    """The expectation after k trials along the cost.

    Attributes:
        trials: k.
        value: Its mean over all subsets of k configurations, (G,).
        influence: How much each configuration changes the mean: the mean without it minus that with it, (N, G).
    """

    trials: int
    value: Array
    influence: Array


def sides(runs: Sequence[Runs], scale: Scale, span: Span, costs: Array) -> list[Side]:
    """The quality of each configuration on each of its seeds, at the round that its other seeds choose.

    Args:
        runs: The configurations, all on equally many seeds of their own, at least two.
        scale: Gives merits, and scales the values.
        span: Costs of interest.
        costs: Where the values are taken, (G,).
    """
    by_seed = []
    for seed in range(runs[0].seeds):
        others = [other for other in range(runs[0].seeds) if other != seed]
        merit, value = np.full((2, len(runs), len(costs)), -np.inf)
        for row, run in enumerate(runs):
            chosen = recommend([run], others, scale.axis, span)
            at = np.searchsorted(chosen.cost, costs, side="right") - 1
            trained, column = chosen.which[at] != UNTRAINED, chosen.column[at]
            value[row] = untrained([run], seed)
            if len(run.rounds):
                merit[row, trained] = scale.axis.merit(run.quality[others][:, column[trained]]).mean(axis=0)
                value[row, trained] = run.quality[seed, column[trained]]
        by_seed.append(Side(merit, scale.scaled(value)))
    return by_seed


def expected(sides: Sequence[Side], trials: int) -> Expected:
    """The mean over all subsets of the configurations, and over the sides.

    Args:
        sides: The same configurations, in one order, on different seeds.
        trials: Size of the subsets, below the number of configurations.
    """
    parts = [_mean_and_without(side, trials) for side in sides]
    value = np.mean([mean for mean, _ in parts], axis=0)
    without = np.mean([without_one for _, without_one in parts], axis=0)
    return Expected(trials, value, without - value)


def effort_test(mean: float, influence: Array, search: NDArray[np.int64], trials: int) -> Test:
    """The mean with its standard error.

    Args:
        mean: A weighted mean of `Expected.value`, or the difference of two.
        influence: The same mean or difference of `Expected.influence`, (N,).
        search: The search to which each configuration belongs, (N,).
        trials: Size of the subsets.
    """
    count, searches = len(influence), len(np.unique(search))
    alone = (count - 1) / count * float(np.sum((influence - influence.mean()) ** 2))
    together = np.bincount(np.unique(search, return_inverse=True)[1], influence - influence.mean())
    scale = searches / (searches - 1) * ((count - 1) / count) ** 2
    by_search = scale * float(np.sum((together - together.mean()) ** 2))
    freedom = min(FREEDOM * (count / trials - 1), 2.0 * (searches - 1))
    return Test(mean, float(np.sqrt(max(alone, by_search))), freedom)


def shares(count: int, trials: int) -> Array:
    """Probability that the configuration of each rank, the best first, is the best of `trials` drawn, (count,).

    Examples:
        >>> shares(4, 2).round(3).tolist()
        [0.5, 0.333, 0.167, 0.0]
    """
    behind = count - 1.0 - np.arange(count)
    share = np.zeros(count)
    share[0] = trials / count
    for rank in range(1, count):  # C(n - 1, k - 1) / C(n, k - 1) = (n - k + 1) / n
        share[rank] = share[rank - 1] * max(behind[rank] + 2 - trials, 0.0) / behind[rank - 1]
    return share


def _mean_and_without(side: Side, trials: int) -> tuple[Array, Array]:
    """The mean over all subsets, (G,), and over those without each configuration, (N, G)."""
    count = len(side.merit)
    order = np.argsort(-side.merit, axis=0, kind="stable")
    value = np.take_along_axis(side.value, order, axis=0)
    share = shares(count - 1, trials)
    ahead = np.append(share, 0.0)[:, None] * value  # of configurations before the one left out
    behind = np.append(0.0, share)[:, None] * value
    without = np.empty_like(value)
    ordered = np.cumsum(ahead, axis=0) - ahead + behind[::-1].cumsum(axis=0)[::-1] - behind
    np.put_along_axis(without, order, ordered, axis=0)
    return shares(count, trials) @ value, without


def compared(a: Mapping[str, Any] | None, b: Mapping[str, Any] | None) -> list[tuple[int, Test]]:
    """The difference of the areas of two labels (a minus b) after each number of trials, with its test.

    Args:
        a: `efforts` of a label in the result.
        b: The same of another label. Configurations of equal numbers are pairs, whose seeds are the same.

    Returns:
        (trials, test), by trials; empty if one label has no efforts, or both have different configurations.
    """
    if not a or not b or (a["configurations"], a["searches"]) != (b["configurations"], b["searches"]):
        return []
    search = np.array(a["searches"])
    pairs = zip(a["rows"], b["rows"], strict=True)
    return [(first["trials"], _difference(first, second, search)) for first, second in pairs]


def _difference(first: Mapping[str, Any], second: Mapping[str, Any], search: NDArray[np.int64]) -> Test:
    influence = np.subtract(first["influence"], second["influence"])
    return effort_test(first["area"] - second["area"], influence, search, first["trials"])
