"""FedProx: FedAvg with a pull of every local model to the broadcast one.

    y_1 = x,   g_k = grad f_i(y_k; batch k) + prox (y_k - x),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    q = mean over the cohort of g_1 + ... + g_K;   the server optimizer steps along q with server_lr

The gradients that are summed contain the pull. prox at least 0: 0 is FedAvg. client_lr at least 0: 0 is large-batch
SGD, whatever prox. server_lr above 0, local_steps at least 1 (1 is FedSGD) or local_epochs, and weight_decay as in
FedAvg, as are client optimizer and clip_norm (of gradients with the pull). Exchanges: one a round, the model down and a
pseudo-gradient up.

Source: "Federated Optimization in Heterogeneous Networks" (Li et al. 2020), in the form of
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


@dataclass(frozen=True)
class Hyper(Clipped):
    """Hyperparameters of FedProx."""

    client_lr: Tensor = tunable(low=0, limit="0 is large-batch SGD", doc="step size of the clients")
    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the mean pseudo-gradient")
    local_steps: Tensor = tunable(kind="int", low=1, unit="steps", limit="1 is FedSGD", doc="gradients a round")
    prox: Tensor = tunable(low=0, limit="0 is FedAvg", doc="pull to the broadcast model")
    local_epochs: int | None = tunable(
        None, low=1, unit="passes over a client's data", traced=False, doc="instead of local_steps"
    )
    weight_decay: Tensor = tunable(0.0, low=0, limit="0 is none", doc="L2, added to every local gradient")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """The state after one round.

    Args:
        hyper: traced fields (T, 1, 1).
        state: before the round.
        cohort: the clients of the round.
    """
    work = LocalWork(
        hyper.client_lr,
        hyper.local_steps,
        prox=hyper.prox,
        local_epochs=hyper.local_epochs,
        weight_decay=hyper.weight_decay,
        optimizer=cohort.optimizer,
        clip_norm=hyper.clip_norm,
    )
    return state.step(cohort.mean(cohort.local(state.params, work).pseudo_gradient))
