"""Steps of torch's fused optimizers on the CPU: one pass over models, gradients and memory, one setting for all trials.

These are the functions that torch.optim.Adam, SGD and Adagrad call with fused=True. A step subtracts rate times the
direction from the models. Tensors are (T, M, P), client-major.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.sgd import sgd


def adam_step_(
    models: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    betas: tuple[float, float],
    epsilon: float,
    rate: float,
    step: float,
) -> None:
    """A step of Adam.

    Args:
        models: changed in place.
        gradient: of this step.
        mean: the mean of the gradients, changed in place.
        square: the mean of their squares, changed in place.
        betas: decays of both means.
        epsilon: added to the root.
        rate: multiplies the direction.
        step: from 0, for the bias correction; infinity leaves the correction out.
    """
    blocks = _blocks(models, gradient, mean, square)
    adam(
        blocks[0],
        blocks[1],
        blocks[2],
        blocks[3],
        [],
        _counts(blocks[0], step),
        fused=True,
        amsgrad=False,
        beta1=betas[0],
        beta2=betas[1],
        lr=rate,
        weight_decay=0.0,
        eps=epsilon,
        maximize=False,
    )


def rms_step_(models: Tensor, gradient: Tensor, square: Tensor, beta2: float, epsilon: float, rate: float) -> None:
    """A step of RMSprop: Adam without bias correction, whose mean with beta1 0 is the gradient itself."""
    adam_step_(models, gradient, gradient, square, (0.0, beta2), epsilon, rate, math.inf)


def momentum_step_(
    models: Tensor, gradient: Tensor, velocity: Tensor, momentum: float, rate: float, nesterov: bool = False
) -> None:
    """A step with momentum."""
    blocks = _blocks(models, gradient, velocity)
    sgd(
        blocks[0],
        blocks[1],
        list(blocks[2]),
        fused=True,
        weight_decay=0.0,
        momentum=momentum,
        lr=rate,
        dampening=0.0,
        nesterov=nesterov,
        maximize=False,
    )


def adagrad_step_(models: Tensor, gradient: Tensor, square: Tensor, epsilon: float, rate: float) -> None:
    """A step of Adagrad; `square` is the sum of the squares."""
    blocks = _blocks(models, gradient, square)
    adagrad(
        blocks[0],
        blocks[1],
        blocks[2],
        _counts(blocks[0], 0),
        fused=True,
        lr=rate,
        weight_decay=0.0,
        lr_decay=0.0,
        eps=epsilon,
        maximize=False,
    )


def _counts(blocks: list[Tensor], step: float) -> list[Tensor]:
    """The number of steps before this one, which torch advances in place."""
    return [torch.tensor(float(step)) for _ in blocks]


def _blocks(*tensors: Tensor) -> list[list[Tensor]]:
    """Contiguous parts of each tensor (T, M, P): all of it if possible, else client by client, else row by row."""
    parts = [[tensor.transpose(0, 1)] for tensor in tensors]
    while not all(part[0].is_contiguous() for part in parts):
        parts = [[block for whole in part for block in whole.unbind(0)] for part in parts]
    return parts
