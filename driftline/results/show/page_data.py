"""What the script of frontier.html draws, as compact JSON: configurations, frontiers, learning curves."""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from driftline.results.curves import Array, TrialCurve, unit
from driftline.results.definitions import budget_of
from driftline.results.document import Reading, frontier_document
from driftline.results.inactive_values import inactive_values
from driftline.results.ledger import rounds_of
from driftline.results.runs import ENDED, runs_of
from driftline.results.scale import stored_axis
from driftline.results.settling import settled_trials
from driftline.results.show.advice import wins
from driftline.results.show.axes import cost_title, quality_scale, quality_title
from driftline.results.show.palette import styles
from driftline.results.show.recommendation_rows import recommendation_rows
from driftline.study.directions import Metric
from driftline.study.spec import Study
from driftline.study.trial_parts import document_of
from trainers import COSTS, COUNTERS, cost_named

Json = Mapping[str, Any]
Key = tuple[str, str, int]  # label, phase, configuration

MOST_COSTS = 600  # of a frontier, and at least 16, besides changes of configuration; evenly on a logarithmic axis
MOST_STEPS = 6_400  # of all frontiers together
MOST_COMPARED = 10  # labels of which each pair is counted
MOST_ROUNDS = 64  # of a learning curve
MOST_ROWS = 5_000  # configurations; the best of those that only the search has run
MOST_READINGS = 8
MOST_REPORTS = 1_000_000  # of a study's trials, for readings beside its own: each reads all curves again
_NO_QUALITY = {"diverged", *COUNTERS}.union(*(cost.counters for cost in COSTS.values()))


def other_readings(result: Json, curves: Sequence[TrialCurve]) -> Iterator[tuple[Json, list[TrialCurve]]]:
    """The study's results with its other costs, then with its other qualities.

    Args:
        result: The document of the study's own quality and cost.
        curves: The study's trials.

    Yields:
        A document, and the curves that it was computed from.
    """
    parameters = result["definitions"]["parameters"]
    usual = parameters["metric"], parameters["cost"]
    begun, (unit, amount) = [curve for curve in curves if curve.rounds.size], budget_of(result)
    if not begun or sum(curve.rounds.size for curve in begun) > MOST_REPORTS:
        return
    cost_names = dict.fromkeys([*COSTS, *_program(result).get("costs", ())])
    costs = [
        name for name in cost_names if all(curve.counts(part) for curve in begun for part in cost_named(name).counters)
    ]
    choices = [(usual[0], cost) for cost in costs] + [(quality, usual[1]) for quality in _qualities(begun, cost_names)]
    for quality, cost in [choice for choice in choices if choice != usual and choice[1] != "time"][: MOST_READINGS - 1]:
        fresh = [replace(curve, _cache={}) for curve in curves]  # this reading's caches are dropped with them
        document = frontier_document(
            result["study"],
            fresh,
            Reading(_declared(result, quality), cost),
            amount,
            list(result["methods"]),
            unit=unit,
            certain=result["deterministic"],
            drawn=[label for label, method in result["methods"].items() if method["efforts"]],
            rules={label: method["inactive"] for label, method in result["methods"].items() if "inactive" in method},
        )
        for label, method in document["methods"].items():  # only the study's own result knows its rungs
            method["granted"][unit] = result["methods"][label]["granted"][unit]
        yield document, fresh


def _program(result: Json) -> Json:
    """The study's program; empty if it has none."""
    program: Json = result.get("specification", {}).get("program", {})
    return program


def _declared(result: Json, name: str) -> str:
    """The metric's name, with its direction if the study's program declares it."""
    way = _program(result).get("metrics", {}).get(name)
    return Metric(name, way) if way else name


def _qualities(begun: Sequence[TrialCurve], costs: Iterable[str]) -> list[str]:
    """The metrics that every trial has reported of its untrained model."""
    names = set.intersection(*(set(curve.columns) for curve in begun)) - _NO_QUALITY.union(costs)
    return sorted(
        name
        for name in names
        if not name.endswith("_lr") and all(np.isfinite(curve.columns[name][0]) for curve in begun)
    )


