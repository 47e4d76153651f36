"""Yogi: Adam, but the running square changes by at most a share of the new square (on the server of FedAvg: FedYogi).

With g the gradient (on the server the mean pseudo-gradient), all operations elementwise, and t counting steps from 1:

    m <- beta1 m + (1 - beta1) g,   v <- v + (1 - beta2) sign(g^2 - v) g^2
    the direction is factor m / (sqrt(v) + epsilon)
    with bias_correction   factor = sqrt(1 - beta2^t) / (1 - beta1^t);   without   factor = 1

m starts at 0 and v at initial_accumulator, on clients at each reset. With beta2 0 and initial_accumulator 0 the first
direction is the sign of g, as with Adam; a large epsilon is plain SGD with rate / epsilon. Without bias_correction this
is the form of the Yogi paper; with it, the default here, that of common libraries. The correction acts on the rate, so
it does not scale epsilon as in Adam. The clients' beta2 and epsilon are those of the paper.

Source: "Adaptive Methods for Nonconvex Optimization" (Zaheer et al. 2018), on the server with the settings of
"On the Outsized Importance of Learning Rates in Local Update Methods" (Charles, Konecny 2020), section 8.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.first_square import complete, first_square
from trainers.hyperparameters import tunable

__all__ = ["complete"]
DEFAULTS = {"client": {"beta2": 0.999, "epsilon": 1e-3}}
SPACE = {
    "beta1": {"float": [0.0, 0.99], "log": True, "complement": True},
    "epsilon": {"float": [1e-5, 0.1], "log": True},
}
SPACES = {"client": {"epsilon": {"float": [1e-8, 1e-3], "log": True}}}


@dataclass(frozen=True)
class Hyper:
    """Settings of Yogi."""

    beta1: Tensor = tunable(0.9, low=0, high=1, high_open=True, limit="0 is no momentum", doc="decay of the mean of g")
    beta2: Tensor = tunable(0.99, low=0, high=1, high_open=True, doc="1 - beta2 is the largest share by which v moves")
    epsilon: Tensor = tunable(1e-5, low=0, low_open=True, unit="gradient", doc="added to the root: adaptivity")
    initial_accumulator: Tensor | None = tunable(
        0.0, kind="float", low=0, unit="gradient^2", doc="v before the first step; null is epsilon^2"
    )
    bias_correction: bool = tunable(True, traced=False, limit="false is Yogi's own paper", doc="corrects the rate")


def init(hyper: Hyper, like: Tensor) -> dict[str, Tensor]:
    return {"mean": torch.zeros_like(like), "square": first_square(hyper, like)}


def direction_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: Any) -> Tensor:
    mean, square = memory["mean"].mul_(hyper.beta1).addcmul_(gradient, 1 - hyper.beta1), memory["square"]
    new = gradient.square_()
    square.addcmul_((new - square).sign_().mul_(new), 1 - hyper.beta2)
    root = square.sqrt().add_(hyper.epsilon)
    if not hyper.bias_correction:
        return mean / root
    factor: Tensor = (1 - hyper.beta2 ** (step + 1)).sqrt() / (1 - hyper.beta1 ** (step + 1))
    return (mean * factor).div_(root)
