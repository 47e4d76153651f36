"""Stochastic gradient descent on the server, with heavy-ball or Nesterov momentum.

With q the mean pseudo-gradient and v the buffer, 0 at first:

    v <- momentum v + q
    heavy ball:  x <- x - server_lr v
    Nesterov:    x <- x - server_lr (q + momentum v)

momentum 0 is plain SGD, x <- x - server_lr q. In Nesterov's form x is the look-ahead iterate: it is what the clients
receive and what losses are reported of.

Source: "Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), table 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.hyper import hyper


@dataclass(frozen=True)
class Hyper:
    """Settings of the server's SGD."""

    momentum: Tensor = hyper(0.0, low=0, high=1, high_open=True, limit="0 is plain SGD", doc="weight of the old buffer")
    nesterov: bool = hyper(False, traced=False, limit="false is heavy ball", doc="momentum in Nesterov's form")


def init(hyper: Hyper, params: Tensor) -> dict[str, Tensor]:
    """The buffer before the first round.

    Args:
        hyper: momentum (T, 1, 1).
        params: (T, 1, P).
    """
    return {"velocity": torch.zeros_like(params)}


def step(
    hyper: Hyper, state: dict[str, Tensor], params: Tensor, pseudo_gradient: Tensor, server_lr: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """One server update; inputs stay as they are.

    Args:
        hyper: momentum (T, 1, 1).
        state: from `init` or `step`.
        params: (T, 1, P).
        pseudo_gradient: (T, 1, P), the mean over the cohort.
        server_lr: (T, 1, 1).

    Returns:
        The new model and the new state.
    """
    velocity = hyper.momentum * state["velocity"] + pseudo_gradient
    direction = pseudo_gradient + hyper.momentum * velocity if hyper.nesterov else velocity
    return params - server_lr * direction, {"velocity": velocity}
