"""Adam: the running mean of the gradient over the root of the running mean of its square (on the server: FedAdam).

With g the gradient (on the server the mean pseudo-gradient), all operations elementwise, and t counting steps from 1:

    m <- beta1 m + (1 - beta1) g,   v <- beta2 v + (1 - beta2) g^2;   the direction is m' / (sqrt(v') + epsilon)
    with bias_correction   m' = m / (1 - beta1^t),  v' = v / (1 - beta2^t);   without   m' = m,  v' = v

m starts at 0 and v at initial_accumulator, on clients at each reset. FedAdam has no bias_correction, starts v at
epsilon^2 and steps along the mean change of the models (`preset: fedadam`). With bias_correction the first direction is
the sign of g for |g| far above epsilon; a large epsilon with beta1 0 is gradient descent with rate / epsilon. On
clients weight_decay is a part of g, unlike with `adamw`. The server's defaults are those of Yogi in "On the Outsized
Importance of Learning Rates in Local Update Methods" (Charles, Konecny 2020), section 8.4, so that Adam and Yogi differ
in the update of v only. The clients' defaults are those of the Adam paper.

Source: "Adam: A Method for Stochastic Optimization" (Kingma, Ba 2015); on the server of federated learning
"Adaptive Federated Optimization" (Reddi et al. 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.first_square import complete, first_square
from trainers.fused_steps import adam_step_
from trainers.hyperparameters import tunable

__all__ = ["complete"]
DEFAULTS = {"client": {"beta2": 0.999, "epsilon": 1e-8}}
SPACE = {
    "beta1": {"float": [0.0, 0.99], "log": True, "complement": True},
    "epsilon": {"float": [1e-5, 0.1], "log": True},
}
SPACES = {"client": {"epsilon": {"float": [1e-8, 1e-3], "log": True}}}
INACTIVE = {"initial_accumulator": ({"beta2": 0},)}


@dataclass(frozen=True)
class Hyper:
    """Settings of Adam."""

    beta1: Tensor = tunable(0.9, low=0, high=1, high_open=True, limit="0 is no momentum", doc="decay of the mean of g")
    beta2: Tensor = tunable(0.99, low=0, high=1, high_open=True, limit="0 is |g| alone", doc="decay of the mean of g^2")
    epsilon: Tensor = tunable(1e-5, low=0, low_open=True, unit="gradient", doc="added to the root: adaptivity")
    initial_accumulator: Tensor | None = tunable(
        0.0, kind="float", low=0, unit="gradient^2", limit="0 is Adam", doc="v before the first step; null is epsilon^2"
    )
    bias_correction: bool = tunable(True, traced=False, doc="correct the bias of both means towards their start")


def init(hyper: Hyper, like: Tensor) -> dict[str, Tensor]:
    return {"mean": torch.zeros_like(like), "square": first_square(hyper, like)}


def direction_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: Any) -> Tensor:
    mean = memory["mean"].mul_(hyper.beta1).addcmul_(gradient, 1 - hyper.beta1)
    square = memory["square"].mul_(hyper.beta2).addcmul_(gradient.square_(), 1 - hyper.beta2)
    if not hyper.bias_correction:
        return mean / square.sqrt().add_(hyper.epsilon)
    root = (square / (1 - hyper.beta2 ** (step + 1))).sqrt_()
    corrected: Tensor = mean / (1 - hyper.beta1 ** (step + 1))
    return corrected.div_(root.add_(hyper.epsilon))


def descend_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: int, models: Tensor, rate: float) -> None:
    betas = float(hyper.beta1), float(hyper.beta2)
    count = step if hyper.bias_correction else math.inf
    adam_step_(models, gradient, memory["mean"], memory["square"], betas, float(hyper.epsilon), rate, count)
