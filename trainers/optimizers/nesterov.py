"""Nesterov's momentum, in the form whose iterate is the look-ahead model.

    v <- momentum v + g;   the direction is g + momentum v;   v is initially 0

momentum 0 is gradient descent. On clients v is 0 at each reset. The clients' models are the look-ahead iterates u of
MaSS with compensation_lr 0 (but the method `mass` keeps its sequences between rounds), and clients return the
look-ahead model of the last step. On the server this is `sgd` with momentum and nesterov.

Source: "A method for solving the convex programming problem with convergence rate O(1/k^2)" (Nesterov 1983), in the
form of "On the importance of initialization and momentum in deep learning" (Sutskever et al. 2013).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.fused_steps import momentum_step_
from trainers.hyperparameters import tunable

LINEAR = True
SPACE = {"momentum": {"float": [0.0, 0.99], "log": True, "complement": True}}
CLOSED_FORM = "nesterov"


@dataclass(frozen=True)
class Hyper:
    """Settings of Nesterov's momentum."""

    momentum: Tensor = tunable(
        0.9, low=0, high=1, high_open=True, limit="0 is gradient descent", doc="weight of the old velocity"
    )


def init(hyper: Hyper, like: Tensor) -> dict[str, Tensor]:
    return {"velocity": torch.zeros_like(like)}


def direction_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: Any) -> Tensor:
    velocity = memory["velocity"].mul_(hyper.momentum).add_(gradient)
    return gradient.addcmul_(velocity, hyper.momentum)


def descend_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: int, models: Tensor, rate: float) -> None:
    momentum_step_(models, gradient, memory["velocity"], float(hyper.momentum), rate, nesterov=True)
