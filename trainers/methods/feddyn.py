"""FedDyn: a linear and a proximal term make the clients' minimizers agree with the global one.

    y_1 = x,   g_k = grad f_i(y_k; batch k) - prox a_i + prox (y_k - x),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. K
    a_i <- a_i + x - y_{K+1}, for the clients of the round;   a = weighted mean over all clients of a_i
    q = mean over the cohort of g_1 + ... + g_K, plus a / client_lr;   the server optimizer steps along q with server_lr

prox is the paper's alpha. prox a_i replaces the paper's grad f_i at the client's last model, and tends to it. At a
fixed point the mean gradient and the mean of a_i are 0, so x is the minimizer of the mean loss for any server_lr. With
server_lr equal to client_lr and plain SGD on the server this is the paper's algorithm, next x = mean of y_{K+1} - a,
with local steps instead of an exact solution. Schedules do not scale a, because a is a change of models: when rates
decay, x still moves by server_lr / client_lr a. With prox 0 the clients' work is that of FedAvg, but the server adds
all past mean changes to each new one, like momentum 1; the limit is that of FedAvg.
Exchanges: one a round, the model down and a pseudo-gradient up. Clients store one model-sized tensor each, a_i, and the
server one, a.

Source: "Federated Learning Based on Dynamic Regularization" (Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama
2021), algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.work import LocalSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ROLES = {"client": "any"}
ONE_UPLOAD = True
PARTIAL_WORK = True
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_steps": {"choice": [1, 2, 4, 8, 16, 32]},
    "prox": {"float": [1e-3, 10.0], "log": True},
}
round_gradients = RoundGradients(per_step=1)


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of FedDyn."""

    client_lr: Tensor = tunable(low=0, low_open=True, doc="step size of the clients")
    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the pseudo-gradient; client_lr is the paper's")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", doc="gradients a round")
    prox: Tensor = tunable(
        low=0, unit="gradient / model", limit="0 is FedAvg's local work", doc="of the pull and of its correction"
    )


def stored(hyper: Hyper) -> tuple[str, ...]:
    """Client state: its accumulated update a_i (the dual variable)."""
    return ("gone",)


def init(hyper: Hyper, params: Tensor) -> dict[str, Tensor]:
    """Server memory before the first round: a, the mean of all a_i."""
    return {"mean_gone": torch.zeros_like(params)}


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    gone = cohort.stored["gone"]
    work = hyper.work(prox=hyper.prox, correction=-hyper.prox * gone)
    pseudo_gradients = cohort.local(state.params, work).pseudo_gradient
    mean = cohort.mean(pseudo_gradients)
    mean_gone = state.memory["mean_gone"] + cohort.share * hyper.client_lr * mean
    state = state.step(mean + mean_gone / hyper.client_lr)
    return state.remember(mean_gone=mean_gone).store(gone=gone + hyper.client_lr * pseudo_gradients)
