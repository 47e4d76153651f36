"""FedSGD: gradients at the broadcast model, no local training.

    q = mean over the cohort of g_1 + ... + g_K,   g_k = grad f_i(x; batch k),   K = local_steps
    the server optimizer steps along q with server_lr

local_steps at least 1: more is a larger batch, of which the gradients are summed (so server_lr acts K times). server_lr
above 0. weight_decay at least 0: 0 is none. clip_norm above 0: largest norm of a gradient, weight_decay included.
Exchanges: one a round, the model down and a gradient up.

Source: "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al. 2017), in the form
of "Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), table 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from trainers.engine.local.client_optimizer import Clipped
from trainers.engine.local.loop import LocalWork
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable


@dataclass(frozen=True)
class Hyper(Clipped):
    """Hyperparameters of FedSGD."""

    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the mean pseudo-gradient")
    local_steps: Tensor = tunable(
        1, kind="int", low=1, unit="steps", limit="1 is one gradient", doc="gradients a round"
    )
    weight_decay: Tensor = tunable(0.0, low=0, limit="0 is none", doc="L2, added to every local gradient")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """The state after one round.

    Args:
        hyper: traced fields (T, 1, 1).
        state: before the round.
        cohort: the clients of the round.
    """
    work = LocalWork(0 * hyper.server_lr, hyper.local_steps, weight_decay=hyper.weight_decay, clip_norm=hyper.clip_norm)
    return state.step(cohort.mean(cohort.local(state.params, work).pseudo_gradient))
