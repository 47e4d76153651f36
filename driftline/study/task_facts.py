"""What the plug-ins of a task's document say of themselves, read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers import Task
from trainers.registry import models, tasks


def model_of(task: Mapping[str, Any]) -> Any:
    """Name of the model of a task's document."""
    model = task.get("model", tasks().constant(task.get("name"), "MODEL", Task.MODEL))
    return model.get("name") if isinstance(model, Mapping) else model


def default_quality(task: Mapping[str, Any]) -> str:
    """The metric that a study of this task compares, unless it names another.

    Examples:
        >>> default_quality({"name": "digits"}), default_quality({"name": "quadratic"})
        ('test_accuracy', 'excess_loss')
        >>> default_quality({"name": "npz", "model": "linear"})
        'test_loss'
    """
    quality: str = tasks().constant(task.get("name"), "QUALITY", Task.QUALITY)
    regression = models().constant(model_of(task), "TARGETS") == "numbers"
    return "test_loss" if regression and quality == Task.QUALITY else quality
