"""The runs of one configuration on several seeds, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from driftline.results.curves import Array, TrialCurve, costs, numbers, smooth
from driftline.results.scale import Axis, axis_of
from trainers import cost_named

WHOLE: frozenset[str] = frozenset({"COMPLETE", "DIVERGED"})
"""States of trials that were trained to their end."""

ENDED: frozenset[str] = WHOLE | {"STOPPED"}
"""States of trials that count as runs, as far as they went."""

MOST_TOGETHER = 256
"""Most configurations whose arrays are stacked: more take memory and save nothing."""

_Item = TypeVar("_Item")


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
    return runs_of_all([(configuration, curves)], metric, cost)[0]


def runs_of_all(groups: Sequence[tuple[int, Sequence[TrialCurve]]], metric: str, cost: str) -> list[Runs | None]:
    """The runs of many configurations; those that were evaluated after the same rounds are computed together."""
    all_runs: list[Runs | None] = [None] * len(groups)
    missing = []
    for position, (configuration, curves) in enumerate(groups):
        single = curves[0].cached(_key(metric, cost, curves[0])) if len(curves) == 1 else None
        if single is not None:
            same = single.configuration == configuration
            all_runs[position] = single if same else replace(single, configuration=configuration)
        elif curves and all(curve.reports(metric) for curve in curves):
            missing.append(position)
    for indices in together(missing, lambda position: tuple(_pattern(curve, metric) for curve in groups[position][1])):
        positions = [missing[index] for index in indices]
        for position, runs in zip(
            positions, _runs([groups[position] for position in positions], metric, cost), strict=True
        ):
            all_runs[position] = runs
            curves = groups[position][1]
            if len(curves) == 1:
                curves[0].keep(_key(metric, cost, curves[0]), runs)
    return all_runs


def together(items: Sequence[_Item], alike: Callable[[_Item], Hashable]) -> Iterator[list[int]]:
    """Positions of items that are alike, at most `MOST_TOGETHER` at a time, so that their arrays can be stacked."""
    groups: dict[Hashable, list[int]] = {}
    for position, item in enumerate(items):
        groups.setdefault(alike(item), []).append(position)
    for positions in groups.values():
        for first in range(0, len(positions), MOST_TOGETHER):
            yield positions[first : first + MOST_TOGETHER]


def count_costs(curves: Sequence[TrialCurve], cost: str) -> None:
    """Computes what `TrialCurve.cost` returns for many trials, those with equally many reports together."""
    begun = [curve for curve in curves if curve.rounds.size and curve.cached(cost) is None]
    for positions in together(begun, lambda curve: curve.rounds.size) if cost != "rounds" else ():
        group = [begun[position] for position in positions]
        for curve, counted in zip(group, costs(group, cost), strict=True):
            curve.keep(cost, counted)


def _key(metric: str, cost: str, curve: TrialCurve) -> str:
    return f"runs {metric} {cost} {curve.state}"


def _pattern(curve: TrialCurve, metric: str) -> Hashable:
    """Equal for curves whose runs have arrays of the same form: divergence, rounds and evaluated rounds."""
    return curve.state == "DIVERGED", curve.rounds.tobytes(), numbers(curve.columns[metric]).tobytes()


def _runs(groups: Sequence[tuple[int, Sequence[TrialCurve]]], metric: str, cost: str) -> list[Runs]:
    """The runs of configurations with equal patterns of their curves."""
    firsts = groups[0][1]
    finite = [numbers(curve.columns[metric]) for curve in firsts]
    at = [curve.rounds[evaluated] for curve, evaluated in zip(firsts, finite, strict=True)]
    ends = [curve.rounds_done if curve.state == "DIVERGED" else np.inf for curve in firsts]
    rounds = np.unique(np.concatenate([*at, [end for end in ends if np.isfinite(end)]]))
    rounds = rounds[rounds > 0]
    quality = np.empty((len(groups), len(firsts), len(rounds)))
    start = np.empty((len(groups), len(firsts)))
    for seed, (evaluated, end) in enumerate(zip(at, ends, strict=True)):
        values = np.stack([curves[seed].columns[metric] for _, curves in groups])[:, finite[seed]]
        smoothed = smooth(evaluated, values)
        quality[:, seed] = smoothed[:, _last_before(evaluated, rounds)]
        quality[:, seed, rounds >= end] = values[:, :1]
        start[:, seed] = values[:, 0]
    diverged = np.array([np.searchsorted(rounds, end) for end in ends])
    spent = _costs([curves for _, curves in groups], cost, rounds)
    return [
        Runs(configuration, rounds, of_cost, of_quality, of_start, diverged)
        for (configuration, _), of_cost, of_quality, of_start in zip(groups, spent, quality, start, strict=True)
    ]


def _last_before(reported: Array, rounds: Array) -> NDArray[np.int64]:
    """For each round, the position of the last report that is not later; the first report if there is none."""
    return np.maximum(np.searchsorted(reported, rounds, side="right") - 1, 0)


def axis_of_runs(metric: str, runs: Sequence[Runs]) -> Axis:
    """The axis on which these runs are compared."""
    starts = [float(start) for run in runs for start in run.start]
    return axis_of(metric, starts, min((float(run.quality.min(initial=np.inf)) for run in runs), default=np.inf))


def _costs(groups: Sequence[Sequence[TrialCurve]], cost: str, rounds: Array) -> Array:
    """(configurations, seeds, n) cost up to each round; beyond a run's last round it grows by its cost per round."""
    firsts = groups[0]
    table = np.empty((len(groups), len(firsts), len(rounds)))
    done = [curve.rounds_done for curve in firsts]
    has_rate = [cost == "rounds" or number > 0 for number in done]  # the other runs diverged before their first round
    for seed, curve in enumerate(firsts):
        if has_rate[seed]:
            counted = costs([curves[seed] for curves in groups], cost)
            rate = np.ones(len(groups)) if cost == "rounds" else counted[:, -1] / done[seed]
            table[:, seed] = counted[:, _last_before(curve.rounds, rounds)]
            table[:, seed] += rate[:, None] * np.maximum(rounds - done[seed], 0)
    if not all(has_rate):
        table[:, np.logical_not(has_rate)] = table[:, has_rate].mean(axis=1, keepdims=True) if any(has_rate) else rounds
    return np.maximum(table, cost_named(cost).first)


def common(by_configuration: Mapping[int, Mapping[int, object]]) -> tuple[list[int], list[int]]:
    """The seeds and configurations to report, such that every configuration has ended on every seed.

    Of the sets of seeds on which some configuration has ended, chooses the one that keeps the most trials, then the one
    with more seeds. In a finished study, all seeds and configurations are kept.

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
