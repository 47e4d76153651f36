"""FedAvg: clients run local gradient descent from the broadcast model and return the sum of their gradients.

    y_1 = x,   g_k = grad f_i(y_k; batch k),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    q = mean over the cohort of g_1 + ... + g_K;   the server optimizer steps along q with server_lr

With server_lr equal to client_lr and plain SGD on the server, this is model averaging. local_epochs, instead of
local_steps, is the number of passes of every client over its own data. weight_decay is added to g_k, clip_norm bounds
g_k. A client optimizer other than sgd turns g_k into d_k: then y_{k+1} = y_k - client_lr d_k, and q is the mean of
d_1 + ... + d_K = (x - y_{K+1}) / client_lr, computed as a sum, so that it is exact for every client_lr. The memory of a
client optimizer starts anew every round, or stays with its client (client.state). Exchanges: one a round, the model
down and a pseudo-gradient up.

Source: "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al. 2017), in the form
of "Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), table 1.
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
    """Hyperparameters of FedAvg."""


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    done = cohort.local(state.params, hyper.work())
    return state.step(cohort.mean(done))
