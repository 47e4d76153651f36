"""How clients are weighted in a trial: the default, which is the task's, and what a task does not allow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers.errors import SpecError
from trainers.problem import Task, TaskSettings

CHOICES = ("uniform", "examples")


def default(task: TaskSettings, module: Task) -> str:
    """The task's weighting, the same for all methods; uniform if it has client weights or no countable examples."""
    return "uniform" if task.examples is None or _own_weights(task) else module.WEIGHTING


def _own_weights(task: TaskSettings) -> bool:
    """Whether the task brings weights of the clients."""
    return getattr(task, "client_weights", None) is not None


def check(values: Mapping[str, Any], task: TaskSettings) -> None:
    """Raises a SpecError if a trial weights by examples where the task has none, or has weights of its own.

    Args:
        values: weighting and training_weighting of the trial.
        task: the task.
    """
    for key in ("weighting", "training_weighting"):
        if values[key] != "examples":
            continue
        if task.examples is None:
            raise SpecError(
                f'{key} must be uniform for a task without countable examples, got {key}="examples": '
                "give task.client_weights instead",
                key,
            )
        if _own_weights(task):
            raise SpecError(
                f'{key} must be uniform for a task with weights of its own, got {key}="examples": '
                "leave out task.client_weights, or give other ones",
                key,
            )
