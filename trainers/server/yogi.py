"""Yogi on the server: as Adam, but the running square changes by at most a share of the new one (FedYogi with FedAvg).

With q the mean pseudo-gradient, all operations elementwise, and t counting rounds from 1:

    m <- beta1 m + (1 - beta1) q
    v <- v + (1 - beta2) sign(q^2 - v) q^2
    x <- x - rate m / (sqrt(v) + epsilon)
    with bias_correction   rate = server_lr sqrt(1 - beta2^t) / (1 - beta1^t);   without   rate = server_lr

m starts at 0 and v at initial_accumulator. beta1 and beta2 in [0, 1), epsilon above 0, initial_accumulator at least 0.
beta2 = 0 from 0 on is the sign of q in the first round, as with Adam; a large epsilon is plain SGD with
server_lr / epsilon. Without bias_correction it is the form of its own paper; with it that of common libraries, and the
default here. The correction acts on the rate, so epsilon is not scaled by it as in Adam.

Source: "Adaptive Methods for Nonconvex Optimization" (Zaheer et al. 2018), with the settings of
"On the Outsized Importance of Learning Rates in Local Update Methods" (Charles, Konecny 2020), section 8.4.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.hyper import hyper


@dataclass(frozen=True)
class Hyper:
    """Settings of Yogi."""

    beta1: Tensor = hyper(0.9, low=0, high=1, high_open=True, limit="0 is no momentum", doc="decay of the mean of q")
    beta2: Tensor = hyper(0.99, low=0, high=1, high_open=True, doc="1 - beta2 is the largest share by which v moves")
    epsilon: Tensor = hyper(1e-5, low=0, low_open=True, unit="pseudo-gradient", doc="added to the root: adaptivity")
    initial_accumulator: Tensor = hyper(0.0, low=0, unit="pseudo-gradient^2", doc="v before the first round")
    bias_correction: bool = hyper(True, traced=False, limit="false is Yogi's own paper", doc="corrects server_lr")


def init(hyper: Hyper, params: Tensor) -> dict[str, Tensor]:
    """The mean, the running square and the number of steps, before the first round.

    Args:
        hyper: traced fields (T, 1, 1).
        params: (T, 1, P).
    """
    return {
        "mean": torch.zeros_like(params),
        "square": torch.zeros_like(params) + hyper.initial_accumulator,
        "steps": torch.zeros_like(params[..., :1], dtype=torch.int64),
    }


def step(
    hyper: Hyper, state: dict[str, Tensor], params: Tensor, pseudo_gradient: Tensor, server_lr: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """One server update; inputs stay as they are.

    Args:
        hyper: traced fields (T, 1, 1).
        state: from `init` or `step`.
        params: (T, 1, P).
        pseudo_gradient: (T, 1, P), the mean over the cohort.
        server_lr: (T, 1, 1).

    Returns:
        The new model and the new state.
    """
    new = pseudo_gradient**2
    mean = hyper.beta1 * state["mean"] + (1 - hyper.beta1) * pseudo_gradient
    square = state["square"] + (1 - hyper.beta2) * (new - state["square"]).sign() * new
    steps = state["steps"] + 1
    rate = server_lr
    if hyper.bias_correction:
        rate = rate * (1 - hyper.beta2**steps).sqrt() / (1 - hyper.beta1**steps)
    return params - rate * mean / (square.sqrt() + hyper.epsilon), {"mean": mean, "square": square, "steps": steps}
