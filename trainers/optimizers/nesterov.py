"""Nesterov's momentum, in the form whose iterate is the look-ahead model.

    v <- momentum v + g;   the direction is g + momentum v, and v is 0 at first

momentum in [0, 1): 0 is gradient descent. On clients v is 0 at the start of every round, the models are the look-ahead
iterates u of MaSS with compensation_lr 0 (the method `mass` keeps its sequences over the rounds), and the model that
comes back is the look-ahead of the last step. On the server it is `sgd` with momentum and nesterov.

Source: "A method for solving the convex programming problem with convergence rate O(1/k^2)" (Nesterov 1983), in the
form of "On the importance of initialization and momentum in deep learning" (Sutskever et al. 2013).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.hyperparameters import tunable

LINEAR = True


@dataclass(frozen=True)
class Hyper:
    """Settings of Nesterov's momentum."""

    momentum: Tensor = tunable(
        0.9, low=0, high=1, high_open=True, limit="0 is gradient descent", doc="weight of the old velocity"
    )


def init(hyper: Hyper, like: Tensor) -> dict[str, Tensor]:
    """The velocity before the first step."""
    return {"velocity": torch.zeros_like(like)}


def direction_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: Any) -> Tensor:
    """The gradient and a share of the new velocity."""
    velocity = memory["velocity"].mul_(hyper.momentum).add_(gradient)
    return gradient.addcmul_(velocity, hyper.momentum)
