"""Lookahead: fast weights take local steps, slow weights follow part of the way; one client, nothing to average.

    y_1 = x,   g_k = grad f_i(y_k; batch k),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    q = g_1 + ... + g_K of the round's one client;   the server optimizer steps along q with server_lr

delta_lr = server_lr / client_lr is Lookahead's slow step size: x moves that share of the way to y_{K+1}; 1 keeps the
fast weights, which is plain SGD. A round has one client, so clients_per_round is 1 and may be left out; with more
clients the method is Reptile. Exchanges: one a round, the model down and a pseudo-gradient up.

Source: "Lookahead Optimizer: k steps forward, 1 step back" (Zhang et al. 2019), in the form of
"Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), table 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.work import LocalSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ROLES = {"client": "any"}
ONE_UPLOAD = True
FRAGMENTS = True
CLIENTS_PER_ROUND = 1
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True},
    "delta_lr": {"float": [0.1, 1.0], "log": True},
    "local_steps": {"choice": [2, 4, 8, 16, 32]},
}
INACTIVE = {"client_lr": ({"local_steps": 1},)}
round_gradients = RoundGradients(per_step=1)


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of Lookahead."""

    client_lr: Tensor = tunable(low=0, low_open=True, doc="step size of the fast weights")
    server_lr: Tensor = tunable(low=0, low_open=True, limit="client_lr is SGD", doc="multiplies the pseudo-gradient")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", limit="1 is SGD", doc="fast steps to a slow one")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    done = cohort.local(state.params, hyper.work())
    return state.step(cohort.mean(done))
