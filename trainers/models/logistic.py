"""Logistic regression of each tag: scores affine in the inputs, and the sum of the tags' sigmoid cross-entropies.

Parameters: "weight" (tags, inputs + 1), with the bias of a tag in the last column; initially all 0. Bags of words with
10,000 words and 500 tags are Stack Overflow's tag prediction in "Adaptive Federated Optimization" (Reddi and others
2021), whose reported figure is recall at 5.
"""

from __future__ import annotations

import numpy as np
import torch

from trainers.models._affine import Affine
from trainers.models._losses import SigmoidCrossEntropy
from trainers.problem import Examples, Problem

TARGETS = "tags"
FIXED_START = True


def build(problem: Problem, dtype: torch.dtype, device: torch.device) -> Affine:
    """The model of a problem with tags as targets, (rows, tags)."""
    train, test = problem.train, problem.test
    if not isinstance(train, Examples):
        raise TypeError(f"logistic regression must get Examples, got {type(train).__name__}")
    targets = train.targets.astype(np.bool_, copy=False)
    test_targets = None if test is None else test.targets.astype(np.bool_, copy=False)
    return Affine(problem, SigmoidCrossEntropy(), targets.shape[1], targets, test_targets, False, dtype, device)
