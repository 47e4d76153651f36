"""Linear regression: half the squared error of scores affine in the inputs.

Parameters: "weight" (outputs, inputs + 1), with the bias of an output in the last column; initially all 0.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from trainers.models._affine import Affine
from trainers.models._losses import HalfSquares
from trainers.problem import Examples, Problem

TARGETS = "numbers"
FIXED_START = True


def build(problem: Problem, dtype: torch.dtype, device: torch.device) -> Affine:
    """The model of a problem with numbers as targets, (rows,) or (rows, outputs)."""
    train, test = problem.train, problem.test
    if not isinstance(train, Examples):
        raise TypeError(f"linear regression must get Examples, got {type(train).__name__}")
    targets = _columns(train.targets)
    test_targets = None if test is None else _columns(test.targets)
    return Affine(problem, HalfSquares(), targets.shape[1], targets, test_targets, False, dtype, device)


def _columns(targets: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(targets, dtype=np.float64).reshape(len(targets), -1)
