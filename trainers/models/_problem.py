"""What a model reads of its problem: examples, numbers of outputs, shapes of images, settings."""

from __future__ import annotations

from typing import Any, TypeVar

from trainers.errors import SpecError
from trainers.hyperparameters import check, describe
from trainers.models._targets import targets_of
from trainers.problem import Examples, Problem

_CHANNELS = (1, 2, 3, 4)  # numbers of channels that images may have

SettingsT = TypeVar("SettingsT")


def examples_of(problem: Problem) -> Examples:
    """The clients' examples of a problem; TypeError if it has none."""
    if not isinstance(problem.train, Examples):
        raise TypeError(f"a network must get Examples, got {type(problem.train).__name__}")
    return problem.train


def outputs_of(problem: Problem) -> int:
    """Numbers that a module must return for an example, or for a position: classes, tokens, or numbers to predict.

    The number of classes is as given by the task, else the largest class plus one.
    """
    return targets_of(problem, examples_of(problem)).outputs


def image_shape(problem: Problem, model: str) -> tuple[int, int, int]:
    """(channels, height, width) of the images of a problem.

    Args:
        problem: a problem with Examples.
        model: name of the model, for the error.

    Raises:
        SpecError: the inputs are not images.
    """
    shape = examples_of(problem).inputs.shape[1:]
    came = f"got inputs (examples, {', '.join(map(str, shape))})"
    rule = f"task.model: {model} must get images (examples, channels, height, width), {came}"
    if len(shape) == 2:
        advice = f"reshape images of one channel to (examples, 1, {shape[0]}, {shape[1]}), or use mlp or softmax"
        raise SpecError(f"{rule}: {advice}", "task.model")
    if len(shape) != 3:
        raise SpecError(f"{rule}: use mlp or softmax", "task.model")
    if shape[2] in _CHANNELS and min(shape[:2]) > max(_CHANNELS):
        raise SpecError(f"{rule}, channels last: save x.transpose(0, 3, 1, 2)", "task.model")
    return (int(shape[0]), int(shape[1]), int(shape[2]))


def settings_from(cls: type[SettingsT], problem: Problem) -> SettingsT:
    """The settings of a model in a problem, with defaults filled in.

    Args:
        cls: Settings of the model's module.
        problem: a problem whose model_settings include them.
    """
    kind: type = cls
    names = {item.name for item in describe(kind)}
    settings: dict[str, Any] = {name: value for name, value in problem.model_settings.items() if name in names}
    return cls(**check(cls, settings, "task.model"))
