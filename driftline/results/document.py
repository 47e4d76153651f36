"""The result of a study as one JSON document: frontier.json.

    {"study", "definitions", "scale", "deterministic", "methods": {LABEL: {
        "reported": {"phase", "trials", "diverged", "incomplete", "seeds", "searches"},
        "recommendations": [{"cost", "configuration", "round", "quality", "low", "high"}],
        "frontier": [{"cost", "quality", "low", "high"}],
        "optimism", "cross_fitted": [{"search", "seed", "cost", "quality"}],
        "area", "area_band": {"low", "high"}, "areas": [{"search", "seed", "area"}],
        "configurations": [{"configuration", "hyperparameters", "settles", "ends", ..., "pareto"}],
        "claims": {"configurations": [{"seed", "area", "along"}], "methods": [{"search", "area", "along"}]},
        "efforts": {"configurations", "searches", "rows": [{"trials", "area", "low", "high", "influence"}]},
        "importance": {"trials", "quality", "speed", "along": [{"cost", "shares"}]},
        "diverged", "failed", "ledger", "granted", "settings", "inactive"}}}

A recommendation has "test" too, the test metric, where the quality is a validation metric.

`settings` is there for an entry whose trials have settings of their own, `inactive` where hyperparameters may change
nothing: {HYPERPARAMETER: [{OTHER: value}]}, conditions of which one holds. `efforts` is null unless every configuration
was drawn independently of all results and has been confirmed.

Qualities are in the metric's own unit: `low` is the smaller and `high` the larger number, for losses too. `definitions`
explains every term.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from driftline.results.curves import Array, TrialCurve, check_cost
from driftline.results.definitions import definitions
from driftline.results.importance import importance
from driftline.results.label_runs import LabelRuns, SearchRuns, deterministic, label_runs, tried_runs
from driftline.results.ledger import granted, ledger
from driftline.results.modelled_time import Time
from driftline.results.paired_tests import LEVEL
from driftline.results.pareto import non_dominated
from driftline.results.recommendation import UNTRAINED, Span, Steps
from driftline.results.runs import ENDED, Runs, axis_of_runs, count_costs, runs_of_all
from driftline.results.scale import Axis, Scale
from driftline.results.search_effort import effort_test, expected, sides
from driftline.results.settling import Settled, settled_all
from driftline.results.test_metric import with_test_metric
from driftline.study.chance import efforts
from driftline.study.directions import sign
from driftline.study.spec import FixedScale
from trainers import cost_named, inactive

Json = dict[str, Any]
GRID = 64
"""Costs at which two labels are compared, evenly spread on a logarithmic axis."""


@dataclass(frozen=True)
class Reading:
    """The metric and the cost of a result; they may differ from the study's objective.

    Attributes:
        quality: A metric that trials report.
        cost: One of `trainers.COSTS`.
        time: How "time" is modelled; None for other costs.
    """

    quality: str
    cost: str
    time: Time | None = None


def frontier_document(
    study: str,
    curves: Iterable[TrialCurve],
    reading: Reading,
    amount: int,
    labels: Sequence[str] = (),
    *,
    unit: str = "rounds",
    scale: FixedScale | None = None,
    certain: bool = False,
    rungs: Sequence[int] | Mapping[str, Sequence[int]] = (),
    drawn: Collection[str] = (),
    rules: Mapping[str, Mapping[str, Any]] | None = None,
    declared: Collection[str] = (),
) -> Json:
    """Recommendations, frontiers, areas and ledgers of all labels of a study.

    Args:
        study: Its name.
        curves: Its trials, in any order; those of a running study may be incomplete.
        reading: Chosen metric and cost: any that the trials reported.
        amount: Budget of a trial.
        labels: Labels in the order of the document, also those without a trial yet; other labels of trials follow.
        unit: The unit of the budget and of the rungs, one of `driftline.study.budget.UNITS`.
        scale: A scale in place of the study's own, to compare studies.
        certain: Whether nothing is random in the study, so that one run stands for all seeds. Otherwise this is
            recognised by seeds that give equal curves.
        rungs: Rungs of the search, if it has any; or by label, with the whole budget as the last one.
        drawn: Labels whose configurations were drawn independently of all results, so that any k of them are a search.
        rules: Conditions under which hyperparameters change nothing, for labels that have any.
        declared: Costs that the study's program counts.

    Returns:
        The document, ready for JSON; it does not depend on the order of the trials.

    Raises:
        InvalidSpec: Unknown cost, or trials did not count it.
    """
    curves = list(curves)
    counted = any(curve.counts(reading.cost) for curve in curves)
    check_cost(reading.cost, {*declared, reading.cost} if counted else declared)
    rules = rules or {}
    by_label: dict[str, list[TrialCurve]] = {label: [] for label in labels}
    for curve in sorted(curves, key=lambda curve: curve.key):
        by_label.setdefault(curve.label, []).append(curve)
    runs_by_label = {label: label_runs(trials, reading.quality, reading.cost) for label, trials in by_label.items()}
    count_costs([curve for trials in by_label.values() for curve in trials if curve.state in ENDED], reading.cost)
    runs = [run for label in runs_by_label.values() for run in label.runs]
    axis, span = axis_of_runs(reading.quality, runs), _span(list(runs_by_label.values()), reading.cost)
    steps = {
        label: [search.reported(axis, span) for search in of_label.searches]
        for label, of_label in runs_by_label.items()
    }
    whole = _scale(axis, runs, steps.values(), scale)
    settlings = {label: settled_all(of_label.runs, axis) for label, of_label in runs_by_label.items()}
    ways = [settling.way for label in settlings.values() for settling in label if settling is not None]
    exact = certain or deterministic([curve for trials in by_label.values() for curve in trials], reading.quality)
    summary = _Summary(reading, unit, rungs or (amount,), whole, span, max(ways, default=0.0), exact)
    return {
        "study": study,
        "definitions": definitions(reading.quality, reading.cost, amount, reading.time, unit),
        "scale": {
            "start": whole.start,
            "best": whole.best,
            "logarithmic": axis.logarithmic,
            "floor": axis.floor,
            "first": span.first,
            "last": span.last,
            "fixed": scale is not None,
        },
        "deterministic": exact,
        "methods": {
            label: {
                **summary.label(trials, runs_by_label[label], settlings[label], steps[label]),
                "efforts": summary.efforts(trials) if label in drawn and not exact else None,
                "importance": summary.importance(trials, rules.get(label, {})),
                **({"inactive": rules[label]} if label in rules else {}),
            }
            for label, trials in by_label.items()
        },
    }


def grid(span: Span) -> Array:
    """The costs at which two labels are compared."""
    return np.geomspace(span.first, span.last, GRID) if span.last > span.first else np.array([span.first])


def _span(labels: Sequence[LabelRuns], cost: str) -> Span:
    """From the cheapest first round to the largest cost that configurations of every label reach.

    A label all of whose runs diverged limits the costs only if there is no other one.
    """
    firsts = [
        float(curve.cost(cost)[np.argmax(curve.rounds > 0)])
        for label in labels
        for curve in label.trials
        if curve.rounds_done
    ]
    trained = [[run for run in label.runs if len(run.rounds)] for label in labels]
    whole = [runs for runs in trained if any((run.diverged == len(run.rounds)).any() for run in runs)]
    ends = [max(float(run.cost[:, -1].mean()) for run in runs) for runs in whole or trained if runs]
    least = cost_named(cost).first
    first = max(min(firsts, default=least), least)
    last = min(ends, default=first)
    return Span(first, max(last, first))


def _scale(
    axis: Axis, runs: Sequence[Runs], steps: Iterable[Sequence[Sequence[Steps]]], fixed: FixedScale | None
) -> Scale:
    if fixed is not None:
        return Scale(axis, fixed.start, fixed.best)
    start = float(np.mean(np.concatenate([run.start for run in runs]))) if runs else 0.0
    ends = [
        float(np.median([function.quality[-1] for search in label for function in search])) for label in steps if label
    ]
    return Scale(axis, start, max(ends, key=lambda end: float(axis.merit(np.array(end))), default=start))


@dataclass(frozen=True)
class _Summary:
    """The facts that all labels of a result share."""

    reading: Reading
    unit: str
    rungs: Sequence[int] | Mapping[str, Sequence[int]]
    scale: Scale
    span: Span
    longest_way: float
    deterministic: bool

    def label(
        self,
        trials: Sequence[TrialCurve],
        label: LabelRuns,
        settlings: Sequence[Settled | None],
        steps: Sequence[Sequence[Steps]],
    ) -> Json:
        """A label's part of the result."""
        pairs = list(zip(label.searches, steps, strict=True))
        areas = [
            {"search": search.search, "seed": seed, "area": function.area(self.scale, self.span)}
            for search, reported in pairs
            for seed, function in zip(search.seeds, reported, strict=True)
        ]
        judged = label.phase == "confirmation" or self.deterministic
        numbers = [row["area"] for row in areas]
        mean = float(np.mean(numbers)) if numbers else None
        low, high = (min(numbers), max(numbers)) if judged and numbers else (mean, mean)
        return {
            "reported": {
                "phase": label.phase,
                "trials": len(label.trials),
                "diverged": sum(curve.state == "DIVERGED" for curve in label.trials),
                "incomplete": len({curve.configuration for curve in label.trials}) - len(label.runs),
                "seeds": sorted({seed for search in label.searches for seed in search.seeds}),
                "searches": len(label.searches),
            },
            **self._promised(label),
            "cross_fitted": [
                {
                    "search": search.search,
                    "seed": seed,
                    "cost": function.cost.tolist(),
                    "quality": function.quality.tolist(),
                }
                for search, reported in pairs
                for seed, function in zip(search.seeds, reported, strict=True)
            ]
            if judged
            else [],
            "area": mean,
            "area_band": {"low": low, "high": high} if numbers else None,
            "areas": areas,
            "configurations": self._configurations(label, settlings),
            "claims": {
                "configurations": self._found(pairs),
                "methods": [{"search": search.search, **self._along(reported)} for search, reported in pairs],
            }
            if judged
            else {"configurations": [], "methods": []},
            "diverged": sum(curve.state == "DIVERGED" for curve in trials),
            "failed": sum(curve.state == "FAILED" for curve in trials),
            "ledger": ledger(trials),
            "granted": granted(trials, self.reading.cost, self._rungs_of(trials), self.unit),
        }

    def _rungs_of(self, trials: Sequence[TrialCurve]) -> Sequence[int]:
        """The rungs of a label, from its trials."""
        if not isinstance(self.rungs, Mapping):
            return self.rungs
        return self.rungs[trials[0].label] if trials else ()

    def efforts(self, trials: Sequence[TrialCurve]) -> Json | None:
        """The area to expect after k trials, and how much each configuration changes it; see `search_effort`."""
        tried = tried_runs(trials, self.reading.quality, self.reading.cost)
        if tried is None or len(set(tried[0])) < 2:
            return None
        searches, runs = np.array(tried[0]), tried[1]
        costs = grid(self.span)
        halves = np.append(np.diff(costs) > 0, False).astype(float) + np.append(False, np.diff(costs) > 0)
        weights = halves / halves.sum() if halves.any() else np.ones(1)
        followed = sides(runs, self.scale, self.span, costs)
        rows = []
        for trials_of_one in efforts(len(runs), len(set(tried[0]))):
            mean = expected(followed, trials_of_one)
            area, influence = float(weights @ mean.value), mean.influence @ weights
            low, high = effort_test(area, influence, searches, trials_of_one).interval(LEVEL)
            rows.append(
                {
                    "trials": trials_of_one,
                    "area": area,
                    "low": low,
                    "high": high,
                    "influence": [float(f"{value:.6g}") for value in influence],
                }
            )
        return {"configurations": [run.configuration for run in runs], "searches": searches.tolist(), "rows": rows}

    def importance(self, trials: Sequence[TrialCurve], rules: Mapping[str, Any]) -> Json:
        """How much each hyperparameter matters; see `importance`."""
        tried = [curve for curve in trials if curve.phase == "search" and curve.state in ENDED]
        all_runs = runs_of_all(
            [(curve.configuration, [curve]) for curve in tried], self.reading.quality, self.reading.cost
        )
        pairs = [(runs, curve.hyperparameters) for runs, curve in zip(all_runs, tried, strict=True) if runs is not None]
        between = np.geomspace(self.span.first, self.span.last, 5)[1:-1]
        if cost_named(self.reading.cost).whole:
            between = np.round(between)
        return importance(
            [runs for runs, _ in pairs],
            [values for _, values in pairs],
            [inactive(rules, values) for _, values in pairs],
            self.scale.axis,
            grid(self.span),
            list(dict.fromkeys(between.tolist())),
        )

    def _promised(self, label: LabelRuns) -> Json:
        """The recommendations for each cost, and the qualities along the cost."""
        if not label.searches:
            return {"recommendations": [], "frontier": [], "optimism": None}
        promises = label.promises(self.scale.axis, self.span)
        columns = ("cost", "configuration", "round", "quality", "low", "high")
        rows = [
            dict(zip(columns, values, strict=True))
            for values in zip(*(getattr(promises, name).tolist() for name in columns), strict=True)
        ]
        frontier = [{name: row[name] for name in ("cost", "quality", "low", "high")} for row in rows]
        if frontier[-1]["cost"] < self.span.last:
            frontier.append({**frontier[-1], "cost": self.span.last})
        flattery = promises.optimism
        return {
            "recommendations": with_test_metric(
                [row for row in rows if row["configuration"] != UNTRAINED],
                label,
                self.reading.quality,
                self.reading.cost,
                self.scale.axis,
            ),
            "frontier": frontier,
            "optimism": 10**flattery if self.scale.axis.logarithmic else flattery,
        }

    def _found(self, pairs: Iterable[tuple[SearchRuns, Sequence[Steps]]]) -> list[Json]:
        """For each seed, what the searches alone recommend: the mean over the searches that were confirmed on it."""
        by_seed: dict[int, list[Steps]] = {}
        for search, reported in pairs:
            if search.chosen_on:
                functions = reported if len(search.seeds) == 1 else search.found(self.scale.axis, self.span)
                for seed, function in zip(search.seeds, functions, strict=True):
                    by_seed.setdefault(seed, []).append(function)
        return [{"seed": seed, **self._along(steps)} for seed, steps in sorted(by_seed.items())]

    def _along(self, steps: Sequence[Steps]) -> Json:
        """Mean area, and mean scaled quality along the cost."""
        costs = grid(self.span)
        values = np.mean([self.scale.scaled(function.at(costs)) for function in steps], axis=0)
        area = float(np.mean([function.area(self.scale, self.span) for function in steps]))
        return {"area": area, "along": [float(f"{value:.6g}") for value in values]}

    def _configurations(self, label: LabelRuns, settlings: Sequence[Settled | None]) -> list[Json]:
        """Where the reported configurations settle and end; see `driftline.results.settling`."""
        hyperparameters = {curve.configuration: curve.hyperparameters for curve in label.trials}
        rows, candidates = [], []
        for run, settling in zip(label.runs, settlings, strict=True):
            if settling is None:
                continue
            rows.append(_row(run, hyperparameters[run.configuration], settling))
            candidates.append(settling.learned(self.longest_way) and len(settling.end) == run.seeds)
        candidate_rows = [row for row, candidate in zip(rows, candidates, strict=True) if candidate]
        direction = sign(self.reading.quality)
        on = non_dominated(
            [row["settles"] for row in candidate_rows], [direction * row["ends"] for row in candidate_rows]
        )
        for row, kept in zip(candidate_rows, on, strict=True):
            row["pareto"] = bool(kept)
        return sorted(rows, key=lambda row: (row["settles"], -direction * row["ends"], row["configuration"]))


def _row(runs: Runs, hyperparameters: Mapping[str, Any], settling: Settled) -> Json:
    cost, end = settling.cost.tolist(), settling.end.tolist()
    return {
        "configuration": runs.configuration,
        "hyperparameters": dict(hyperparameters),
        "seeds": runs.seeds,
        "diverged": runs.seeds - len(settling.end),
        "settles": median(cost),
        "settles_low": min(cost),
        "settles_high": max(cost),
        "ends": median(end),
        "ends_low": min(end),
        "ends_high": max(end),
        "pareto": False,
    }
