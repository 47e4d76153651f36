"""Replays one study: samplers and budget as in the product, trials from a recorded table."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from driftline.errors import InvalidSpec, NotFound
from driftline.results.confirmation import to_confirm
from driftline.results.curves import TrialCurve
from driftline.results.document import Reading, frontier_document
from driftline.results.recorded_table import Grid, RecordedTable
from driftline.results.scale import Axis, axis_of
from driftline.study.budget import Budget
from driftline.study.rung_rounds import rungs_of
from driftline.study.sampler import STAGED, Chosen, name_of
from driftline.study.spec import Resources, Study
from search_spaces.spaces import dimensions
from service.driver.search.actions import SearchPlan
from service.driver.search.rules import Arrival
from service.driver.search.rungs import Climb, Goal, arrivals, goals, prospects, reached
from service.driver.search.study_plan import decided, independent_sampler_seed, sampler_seed
from service.replay.nearest import NearestRows
from service.samplers.build import build
from service.samplers.by_rung import ByRung, enough
from trainers import shown

RANDOM = "random"


class Replay:
    """Simulates studies.

    Args:
        table: The recorded trials.
        labels: Labels of the table to compare. A label that occurs several times stands for the same method under as
            many names; in each search, these draw from disjoint parts of its configurations.
        budget: The budget of each label; rounds are those of the table. With rungs, search trials stop early.
        sampler: As in a study. "random" takes random rows, because the rows of a table are themselves random; the
            proposals of another sampler are moved to the nearest row that its search has not tried.
        parts: Whether the disjoint parts are drawn anew for each "search", or once for each "study".
        lift: For some names, the factor by which their scaled qualities, and so their areas, are larger than recorded.

    Raises:
        NotFound: The table has no such label.
        InvalidSpec: The table is too small for the budget, a rung lies beyond its rounds or between those that were
            recorded, there are branches, or the sampler is staged.
    """

    def __init__(
        self,
        table: RecordedTable,
        labels: Sequence[str],
        budget: Budget,
        sampler: Chosen = RANDOM,
        parts: Literal["search", "study"] = "search",
        lift: Mapping[str, float] | None = None,
    ) -> None:
        require_replayable(table.study.budget)
        _require_common_rounds(table.study, labels)
        require_replayable(budget)
        if name_of(sampler) == STAGED:
            problem = (
                "must propose values anywhere in their ranges, got staged: a table's rows are on no grid, take tpe"
            )
            raise InvalidSpec("sampler", problem)
        self.study = table.study
        self.budget = budget
        self.sampler = sampler
        self._parts = parts
        self._grids = {label: table.grid(label) for label in labels}
        self.names = numbered(labels)
        self.source = dict(zip(self.names, labels, strict=True))
        self.curves = {name: self.grid(name).curves for name in self.names}
        for name, factor in (lift or {}).items():
            if name not in self.curves:
                raise NotFound(f"no label {shown(name)} in this replay (have: {', '.join(self.names)})")
            axis = _axis(self.curves[name].values(), self.study.objective.quality)
            self.curves[name] = {
                key: lifted(curve, self.study.objective.quality, axis, factor)
                for key, curve in self.curves[name].items()
            }
        of_a_search = {"trials_per_method": budget.trials_per_search, "confirm": budget.confirmed_per_search}
        reduced = budget.model_copy(update={**of_a_search, "searches": 1})
        plan = decided(reduced, Resources(), sampler, families=tuple((name,) for name in self.names))
        rounds = table.study.budget.last_round
        self.rungs = (rounds,) if budget.rungs_at is None else rungs_of(budget.rungs_at, rounds)
        _require_rungs(self._grids.values(), self.rungs)
        self._plan = SearchPlan.of(tuple(self.names), reduced, plan)
        self._nearest = {label: _nearest(self.study, grid) for label, grid in self._grids.items()}
        self._dimensions = dimensions(self.study.entry(label).parameters() for label in self._grids)
        self._seeds = _common_seeds(list(self._grids.values()), 1 + budget.seeds)
        for label, grid in self._grids.items():
            count = list(labels).count(label)
            share, per_label = len(grid.configurations) // count, f", for each of {count} labels" if count > 1 else ""
            if share < reduced.trials_per_method:
                raise InvalidSpec(
                    "trials",
                    f"a search of {reduced.trials_per_method} trials needs as many configurations, and the table has "
                    f"{share} of {label} that were run on all {len(grid.seeds)} seeds{per_label}",
                )

    def grid(self, name: str) -> Grid:
        """The recorded trials behind a name."""
        return self._grids[self.source[name]]

    def seeds(self, study_seed: int) -> list[list[int]]:
        """For each search, the seed of the search and those of its confirmation, the same for all labels.

        The seeds of a table are drawn at random; searches share some only if the table has too few.
        """
        per_search = 1 + self.budget.seeds
        order = np.random.default_rng([study_seed, 0]).permutation(self._seeds).tolist()
        return [
            [order[(search * per_search + index) % len(order)] for index in range(per_search)]
            for search in range(self.budget.searches)
        ]

    def trials(self, study_seed: int, seeds: Sequence[Sequence[int]] | None = None) -> list[TrialCurve]:
        """All trials of one simulated study.

        Args:
            study_seed: Seed of the samplers and of the choice of rows and seeds.
            seeds: For each search its own seed and those of its confirmation; drawn by default.
        """
        drawn = self.seeds(study_seed) if seeds is None else seeds
        curves: list[TrialCurve] = []
        for search, (data_seed, *fresh) in enumerate(drawn):
            parts = self._divided(study_seed, search)
            for name in self.names:
                tried = self._tried(name, self._sampler_seed(study_seed, name, search), data_seed, parts[name])
                curves += self.confirmed(name, tried, fresh, search)
        return curves

    def tried(self, name: str, study_seed: int) -> list[tuple[int, TrialCurve]]:
        """The rows that the first search of a name tries, in order, and their trials as far as they are trained."""
        seed = self.seeds(study_seed)[0][0]
        return self._tried(name, self._sampler_seed(study_seed, name, 0), seed, self._divided(study_seed, 0)[name])

    def document(self, trials: Sequence[TrialCurve]) -> dict[str, Any]:
        """The result of a simulated study, as `driftline.results.document` describes it."""
        objective = self.study.objective
        reading = Reading(objective.quality, objective.cost)
        return frontier_document(
            self.study.name,
            trials,
            reading,
            self.study.budget.last_round,
            self.names,
            scale=objective.scale,
            rungs=self.rungs,
            drawn=self.names if self.sampler == RANDOM and len(self.rungs) == 1 else (),
        )

    def confirmed(
        self, name: str, tried: Sequence[tuple[int, TrialCurve]], fresh: Sequence[int], search: int = 0
    ) -> list[TrialCurve]:
        """The trials of one search of a label, and those that confirm it.

        Args:
            name: The label, numbered if it occurs several times.
            tried: Rows of its table that the search tried, in order, and their trials as far as they were trained.
            fresh: Seeds of the confirmation.
            search: Number of the search.
        """
        grid, curves, objective = self.grid(name), self.curves[name], self.study.objective
        numbers = [grid.configurations[row] for row, _ in tried]
        first = search * self._plan.budget.trials_per_method
        searched = [
            replace(curve, label=name, number=first + index, configuration=first + index, search=search)
            for index, (_, curve) in enumerate(tried)
        ]
        chosen = to_confirm(searched, objective.quality, objective.cost, self._plan.budget.confirmed)
        repeats = [
            replace(
                curves[numbers[configuration - first], data_seed],
                label=name,
                phase="confirmation",
                number=(search * self._plan.budget.confirmed + position) * len(fresh) + index,
                configuration=configuration,
                search=search,
            )
            for position, configuration in enumerate(chosen)
            for index, data_seed in enumerate(fresh)
        ]
        return [*searched, *repeats]

    def _tried(self, name: str, seed: int, data_seed: int, part: NDArray[np.int64]) -> list[tuple[int, TrialCurve]]:
        """The rows that a sampler tries, in order, and their trials as far as they are trained.

        A sampler tries each proposal's nearest row that it has not tried; "random" takes the rows in their order.
        """
        grid, curves, plan = self.grid(name), self.curves[name], self._plan
        sampler = None if self.sampler == RANDOM else self._sampler(name, seed)
        nearest = self._nearest[self.source[name]]
        rows: list[int] = []
        climbs: list[Climb] = []
        ends: dict[int, Goal] = {}
        untried, told = set(part.tolist()), 0

        def recorded(number: int) -> TrialCurve:
            return curves[grid.configurations[rows[number]], data_seed]

        def trained(number: int) -> TrialCurve:
            goal = ends[number]
            return recorded(number).until(self.rungs[goal.rung]) if goal.stopped else recorded(number)

        while len(rows) < plan.budget.trials_per_method:
            first = len(rows)
            if sampler is not None:
                for number in range(told, plan.learned_from(first)):
                    curve, values = trained(number), self._values(recorded(number))
                    sampler.tell(number, curve.hyperparameters, values[: ends[number].rung + 1], curve.state)
                told = max(told, plan.learned_from(first))
            for number in range(first, min(first + plan.asked_at_once, plan.budget.trials_per_method)):
                row = int(part[number]) if sampler is None else nearest.nearest(sampler.ask(number), sorted(untried))
                untried.remove(row)
                rows.append(row)
                curve = recorded(number)
                if sampler is not None:
                    sampler.pending(number, curve.hyperparameters)
                at_rungs = self._arrivals(curve)
                climbs.append(Climb(number, number // plan.asked_at_once, at_rungs, ended=curve.state != "COMPLETE"))
            ends = goals(self._plan.rule, len(self.rungs), climbs)
        return [(row, trained(number)) for number, row in enumerate(rows)]

    def _sampler_seed(self, study_seed: int, name: str, search: int) -> int:
        """The seed of the study's sampler; if a label occurs several times, each name has a seed of its own."""
        if len(self._grids) == len(self.names):
            return sampler_seed(study_seed, search)
        return independent_sampler_seed(study_seed, name, search)

    def _sampler(self, name: str, seed: int) -> ByRung:
        entry = self.study.entry(self.source[name])
        space, names = entry.parameters(), self.study.objective.objectives
        options: dict[str, Any] = {
            "start": entry.start,
            "prior": entry.prior,
            "constraints": entry.constraints,
            "dimensions": self._dimensions,
        }
        samplers = [build(self.sampler, space, names, seed, **options) for _ in self.rungs]
        return ByRung(samplers, enough(self.sampler, space))

    def _values(self, curve: TrialCurve) -> list[dict[str, float]]:
        """What a sampler is told of a trial, at each rung that it has reached."""
        objective = self.study.objective
        return curve.computed(f"reached {self.rungs}", lambda: reached(curve, self.rungs, objective))

    def _arrivals(self, curve: TrialCurve) -> tuple[Arrival, ...]:
        """A trial at each rung that it has reached."""
        if not self._plan.rule.looks_ahead:
            return arrivals(self._values(curve))
        ahead = curve.computed(f"prospects {self.rungs}", lambda: prospects(curve, self.rungs, self.study.objective))
        return arrivals(self._values(curve), ahead)

    def _divided(self, study_seed: int, search: int) -> dict[str, NDArray[np.int64]]:
        """The rows that each name may try, in random order; those of the same label share none."""
        parts: dict[str, NDArray[np.int64]] = {}
        for label, grid in self._grids.items():
            names = [name for name, source in self.source.items() if source == label]
            division = search if self._parts == "search" else 0
            generator = np.random.default_rng([study_seed, 1 + division, independent_sampler_seed(0, label)])
            order = generator.permutation(len(grid.configurations))
            share = len(order) // len(names)
            for index, name in enumerate(names):
                part = order[index * share : (index + 1) * share]
                part_seed = independent_sampler_seed(study_seed, name, search)
                parts[name] = np.random.default_rng(part_seed).permutation(part)
        return parts


