"""Mime: MimeLite with local gradients corrected by the cohort's mean gradient, without stored control variates.

    g_i = grad f_i(x),   c = mean over the cohort of g_i,   y_1 = x
    d_k = (1 - momentum) (grad f_i(y_k; batch k) - grad f_i(x; batch k) + c) + momentum m
    y_{k+1} = y_k - client_lr d_k,   k = 1 .. local_steps
    m <- (1 - momentum) c + momentum m
    q = mean over the cohort of d_1 + ... + d_K;   the server optimizer steps along q with server_lr

m is initially 0, and the same for all clients during a round. gradient_source is the data of g_i: "full" (as in the
paper) is all data of a client, which counts as the mini-batches of one pass; "batch" is its first batch, which counts
as one. Each corrected local gradient counts as two. momentum 0 with full batches is SCAFFOLD with fresh variates. On
quadratics the limit is the minimizer of the mean loss. With server_lr equal to client_lr and plain SGD on the server
this is the paper's algorithm. weight_decay is a part of f_i; clip_norm bounds d_k.
Exchanges: two a round, the model down and g_i up, then c and m down and a pseudo-gradient up. The server stores m,
clients nothing.

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
    """Hyperparameters of Mime."""

    client_lr: Tensor = tunable(low=0, limit="0 is gradient descent with momentum", doc="step size of the clients")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", doc="corrected gradients a round")
    momentum: Tensor = tunable(
        0.9, low=0, high=1, high_open=True, limit="0 is SVRG on the clients", doc="share of m in every step"
    )
    gradient_source: str = tunable("full", choices=("full", "batch"), traced=False, doc="data of the gradients g_i")


def init(hyper: Hyper, params: Tensor) -> dict[str, Tensor]:
    """Server memory before the first round: a momentum of 0."""
    return {"momentum": torch.zeros_like(params)}


def round_gradients(values: Mapping[str, Any]) -> RoundGradients:
    """Two gradients in every local step, and the gradient at x."""
    return RoundGradients(per_step=2).and_at(values["gradient_source"])


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    x, old_momentum = state.params, state.memory["momentum"]
    full = hyper.gradient_source == "full"
    mean = cohort.mean(cohort.gradients(x, weight_decay=hyper.weight_decay, full=full))
    momentum = (1 - hyper.momentum) * mean + hyper.momentum * old_momentum
    # d_k = (1 - momentum) (g_k - g_k(x) + c) + momentum m = (1 - momentum) (g_k - g_k(x)) + the next m
    work = hyper.work(gradient_scale=1 - hyper.momentum, anchor=x, correction=momentum)
    done = cohort.local(x, work, down=[mean, old_momentum])
    return state.step(cohort.mean(done)).remember(momentum=momentum)
