"""Adam on the clients, with bias correction.

    m <- client_beta1 m + (1 - client_beta1) g_k,   v <- client_beta2 v + (1 - client_beta2) g_k^2
    d_k = (m / (1 - client_beta1^k)) / (sqrt(v / (1 - client_beta2^k)) + client_epsilon),   k = 1 .. local_steps

m and v are 0 at the start of every round. client_beta1 and client_beta2 in [0, 1), client_epsilon above 0. The first
direction of a round is the sign of the gradient, where that is far above client_epsilon; with a large client_epsilon
and client_beta1 0 it is gradient descent with client_lr / client_epsilon. weight_decay is added to the gradients: that
of `adamw` is not.

Source: "Adam: A Method for Stochastic Optimization" (Kingma, Ba 2015).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.client import _adam
from trainers.hyper import hyper


@dataclass(frozen=True)
class Hyper:
    """Settings of Adam."""

    client_beta1: Tensor = hyper(
        0.9, low=0, high=1, high_open=True, limit="0 is no momentum", doc="decay of the mean of the gradients"
    )
    client_beta2: Tensor = hyper(
        0.999, low=0, high=1, high_open=True, limit="0 is |g| alone", doc="decay of the mean of their squares"
    )
    client_epsilon: Tensor = hyper(1e-8, low=0, low_open=True, unit="gradient", doc="added to the root: adaptivity")


def init(hyper: Hyper, like: Tensor) -> dict[str, Tensor]:
    """Both means before the first step.

    Args:
        hyper: traced fields (T, 1, 1).
        like: (T, M, P).
    """
    return _adam.init(hyper, like)


def direction_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: int) -> Tensor:
    """The direction of one step; changes the memory in place, and the gradient.

    Args:
        hyper: traced fields (T, 1, 1).
        memory: from `init`.
        gradient: (T, M, P).
        step: from 0.
    """
    return _adam.direction_(hyper, memory, gradient, step)
