"""Adagrad: steps divided by the root of the sum of all squared gradients so far (on the server of FedAvg: FedAdagrad).

With g the gradient (on the server the mean pseudo-gradient) and all operations elementwise:

    m <- beta1 m + (1 - beta1) g,   v <- v + g^2;   the direction is m / (sqrt(v) + epsilon)

m starts at 0 and v at initial_accumulator, on clients at each reset. beta1 0 is Adagrad itself, and null keeps no
mean. A large initial_accumulator is plain SGD with rate / sqrt(initial_accumulator), a large epsilon plain SGD with
rate / epsilon. A sum needs no bias correction. With initial_accumulator 0 the first direction is the sign of g for |g|
far above epsilon.

Source: "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization" (Duchi, Hazan, Singer 2011); on
the server of federated learning "Adaptive Federated Optimization" (Reddi et al. 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.first_square import complete, first_square
from trainers.fused_steps import adagrad_step_
from trainers.hyperparameters import tunable

__all__ = ["complete"]
DEFAULTS = {"client": {"beta1": None, "epsilon": 1e-10}}
SPACE = {"epsilon": {"float": [1e-5, 0.1], "log": True}}
SPACES = {"client": {"epsilon": {"float": [1e-10, 1e-3], "log": True}}}


@dataclass(frozen=True)
class Hyper:
    """Settings of Adagrad."""

    beta1: Tensor | None = tunable(
        0.0,
        kind="float",
        low=0,
        high=1,
        high_open=True,
        none_is=0.0,
        limit="0 and null are Adagrad",
        doc="decay of the mean of g",
    )
    epsilon: Tensor = tunable(1e-5, low=0, low_open=True, unit="gradient", doc="added to the root: adaptivity")
    initial_accumulator: Tensor | None = tunable(
        0.0, kind="float", low=0, unit="gradient^2", doc="v before the first step; null is epsilon^2"
    )


def init(hyper: Hyper, like: Tensor) -> dict[str, Tensor]:
    square = {"square": first_square(hyper, like)}
    return square if hyper.beta1 is None else {"mean": torch.zeros_like(like), **square}


def direction_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: Any) -> Tensor:
    root = memory["square"].addcmul_(gradient, gradient).sqrt().add_(hyper.epsilon)
    if hyper.beta1 is None:
        return gradient.div_(root)
    return memory["mean"].mul_(hyper.beta1).addcmul_(gradient, 1 - hyper.beta1) / root


def descend_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: int, models: Tensor, rate: float) -> None:
    if hyper.beta1 is None:
        adagrad_step_(models, gradient, memory["square"], float(hyper.epsilon), rate)
    else:
        models.sub_(direction_(hyper, memory, gradient, step), alpha=rate)
