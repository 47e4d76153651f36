"""Heavy-ball momentum.

    v <- momentum v + g;   the direction is v;   v is initially 0

momentum 0 is gradient descent. On clients v is 0 at each reset, so with state reset one local step is gradient descent
for any momentum. On the server this is `sgd` with momentum.

Source: "Some methods of speeding up the convergence of iteration methods" (Polyak 1964).
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
INACTIVE = {"momentum": ({"local_steps": 1},)}
CLOSED_FORM = "heavy_ball"


@dataclass(frozen=True)
class Hyper:
    """Settings of heavy-ball momentum."""

    momentum: Tensor = tunable(
        0.9, low=0, high=1, high_open=True, limit="0 is gradient descent", doc="weight of the old velocity"
    )


def init(hyper: Hyper, like: Tensor) -> dict[str, Tensor]:
    return {"velocity": torch.zeros_like(like)}


def direction_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: Any) -> Tensor:
    return memory["velocity"].mul_(hyper.momentum).add_(gradient)


def descend_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: int, models: Tensor, rate: float) -> None:
    velocity = memory["velocity"]
    if gradient is velocity:
        models.sub_(velocity, alpha=rate)
    else:
        momentum_step_(models, gradient, velocity, float(hyper.momentum), rate)


def accumulator_(hyper: Hyper, memory: dict[str, Tensor]) -> Tensor:
    return memory["velocity"].mul_(hyper.momentum)
