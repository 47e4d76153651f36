"""Muon: orthogonalized momentum for the hidden matrices of a model, and AdamW for all other parameters.

For each hidden matrix W (A x B; a kernel is A x everything else), with its gradient G and momentum M, initially 0:

    M <- momentum M + G,   N = G + momentum M,   O = about U V' for the singular value decomposition N = U S V'
    the direction is 0.2 sqrt(max(A, B)) O plus weight_decay W

O is five steps of the quintic Newton-Schulz iteration X <- a X + (b X X' + c (X X')^2) X from N / |N|, with (a, b, c) =
(3.4445, -4.7750, 2.0315), in the trial's dtype. The factor gives the direction the size of AdamW's, so that one rate
and one weight_decay serve both. Hidden matrices are all tensors of two or more dimensions except embeddings, the first
layer and the output layer. A model without them, such as softmax, has AdamW alone. beta1, beta2, epsilon,
initial_accumulator and bias_correction are those of AdamW, and weight_decay is decoupled in both.

Source: "Muon: An Optimizer for Hidden Layers in Neural Networks" (Jordan et al. 2024), with the factor and the weight
decay of "Muon is Scalable for LLM Training" (Liu et al. 2025), equation 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from trainers.hyperparameters import tunable
from trainers.optimizers import adamw
from trainers.optimizers.adamw import DECOUPLED, DEFAULTS, complete, direction_, init

__all__ = ["DECOUPLED", "DEFAULTS", "Hyper", "complete", "direction_", "init"]
ABSENT = {"client": ("weight_decay",)}  # clients use the method's
INACTIVE = {"initial_accumulator": ({"beta2": 0},)}
SPACE = {
    "momentum": {"float": [0.8, 0.98], "log": True, "complement": True},
    "weight_decay": {"float": [1e-4, 0.3], "log": True, "also": [0.0]},
}
_QUINTIC = (3.4445, -4.7750, 2.0315)
_STEPS = 5
_LEAST = 1e-7  # added to the norm of a matrix
_SIZE = 0.2  # of AdamW's directions


@dataclass(frozen=True)
class Hyper(adamw.Hyper):
    """Settings of Muon."""

    momentum: Tensor = tunable(0.95, low=0, high=1, high_open=True, limit="0 is none", doc="of the hidden matrices")


def matrix_direction_(
    hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: Any, matrices: Sequence[tuple[slice, int]]
) -> Tensor:
    copies = [(gradient[..., span].clone(), memory["mean"][..., span].clone()) for span, _ in matrices]
    direction: Tensor = direction_(hyper, memory, gradient, step)
    for (span, rows), (matrix_gradient, velocity) in zip(matrices, copies, strict=True):
        velocity.mul_(hyper.momentum).add_(matrix_gradient)
        memory["mean"][..., span] = velocity
        ahead = matrix_gradient.addcmul_(velocity, hyper.momentum).view(*matrix_gradient.shape[:-1], rows, -1)
        size = _SIZE * math.sqrt(max(ahead.shape[-2:]))
        direction[..., span] = size * _orthogonal(ahead).flatten(-2)
    return direction


def _orthogonal(matrix: Tensor) -> Tensor:
    """Approximately U V' of matrices (..., A, B)."""
    a, b, c = _QUINTIC
    tall = matrix.shape[-2] > matrix.shape[-1]
    x: Tensor = matrix.mT if tall else matrix
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + _LEAST)
    for _ in range(_STEPS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x
