"""Softmax regression: scores affine in the inputs, and cross-entropy.

Parameters: "weight" (classes, inputs + 1), with the bias of a class in the last column; initially all 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainers.errors import SpecError
from trainers.models._affine import Affine
from trainers.problem import Examples, Problem
from trainers.trial.sizes import MOST_NUMBERS

__all__ = ["CrossEntropy"]

FIXED_START = True
_FEW_CLASSES = 16


class CrossEntropy:
    """log sum exp(scores) - score of the class; targets are 1 for the class and 0 elsewhere."""

    def losses(self, scores: Tensor, wanted: Tensor, axis: int = -2) -> Tensor:
        """The losses, without the axis of the outputs."""
        return -(torch.log_softmax(scores, axis) * wanted).sum(axis)

    def slopes_(self, scores: Tensor, wanted: Tensor, axis: int = -2) -> Tensor:
        """Derivatives with respect to the scores; may overwrite the scores."""
        return _shares(scores, axis).sub_(wanted)

    def bend(self, scores: Tensor, along: Tensor) -> Tensor:
        """Second derivatives times a change of the scores."""
        shares = torch.softmax(scores, -2)
        return shares * (along - (shares * along).sum(-2, keepdim=True))


def build(problem: Problem, dtype: torch.dtype, device: torch.device) -> Affine:
    """The model of a problem with class numbers as targets; model_settings may contain the number of `classes`."""
    train, test = problem.train, problem.test
    if not isinstance(train, Examples):
        raise TypeError(f"softmax regression must get Examples, got {type(train).__name__}")
    classes = int(problem.model_settings.get("classes") or train.targets.max() + 1)
    rows = len(train.targets) + (0 if test is None else len(test.targets))
    if rows * classes > MOST_NUMBERS:
        raise SpecError(
            f"task.classes must be smaller: examples x classes must be at most {MOST_NUMBERS}, got {rows} x {classes}",
            "task.classes",
        )
    test_classes = None if test is None else test.targets
    return Affine(problem, CrossEntropy(), classes, train.targets, test_classes, True, dtype, device)


def _shares(scores: Tensor, axis: int) -> Tensor:
    """The softmax of scores; torch is up to 9 times as slow with few outputs in the last axis as with a copy."""
    if axis == -1 and scores.shape[-1] < _FEW_CLASSES:
        return torch.softmax(scores.movedim(-1, 0), 0).movedim(0, -1)
    return torch.softmax(scores, axis)
