"""Nesterov's momentum on the clients, in the form whose iterate is the look-ahead model.

    v <- client_momentum v + g_k,   d_k = g_k + client_momentum v;   v is 0 at the start of every round

client_momentum in [0, 1): 0 is gradient descent. The models are the look-ahead iterates u of MaSS with compensation_lr
0: the method `mass` keeps its sequences over the rounds, here every round begins afresh. The model that comes back is
the look-ahead of the last step.

Source: "A method for solving the convex programming problem with convergence rate O(1/k^2)" (Nesterov 1983), in the
form of "On the importance of initialization and momentum in deep learning" (Sutskever et al. 2013).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.hyper import hyper


@dataclass(frozen=True)
class Hyper:
    """Settings of Nesterov's momentum."""

    client_momentum: Tensor = hyper(
        0.9, low=0, high=1, high_open=True, limit="0 is gradient descent", doc="weight of the old velocity"
    )


def init(hyper: Hyper, like: Tensor) -> dict[str, Tensor]:
    """The velocity before the first step.

    Args:
        hyper: traced fields (T, 1, 1).
        like: (T, M, P).
    """
    return {"velocity": torch.zeros_like(like)}


def direction_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: int) -> Tensor:
    """The direction of one step; changes the memory in place, and may the gradient.

    Args:
        hyper: traced fields (T, 1, 1).
        memory: from `init`.
        gradient: (T, M, P).
        step: from 0.
    """
    velocity = memory["velocity"].mul_(hyper.client_momentum).add_(gradient)
    return gradient.addcmul_(velocity, hyper.client_momentum)
