"""Mini-batch SGD: every client gives one gradient at the broadcast model, the server steps along their mean.

    q = mean over the cohort of grad f_i(x; one batch);   the server optimizer steps along q with server_lr

With one client a round it is SGD on that client's batches; with M clients and batches of B examples it is distributed
mini-batch SGD with batches of M B. It is FedSGD with local_steps 1, and any local method with one local step. server_lr
above 0. weight_decay at least 0: 0 is none. clip_norm above 0: largest norm of a gradient, weight_decay included.
Exchanges: one a round, the model down and a gradient up.

Source: "Optimal Distributed Online Prediction Using Mini-Batches" (Dekel et al. 2012), in the form of
"Convergence and Accuracy Trade-Offs in Federated Learning and Meta-Learning" (Charles, Konecny 2021), table 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.engine.local.client_optimizer import Clipped
from trainers.engine.local.loop import LocalWork
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable


@dataclass(frozen=True)
class Hyper(Clipped):
    """Hyperparameters of mini-batch SGD."""

    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the mean gradient")
    weight_decay: Tensor = tunable(0.0, low=0, limit="0 is none", doc="L2, added to every gradient")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """The state after one round.

    Args:
        hyper: traced fields (T, 1, 1).
        state: before the round.
        cohort: the clients of the round.
    """
    once = torch.ones_like(hyper.server_lr, dtype=torch.int64)
    work = LocalWork(0 * hyper.server_lr, once, weight_decay=hyper.weight_decay, clip_norm=hyper.clip_norm)
    return state.step(cohort.mean(cohort.local(state.params, work).pseudo_gradient))