def configuration_rows(result: Json, curves: Sequence[TrialCurve]) -> dict[Key, Json]:
    """The reported configurations, then the configurations that only the search has run.

    Returns:
        Rows as in ``configurations`` of the document; without "settles" and "ends" if the trial diverged.
    """
    reported: dict[Key, Json] = {}
    for label, method in result["methods"].items():
        reported |= {
            (label, method["reported"]["phase"], row["configuration"]): row for row in method["configurations"]
        }
    axis = stored_axis(result)
    metric, cost = (result["definitions"]["parameters"][key] for key in ("metric", "cost"))
    others = [
        curve
        for curve in sorted(curves, key=lambda curve: curve.key)
        if curve.phase == "search"
        and curve.state in ENDED
        and result["methods"][curve.label]["reported"]["phase"] == "confirmation"
    ]
    searched: dict[Key, Json] = {}
    for curve, settling in zip(others, settled_trials(others, metric, cost, axis), strict=True):
        row: dict[str, Any] = {"hyperparameters": curve.hyperparameters, "seeds": 1, "diverged": 1}
        if settling is not None:
            row |= {"diverged": 0, "settles": float(settling.cost[0]), "ends": float(settling.end[0])}
        searched[curve.label, "search", curve.configuration] = row
    turn = -1.0 if axis.rising else 1.0
    best = sorted(searched, key=lambda key: turn * searched[key]["ends"] if "ends" in searched[key] else math.inf)
    kept = set(best[: max(0, MOST_ROWS - len(reported))])
    return reported | {key: row for key, row in searched.items() if key in kept}


def study_data(result: Json, rows: Mapping[Key, Json], curves: Sequence[TrialCurve]) -> dict[str, Any]:
    """What all readings of a study share: its labels, its configurations, and what is copied to run one again.

    ``"rows"`` are ``[label, phase, configuration, seeds, diverged, shape, values]``: the names of the values are
    ``shapes[shape]``, and a list or an object is ``[n]``, which is ``lists[n]``: many rows may share one.
    ``"stopped"`` has the round at which a rung stopped the trial of a row, ``"inactive"`` the names of its values that
    change nothing.
    """
    labels = {label: index for index, label in enumerate(result["methods"])}
    shapes: dict[tuple[str, ...], int] = {}
    lists: dict[str, int] = {}
    listed = []
    for (label, phase, configuration), row in rows.items():
        values = dict(sorted(row["hyperparameters"].items()))
        shape = shapes.setdefault(tuple(values), len(shapes))
        encoded = [
            [lists.setdefault(json.dumps(value), len(lists))] if isinstance(value, list | tuple | dict) else value
            for value in values.values()
        ]
        listed.append([labels[label], phase, configuration, row["seeds"], row["diverged"], shape, encoded])
    marks = styles(labels)
    stops = {
        (curve.label, curve.phase, curve.configuration): curve.rounds_done
        for curve in curves
        if curve.state == "STOPPED"
    }
    return {
        "study": result["study"],
        "labels": [
            {"name": label, "symbol": style.symbol, "dash": style.dash, "class": style.name}
            for label, style in marks.items()
        ],
        "shapes": list(shapes),
        "lists": [json.loads(text) for text in lists],
        "rows": listed,
        "lasts": _lasts(result, curves, rows),
        "stopped": {index: stops[key] for index, key in enumerate(rows) if key in stops},
        "inactive": {
            index: sorted(free)
            for index, (key, row) in enumerate(rows.items())
            if (free := inactive_values(result["methods"][key[0]], row["hyperparameters"]))
        },
        "copies": _copies(result),
    }


def _lasts(result: Json, curves: Sequence[TrialCurve], rows: Iterable[Key]) -> dict[int, int]:
    """Index of a row -> rounds of its whole trials, where configurations may differ in their rounds."""
    unit, amount = budget_of(result)
    if unit == "rounds":
        return {}
    lasts: dict[Key, int] = {}
    for curve in curves:
        key = (curve.label, curve.phase, curve.configuration)
        whole = curve.rounds_done if curve.state == "COMPLETE" else rounds_of(curve, unit, amount)
        lasts[key] = whole if curve.state == "COMPLETE" else lasts.get(key, whole)
    return {index: lasts[key] for index, key in enumerate(rows) if key in lasts}


_OF_SPACES = ("constraints", "start", "prior", "theory")
"""Keys of an entry that mean nothing without its search spaces."""


