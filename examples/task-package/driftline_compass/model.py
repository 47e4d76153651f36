"""Softmax regression with smoothed labels: the class counts 1 - smoothing, and all classes share the rest.

    "model": {"name": "smoothed_softmax", "smoothing": 0.1}

Parameters: as of softmax regression. Losses, those on test examples too, are cross-entropies with smoothed labels.

Source: "Rethinking the Inception Architecture for Computer Vision" (Szegedy and others 2016), section 7.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from trainers.plugin import Affine, CrossEntropy, Examples, Problem, tunable

TARGETS = "classes"  # or "numbers"
FIXED_START = True  # parameters start from the same numbers, whatever the seed


@dataclass(frozen=True)
class Settings:
    """What a document may say of the model besides its name."""

    smoothing: float = tunable(0.1, low=0, high=1, high_open=True, limit="0 is softmax", doc="what all classes share")


def build(problem: Problem, dtype: torch.dtype, device: torch.device) -> Affine:
    """The model of a problem with class numbers as targets."""
    classes, smoothing = problem.model_settings["classes"], problem.model_settings["smoothing"]
    assert isinstance(problem.train, Examples)

    def wanted(data: Examples) -> NDArray[np.float64]:
        return np.asarray((1 - smoothing) * np.eye(classes)[data.targets] + smoothing / classes)

    test = None if problem.test is None else wanted(problem.test)
    return Affine(problem, CrossEntropy(), classes, wanted(problem.train), test, True, dtype, device)
