"""Linear scaling: as many steps of SGD as the cohort has clients become one step of their summed gradients.

    q = sum over the cohort of grad f_i(x; batch);   the server optimizer steps along q with server_lr

The sum is the number of clients times their mean (weighted, where clients have weights). server_lr above 0: the step
size of the sequential SGD that is imitated, to first order in it; FedSGD with server_lr times the number of clients is
the same. weight_decay at least 0: 0 is none. clip_norm above 0: largest norm of a gradient, weight_decay included.
Exchanges: one a round, the model down and a gradient up. Nothing is stored.

Source: "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), appendix A.2,
after "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour" (Goyal et al. 2017).
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
    """Hyperparameters of linear scaling."""

    server_lr: Tensor = tunable(low=0, low_open=True, doc="step size of every client's gradient in the sum")
    weight_decay: Tensor = tunable(0.0, low=0, limit="0 is none", doc="L2, added to every local gradient")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """The state after one round.

    Args:
        hyper: traced fields (T, 1, 1).
        state: before the round.
        cohort: the clients of the round.
    """
    one = torch.ones_like(hyper.server_lr, dtype=torch.int64)
    work = LocalWork(torch.zeros_like(hyper.server_lr), one, weight_decay=hyper.weight_decay, clip_norm=hyper.clip_norm)
    return state.step(cohort.clients * cohort.mean(cohort.local(state.params, work).pseudo_gradient))
