"""Alignment-aware linear scaling: one summed step that equals the mean sequential SGD over the cohort to second order.

    g_i = grad f_i(x; batch),   s = sum over the cohort of g_i
    q = sum over the cohort of grad f_i(x - (client_lr / 2) (s - g_i); the same batch)
    the server optimizer steps along q with server_lr

In SGD over the clients in random order a client finds, on average, half of the others' steps already taken. Sums are
the number of clients times the mean (weighted, where clients have weights). client_lr at least 0: the step size of the
sequential SGD that is imitated; 0 is linear scaling. server_lr above 0: equal to client_lr it is the paper's rule.
weight_decay at least 0: 0 is none; it is a part of f_i. With many clients or large steps the error is amplified, and
GradAlign or FedGA are better. clip_norm above 0: largest norm of a gradient of the second pass. Exchanges: two a round,
the model down and g_i up, then s down and a gradient up; each of the two gradients of a client counts. Nothing is
stored.

Source: "Implicit Gradient Alignment in Distributed and Federated Learning" (Dandi, Barba, Jaggi 2022), appendix A.2.
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
    """Hyperparameters of alignment-aware linear scaling."""

    client_lr: Tensor = tunable(low=0, limit="0 is linear scaling", doc="step size of the SGD that is imitated")
    server_lr: Tensor = tunable(low=0, low_open=True, doc="step size of every client's gradient in the sum")
    weight_decay: Tensor = tunable(0.0, low=0, limit="0 is none", doc="L2, added to every local gradient")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    """The state after one round.

    Args:
        hyper: traced fields (T, 1, 1).
        state: before the round.
        cohort: the clients of the round.
    """
    gradients = cohort.gradients(state.params) + hyper.weight_decay * state.params
    total = cohort.clients * cohort.mean(gradients)
    work = LocalWork(
        torch.zeros_like(hyper.client_lr),
        torch.ones_like(hyper.client_lr, dtype=torch.int64),
        displacement=hyper.client_lr / 2 * (gradients - total),
        weight_decay=hyper.weight_decay,
        clip_norm=hyper.clip_norm,
    )
    return state.step(cohort.clients * cohort.mean(cohort.local(state.params, work, down=[total]).pseudo_gradient))
