"""Adagrad on the server: steps scaled by the root of the sum of all squares so far (FedAdagrad with FedAvg).

With q the mean pseudo-gradient and all operations elementwise:

    m <- beta1 m + (1 - beta1) q
    v <- v + q^2
    x <- x - server_lr m / (sqrt(v) + epsilon)

m starts at 0 and v at initial_accumulator. beta1 in [0, 1): 0 is Adagrad itself. epsilon above 0, initial_accumulator
at least 0; a large one is plain SGD with server_lr / sqrt(initial_accumulator). A sum has no bias to correct.

Source: "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization" (Duchi, Hazan, Singer 2011); on
the server of federated learning "Adaptive Federated Optimization" (Reddi et al. 2021).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.hyper import hyper


@dataclass(frozen=True)
class Hyper:
    """Settings of Adagrad."""

    beta1: Tensor = hyper(0.0, low=0, high=1, high_open=True, limit="0 is Adagrad", doc="decay of the mean of q")
    epsilon: Tensor = hyper(1e-5, low=0, low_open=True, unit="pseudo-gradient", doc="added to the root: adaptivity")
    initial_accumulator: Tensor = hyper(0.0, low=0, unit="pseudo-gradient^2", doc="v before the first round")


def init(hyper: Hyper, params: Tensor) -> dict[str, Tensor]:
    """The mean and the sum of squares before the first round.

    Args:
        hyper: traced fields (T, 1, 1).
        params: (T, 1, P).
    """
    return {"mean": torch.zeros_like(params), "square": torch.zeros_like(params) + hyper.initial_accumulator}


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
    square = state["square"] + pseudo_gradient**2
    return params - server_lr * mean / (square.sqrt() + hyper.epsilon), {"mean": mean, "square": square}
