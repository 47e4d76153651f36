"""MetaMinibatchProx: a meta-model is pulled towards tasks that are each solved under a proximal term.

    y_1 = x,   g_k = grad f_i(y_k; batch k) + prox (y_k - x),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    q = mean over the cohort of g_1 + ... + g_K;   the server optimizer steps along q with server_lr

In the terms of meta-learning a client is a task, the local steps solve it approximately with (prox / 2) |y - x|^2
added, and server_lr / client_lr (delta_lr) is the outer step. In the terms of federated learning the same round is
FedProx. Exchanges: one a round, the model down and a pseudo-gradient up.

Source: "Efficient Meta Learning via Minibatch Proximal Update" (Zhou et al. 2019), in the form of
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
PARTIAL_WORK = True
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_steps": {"choice": [2, 4, 8, 16, 32]},
    "prox": {"float": [1e-3, 10.0], "log": True},
}
INACTIVE = {
    "client_lr": ({"local_steps": 1},),
    "prox": ({"local_steps": 1},),
}
round_gradients = RoundGradients(per_step=1)


@dataclass(frozen=True)
class Hyper(LocalSteps):
    """Hyperparameters of MetaMinibatchProx."""

    client_lr: Tensor = tunable(low=0, low_open=True, doc="step size of the clients")
    prox: Tensor = tunable(low=0, limit="0 is Reptile", doc="pull to the broadcast model")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    done = cohort.local(state.params, hyper.work(prox=hyper.prox))
    return state.step(cohort.mean(done))
