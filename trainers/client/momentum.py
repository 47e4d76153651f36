"""Heavy-ball momentum on the clients.

    v <- client_momentum v + g_k,   d_k = v;   v is 0 at the start of every round

client_momentum in [0, 1): 0 is gradient descent. With one local step it is gradient descent, whatever the momentum.

Source: "Some methods of speeding up the convergence of iteration methods" (Polyak 1964).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.hyper import hyper


@dataclass(frozen=True)
class Hyper:
    """Settings of heavy-ball momentum."""

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
    return memory["velocity"].mul_(hyper.client_momentum).add_(gradient)
