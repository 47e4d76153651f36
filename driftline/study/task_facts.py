"""Facts that the plug-ins of a task's document declare, read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainers import Task, located, validating
from trainers.registry import model_named, models, tasks


def model_of(task: Mapping[str, Any]) -> Any:
    """Name of the model of a task's document."""
    return model_named(task.get("model", tasks().constant(task.get("name"), "MODEL", Task.MODEL)))


def pinned(task: Any, folder: Path) -> Any:
    """The task, with the path and the digest of its model's module if this is a user's file; otherwise unchanged.

    The study then means the same code from any folder, and cannot continue with other code.

    Args:
        task: A task's document, not checked yet.
        folder: Where a relative path begins: the folder of the study's file.
    """
    model = task.get("model") if isinstance(task, Mapping) else None
    if not isinstance(model, Mapping) or "module" not in model:
        return task
    where, sha256 = located(model["module"], folder)
    return task if sha256 is None else {**task, "model": {"sha256": sha256, **model, "module": where}}


def default_quality(task: Mapping[str, Any]) -> str:
    """The metric that a study of this task compares, unless it names another.

    Examples:
        >>> default_quality({"name": "digits"}), default_quality({"name": "quadratic"})
        ('test_accuracy', 'excess_loss')
        >>> default_quality({"name": "npz", "model": "linear"})
        'test_loss'
        >>> default_quality({"name": "digits", "validation": 0.2})
        'validation_accuracy'
    """
    quality: str = tasks().constant(task.get("name"), "QUALITY", Task.QUALITY)
    learns = models().constant(model_of(task), "TARGETS")
    others = {"numbers", "tags", "tokens", "pairs"} & {task.get("kind"), learns if isinstance(learns, str) else None}
    quality = "test_loss" if others and quality == Task.QUALITY else quality
    return quality if task.get("validation") is None else validating(quality)
