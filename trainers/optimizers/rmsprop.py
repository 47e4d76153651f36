"""RMSprop: gradients divided by the root of their running mean square.

    v <- beta2 v + (1 - beta2) g^2;   the direction is g / (sqrt(v) + epsilon)

v is initially 0, on clients at each reset. beta2 0 is the sign of g for |g| far above epsilon; a large epsilon is
gradient descent with rate / epsilon. Since there is no bias correction, elements of the first directions can be as
large as 1 / sqrt(1 - beta2); `adam` with beta1 0 corrects this bias.

Source: "Lecture 6.5 - rmsprop" (Tieleman, Hinton 2012).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.fused_steps import rms_step_
from trainers.hyperparameters import tunable

DEFAULTS = {"client": {"epsilon": 1e-8}}
SPACE = {
    "beta2": {"float": [0.9, 0.999], "log": True, "complement": True},
    "epsilon": {"float": [1e-5, 0.1], "log": True},
}
SPACES = {"client": {"epsilon": {"float": [1e-8, 1e-3], "log": True}}}


@dataclass(frozen=True)
class Hyper:
    """Settings of RMSprop."""

    beta2: Tensor = tunable(
        0.99, low=0, high=1, high_open=True, limit="0 is the sign", doc="decay of the mean of the squares"
    )
    epsilon: Tensor = tunable(1e-5, low=0, low_open=True, unit="gradient", doc="added to the root: adaptivity")


def init(hyper: Hyper, like: Tensor) -> dict[str, Tensor]:
    return {"square": torch.zeros_like(like)}


def direction_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: Any) -> Tensor:
    squares = gradient.square()
    square = memory["square"].mul_(hyper.beta2).addcmul_(squares, 1 - hyper.beta2)
    return gradient.div_(torch.sqrt(square, out=squares).add_(hyper.epsilon))


def descend_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: int, models: Tensor, rate: float) -> None:
    rms_step_(models, gradient, memory["square"], float(hyper.beta2), float(hyper.epsilon), rate)
