"""Adam on the server: steps scaled by running means of the pseudo-gradient and of its square (FedAdam with FedAvg).

With q the mean pseudo-gradient, all operations elementwise, and t counting rounds from 1:

    m <- beta1 m + (1 - beta1) q
    v <- beta2 v + (1 - beta2) q^2
    x <- x - server_lr m' / (sqrt(v') + epsilon)
    with bias_correction   m' = m / (1 - beta1^t),  v' = v / (1 - beta2^t);   without   m' = m,  v' = v

m starts at 0 and v at initial_accumulator. beta1 and beta2 in [0, 1), epsilon above 0, initial_accumulator at least 0.
beta1 = beta2 = 0 with a small epsilon is the sign of q; a large epsilon is plain SGD with server_lr / epsilon. The
defaults are those of Yogi in "On the Outsized Importance of Learning Rates in Local Update Methods" (Charles, Konecny
2020), section 8.4, so that the two differ in one line only.

Source: "Adam: A Method for Stochastic Optimization" (Kingma, Ba 2015); on the server of federated learning
"Adaptive Federated Optimization" (Reddi et al. 2021).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.hyper import hyper


@dataclass(frozen=True)
class Hyper:
    """Settings of Adam."""

    beta1: Tensor = hyper(0.9, low=0, high=1, high_open=True, limit="0 is no momentum", doc="decay of the mean of q")
    beta2: Tensor = hyper(0.99, low=0, high=1, high_open=True, limit="0 is |q| alone", doc="decay of the mean of q^2")
    epsilon: Tensor = hyper(1e-5, low=0, low_open=True, unit="pseudo-gradient", doc="added to the root: adaptivity")
    initial_accumulator: Tensor = hyper(
        0.0, low=0, unit="pseudo-gradient^2", limit="0 is Adam", doc="v before the first round"
    )
    bias_correction: bool = hyper(True, traced=False, doc="undo the pull of both means to where they start")


def init(hyper: Hyper, params: Tensor) -> dict[str, Tensor]:
    """Both means and the number of steps, before the first round.

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
    mean = hyper.beta1 * state["mean"] + (1 - hyper.beta1) * pseudo_gradient
    square = hyper.beta2 * state["square"] + (1 - hyper.beta2) * pseudo_gradient**2
    steps = state["steps"] + 1
    root, rate = square.sqrt(), server_lr
    if hyper.bias_correction:
        root = root / (1 - hyper.beta2**steps).sqrt()
        rate = rate / (1 - hyper.beta1**steps)
    return params - rate * mean / (root + hyper.epsilon), {"mean": mean, "square": square, "steps": steps}
