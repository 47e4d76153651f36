"""Reptile: the meta-model moves towards the locally trained models; FedAvg with a separate server_lr.

    y_1 = x,   g_k = grad f_i(y_k; batch k),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    q = mean over the cohort of g_1 + ... + g_K;   the server optimizer steps along q with server_lr

Reptile's outer step size is server_lr / client_lr (delta_lr); 1 is FedAvg with model averaging. Proximal Reptile, with
a pull to x, is minibatch_prox. Exchanges: one a round, the model down and a pseudo-gradient up.

Source: "On First-Order Meta-Learning Algorithms" (Nichol, Achiam, Schulman 2018), in the form of
"Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), table 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainers.contracts import RoundGradients
from trainers.engine.local.work import LocalSteps
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State

ROLES = {"client": "any"}
ONE_UPLOAD = True
PARTIAL_WORK = True
FRAGMENTS = True
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True, "also": [0.0]},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_steps": {"choice": [1, 2, 4, 8, 16, 32]},
}
INACTIVE = {"client_lr": ({"local_steps": 1},)}
PSEUDO_GRADIENT = "sum"
round_gradients = RoundGradients(per_step=1)


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of Reptile."""


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    done = cohort.local(state.params, hyper.work())
    return state.step(cohort.mean(done))
