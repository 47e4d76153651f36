"""Local SGD: every client trains locally and the server averages the models, with one rate for both.

    y_1 = x,   g_k = grad f_i(y_k; batch k),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    x <- mean over the cohort of y_{K+1}

This is FedAvg with server_lr = client_lr: clients return the sums g_1 + ... + g_K, and the server steps along their
mean q with client_lr (averaging with plain SGD on the server; another server optimizer steps along q at the same rate).
server_lr follows client_lr through every schedule and cannot be given. Exchanges: one a round, the model down and a
pseudo-gradient up.

Source: "Local SGD Converges Fast and Communicates Little" (Stich 2019), in the form of
"Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), table 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.local.work import LocalSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable, withdrawn

ROLES = {"client": "any"}
ONE_UPLOAD = True
PARTIAL_WORK = True
FRAGMENTS = True
TIED = True
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True},
    "local_steps": {"choice": [1, 2, 4, 8, 16, 32]},
}
round_gradients = RoundGradients(per_step=1)


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of local SGD."""

    client_lr: Tensor = tunable(low=0, low_open=True, doc="step size of the clients, and of the server")
    server_lr: Tensor = withdrawn("it is client_lr")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    done = cohort.local(state.params, hyper.work())
    return state.step(cohort.mean(done))
