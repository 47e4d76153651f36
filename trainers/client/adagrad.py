"""Adagrad on the clients: each coordinate's steps shrink with the squares of its gradients so far.

    v <- v + g_k^2,   d_k = g_k / (sqrt(v) + client_epsilon);   v is 0 at the start of every round

client_epsilon above 0; a large one is gradient descent with client_lr / client_epsilon. The first direction of a round
is the sign of the gradient, where that is far above client_epsilon.

Source: "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization" (Duchi, Hazan, Singer 2011).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.hyper import hyper


@dataclass(frozen=True)
class Hyper:
    """Settings of Adagrad."""

    client_epsilon: Tensor = hyper(1e-10, low=0, low_open=True, unit="gradient", doc="added to the root: adaptivity")


def init(hyper: Hyper, like: Tensor) -> dict[str, Tensor]:
    """The sum of squares before the first step.

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
    root = memory["square"].addcmul_(gradient, gradient).sqrt()
    return gradient.div_(root.add_(hyper.client_epsilon))