def require_replayable(budget: Budget) -> None:
    """Checks that trials are proposed one by one and end after common rounds, as a replay takes them from a table."""
    if budget.unit != "rounds":
        problem = "must be left out for a replay, whose trials end after common rounds (budget.rounds)"
        raise InvalidSpec(f"budget.{budget.unit}", f"{problem}, got {budget.unit}={budget.amount}")
    if budget.branches > 1:
        rule = "must be 1 for a replay, which draws the rows of a table one by one"
        raise InvalidSpec("budget.branches", f"{rule}, got branches={budget.branches}")


def _require_common_rounds(study: Study, labels: Iterable[str]) -> None:
    """Checks that the trials of all labels have the rounds of the study's budget, on whose rungs they are compared."""
    for label in labels:
        if (rounds := study.budget_of(study.entry(label)).rounds) != study.budget.rounds:
            rule = f"must be {study.budget.rounds} for a replay, as of all labels"
            raise InvalidSpec("rounds", f"{rule}, got rounds={rounds} of {label}")


def _require_rungs(grids: Iterable[Grid], rungs: Sequence[int]) -> None:
    """Refuses rungs in which complete trials have no values: there they could neither be compared nor be stopped.

    Raises:
        InvalidSpec: There is such a rung.
    """
    for grid in grids:
        complete = [curve for curve in grid.curves.values() if curve.state == "COMPLETE"]
        for curve, rung in itertools.product(complete[:1], rungs):
            before = curve.until(rung).rounds_done
            if before < rung:
                raise InvalidSpec(
                    "rungs",
                    f"round {rung} was not recorded for {grid.label}: choose rounds that were, such as {before}",
                )


