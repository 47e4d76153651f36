"""Pooled training: the oracle of mixed federated learning, SGD on the clients' and the server's data in one place.

    g_k = federated_weight (mean over the cohort of grad f_i(y_k; batch k)) + central_weight grad f_c(y_k; batch k)
    y_1 = x,   y_{k+1} = y_k - client_lr g_k,   k = 1 .. local_steps
    the server optimizer steps along q = g_1 + ... + g_K with server_lr

for the loss federated_weight (mean of f_i) + central_weight f_c. The limit is its minimizer. This is the reference for
other methods: what mixed federated learning could reach if data could be moved. With server_lr equal to client_lr
(delta_lr 1) and plain SGD on the server, a round is K steps of SGD on all data together.

The weights sum to 1, and are both 1/2 by default. With one local step the method equals parallel training and one-way
transfer. central_batch_size defaults to clients_per_round batch_size. weight_decay is a part of f_i. train_loss and the
task's metrics are those of the clients' losses.
Exchanges: one a local step, the model down and a gradient up: the cost of the same steps if the data were not moved.
Nothing is stored.

Source: "Mixed Federated Learning: Joint Decentralized and Centralized Learning" (Augenstein et al. 2022), the oracle of
section 5; the exchanges are an interpretation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from trainers.contracts import RoundGradients
from trainers.engine.rounds.central_branch import MixedLoss
from trainers.engine.rounds.cohort import Cohort
from trainers.engine.rounds.server_state import State
from trainers.hyperparameters import tunable, withdrawn
from trainers.trial import mixed_values as mixing

CENTRAL = True
complete = mixing.complete
SPACE = {
    "client_lr": {"float": [1e-3, 10.0], "log": True},
    "server_lr": {"float": [1e-3, 10.0], "log": True, "points": 9},
    "local_steps": {"choice": [1, 2, 4, 8, 16, 32]},
}
INACTIVE = {"client_lr": ({"local_steps": 1},)}
round_gradients = RoundGradients(per_step=1)


@dataclass(frozen=True)
class Hyper(MixedLoss):
    """Hyperparameters of pooled training."""

    client_lr: Tensor = tunable(low=0, limit="0 is a larger batch", doc="step size within a round")
    server_lr: Tensor = tunable(low=0, low_open=True, doc="multiplies the sum of a round's gradients")
    federated_weight: Tensor = tunable(
        None,
        low=0,
        high=1,
        limit="1 leaves the server's data out",
        doc="of the clients' loss; null is 1 - central_weight, else 1/2",
    )
    central_weight: Tensor = tunable(None, low=0, high=1, doc="of the server's own loss; null is 1 - federated_weight")
    local_epochs: int | None = withdrawn("all clients take every step together")
    clip_norm: Tensor | None = withdrawn("a step is along the gradient of all data, not of one client's")


def train_round(hyper: Hyper, state: State, cohort: Cohort) -> State:
    steps = hyper.local_steps.cpu().numpy().reshape(-1)
    params, total = state.params, torch.zeros_like(state.params)
    for number in range(int(np.where(cohort.central.alive, steps, 0).max(initial=0))):
        taking = steps > number
        mean = cohort.mean(cohort.step_gradients(params, number, taking)) + hyper.weight_decay * params
        gradient = hyper.federated_weight * mean
        central = cohort.central.step_gradient(params, number, hyper.central_weight, hyper.central_batch_size, taking)
        rows = torch.as_tensor(taking, device=params.device).view(-1, 1, 1)
        total = torch.where(rows, total + gradient + central, total)
        params = state.params - hyper.client_lr * total
    return state.step(total)
