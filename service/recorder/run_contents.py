"""What MLflow shows of a study and of its labels."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import numpy as np

from driftline.results.curves import TrialCurve, unit
from driftline.results.document import Reading
from driftline.results.runs import ENDED, axis_of_runs, runs_of
from driftline.results.show.number_text import banded, hyperparameters_text
from driftline.results.show.recommendation_rows import final, recommendation_rows
from driftline.results.study_result import StudyResult
from driftline.results.targets import costs_to_targets
from driftline.wire.records import StudyRecord, TrialRecord
from service.recorder.chart_view import FRONTIER, final_metric
from service.recorder.curve_rows import metric_name
from service.recorder.tracking import Dataset, Row

STUDY_TAG = "driftline.study"
FRONTIER_POINTS = 128  # per frontier: MLflow draws a few hundred at most
_DIGEST = 16  # MLflow takes at most 36 characters


def frontier_rows(method: dict[str, Any], reading: Reading) -> list[Row]:
    """The metrics of a label's run.

    ``frontier`` has the cost as its step (seconds in milliseconds), rounded up, so that a step pays for what is shown
    there; ``frontier_low`` and ``frontier_high`` are its band over seeds. MLflow joins points by straight lines;
    therefore each quality is repeated one step before the next. The single numbers are ``area``, ``diverged``, and
    ``final_METRIC``, where the frontier ends.

    Args:
        method: The label's part of the result.
        reading: The metrics of quality and cost.
    """
    frontier = [method["frontier"][index] for index in _picked(len(method["frontier"]))]
    by_step = {math.ceil(row["cost"] * (1000 if reading.cost == "seconds" else 1)): row for row in frontier}
    rows: list[Row] = []
    for (step, row), following in zip(by_step.items(), [*by_step, 0][1:], strict=True):
        for at in (step, following - 1) if following - 1 > step else (step,):
            rows += [(name, row[key], at) for name, key in zip(FRONTIER, ("quality", "low", "high"), strict=True)]
    single = {"diverged": method["diverged"]}
    last = final(method)
    if last is not None:
        single |= {"area": method["area"], final_metric(reading.quality): last["quality"]}
    return rows + [(name, float(value), 0) for name, value in single.items()]


def trial_rows(curve: TrialCurve, reading: Reading) -> list[Row]:
    """The metrics by which trials are sorted, with step 0.

    ``final_METRIC`` of a complete trial, ``diverged`` (1 or 0), ``COST_to_TARGET`` for the targets that it reached, and
    ``on_frontier``, 0 until a result says otherwise.

    Args:
        curve: A trial that has ended and did not fail.
        reading: The metrics of quality and cost.
    """
    single = {"diverged": float(curve.state == "DIVERGED"), "on_frontier": 0.0}
    runs = runs_of(curve.configuration, [curve], reading.quality, reading.cost) if curve.state in ENDED else None
    if runs is not None and len(runs.rounds):
        if curve.state == "COMPLETE":
            single[final_metric(reading.quality)] = float(runs.quality[0, -1])
        reached = costs_to_targets(runs, axis_of_runs(reading.quality, [runs]))
        single |= {f"{reading.cost}_to_{target:g}": cost for target, cost in reached.items()}
    return [(name, value, 0) for name, value in single.items()]


def shared_target(result: StudyResult) -> list[str]:
    """The hardest ``COST_to_TARGET`` that at least half of the trials reached, alone in a list; [] if there is none."""
    names = [name for curve in result.curves for name, _, _ in trial_rows(curve, result.reading)]
    reached = Counter(name for name in names if name.startswith(f"{result.reading.cost}_to_"))
    shared = [name for name, count in reached.items() if 2 * count >= len(result.curves)]
    return sorted(shared, key=lambda name: reached[name])[:1]


def frontier_trials(result: StudyResult) -> set[str]:
    """Ids of the ended trials whose configuration is recommended for some cost."""
    methods = result.document["methods"]
    recommended = {
        (label, row["configuration"]) for label, method in methods.items() for row in method["recommendations"]
    }
    return {
        curve.trial
        for curve in result.curves
        if curve.state in ENDED and (curve.label, curve.configuration) in recommended
    }


def study_key(study: StudyRecord) -> str:
    """The key of the study's run. An extended study gets another run: parameters of a run cannot change."""
    return f"study/{study.fingerprint}"


