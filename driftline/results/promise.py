"""What to expect of the recommended runs: one promise for each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driftline.results.cross_fitting import folds, follow_rounds, untrained
from driftline.results.curves import Array
from driftline.results.recommendation import UNTRAINED, Recommendations, Span, log_widths, recommend
from driftline.results.runs import Runs
from driftline.results.scale import ROUNDING, Axis


@dataclass(frozen=True)
class Promises:
    """What to run for each cost, and what to expect of it.

    Attributes:
        cost: Where it changes, (n,), increasing.
        configuration: Number of the configuration, or `UNTRAINED` where the cost pays for no round, (n,).
        round: Round to stop at, 0 where untrained, (n,).
        quality: What to expect, in the metric's unit, (n,).
        low: The smallest quality of this very run over its seeds, (n,).
        high: The largest, (n,).
        optimism: How much better a run looks on the seeds that chose it, as a merit, at least 0; 0 if none is reported.
    """

    cost: Array
    configuration: NDArray[np.int64]
    round: NDArray[np.int64]
    quality: Array
    low: Array
    high: Array
    optimism: float


def promises(runs: Sequence[Runs], axis: Axis, span: Span) -> Promises:
    """Recommendations chosen on all seeds, with the mean merit over these seeds less the optimism of the choice.

    Args:
        runs: The confirmed configurations, on at least two seeds each; of several searches, each has seeds of its own.
        axis: Gives the merit of a quality.
        span: Costs of interest.
    """
    chosen = recommend(runs, range(runs[0].seeds), axis, span)
    table = _on_seeds(chosen, runs)
    low, high = table.min(axis=0), table.max(axis=0)
    mean = np.clip(axis.quality(axis.merit(table).mean(axis=0)), low, high)
    flattery = optimism(runs, axis, span)
    trained = chosen.which != UNTRAINED
    expected = np.where(trained & (flattery > 0), axis.quality(axis.merit(mean) - flattery), mean)
    return _of(chosen, runs, expected, low, high, flattery)


def promises_by_search(runs: Sequence[Runs], search: Sequence[Runs], axis: Axis, span: Span) -> Promises:
    """Recommendations chosen by the search alone, with the quality on the first seed of the runs.

    Args:
        runs: The reported configurations.
        search: The same configurations, in the same order, as the search has run them, on one seed.
        axis: Gives the merit of a quality.
        span: Costs of interest.
    """
    chosen = recommend(search, [0], axis, span)
    quality = follow_rounds(chosen, search, runs, 0).quality
    return _of(chosen, search, quality, quality, quality, 0.0)


def optimism(runs: Sequence[Runs], axis: Axis, span: Span) -> float:
    """How much better a recommended run looks on the seeds that chose it than on another seed, as a merit.

    Each seed in turn is left out, and the other seeds choose. Their mean merit minus the merit on the seed left out is
    averaged over the seeds and over the logarithm of the cost, where something is recommended. With K seeds, K - 1
    choose here but K choose in the end, so the mean is multiplied by (K - 1) / K. At least 0.

    Args:
        runs: As in `promises`.
        axis: Gives the merit of a quality.
        span: Costs of interest.
    """
    total, weight = 0.0, 0.0
    for seed, others, chosen in folds(runs, axis, span):
        widths = np.where(chosen.which == UNTRAINED, 0.0, log_widths(chosen.cost, span))
        merit = axis.merit(_on_seeds(chosen, runs))
        total += float(np.dot(merit[others].mean(axis=0) - merit[seed], widths))
        weight += float(widths.sum())
    seeds = runs[0].seeds
    difference = (seeds - 1) / seeds * total / weight if weight > 0 else 0.0
    return difference if difference > ROUNDING else 0.0


def _on_seeds(chosen: Recommendations, runs: Sequence[Runs]) -> Array:
    """(seeds, n) quality of the recommended runs on each of their seeds; the untrained models' where none is."""
    table = np.repeat([[untrained(runs, seed)] for seed in range(runs[0].seeds)], len(chosen.cost), axis=1)
    for number in np.unique(chosen.which[chosen.which != UNTRAINED]):
        at = chosen.which == number
        table[:, at] = runs[number].quality[:, chosen.column[at]]
    return table


def _of(
    chosen: Recommendations, runs: Sequence[Runs], quality: Array, low: Array, high: Array, flattery: float
) -> Promises:
    pairs = list(zip(chosen.which.tolist(), chosen.column.tolist(), strict=True))
    configuration = [UNTRAINED if which == UNTRAINED else runs[which].configuration for which, _ in pairs]
    rounds = [0 if which == UNTRAINED else int(runs[which].rounds[column]) for which, column in pairs]
    return Promises(chosen.cost, np.array(configuration), np.array(rounds), quality, low, high, flattery)
