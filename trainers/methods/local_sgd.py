"""Local SGD: every client trains on its own, the server averages the models; both rates are one.

    y_1 = x,   g_k = grad f_i(y_k; batch k),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    x <- mean over the cohort of y_{K+1}

which is FedAvg with server_lr = client_lr: the sums g_1 + ... + g_K go back and the server steps along their mean q
with client_lr (plain SGD on the server; another server optimizer steps along q at the same rate). server_lr follows
client_lr through every schedule and cannot be given. client_lr above 0. local_steps at least 1: 1 is mini-batch SGD; or
local_epochs, with which every client passes so often over its own data. weight_decay at least 0: 0 is none. client
optimizer and clip_norm as in FedAvg. Exchanges: one a round, the model down and a pseudo-gradient up.

Source: "Local SGD Converges Fast and Communicates Little" (Stich 2019), in the form of
"Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), table 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.engine.local.client_optimizer import Clipped
from trainers.engine.local.loop import LocalWork
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ROLES = {"client": "any"}
TIED = True


@dataclass(frozen=True)
class Hyper(Clipped):
    """Hyperparameters of local SGD."""

    client_lr: Tensor = tunable(low=0, low_open=True, doc="step size of the clients, and of the server")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", limit="1 is mini-batch SGD", doc="gradients a round")
    local_epochs: int | None = tunable(
        None, low=1, unit="passes over a client's data", traced=False, doc="instead of local_steps"
    )
    weight_decay: Tensor = tunable(0.0, low=0, limit="0 is none", doc="L2, added to every local gradient")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """The state after one round.

    Args:
        hyper: traced fields (T, 1, 1).
        state: before the round; its server_lr is client_lr.
        cohort: the clients of the round.
    """
    work = LocalWork(
        hyper.client_lr,
        hyper.local_steps,
        local_epochs=hyper.local_epochs,
        weight_decay=hyper.weight_decay,
        optimizer=cohort.optimizer,
        clip_norm=hyper.clip_norm,
    )
    return state.step(cohort.mean(cohort.local(state.params, work).pseudo_gradient))