def study_params(study: StudyRecord) -> dict[str, str]:
    """Parameters of the study's run: what does not change while it runs."""
    spec, objective, budget = study.study, study.study.objective, study.study.budget
    shown = {
        "study": study.id,
        **({"task": spec.task} if spec.program is None else {"program": spec.program.command}),
        "labels": ", ".join(spec.labels),
        "quality": objective.quality,
        "cost": objective.cost,
        "trials_per_method": budget.trials_per_method,
        budget.unit: budget.amount,
        "seeds": budget.seeds,
        "confirm": budget.confirm,
        "searches": budget.searches,
    }
    return {name: _text(value) for name, value in shown.items()}


def milliseconds(moment: datetime) -> int:
    """The time as MLflow has it."""
    return int(moment.timestamp() * 1000)


def trial_params(trial: TrialRecord) -> dict[str, str]:
    """Parameters of a trial's run: its hyperparameters (numbers in full precision), label and seed."""
    values = {metric_name(name): value for name, value in trial.hyperparameters.items()}
    return {name: _text(value) for name, value in (values | {"label": trial.label, "seed": trial.seed}).items()}


def trial_tags(study: StudyRecord, trial: TrialRecord) -> dict[str, str]:
    """Tags of a trial's run that never change."""
    return {
        STUDY_TAG: study.id,
        "driftline.label": trial.label,
        "driftline.method": study.study.entry(trial.label).name,
        "driftline.phase": trial.phase,
        "driftline.configuration": str(trial.configuration),
    }


def label_params(study: StudyRecord, result: StudyResult, label: str) -> dict[str, str]:
    """Parameters of a label's run: method, optimizers and schedule, and what to run.

    The hyperparameters are those that are recommended for the largest cost, with ``configuration`` and
    ``stop_at_round``; ``up to 24 rounds`` says the same in words, for every row of the result's table.
    """
    entry = study.study.entry(label)
    params: dict[str, Any] = {"label": label, "method": entry.name}
    params |= {kind: part.name for kind, part in entry.parts().items()}
    reading = result.reading
    rows = [row for row in recommendation_rows(result.document, label) if row.configuration]
    for row in rows:
        chosen = row.configuration or {}
        params[f"up to {row.end_text} {unit(reading.cost)}"] = (
            f"{reading.quality} {banded(*row.quality)}: stop at round {row.stop}, "
            f"{hyperparameters_text(chosen['hyperparameters'], row.inactive)}"
        )
    if rows:
        chosen = rows[-1].configuration or {}
        params |= chosen["hyperparameters"]
        params |= {"configuration": chosen["configuration"], "stop_at_round": rows[-1].stop}
    return {metric_name(name): _text(value) for name, value in params.items()}


def dataset(study: StudyRecord) -> Dataset | None:
    """What a study trains on: the settings of its task, without the model. The tag `seed` is the study's.

    None for a study of a program: only the program knows its data.
    """
    if study.study.program is not None:
        return None
    settings = {name: value for name, value in study.study.task.items() if name != "model"}
    profile = json.dumps(settings, sort_keys=True)
    tags = {name: _text(settings[name]) for name in ("partition", "split_seed") if name in settings}
    digest = hashlib.sha256(profile.encode()).hexdigest()[:_DIGEST]
    return Dataset(str(settings["name"]), digest, profile, tags | {"seed": _text(study.study.seed)})


def note(result: StudyResult, study: StudyRecord, links: Mapping[str, str]) -> str:
    """The description of the study: links, and its table.

    Args:
        result: Its result.
        study: The study.
        links: Text to address of the pages that belong to it.
    """
    linked = " · ".join(f"[{text}]({address})" for text, address in links.items())
    return (
        f"{linked} · {study.state.lower()}\n\n```\n{result.table()}\n```\n\n"
        "Curves have about 64 rounds per metric here; Driftline keeps all rounds.\n"
    )


def _picked(count: int) -> list[int]:
    """Indices of at most `FRONTIER_POINTS` of this many rows, including the first and the last."""
    if count <= FRONTIER_POINTS:
        return list(range(count))
    return [int(index) for index in np.unique(np.round(np.linspace(0, count - 1, FRONTIER_POINTS)))]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