def lifted(curve: TrialCurve, metric: str, axis: Axis, factor: float) -> TrialCurve:
    """The trial with all its qualities moved away from its untrained model's, by this factor on the axis.

    Examples:
        >>> columns = {"round": np.array([0.0, 1.0]), "test_loss": np.array([4.0, 1.0])}
        >>> curve = TrialCurve("a", "a", "search", 0, 0, 0, {}, "COMPLETE", columns)
        >>> lifted(curve, "test_loss", Axis(rising=False, floor=1e-9), 1.5).columns["test_loss"].tolist()
        [4.0, 0.5]
    """
    values = curve.columns[metric]
    start = values[np.isfinite(values)][0]
    far = start * (values / start) ** factor if axis.logarithmic else start + factor * (values - start)
    return replace(curve, columns={**curve.columns, metric: np.asarray(far)}, _cache={})


def _axis(curves: Iterable[TrialCurve], metric: str) -> Axis:
    values = [curve.metric(metric)[1] for curve in curves]
    starts = [float(column[0]) for column in values if column.size]
    return axis_of(metric, starts, min((float(column.min()) for column in values if column.size), default=np.inf))


def numbered(labels: Sequence[str]) -> list[str]:
    """The labels, numbered where one occurs several times.

    Examples:
        >>> numbered(["fedavg", "fedprox", "fedavg"])
        ['fedavg-1', 'fedprox', 'fedavg-2']
    """
    seen: dict[str, int] = {}
    names = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        names.append(f"{label}-{seen[label]}" if list(labels).count(label) > 1 else label)
    return names


def _nearest(study: Study, grid: Grid) -> NearestRows:
    rows = [grid.curves[number, grid.seeds[0]].hyperparameters for number in grid.configurations]
    return NearestRows(study.entry(grid.label).parameters(), rows)


def _common_seeds(grids: Sequence[Grid], needed: int) -> list[int]:
    """The seeds that all labels have.

    Raises:
        InvalidSpec: They are too few for one search.
    """
    seeds = sorted(set.intersection(*(set(grid.seeds) for grid in grids)))
    if len(seeds) < needed:
        raise InvalidSpec(
            "seeds", f"a search and its confirmation need {needed} seeds, and the labels have {len(seeds)} in common"
        )
    return seeds
