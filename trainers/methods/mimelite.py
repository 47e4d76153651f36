"""MimeLite: clients take the momentum steps of centralized SGD, with a momentum that only the server updates.

    y_1 = x,   d_k = (1 - momentum) grad f_i(y_k; batch k) + momentum m,   y_{k+1} = y_k - client_lr d_k,   k = 1 .. K
    m <- (1 - momentum) c + momentum m,   c = mean over the cohort of grad f_i(x)
    q = mean over the cohort of d_1 + ... + d_K;   the server optimizer steps along q with server_lr

m is initially 0, and the same for all clients during a round. gradient_source is the data of grad f_i(x): "full" (as in
the paper) is all data of a client, which counts as the mini-batches of one pass; "batch" is its first batch, which
counts as one. With server_lr equal to client_lr and plain SGD on the server this is the paper's algorithm. weight_decay
is a part of f_i; clip_norm bounds d_k.
Exchanges: one a round, the model and m down, a pseudo-gradient and grad f_i(x) up. The server stores m, clients
nothing.

Source: "Mime: Mimicking Centralized Stochastic Algorithms in Federated Learning" (Karimireddy, Jaggi, Kale, Mohri,
Reddi, Stich, Suresh 2020), algorithm 1 with SGDm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.work import LocalSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ROLES = {"client": "none: its local steps apply the server's momentum"}
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True, "also": [0.0]},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_steps": {"choice": [1, 2, 4, 8, 16, 32]},
    "momentum": {"float": [0.0, 0.99], "log": True, "complement": True},
}
INACTIVE = {"client_lr": ({"local_steps": 1},)}


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of MimeLite."""

    client_lr: Tensor = tunable(low=0, limit="0 is large-batch SGD with momentum", doc="step size of the clients")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", doc="gradients a round")
    momentum: Tensor = tunable(0.9, low=0, high=1, high_open=True, limit="0 is FedAvg", doc="share of m in every step")
    gradient_source: str = tunable(
        "full", choices=("full", "batch"), traced=False, doc="data of the gradients at x that move m"
    )


def init(hyper: Hyper, params: Tensor) -> dict[str, Tensor]:
    """Server memory before the first round: a momentum of 0."""
    return {"momentum": torch.zeros_like(params)}


def round_gradients(values: Mapping[str, Any]) -> RoundGradients:
    """Gradients of the local steps, and the gradient at x."""
    return RoundGradients(per_step=1).and_at(values["gradient_source"])


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    x, old_momentum = state.params, state.memory["momentum"]
    work = hyper.work(gradient_scale=1 - hyper.momentum, correction=hyper.momentum * old_momentum)
    done = cohort.local(x, work, down=[old_momentum], up=2)
    full = hyper.gradient_source == "full"
    mean = cohort.mean(cohort.own_gradients(x, weight_decay=hyper.weight_decay, full=full))
    momentum = (1 - hyper.momentum) * mean + hyper.momentum * old_momentum
    return state.step(cohort.mean(done)).remember(momentum=momentum)
