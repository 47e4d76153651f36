"""Softmax regression: scores affine in the inputs, and cross-entropy.

Parameters: "weight" (classes, inputs + 1), with the bias of a class in the last column; initially all 0.
"""

from __future__ import annotations

import torch

from trainers.errors import SpecError
from trainers.models._affine import Affine
from trainers.models._losses import CrossEntropy
from trainers.problem import Examples, Problem
from trainers.trial.sizes import MOST_NUMBERS

FIXED_START = True


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
