"""MimeLite: clients take the momentum steps of centralized SGD, with a momentum that the server alone moves.

    y_1 = x,   d_k = (1 - momentum) grad f_i(y_k; batch k) + momentum m,   y_{k+1} = y_k - client_lr d_k,   k = 1 .. K
    m <- (1 - momentum) c + momentum m,   c = mean over the cohort of grad f_i(x)
    q = mean over the cohort of d_1 + ... + d_K;   the server optimizer steps along q with server_lr

m is 0 at first, and the same for all clients during a round. gradient_source says on what grad f_i(x) is taken: "full"
(the paper's) is all data of a client and counts as the mini-batches of one pass over them, "batch" is its first batch,
which counts as one. momentum in [0, 1): 0 is FedAvg. server_lr above 0: equal to client_lr with plain SGD on the server
it is the paper's algorithm. client_lr at least 0: 0 is large-batch SGD with momentum. local_steps at least 1, or
local_epochs. weight_decay at least 0: 0 is none; it is a part of f_i. clip_norm above 0 bounds d_k.
Exchanges: one a round, the model and m down, a pseudo-gradient and grad f_i(x) up. The server stores m, clients
nothing.

Source: "Mime: Mimicking Centralized Stochastic Algorithms in Federated Learning" (Karimireddy, Jaggi, Kale, Mohri,
Reddi, Stich, Suresh 2020), algorithm 1 with SGDm.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.engine.local.client_optimizer import Clipped
from trainers.engine.local.loop import LocalWork
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ROLES = {"client": "none: its local steps apply the server's momentum"}


@dataclass(frozen=True)
class Hyper(Clipped):
    """Hyperparameters of MimeLite."""

    client_lr: Tensor = tunable(low=0, limit="0 is large-batch SGD with momentum", doc="step size of the clients")
    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the mean pseudo-gradient")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", doc="gradients a round")
    momentum: Tensor = tunable(0.9, low=0, high=1, high_open=True, limit="0 is FedAvg", doc="share of m in every step")
    gradient_source: str = tunable(
        "full", choices=("full", "batch"), traced=False, doc="data of the gradients at x that move m"
    )
    local_epochs: int | None = tunable(
        None, low=1, unit="passes over a client's data", traced=False, doc="instead of local_steps"
    )
    weight_decay: Tensor = tunable(0.0, low=0, limit="0 is none", doc="L2, added to every local gradient")


def init(hyper: Hyper, params: Tensor) -> dict[str, Tensor]:
    """What the server remembers before the first round: no momentum.

    Args:
        hyper: traced fields (T, 1, 1).
        params: (T, 1, P).
    """
    return {"momentum": torch.zeros_like(params)}


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """The state after one round.

    Args:
        hyper: traced fields (T, 1, 1).
        state: before the round.
        cohort: the clients of the round.
    """
    held = state.memory["momentum"]
    fresh = 1 - hyper.momentum
    # Steps along (1 - momentum) g + momentum m are steps along g + momentum / (1 - momentum) m at a smaller rate.
    work = LocalWork(
        fresh * hyper.client_lr,
        hyper.local_steps,
        correction=hyper.momentum / fresh * held,
        local_epochs=hyper.local_epochs,
        weight_decay=hyper.weight_decay,
        clip_norm=None if hyper.clip_norm is None else hyper.clip_norm / fresh,
    )
    done = cohort.local(state.params, work, down=[held], up=2)
    gradients = cohort.own_gradients(state.params, full=hyper.gradient_source == "full")
    gradient = cohort.mean(gradients) + hyper.weight_decay * state.params
    state = state.step(fresh * cohort.mean(done.pseudo_gradient))
    return state.remember(momentum=fresh * gradient + hyper.momentum * held)
