"""The runs of one configuration on several seeds, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from driftline.results.curves import Array, TrialCurve, cost_per_round
from driftline.results.objectives import FIRST_COST
from driftline.results.scale import Axis, axis_of

WHOLE: frozenset[str] = frozenset({"COMPLETE", "DIVERGED"})
"""States of trials that were trained to their end."""

ENDED: frozenset[str] = WHOLE | {"STOPPED"}
"""States of trials that count as runs, as far as they went."""


@dataclass(frozen=True)
class Runs:
    """One configuration on several seeds.

    Attributes:
        configuration: Its number.
        rounds: Rounds after which any of the runs was evaluated or diverged, without round 0, (n,), increasing.
        cost: Cost up to each of these rounds, (seeds, n). A run that stopped earlier counts with its cost per round.
        quality: Smoothed metric in its own unit, (seeds, n). A run keeps its last value beyond its last round; from the
            round in which it diverged it has the untrained model's.
        start: Metric of the untrained model, (seeds,).
        diverged: For each seed, the index of the first round at which it had diverged; n if it did not, (seeds,).
    """

    configuration: int
    rounds: Array
    cost: Array
    quality: Array
    start: Array
    diverged: Array

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.start)

    def limit(self, seeds: Sequence[int]) -> int:
        """How many of the rounds come before the first divergence on these seeds (positions, not numbers)."""
        return int(min((self.diverged[seed] for seed in seeds), default=len(self.rounds)))


def runs_of(configuration: int, curves: Sequence[TrialCurve], metric: str, cost: str) -> Runs | None:
    """The runs of a configuration, one for each curve.

    Args:
        configuration: Its number.
        curves: One trial for each seed, all COMPLETE or DIVERGED.
        metric: Metric chosen as quality.
        cost: Chosen cost.

    Returns:
        None if a run never reported the metric.
    """
    if len(curves) > 1:
        return _runs(configuration, curves, metric, cost)
    if not curves:
        return None
    key = f"runs {metric} {cost} {curves[0].state}"
    single = curves[0].computed(key, lambda: _runs(configuration, curves, metric, cost))
    return None if single is None else replace(single, configuration=configuration)


def _runs(configuration: int, curves: Sequence[TrialCurve], metric: str, cost: str) -> Runs | None:
    evaluated = [curve.smoothed(metric) for curve in curves]
    if not all(at.size for at, _, _ in evaluated):
        return None
    ends = [curve.rounds_done if curve.state == "DIVERGED" else np.inf for curve in curves]
    rounds = np.unique(np.concatenate([*(at for at, _, _ in evaluated), [end for end in ends if np.isfinite(end)]]))
    rounds = rounds[rounds > 0]
    quality = np.empty((len(curves), len(rounds)))
    for row, (at, values, smoothed), end in zip(quality, evaluated, ends, strict=True):
        row[:] = smoothed[np.maximum(np.searchsorted(at, rounds, side="right") - 1, 0)]
        row[rounds >= end] = values[0]
    start = np.array([values[0] for _, values, _ in evaluated])
    diverged = np.array([np.searchsorted(rounds, end) for end in ends])
    return Runs(configuration, rounds, _costs(curves, cost, rounds), quality, start, diverged)


def axis_of_runs(metric: str, runs: Sequence[Runs]) -> Axis:
    """The axis on which these runs are compared."""
    starts = [float(start) for each in runs for start in each.start]
    return axis_of(metric, starts, min((float(each.quality.min(initial=np.inf)) for each in runs), default=np.inf))


def _costs(curves: Sequence[TrialCurve], cost: str, rounds: Array) -> Array:
    """(seeds, n) cost up to each round; beyond a run's last round it grows by the run's cost per round."""
    table = np.full((len(curves), len(rounds)), np.nan)
    for row, curve in zip(table, curves, strict=True):
        rate = cost_per_round(curve, cost)
        if rate is None:  # diverged before its first round
            continue
        counted = curve.cost(cost)
        row[:] = counted[np.maximum(np.searchsorted(curve.rounds, rounds, side="right") - 1, 0)]
        row += rate * np.maximum(rounds - curve.rounds_done, 0)
    missing = np.isnan(table).all(axis=1)
    if missing.any():
        table[missing] = table[~missing].mean(axis=0) if not missing.all() else rounds
    return np.asarray(np.maximum(table, FIRST_COST[cost]))


def common(by_configuration: Mapping[int, Mapping[int, object]]) -> tuple[list[int], list[int]]:
    """The seeds and configurations to report, such that every configuration has ended on every seed.

    Of the sets of seeds on which some configuration has ended, the one that keeps the most trials; then the one with
    more seeds. In a finished study these are all.

    Args:
        by_configuration: Configuration -> seed -> its ended trial.

    Returns:
        (seeds, configurations), both increasing.

    Examples:
        >>> common({4: {1: None, 2: None}, 7: {1: None}, 2: {1: None, 2: None, 3: None}})
        ([1, 2], [2, 4])
    """
    best: tuple[list[int], list[int]] = ([], [])
    for candidate in {tuple(sorted(seeds)) for seeds in by_configuration.values()}:
        numbers = [number for number, seeds in sorted(by_configuration.items()) if seeds.keys() >= set(candidate)]
        if _kept(list(candidate), numbers) > _kept(*best):
            best = (list(candidate), numbers)
    return best


def _kept(seeds: Sequence[int], numbers: Sequence[int]) -> tuple[int, int, list[int]]:
    return len(seeds) * len(numbers), len(seeds), [-seed for seed in seeds]
