"""Gradient descent on the clients: the direction of a step is the gradient itself.

    d_k = g_k

Source: "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al. 2017).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Hyper:
    """Plain gradient descent has nothing to set."""


def init(hyper: Hyper, like: Tensor) -> dict[str, Tensor]:
    """Nothing to remember.

    Args:
        hyper: nothing.
        like: (T, M, P).
    """
    return {}


def direction_(hyper: Hyper, memory: dict[str, Tensor], gradient: Tensor, step: int) -> Tensor:
    """The gradient.

    Args:
        hyper: nothing.
        memory: nothing.
        gradient: (T, M, P).
        step: from 0.
    """
    return gradient