def _copies(result: Json) -> dict[str, Json] | None:
    """For each label a trial and a study without hyperparameters, to be filled in.

    None if the study is not known, or has a program.
    """
    if "specification" not in result or _program(result):
        return None
    study = Study.from_json(result["specification"])
    document = study.to_json()
    budget = document["budget"] | {"trials_per_method": 1, "confirm": 1}
    for name in ("searches", "branches"):
        budget.pop(name, None)
    copied: dict[str, Json] = {}
    for entry in document["methods"]:
        rounds = study.budget_of(study.entry(entry["label"])).rounds or 1  # otherwise each row has its own rounds
        trial = document_of(study, entry["label"], [{}], study.seed, rounds, phase="confirmation")
        del trial["members"]
        parts = {key: part | {"space": {}} if isinstance(part, dict) else part for key, part in entry.items()}
        parts = {key: part for key, part in parts.items() if key not in _OF_SPACES}
        copied[entry["label"]] = {
            "trial": trial,
            "study": document | {"methods": [parts | {"space": {}}], "budget": budget},
        }
    return copied


def reading_data(result: Json, rows: Mapping[Key, Json], keys: Sequence[Key]) -> dict[str, Any]:
    """The data of the page for one quality and one cost.

    Args:
        result: The document.
        rows: Its configurations.
        keys: The configurations of the page, in the order of its rows.

    Returns:
        ``"values"`` has ``[settles, ends, pareto, settles_low, settles_high, ends_low, ends_high]`` for each row, the
        last four only for several seeds, and nothing where there is no value. ``"frontiers"`` has for each label the
        columns of its frontier: cost, quality, low, high, row, round. ``"ends"`` has first and last cost of each
        row of the table "What to run", ``"wins"`` how often one label is better than another, ``"efforts"`` for each
        label ``[trials, area, low, high]``.
    """
    parameters = result["definitions"]["parameters"]
    number = {key: index for index, key in enumerate(keys)}
    most = min(MOST_COSTS, max(16, MOST_STEPS // max(1, len(result["methods"]))))
    return {
        "metric": parameters["metric"],
        "cost": parameters["cost"],
        "unit": unit(parameters["cost"]),
        "whole": cost_named(parameters["cost"]).whole,
        "rising": parameters["direction"] == "rises",
        "scale": quality_scale(result),
        "costTitle": cost_title(result),
        "qualityTitle": quality_title(result),
        "first": _exact(result["scale"]["first"]),
        "last": _exact(result["scale"]["last"]),
        "frontiers": [_frontier(label, method, number, most) for label, method in result["methods"].items()],
        "ends": [
            [[_exact(row.start), row.end_text] for row in recommendation_rows(result, label)]
            for label in result["methods"]
        ],
        "wins": _wins(result),
        "efforts": [_efforts(method) for method in result["methods"].values()],
        "theory": [_theory(method, most) for method in result["methods"].values()],
        "values": [_values(rows.get(key)) for key in keys],
        "predicted": [
            [number[key], _short(row["theory"]["settles"]), _short(row["theory"]["ends"])]
            for key, row in rows.items()
            if row.get("theory") and key in number
        ],
    }


def _values(row: Json | None) -> list[Any]:
    if row is None or "ends" not in row:
        return []
    numbers = [_short(row["settles"]), _short(row["ends"]), int(row.get("pareto", False))]
    if row["seeds"] > 1:
        numbers += [_short(row[key]) for key in ("settles_low", "settles_high", "ends_low", "ends_high")]
    return numbers


def _frontier(label: str, method: Json, number: Mapping[Key, int], most: int) -> dict[str, list[Any]]:
    frontier, recommended = method["frontier"], method["recommendations"]
    if not frontier:
        return {"cost": []}
    steps = [row["cost"] for row in frontier]
    changes = [row["cost"] for row in recommended]
    others = [row["cost"] for former, row in pairwise(recommended) if row["configuration"] != former["configuration"]]
    costs = _thin(steps, most, others)
    rows = [frontier[bisect_right(steps, cost) - 1] for cost in costs]
    columns = {name: [_short(row[name]) for row in rows] for name in rows[0] if name != "cost"}
    chosen = [recommended[at - 1] if (at := bisect_right(changes, cost)) else None for cost in costs]
    phase = method["reported"]["phase"]
    return columns | {
        "cost": [_exact(cost) for cost in costs],
        "row": [number.get((label, phase, row["configuration"]), -1) if row else -1 for row in chosen],
        "round": [row["round"] if row else 0 for row in chosen],
    }


def _wins(result: Json) -> dict[str, Json]:
    """How often each of two labels is better: where this changes, and then in how many seeds and searches.

    ``{"0,1": {"of": [seeds, searches], "rows": [[cost, seeds of 0, seeds of 1, searches of 0, searches of 1], ...]}}``;
    nothing for pairs without a common seed, or if there are more than `MOST_COMPARED` labels.
    """
    by_pair: dict[str, Json] = {}
    labels = list(result["methods"])
    for (i, a), (j, b) in combinations(enumerate(labels if len(labels) <= MOST_COMPARED else ()), 2):
        curves = [curve for label in (a, b) for curve in result["methods"][label]["cross_fitted"]]
        costs = sorted({cost for curve in curves for cost in curve["cost"]})
        pairs = list(zip(wins(result, a, b, costs), wins(result, b, a, costs), strict=True))
        if not pairs or not pairs[0][0].of_seeds:
            continue
        rows: list[list[float]] = []
        for cost, (one, other) in zip(costs, pairs, strict=True):
            counts = [one.seeds, other.seeds, one.searches, other.searches]
            if not rows or rows[-1][1:] != counts:
                rows.append([_exact(cost), *counts])
        by_pair[f"{i},{j}"] = {"of": [pairs[0][0].of_seeds, pairs[0][0].of_searches], "rows": rows}
    return by_pair


def _efforts(method: Json) -> list[list[float]]:
    rows = (method["efforts"] or {"rows": []})["rows"]
    return [[row["trials"], *(_short(row[name]) for name in ("area", "low", "high"))] for row in rows]


def _theory(method: Json, most: int) -> list[list[Any]]:
    rows = method.get("theory") or []
    costs = set(_thin([row["cost"] for row in rows], most))
    return [[_short(row["cost"]), _short(row["quality"])] for row in rows if row["cost"] in costs]


def _thin(costs: list[float], most: int, exact: Sequence[float] = ()) -> list[float]:
    """About `most` of the increasing costs, with the first, the last, each of `exact` and the cost before it."""
    if len(costs) <= most:
        return costs
    for finer in (8, 4, 2, 1):  # where costs are sparse, several places of a grid fall on one cost
        grid = np.searchsorted(costs, np.geomspace(costs[0], costs[-1], finer * most)[1:-1])
        kept = {0, *grid.tolist(), len(costs) - 1}
        if len(kept) <= most:
            break
    for at in np.searchsorted(costs, [cost for cost in exact if cost > costs[0]]).tolist():
        kept |= {at - 1, at}
    return [costs[at] for at in sorted(kept)]


def learning_curve(key: Key, curves: Sequence[TrialCurve], readings: Sequence[Json]) -> dict[str, Any]:
    """The learning curve of a configuration over its seeds, at no more than `MOST_ROUNDS` rounds.

    Args:
        key: Label, phase and number of the configuration.
        curves: Its trials.
        readings: Data of readings; the first one's evaluations are the rounds.

    Returns:
        Columns by name: each metric's median, ``.low`` and ``.high`` over seeds (smoothed), and each cost.
    """
    curve_columns: dict[str, list[Any]] = {}
    rounds: Array | None = None
    for reading in readings:
        runs = runs_of(key[2], curves, reading["metric"], reading["cost"])
        if runs is None or not len(runs.rounds):
            continue
        if rounds is None:
            rounds = np.array(_thin(runs.rounds.tolist(), MOST_ROUNDS))
        at = np.maximum(np.searchsorted(runs.rounds, rounds, side="right") - 1, 0)
        curve_columns[reading["cost"]] = [_short(value) for value in runs.cost.mean(axis=0)[at].tolist()]
        quality = runs.quality[:, at]
        columns = {"": np.median(quality, axis=0)}
        if len(quality) > 1:
            columns |= {".low": quality.min(axis=0), ".high": quality.max(axis=0)}
        for name, values in columns.items():
            curve_columns[reading["metric"] + name] = [_short(value) for value in values.tolist()]
    return curve_columns


def _short(value: float) -> float:
    """The value to seven digits; an int if it is whole."""
    rounded = float(f"{value:.7g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded


def _exact(cost: float) -> float:
    """The cost without rounding, because a budget may equal it; an int if it is whole."""
    return int(cost) if cost.is_integer() and abs(cost) < 2**53 else cost


def script_json(value: Any) -> str:
    """JSON that is safe inside a script element: no "<", which could end it."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
