"""RMSprop on the clients: gradients over the root of their running mean square.

    v <- client_beta2 v + (1 - client_beta2) g_k^2,   d_k = g_k / (sqrt(v) + client_epsilon)

v is 0 at the start of every round. client_beta2 in [0, 1): 0 is the sign of the gradient, where that is far above
client_epsilon. client_epsilon above 0; a large one is gradient descent with client_lr / client_epsilon. Without bias
correction the first directions are longer than one by up to 1 / sqrt(1 - client_beta2); `adam` with client_beta1 0
corrects for that.

Source: "Lecture 6.5 - rmsprop" (Tieleman, Hinton 2012).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.hyper import hyper


@dataclass(frozen=True)
class Hyper:
    """Settings of RMSprop."""

    client_beta2: Tensor = hyper(
        0.99, low=0, high=1, high_open=True, limit="0 is the sign", doc="decay of the mean of the squares"
    )
    client_epsilon: Tensor = hyper(1e-8, low=0, low_open=True, unit="gradient", doc="added to the root: adaptivity")


def init(hyper: Hyper, like: Tensor) -> dict[str, Tensor]:
    """The mean square before the first step.

    Args:
        hyper: traced fields (T, 1, 1).
        like: (T, M, P).
    """
    return {"square": torch.zeros_like(like)}


def direction_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: int) -> Tensor:
    """The direction of one step; changes the memory in place, and the gradient.

    Args:
        hyper: traced fields (T, 1, 1).
        memory: from `init`.
        gradient: (T, M, P).
        step: from 0.
    """
    squares = gradient.square()
    square = memory["square"].mul_(hyper.client_beta2).addcmul_(squares, 1 - hyper.client_beta2)
    return gradient.div_(square.sqrt().add_(hyper.client_epsilon))
