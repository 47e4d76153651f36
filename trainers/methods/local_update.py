"""Local update with any weights: the family that holds FedAvg, FedProx, Reptile, FOMAML and FedSGD.

    y_1 = x,   g_k = grad f_i(y_k; batch k) + prox (y_k - x),   y_{k+1} = y_k - client_lr g_k,   k = 1 .. K
    q = mean over the cohort of theta_1 g_1 + ... + theta_K g_K;   the server optimizer steps along q with server_lr

gradient_weights are (theta_1, ..., theta_K), each at least 0, the last above 0; all 1 is FedAvg (FedProx with prox
above 0), 0, ..., 0, 1 is FOMAML. local_steps is their number and need not be given. client_lr at least 0: 0 is
large-batch SGD. prox at least 0: 0 is no pull. server_lr above 0. weight_decay at least 0: 0 is none. clip_norm above
0: largest norm of a g_k, pull included. Exchanges: one a round, the model down and a pseudo-gradient up.

Source: "Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021),
algorithms 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.engine.local.client_optimizer import Clipped
from trainers.engine.local.loop import LocalWork
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable

ROLES = {"client": "none: its local steps are plain gradient descent"}


@dataclass(frozen=True)
class Hyper(Clipped):
    """Hyperparameters of local update."""

    client_lr: Tensor = tunable(low=0, limit="0 is large-batch SGD", doc="step size of the clients")
    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the mean pseudo-gradient")
    gradient_weights: Tensor = tunable(
        kind="floats",
        low=0,
        limit="all 1 is FedAvg; 0, ..., 0, 1 is FOMAML",
        doc="of the local gradients, the last above 0",
    )
    local_steps: Tensor = tunable(None, kind="int", low=1, unit="steps", doc="the number of gradient_weights")
    prox: Tensor = tunable(0.0, low=0, limit="0 is no pull", doc="pull to the broadcast model")
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
        gradient_weights=hyper.gradient_weights,
        prox=hyper.prox,
        weight_decay=hyper.weight_decay,
        clip_norm=hyper.clip_norm,
    )
    return state.step(cohort.mean(cohort.local(state.params, work).pseudo_gradient))
