"""What MLflow shows of a study and of its labels."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from driftline.results.document import Reading
from driftline.results.show.recommendation_rows import final
from driftline.results.study_result import StudyResult
from driftline.wire.records import StudyRecord, TrialRecord
from service.recorder.curve_rows import metric_name
from service.recorder.tracking import Row

FRONTIER_POINTS = 128  # per frontier: MLflow draws a few hundred at most


def frontier_rows(method: dict[str, Any], reading: Reading) -> list[Row]:
    """The metrics of a label's run.

    ``frontier`` has the cost as its step (seconds in milliseconds), ``frontier_low`` and ``frontier_high`` are its band
    over seeds; the single numbers are ``area``, ``diverged``, and ``final_METRIC``, where the frontier ends.

    Args:
        method: The label's part of the result.
        reading: The metrics of quality and cost.
    """
    rows: list[Row] = []
    frontier = method["frontier"]
    for index in _picked(len(frontier)):
        row = frontier[index]
        step = round(row["cost"] * (1000 if reading.cost == "seconds" else 1))
        rows += [("frontier", row["quality"], step)]
        rows += [("frontier_low", row["low"], step), ("frontier_high", row["high"], step)]
    single = {"diverged": method["diverged"]}
    last = final(method)
    if last is not None:
        single |= {"area": method["area"], metric_name(f"final_{reading.quality}"): last["quality"]}
    return rows + [(name, float(value), 0) for name, value in single.items()]


def study_key(study: StudyRecord) -> str:
    """The key of the study's run. An extended study gets another run: parameters of a run cannot change."""
    return f"study/{study.fingerprint}"


def study_params(study: StudyRecord) -> dict[str, str]:
    """Parameters of the study's run: what does not change while it runs."""
    spec, objective, budget = study.study, study.study.objective, study.study.budget
    shown = {
        "study": study.id,
        "task": spec.task,
        "labels": ", ".join(spec.labels),
        "quality": objective.quality,
        "cost": objective.cost,
        "trials_per_method": budget.trials_per_method,
        "rounds": budget.rounds,
        "seeds": budget.seeds,
        "confirm": budget.confirm,
        "searches": budget.searches,
    }
    return {name: _text(value) for name, value in shown.items()}


def trial_params(trial: TrialRecord) -> dict[str, str]:
    """Parameters of a trial's run: its hyperparameters (numbers in full precision), label and seed."""
    values = {metric_name(name): value for name, value in trial.hyperparameters.items()}
    return {name: _text(value) for name, value in (values | {"label": trial.label, "seed": trial.seed}).items()}


def label_params(study: StudyRecord, label: str) -> dict[str, str]:
    """Parameters of a label's run: method, optimizers and schedule."""
    entry = study.study.entry(label)
    return {"label": label, "method": entry.name} | {kind: part.name for kind, part in entry.parts().items()}


def note(result: StudyResult, study: StudyRecord) -> str:
    """The description beside the study's run: its table, and where the rest is."""
    return (
        f"State: {study.state}. The frontier with its definitions: artifact `frontier.html` of run `{study.name}`; all "
        "trials: `trials.csv`. Curves have about 64 rounds per metric here; Driftline keeps all rounds.\n\n"
        f"```\n{result.table()}\n```\n"
    )


def _picked(count: int) -> list[int]:
    """Indices of at most `FRONTIER_POINTS` of this many rows, including the first and the last."""
    if count <= FRONTIER_POINTS:
        return list(range(count))
    return [int(index) for index in np.unique(np.round(np.linspace(0, count - 1, FRONTIER_POINTS)))]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
