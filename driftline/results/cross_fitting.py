"""The quality of recommendations on seeds that did not choose them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from driftline.results.curves import Array
from driftline.results.recommendation import Recommendations, Span, Steps, follow, recommend
from driftline.results.runs import Runs
from driftline.results.scale import Axis


@dataclass(frozen=True)
class Band:
    """Several step functions at the costs where any of them changes.

    Attributes:
        cost: (n,), increasing.
        middle: Median, (n,).
        low: Smallest number, (n,).
        high: Largest number, (n,).
    """

    cost: Array
    middle: Array
    low: Array
    high: Array


def cross_fitted(runs: Sequence[Runs], axis: Axis, span: Span) -> list[Steps]:
    """One step function for each seed: the recommendations of all other seeds, followed on the seed left out.

    No value is reported on a seed that helped to choose it.

    Args:
        runs: The confirmed configurations on the same seeds, at least two.
        axis: Gives the merit of a quality.
        span: Costs of interest.
    """
    return [follow(chosen, runs, seed, untrained(runs, seed)) for seed, _, chosen in folds(runs, axis, span)]


def folds(runs: Sequence[Runs], axis: Axis, span: Span) -> Iterator[tuple[int, list[int], Recommendations]]:
    """Each seed, all others, and what these others recommend (positions of seeds in the runs)."""
    seeds = range(runs[0].seeds)
    for seed in seeds:
        others = [other for other in seeds if other != seed]
        yield seed, others, recommend(runs, others, axis, span)


def found_by_search(runs: Sequence[Runs], search: Sequence[Runs], axis: Axis, span: Span) -> list[Steps]:
    """One step function for each seed: what the search alone recommends, followed on the seed.

    Stopping rounds and costs are those of the search. A round that the confirmation did not evaluate has the quality
    of the last one evaluated before it.

    Args:
        runs: The confirmed configurations.
        search: The same configurations, in the same order, as the search has run them, on one seed.
        axis: Gives the merit of a quality.
        span: Costs of interest.
    """
    chosen = recommend(search, [0], axis, span)
    return [follow_rounds(chosen, search, runs, seed) for seed in range(runs[0].seeds)]


def untrained(runs: Sequence[Runs], seed: int) -> float:
    """Mean quality of the untrained models of a seed."""
    return float(np.mean([run.start[seed] for run in runs]))


def band(steps: Sequence[Steps]) -> Band:
    """Median, smallest and largest value of several step functions that begin at the same cost."""
    cost = np.unique(np.concatenate([function.cost for function in steps]))
    table = np.stack([function.at(cost) for function in steps])
    values = np.stack([np.median(table, axis=0), table.min(axis=0), table.max(axis=0)])
    keep = np.append(True, (np.diff(values, axis=1) != 0).any(axis=0))
    return Band(cost[keep], *values[:, keep])


def follow_rounds(chosen: Recommendations, search: Sequence[Runs], runs: Sequence[Runs], seed: int) -> Steps:
    """The quality on one seed of what `search` recommends, for runs that were evaluated after other rounds."""
    quality = np.full(len(chosen.cost), untrained(runs, seed))
    for number in np.unique(chosen.which[chosen.which >= 0]):
        at = chosen.which == number
        stop = search[number].rounds[chosen.column[at]]
        from_start = np.append(runs[number].start[seed], runs[number].quality[seed])
        quality[at] = from_start[np.searchsorted(runs[number].rounds, stop, side="right")]
    return Steps(chosen.cost, quality)
