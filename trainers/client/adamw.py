"""Adam on the clients with weight decay of its own, beside the gradients.

    d_k = (Adam's direction of g_k) + weight_decay y_k

The pull to 0 is not in g_k, so it is neither averaged, nor scaled, nor clipped. weight_decay 0 is `adam`, whose
settings it has; both means are 0 at the start of every round.

Source: "Decoupled Weight Decay Regularization" (Loshchilov, Hutter 2019).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.client import _adam
from trainers.hyper import hyper

DECOUPLED = True  # weight_decay is added to the directions, not to the gradients


@dataclass(frozen=True)
class Hyper:
    """Settings of AdamW."""

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
