"""The trials of a label from which its result is computed, by search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driftline.results.cross_fitting import cross_fitted, found_by_search
from driftline.results.curves import TrialCurve
from driftline.results.promise import Promises, promises, promises_by_search
from driftline.results.recommendation import Span, Steps
from driftline.results.runs import ENDED, WHOLE, Runs, common, runs_of_all
from driftline.results.scale import Axis


@dataclass(frozen=True)
class SearchRuns:
    """One search of a label: its confirmed configurations on the seeds that all of them have run.

    Attributes:
        search: Number of the search.
        seeds: The seeds.
        runs: The configurations on these seeds.
        chosen_on: The same configurations on the one seed of the search, without those that failed there.
    """

    search: int
    seeds: tuple[int, ...]
    runs: tuple[Runs, ...]
    chosen_on: tuple[Runs, ...]

    def reported(self, axis: Axis, span: Span) -> list[Steps]:
        """The cross-fitted quality for each seed."""
        return cross_fitted(self.runs, axis, span) if len(self.seeds) > 1 else self.found(axis, span)

    def found(self, axis: Axis, span: Span) -> list[Steps]:
        """For each seed, the quality of what the search alone recommends."""
        return found_by_search(self.searched_runs, self.chosen_on, axis, span)

    @property
    def searched_runs(self) -> list[Runs]:
        """The configurations of `chosen_on` on the seeds."""
        searched = {run.configuration for run in self.chosen_on}
        return [run for run in self.runs if run.configuration in searched]


@dataclass(frozen=True)
class LabelRuns:
    """The trials of a label's result: its confirmation trials, or its search trials until a confirmation has ended.

    Attributes:
        phase: "confirmation" or "search"; None if no trial has ended.
        trials: The ended trials of this phase.
        searches: The searches with configurations to report.
    """

    phase: str | None
    trials: tuple[TrialCurve, ...]
    searches: tuple[SearchRuns, ...]

    @property
    def runs(self) -> list[Runs]:
        """The reported configurations."""
        return [run for search in self.searches for run in search.runs]

    def promises(self, axis: Axis, span: Span) -> Promises:
        """What to run for each cost, and what to expect of it.

        All searches that were confirmed on the most seeds are chosen from together. With one seed, the searches choose.

        Args:
            axis: Gives the merit of a quality.
            span: The costs.
        """
        most = max(len(search.seeds) for search in self.searches)
        searches = [search for search in self.searches if len(search.seeds) == most]
        if most > 1:
            return promises([run for search in searches for run in search.runs], axis, span)
        runs = [run for search in searches for run in search.searched_runs]
        return promises_by_search(runs, [run for search in searches for run in search.chosen_on], axis, span)


def label_runs(trials: Sequence[TrialCurve], metric: str, cost: str) -> LabelRuns:
    """The trials to report of a label.

    Args:
        trials: All its trials.
        metric: Metric chosen as quality.
        cost: Chosen cost.
    """
    ended = [curve for curve in trials if curve.state in ENDED]
    confirmed = tuple(curve for curve in ended if curve.phase == "confirmation")
    reported = confirmed or tuple(ended)
    candidates = [
        _search_runs(number, reported, ended, metric, cost) for number in sorted({curve.search for curve in reported})
    ]
    searches = tuple(search for search in candidates if search.runs and (len(search.seeds) > 1 or search.chosen_on))
    return LabelRuns(reported[0].phase if reported else None, reported, searches)


def tried_runs(trials: Sequence[TrialCurve], metric: str, cost: str) -> tuple[list[int], list[Runs]] | None:
    """Every configuration of a label's searches: on the seed of its search, then on the seeds of its confirmation.

    Args:
        trials: All its trials.
        metric: Metric chosen as quality.
        cost: Chosen cost.

    Returns:
        (search of each configuration, the configurations in the order of their numbers); None until all of them have
        been trained to their end on equally many fresh seeds.
    """
    groups: dict[int, list[TrialCurve]] = {}
    for curve in sorted(trials, key=lambda curve: (curve.phase != "search", curve.number)):
        if curve.state not in WHOLE:
            return None
        groups.setdefault(curve.configuration, []).append(curve)
    sizes = {len(curves) for curves in groups.values()}
    if len(sizes) != 1 or min(sizes) < 2 or any(curves[0].phase != "search" for curves in groups.values()):
        return None
    numbers = sorted(groups)
    runs = _some(runs_of_all([(number, groups[number]) for number in numbers], metric, cost))
    return ([groups[number][0].search for number in numbers], list(runs)) if len(runs) == len(numbers) else None


def deterministic(trials: Sequence[TrialCurve], metric: str) -> bool:
    """Whether the seeds change nothing: the whole trials of every configuration with several seeds report equal values.

    False if no configuration has run on two seeds.
    """
    by_configuration: dict[tuple[str, int], list[TrialCurve]] = {}
    for curve in trials:
        if curve.state in WHOLE:
            by_configuration.setdefault((curve.label, curve.configuration), []).append(curve)
    repeated = [group for group in by_configuration.values() if len({curve.seed for curve in group}) > 1]
    return bool(repeated) and all(_same(group[0], other, metric) for group in repeated for other in group[1:])


def _same(one: TrialCurve, other: TrialCurve, metric: str) -> bool:
    pairs = zip(one.metric(metric), other.metric(metric), strict=True)
    return one.state == other.state and all(np.array_equal(left, right) for left, right in pairs)


def _search_runs(
    number: int, reported: Sequence[TrialCurve], ended: Sequence[TrialCurve], metric: str, cost: str
) -> SearchRuns:
    by_configuration: dict[int, dict[int, TrialCurve]] = {}
    for curve in reported:
        if curve.search == number and curve.reports(metric):
            by_configuration.setdefault(curve.configuration, {})[curve.seed] = curve
    seeds, numbers = common(by_configuration)
    configurations = set(numbers)
    confirmed = [
        (configuration, [by_configuration[configuration][seed] for seed in seeds]) for configuration in numbers
    ]
    runs = _some(runs_of_all(confirmed, metric, cost))
    if all(curve.phase == "search" for curve in reported):
        return SearchRuns(number, tuple(seeds), runs, runs)
    searched = [
        (curve.configuration, [curve])
        for curve in sorted(ended, key=lambda curve: curve.configuration)
        if curve.phase == "search" and curve.search == number and curve.configuration in configurations
    ]
    return SearchRuns(number, tuple(seeds), runs, _some(runs_of_all(searched, metric, cost)))


def _some(runs: Sequence[Runs | None]) -> tuple[Runs, ...]:
    return tuple(run for run in runs if run is not None)
