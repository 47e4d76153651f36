"""How much each hyperparameter matters for quality, for speed, and along the frontier: PED-ANOVA.

The search trials of a label are ranked by what they reach within a cost; a hyperparameter matters if its values are
distributed differently among the best trials. The measure is the Pearson divergence of two Parzen densities,

    D = sum_x p(x) (t(x) / p(x) - 1)^2,   p: all trials, t: the best ones,

where the hyperparameter is active, times (its share among the best)^2 / (its share among all). Numbers count by their
rank, so that the scale of their space does not matter.

With few trials, D differs from 0 by chance as well. Random trials in place of the best ones give its distribution if
the hyperparameter changes nothing. The mean of this distribution is subtracted, and a hyperparameter matters only if
its distance from the mean, in standard deviations, is above the largest of all hyperparameters in 95 % of the draws.

Source: "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary Subspaces" (Watanabe, Bansal, Hutter
2023); for hyperparameters that are not active everywhere, "Conditional PED-ANOVA" (2026).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driftline.results.curves import Array
from driftline.results.paired_tests import LEVEL
from driftline.results.runs import Runs, together
from driftline.results.scale import Axis

BEST = 0.25
"""Share of the trials that count as the best ones."""

LEAST_BEST = 3
"""With fewer best trials, no shares are computed."""

CELLS = 50
"""Cells to which the ranks of numbers are rounded."""

FEW = 6
"""Up to this many different numbers count as kinds: each has its own cell, and neighbouring cells are unrelated."""

DRAWS = 199
"""Number of random choices of trials in place of the best ones."""

ROUNDING = 1e-9
"""Kinds have few possible divergences: rounding must not lift one that equals the limit above it."""

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class ValueCells:
    """The values of a hyperparameter in the trials, as cells.

    Attributes:
        cell: The cell of each trial; -1 where the hyperparameter is missing or changes nothing, (N,).
        cells: Number of cells.
        ordered: Whether neighbouring cells hold similar values.
    """

    cell: NDArray[np.int64]
    cells: int
    ordered: bool


def values_of(name: str, trials: Sequence[Mapping[str, Any]], inactive: Sequence[Collection[str]]) -> ValueCells | None:
    """The cells of a hyperparameter's values; None if fewer than two different ones are active.

    Args:
        name: The hyperparameter.
        trials: The configuration of each trial.
        inactive: Names of its hyperparameters that change nothing.
    """
    pairs = enumerate(zip(trials, inactive, strict=True))
    active = [at for at, (trial, free) in pairs if name in trial and name not in free]
    values = [trials[at][name] for at in active]
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    keys = np.array(values, dtype=np.float64) if numeric else _places([json.dumps(value) for value in values])
    different, kind, counts = np.unique(keys, return_inverse=True, return_counts=True)
    if len(different) < 2:
        return None
    cell = np.full(len(trials), -1, dtype=np.int64)
    if not numeric or len(different) <= FEW:
        cell[active] = kind
        return ValueCells(cell, len(different), ordered=False)
    middle = (np.cumsum(counts) - counts / 2) / len(values)  # equal values share the middle of their ranks
    cell[active] = np.minimum(middle * CELLS, CELLS - 1).astype(np.int64)[kind]
    return ValueCells(cell, CELLS, ordered=True)


def _places(texts: Sequence[str]) -> NDArray[np.float64]:
    """The rank of each text among the distinct texts; an array of long texts would take much memory."""
    places = {text: float(index) for index, text in enumerate(sorted(set(texts)))}
    return np.array([places[text] for text in texts])


def reached(runs: Sequence[Runs], axis: Axis, costs: Array) -> Array:
    """The best merit of each configuration, on its first seed, in the rounds that a cost pays for, (N, G).

    Minus infinity where a cost pays for no round.

    Args:
        runs: The configurations.
        axis: Gives the merit of a quality.
        costs: (G,).
    """
    merit = np.full((len(runs), len(costs)), -np.inf)
    for rows in together(runs, lambda run: run.limit([0])):
        limit = runs[rows[0]].limit([0])
        qualities = np.stack([runs[row].quality[0, :limit] for row in rows])
        best = np.maximum.accumulate(axis.without_rounding(axis.merit(qualities)), axis=1)
        for row, of_row in zip(rows, best, strict=True):
            paid = np.searchsorted(runs[row].cost[0, :limit], costs, side="right")
            merit[row, paid > 0] = of_row[paid[paid > 0] - 1]
    return merit


def shares(target: Array, hyperparameters: Mapping[str, ValueCells]) -> dict[str, float | None]:
    """The share of each hyperparameter in what makes trials the best ones.

    Args:
        target: The number by which trials are ranked, larger is better, (N,).
        hyperparameters: From `values_of`.

    Returns:
        Positive shares with sum 1; None for hyperparameters that do not differ from chance.
    """
    no_shares: dict[str, float | None] = dict.fromkeys(hyperparameters)
    count = int(np.ceil(BEST * len(target)))
    if count < LEAST_BEST:
        return no_shares
    best = target >= np.partition(target, len(target) - count)[len(target) - count]
    if best.all():  # all trials are equally good
        return no_shares
    above: dict[str, float] = {}
    distance: dict[str, float] = {}
    largest = np.full(DRAWS, -np.inf)
    for number, (name, values) in enumerate(hyperparameters.items()):
        whole, top = (np.bincount(cell + 1, minlength=values.cells + 1) for cell in (values.cell, values.cell[best]))
        chance = _chance(tuple(whole.tolist()), int(best.sum()), values.ordered, number)
        spread = float(chance.std())
        if spread > 0:
            above[name] = float(divergences(top[None], whole, ordered=values.ordered)[0] - chance.mean())
            distance[name] = above[name] / spread
            largest = np.maximum(largest, (chance - chance.mean()) / spread)
    if not above:
        return no_shares
    limit = float(np.quantile(largest, LEVEL)) * (1 + ROUNDING)
    clear = {name: value for name, value in above.items() if distance[name] > limit}
    return no_shares | {name: value / sum(clear.values()) for name, value in clear.items()}


@lru_cache(maxsize=512)
def _chance(whole: tuple[int, ...], count: int, ordered: bool, number: int) -> Array:
    """The divergences of `DRAWS` random choices of `count` trials; `number` is the seed."""
    generator = np.random.default_rng(number)
    drawn = generator.multivariate_hypergeometric(whole, count, size=DRAWS, method="marginals")
    return divergences(drawn, np.array(whole), ordered=ordered)


def divergences(counts: Counts, every: Counts, *, ordered: bool) -> Array:
    """The divergence of the values of some trials from the values of all trials, (R,).

    Args:
        counts: In how many of these trials a value is not active, then how many are in each cell, (R, 1 + cells).
        every: The same counts for all trials, (1 + cells,).
        ordered: Whether neighbouring cells hold similar values.
    """
    density = _ordered_density if ordered else _kinds_density
    of_all = density(every[None, 1:]) + 1e-12
    chi2 = ((density(counts[:, 1:]) + 1e-12) / of_all - 1) ** 2 @ of_all[0]
    return np.asarray((counts[:, 1:].sum(axis=1) / counts.sum(axis=1)) ** 2 / (every[1:].sum() / every.sum()) * chi2)


def _kinds_density(counts: Counts) -> Array:
    """Each value adds a kernel to its own cell, and a uniform prior counts as one value, (R, cells)."""
    total, cells = counts.sum(axis=1, keepdims=True), counts.shape[1]
    flat = 1 / ((counts > 0).sum(axis=1, keepdims=True) + 1)  # of each kernel, before it is normalised
    kernels = (counts + total * flat) / (1 + cells * flat)
    return np.asarray((kernels + 1 / cells) / (total + 1))


def _ordered_density(counts: Counts) -> Array:
    """Normal kernels of Scott's width, cut off at the ends, and a wide one in the middle as one more value."""
    from scipy.special import ndtr  # slow to import

    cells = counts.shape[1]
    at, total = np.arange(cells), counts.sum(axis=1)
    weight = np.maximum(total, 1)
    mean = counts @ at / weight
    spread = np.sqrt((counts * (at - mean[:, None]) ** 2).sum(axis=1) / np.maximum(1, total - 1))
    before = counts.cumsum(axis=1)
    low = (before >= np.maximum(1, total // 4)[:, None]).argmax(axis=1)
    high = (before > (total * 3 // 4)[:, None]).argmax(axis=1)
    width = np.maximum(1.059 * np.minimum((high - low) / 1.34, spread) * weight**-0.2, 0.5 / 1.64)
    # A kernel depends on the distance alone, from -(cells - 1) to cells - 1, until it is cut off.
    below = ndtr((np.arange(2 * cells) - cells + 0.5) / width[:, None])
    inside = below[:, : cells - 1 : -1] - below[:, cells - 1 :: -1]
    kernels = np.lib.stride_tricks.sliding_window_view(np.diff(below), cells, axis=1)[:, ::-1]
    edges = ndtr((np.arange(cells + 1) - cells / 2) / cells)
    prior = np.diff(edges) / (edges[-1] - edges[0])
    return np.asarray((np.einsum("rc,rcx->rx", counts / inside, kernels) + prior) / (total + 1)[:, None])


def importance(
    runs: Sequence[Runs],
    trials: Sequence[Mapping[str, Any]],
    inactive: Sequence[Collection[str]],
    axis: Axis,
    costs: Array,
    between: Sequence[float],
) -> dict[str, Any]:
    """How much each hyperparameter of a label matters.

    Args:
        runs: What the search has tried, each configuration on its seed.
        trials: The hyperparameters of each configuration.
        inactive: For each configuration, the hyperparameters that change nothing.
        axis: Gives the merit of a quality.
        costs: All costs, evenly spread on a logarithmic axis, (G,).
        between: Costs within the same range at which shares are computed too, for "along".

    Returns:
        ``{"trials", "quality", "speed", "along": [{"cost", "shares"}]}``. Each maps names of hyperparameters to what
        `shares` returns.
    """
    names = sorted({name for trial in trials for name in trial})
    cells = {name: values_of(name, trials, inactive) for name in names}
    hyperparameters = {name: values for name, values in cells.items() if values is not None}
    merit = reached(runs, axis, np.append(costs, between))
    untrained = min((float(axis.merit(run.start)[0]) for run in runs), default=0.0)
    speed = np.where(np.isfinite(merit), merit, untrained)[:, : len(costs)].mean(axis=1)
    return {
        "trials": len(runs),
        "quality": shares(merit[:, len(costs) - 1], hyperparameters),
        "speed": shares(axis.without_rounding(speed), hyperparameters),
        "along": [
            {"cost": cost, "shares": shares(column, hyperparameters)}
            for cost, column in zip(between, merit.T[len(costs) :], strict=True)
        ],
    }
