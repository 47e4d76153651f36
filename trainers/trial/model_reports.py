"""Which tasks can have the reports of models on held-out examples (`trainers.target_kinds.REPORTS`)."""

from __future__ import annotations

from collections.abc import Sequence

from trainers.problem import TaskSettings
from trainers.registry import models
from trainers.target_kinds import KINDS, REPORTS, is_per_client, measure_of, validating
from trainers.trial import sizes


def lacking(report: str, task: TaskSettings, metrics: Sequence[str]) -> str | None:
    """What a task needs for a report on test examples and does not have; None if it has everything.

    Args:
        report: name of the report.
        task: settings of the task.
        metrics: the task's metrics.
    """
    measure, model = measure_of(report), getattr(task, "model", None)
    kind = sizes.kind_of(task) if isinstance(model, str) and model in models() else None
    on_demand = [name for name in KINDS if measure in KINDS[name].on_demand]
    need = "test_accuracy" if on_demand else f"test_{measure}"
    clients = is_per_client(report)
    if need not in metrics or (on_demand and kind not in on_demand) or (clients and len(task.test or ()) < 2):
        return f"a task with {need}" + (" and at least two test clients" if clients else "")
    if measure == "auc" and (classes := getattr(task, "outputs", 2)) != 2:
        return f"a task with two classes, got {classes}"
    return None


def added(report: str, task: TaskSettings) -> tuple[str, ...]:
    """The metrics that a report adds on test examples, and on validation examples if the task has some.

    Metrics over clients need at least two clients with validation examples.

    Args:
        report: name of a report of `REPORTS`.
        task: settings of the task.
    """
    metrics, validation = REPORTS[report], getattr(task, "validation", None)
    if validation is None or (is_per_client(report) and len(validation) < 2):
        return metrics
    return (*map(validating, metrics), *metrics)
