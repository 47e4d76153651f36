"""Stochastic gradient descent, with heavy-ball or Nesterov momentum on the server.

With g the gradient (on the server the mean pseudo-gradient) and v the velocity, initially 0, the direction is

    v <- momentum v + g
    heavy ball:  v
    Nesterov:    g + momentum v

momentum 0 is plain descent along g. In Nesterov's form the model is the look-ahead iterate, which the clients receive
and whose losses are reported. On clients `sgd` is plain; use `momentum` or `nesterov` for the other forms.

Source: "Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), table 2;
on clients "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al. 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.hyperparameters import tunable

LINEAR = True
CLOSED_FORM = "heavy_ball"
ABSENT = {"client": ("momentum", "nesterov")}  # the local loop takes plain steps without an optimizer
SPACE = {"momentum": {"float": [0.0, 0.99], "log": True, "complement": True}}
INACTIVE = {"nesterov": ({"momentum": 0},)}


@dataclass(frozen=True)
class Hyper:
    """Settings of SGD."""

    momentum: Tensor = tunable(
        0.0, low=0, high=1, high_open=True, limit="0 is plain SGD", doc="weight of the old velocity"
    )
    nesterov: bool = tunable(False, traced=False, limit="false is heavy ball", doc="momentum in Nesterov's form")


def init(hyper: Hyper, like: Tensor) -> dict[str, Tensor]:
    return {"velocity": torch.zeros_like(like)}


def direction_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: Any) -> Tensor:
    velocity = memory["velocity"].mul_(hyper.momentum).add_(gradient)
    return gradient.add_(hyper.momentum * velocity) if hyper.nesterov else velocity
