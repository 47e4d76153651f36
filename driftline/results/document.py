"""The result of a study as one JSON document: frontier.json.

    {"study", "definitions", "scale", "methods": {LABEL: {
        "points": [{"trial", "seed", "cost", "quality", "hyperparameters", "pareto", "configuration"}],
        "configurations": [...], "frontier": [{"cost", "quality", "low", "high"}], "hypervolume", "hypervolume_band",
        "hypervolume_seeds", "diverged", "not_counted", "failed", "reported", "ledger", "granted"}}}

Qualities are in the metric's own unit: `low` is the smaller and `high` the larger number, for losses too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driftline.results.curves import Array, TrialCurve, check_cost, cost_per_round
from driftline.results.definitions import definitions
from driftline.results.directions import sign
from driftline.results.frontier import band, best_within
from driftline.results.ledger import COUNTED, granted, ledger
from driftline.results.pareto import hypervolume, non_dominated
from driftline.results.points import SmoothedCurve, progress

Json = dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """The metric and the cost of a result; they may differ from the study's objective.

    Attributes:
        quality: A metric that trials report.
        cost: "rounds", "bytes", "client_gradients" or "seconds".
    """

    quality: str
    cost: str


@dataclass(frozen=True)
class Scale:
    """Scale of the hypervolume, the same for all labels of a study.

    Attributes:
        start: Oriented quality of the untrained model: the median of the trials' first evaluations.
        best: Best oriented tail of all complete reported trials; `start` without any.
        one_round: Cost of one round of the cheapest trial.
        budget: Cost of all rounds of the most expensive trial.
    """

    start: float
    best: float
    one_round: float
    budget: float


@dataclass(frozen=True)
class _Point:
    curve: TrialCurve
    cost: float
    quality: float  # oriented


def frontier_document(
    study: str, curves: Iterable[TrialCurve], reading: Reading, rounds: int, labels: Sequence[str] = ()
) -> Json:
    """Points, frontiers, Pareto sets and ledgers of all labels of a study.

    Args:
        study: Its name.
        curves: Its trials, in any order; those of a running study may be incomplete.
        reading: Chosen metric and cost: any that the trials reported.
        rounds: Budget of a trial in rounds.
        labels: Labels in the order of the document, also those without a trial yet; other labels of trials follow.

    Returns:
        The document, ready for JSON; it does not depend on the order of the trials.

    Raises:
        InvalidSpec: Unknown cost, or trials did not count it.
    """
    check_cost(reading.cost)
    ordered = sorted(curves, key=lambda curve: curve.key)
    by_label: dict[str, list[TrialCurve]] = {label: [] for label in labels}
    for curve in ordered:
        by_label.setdefault(curve.label, []).append(curve)
    reported = {label: _reported(trials) for label, trials in by_label.items()}
    follow = _Follow(reading.quality, reading.cost, rounds)
    scale = _scale([curve for trials in reported.values() for curve in trials], follow)
    direction = sign(reading.quality)
    return {
        "study": study,
        "definitions": definitions(reading.quality, reading.cost, rounds),
        "scale": {
            "start": direction * scale.start,
            "best": direction * scale.best,
            "one_round": scale.one_round,
            "budget": scale.budget,
        },
        "methods": {label: _method(trials, reported[label], scale, follow) for label, trials in by_label.items()},
    }


@dataclass(frozen=True)
class _Follow:
    metric: str
    cost: str
    rounds: int

    def __call__(self, curve: TrialCurve) -> SmoothedCurve | None:
        return progress(curve, self.metric, self.cost, self.rounds)


def _reported(curves: Sequence[TrialCurve]) -> list[TrialCurve]:
    """The finished confirmation trials; until there is one, the finished search trials."""
    finished = [curve for curve in curves if curve.state in COUNTED]
    confirmed = [curve for curve in finished if curve.phase == "confirmation"]
    return confirmed or finished


def _scale(curves: Sequence[TrialCurve], follow: _Follow) -> Scale:
    followed = [(curve, found) for curve in curves if (found := follow(curve)) is not None]
    start = float(np.median([found.start for _, found in followed])) if followed else 0.0
    tails = [found.tail for curve, found in followed if curve.state == "COMPLETE"]
    if follow.cost == "rounds":
        return Scale(start, max(tails, default=start), 1.0, float(max(follow.rounds, 1)))
    rates = [rate for curve in curves if (rate := cost_per_round(curve, follow.cost)) is not None and rate > 0]
    one_round = min(rates, default=1.0)
    return Scale(start, max(tails, default=start), one_round, max(rates, default=1.0) * follow.rounds)


def _method(trials: Sequence[TrialCurve], reported: Sequence[TrialCurve], scale: Scale, follow: _Follow) -> Json:
    complete = [
        (curve, found) for curve in reported if curve.state == "COMPLETE" and (found := follow(curve)) is not None
    ]
    ended = [_Point(curve, found.settles, found.tail) for curve, found in complete]
    points = [point for point, (_, found) in zip(ended, complete, strict=True) if found.counts(scale.best)]
    seeds = sorted({curve.seed for curve in reported})
    volumes = [(seed, _volume([point for point in points if point.curve.seed == seed], scale)) for seed in seeds]
    numbers = [volume for _, volume in volumes] or [0.0]
    return {
        "points": _points(points, sign(follow.metric)),
        "configurations": _configurations(ended, points, reported, sign(follow.metric)),
        "frontier": _frontier(reported, seeds, scale, follow) if reported else [],
        "hypervolume": float(np.median(numbers)),
        "hypervolume_band": {"low": min(numbers), "high": max(numbers)},
        "hypervolume_seeds": [{"seed": seed, "hypervolume": volume} for seed, volume in volumes],
        "diverged": sum(curve.state == "DIVERGED" for curve in trials),
        "not_counted": len(complete) - len(points),
        "failed": sum(curve.state == "FAILED" for curve in trials),
        "reported": {
            "phase": reported[0].phase if reported else None,
            "trials": len(reported),
            "diverged": sum(curve.state == "DIVERGED" for curve in reported),
            "seeds": seeds,
        },
        "ledger": ledger(trials),
        "granted": granted(trials, follow.cost, follow.rounds),
    }


def _volume(points: Sequence[_Point], scale: Scale) -> float:
    return hypervolume(
        [point.cost for point in points],
        [point.quality for point in points],
        one_round=scale.one_round,
        budget=scale.budget,
        start=scale.start,
        best=scale.best,
    )


def _points(points: Sequence[_Point], direction: float) -> list[Json]:
    on = non_dominated([point.cost for point in points], [point.quality for point in points])
    rows = sorted(zip(points, on, strict=True), key=lambda row: (row[0].cost, -row[0].quality, row[0].curve.key))
    return [
        {
            "trial": point.curve.trial,
            "seed": point.curve.seed,
            "cost": point.cost,
            "quality": direction * point.quality,
            "hyperparameters": dict(point.curve.hyperparameters),
            "pareto": bool(kept),
            "configuration": point.curve.configuration,
        }
        for point, kept in rows
    ]


def _configurations(
    ended: Sequence[_Point], points: Sequence[_Point], reported: Sequence[TrialCurve], direction: float
) -> list[Json]:
    """Configurations with a point, each summarised over all its complete seeds, whether they count or not.

    Leaving out the seeds on which a configuration failed to learn would flatter it. Only configurations that count on
    more than half of their seeds, diverged ones included, can be in the Pareto set.
    """
    ran: dict[int, list[TrialCurve]] = {}
    for curve in reported:
        ran.setdefault(curve.configuration, []).append(curve)
    counted = {point.curve.trial for point in points}
    groups: dict[int, list[_Point]] = {}
    for point in ended:
        groups.setdefault(point.curve.configuration, []).append(point)
    rows = [
        _summary(number, group, counted, ran[number], direction)
        for number, group in sorted(groups.items())
        if any(point.curve.trial in counted for point in group)
    ]
    usual = [row for row in rows if 2 * row["counted"] > row["seeds"]]
    on = non_dominated([row["cost"] for row in usual], [direction * row["quality"] for row in usual])
    for row, kept in zip(usual, on, strict=True):
        row["pareto"] = bool(kept)
    return sorted(rows, key=lambda row: (row["cost"], -direction * row["quality"], row["configuration"]))


def _summary(
    number: int, group: Sequence[_Point], counted: set[str], ran: Sequence[TrialCurve], direction: float
) -> Json:
    cost = np.array([point.cost for point in group])
    quality = direction * np.array([point.quality for point in group])
    hyperparameters: Mapping[str, Any] = group[0].curve.hyperparameters
    return {
        "configuration": number,
        "hyperparameters": dict(hyperparameters),
        "seeds": len(ran),
        "counted": sum(point.curve.trial in counted for point in group),
        "diverged": sum(curve.state == "DIVERGED" for curve in ran),
        "cost": _median(cost),
        "cost_low": float(cost.min()),
        "cost_high": float(cost.max()),
        "quality": _median(quality),
        "low": float(quality.min()),
        "high": float(quality.max()),
        "pareto": False,
    }


def _median(values: Array) -> float:
    """The median; a single value, which is all that a configuration has in a search, skips the slow `numpy.median`."""
    return float(values[0] if len(values) == 1 else np.median(values))


def _frontier(reported: Sequence[TrialCurve], seeds: Sequence[int], scale: Scale, follow: _Follow) -> list[Json]:
    steps = []
    for seed in seeds:
        followed = [(curve, found) for curve in reported if curve.seed == seed and (found := follow(curve)) is not None]
        start = float(np.median([found.start for _, found in followed])) if followed else scale.start
        steps.append(best_within([found for curve, found in followed if curve.state == "COMPLETE"], start))
    summed = band(steps, scale.one_round, scale.budget)
    direction = sign(follow.metric)
    rows = zip(summed.cost, summed.middle, summed.worst, summed.best, strict=True)
    return [
        {
            "cost": float(cost),
            "quality": direction * float(middle),
            "low": float(min(direction * worst, direction * best)),
            "high": float(max(direction * worst, direction * best)),
        }
        for cost, middle, worst, best in rows
    ]
