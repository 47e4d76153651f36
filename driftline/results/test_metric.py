"""The test metric of what is recommended by a validation metric: nothing was chosen by it, so it is not optimistic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from driftline.results.label_runs import LabelRuns
from driftline.results.runs import runs_of_all
from driftline.results.scale import Axis
from trainers import reporting


def with_test_metric(
    rows: Sequence[Mapping[str, Any]], label: LabelRuns, metric: str, cost: str, axis: Axis
) -> list[dict[str, Any]]:
    """Recommendations with "test" beside their quality, where the quality is a validation metric.

    Args:
        rows: The recommendations of a label.
        label: Its runs.
        metric: The metric of the quality.
        cost: The chosen cost.
        axis: The axis on which the mean over seeds is taken.
    """
    test = reporting(metric)
    if test is None:
        return [dict(row) for row in rows]
    numbers = sorted({row["configuration"] for row in rows})
    groups = [(number, [trial for trial in label.trials if trial.configuration == number]) for number in numbers]
    by_configuration = {runs.configuration: runs for runs in runs_of_all(groups, test, cost) if runs is not None}
    beside = []
    for row in rows:
        runs = by_configuration.get(row["configuration"])
        value = None
        if runs is not None and row["round"] >= runs.rounds[0]:
            seeds = runs.quality[:, np.searchsorted(runs.rounds, row["round"], side="right") - 1]
            value = float(axis.quality(axis.merit(seeds).mean()))
        beside.append({**row, "test": value})
    return beside
